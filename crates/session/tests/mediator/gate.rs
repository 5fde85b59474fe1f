//! What the copying multiplexer has of the mediator: offers and a gate.

use crate::rig::Yard;
use blockyard_block::explain;
use blockyard_block::partition_table::TableChoice;
use blockyard_session::mediator::{Admission, Gate, OfferError, offers};
use std::os::unix::net::UnixStream;

#[test]
fn a_copier_admits_clients_by_itself() {
    let yard = Yard::new();
    let exports = [yard.export(2, ",rw,weight=7"), yard.export(5, "")];
    let found = offers(&*yard.disk(), TableChoice::Auto, &exports, false).unwrap();
    assert_eq!(found.warnings, []);
    let mut gate = Gate::open(found.offers).unwrap();
    assert_eq!(gate.polled().0.len(), 2);
    let offer = gate.offer(0);
    assert_eq!((offer.number, offer.range_bytes.clone(), offer.read_only), (2, 6144 * 512..8192 * 512, false));
    assert_eq!(offer.weight.get(), 7);
    assert!(matches!(gate.admit(0), Admission::Nobody));
    let _first = UnixStream::connect(yard.socket(2)).unwrap();
    assert!(matches!(gate.admit(0), Admission::Client(_)));
    assert!(gate.is_taken(0) && !gate.is_taken(1));
    let _second = UnixStream::connect(yard.socket(2)).unwrap();
    assert!(matches!(gate.admit(0), Admission::TurnedAway(_)));
    gate.release(0);
    let _third = UnixStream::connect(yard.socket(2)).unwrap();
    assert!(matches!(gate.admit(0), Admission::Client(_)));
    drop(gate);
    assert!(!yard.has_socket(2) && !yard.has_socket(5));
}

#[test]
fn a_socket_that_took_the_place_of_ours_is_left_alone() {
    let yard = Yard::new();
    let found = offers(&*yard.disk(), TableChoice::Auto, &[yard.export(1, "")], false).unwrap();
    let gate = Gate::open(found.offers).unwrap();
    // Made before the old one is gone, so that it is another file for sure.
    let _other = std::os::unix::net::UnixListener::bind(yard.path("other")).unwrap();
    std::fs::rename(yard.path("other"), yard.socket(1)).unwrap();
    drop(gate);
    assert!(yard.has_socket(1));
}

#[test]
fn a_disk_that_cannot_be_written_has_no_offers_for_writing() {
    let yard = Yard::new();
    let offered = |words| offers(&*yard.disk(), TableChoice::Auto, &[yard.export(1, words)], true);
    let error = offered(",rw").unwrap_err().to_string();
    assert_eq!(error, "partition 1 cannot be written: the disk is read-only");
    assert!(offered("").is_ok());
}

#[test]
fn too_many_exports_are_an_error() {
    let yard = Yard::new();
    let export = |index: u32| format!("1=/tmp/{index}.sock").parse().unwrap();
    let exports: Vec<_> = (0..129).map(export).collect();
    let error = offers(&*yard.disk(), TableChoice::Auto, &exports, false).unwrap_err();
    assert!(matches!(error, OfferError::TooMany(129)), "{error}");
}

#[test]
fn why_there_is_no_telling_which_partitions_there_are_is_said_once() {
    let yard = Yard::new();
    let error = offers(&*yard.disk(), TableChoice::Gpt, &[yard.export(1, "")], false).unwrap_err();
    assert_eq!(explain(&error), "the disk has no GPT");
}
