//! Says that it has copied everything, and has copied nothing. The VMM knows better: nothing was written. Only an input
//! that is all holes could be copied so.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;
use blockyard_guest_runtime::serial;
use blockyard_protocol::messages::{Complete, GuestMessage};

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    serial::send(&GuestMessage::Complete(Complete { bytes: config.length, requests: 0 }));
}
