//! Sends a frame of no bytes. The VMM says so.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;
use blockyard_guest_runtime::port;
use blockyard_protocol::layout::COM1_PORT;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    port::write_bytes(COM1_PORT, &[0, 0]);
}
