//! Says that it is done with another number of bytes than it should copy. The VMM says so.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;
use blockyard_guest_runtime::serial;
use blockyard_protocol::messages::{Complete, GuestMessage};

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    serial::send(&GuestMessage::Complete(Complete { bytes: config.length.wrapping_add(1), requests: 1 }));
}
