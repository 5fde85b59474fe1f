//! Sends a frame that is longer than any may be. The VMM says so, without taking it all.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;
use blockyard_guest_runtime::port;
use blockyard_protocol::layout::COM1_PORT;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    port::write_bytes(COM1_PORT, &[0xff, 0xff]);
    for _ in 0..1024 {
        port::write_bytes(COM1_PORT, &[0x5a; 64]);
    }
}
