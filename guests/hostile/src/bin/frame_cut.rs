//! Halts in the middle of a frame. The VMM says that the guest stopped before it was done.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;
use blockyard_guest_runtime::port;
use blockyard_protocol::layout::COM1_PORT;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    port::write_bytes(COM1_PORT, &[40, 0, 0x22]);
}
