//! Settings that make no sense are refused by name before anything is done.

use crate::scripted_disk::ScriptedDisk;
use crate::{KIB, refused};
use blockyard_bench::disk::{AccessOrder, Operations, Start, Workload, replay};
use std::num::NonZeroU64;
use std::time::Duration;

fn disk() -> ScriptedDisk {
    ScriptedDisk::new(1024 * KIB)
}

#[test]
fn whatever_is_wrong_is_named() {
    let base = Workload::default;
    let mixed = |reads_percent| Operations::Mixed { reads_percent };
    for (setting, workload) in [
        ("size", Workload { size_bytes: Some(0), ..base() }),
        ("size", Workload { size_bytes: Some(1000), ..base() }),
        ("size", Workload { size_bytes: Some(128 << 20), ..base() }),
        ("size", Workload { size_bytes: Some(8192), length_bytes: Some(4096), access: AccessOrder::Random, ..base() }),
        ("start", Workload { start: Start::FromStart(1024 * KIB), ..base() }),
        ("start", Workload { start: Start::FromStart(100), ..base() }),
        ("start", Workload { start: Start::FromEnd(0), ..base() }),
        ("start", Workload { start: Start::FromEnd(u64::MAX), ..base() }),
        ("length", Workload { length_bytes: Some(0), ..base() }),
        ("length", Workload { length_bytes: Some(1000), ..base() }),
        ("length", Workload { length_bytes: Some(u64::MAX - 511), ..base() }),
        ("length", Workload { start: Start::FromStart(4096), length_bytes: Some(1024 * KIB), ..base() }),
        ("total", Workload { total_bytes: Some(0), ..base() }),
        ("batch", Workload { batch: 0, ..base() }),
        ("batch", Workload { batch: 1025, ..base() }),
        ("batch", Workload { batch: 1024, size_bytes: Some(64 << 20), ..base() }),
        ("jobs", Workload { jobs: 0, ..base() }),
        ("jobs", Workload { jobs: 257, ..base() }),
        ("mix", Workload { operations: mixed(101), ..base() }),
        ("runtime", Workload { runtime: Some(Duration::ZERO), ..base() }),
        ("flush-every", Workload { flush_every: NonZeroU64::new(1), ..base() }),
        ("io-buffer", Workload { buffer_bytes: Some(4095), ..base() }),
        ("io-buffer", Workload { buffer_bytes: Some(8192), jobs: 3, ..base() }),
        ("io-buffer", Workload { buffer_bytes: Some(u64::MAX), ..base() }),
    ] {
        assert_eq!(refused(&disk(), &workload).setting, setting, "{workload:?}");
    }
}

#[test]
fn a_read_only_disk_is_not_written() {
    let mut disk = disk();
    disk.geometry.read_only = true;
    for (setting, operations) in [("write", Operations::Write), ("mix", Operations::Mixed { reads_percent: 100 })] {
        let error = refused(&disk, &Workload { operations, ..Workload::default() });
        assert!(error.setting == setting && error.problem.contains("read-only"), "{error}");
    }
    assert_eq!(disk.take_seen(), []);
}

#[test]
fn sizes_suit_the_disks_blocks() {
    let mut disk = disk();
    disk.geometry.logical_block_bytes = 8192;
    assert_eq!(refused(&disk, &Workload { size_bytes: Some(4096), ..Workload::default() }).setting, "size");
    assert_eq!(crate::report(&disk, &Workload::default()).requests, 128);
}

#[test]
fn a_replay_says_everything_itself() {
    let steps = replay::parse("read 0 512".as_bytes()).unwrap();
    let base = || Workload { access: AccessOrder::Replay(steps.clone().into()), ..Workload::default() };
    for (setting, workload) in [
        ("size", Workload { size_bytes: Some(512), ..base() }),
        ("start", Workload { start: Start::FromStart(512), ..base() }),
        ("length", Workload { length_bytes: Some(512), ..base() }),
        ("total", Workload { total_bytes: Some(512), ..base() }),
        ("jobs", Workload { jobs: 2, ..base() }),
        ("mix", Workload { operations: Operations::Mixed { reads_percent: 50 }, ..base() }),
        ("verify", Workload { verify: true, ..base() }),
    ] {
        assert_eq!(refused(&disk(), &workload).setting, setting);
    }
}

#[test]
fn a_disk_too_large_to_keep_in_mind_is_not_verified() {
    let mut disk = disk();
    disk.geometry.capacity_bytes = 1 << 50;
    let error = refused(&disk, &Workload { verify: true, ..Workload::default() });
    assert!(error.setting == "verify" && error.problem.contains("--length"), "{error}");
}
