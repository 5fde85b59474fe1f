//! Sends text without end, and without a line's end. The VMM keeps no more than a line of it, and its timeout ends the
//! guest.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;
use blockyard_guest_runtime::port;
use blockyard_protocol::layout::COM2_PORT;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    loop {
        port::write_bytes(COM2_PORT, &[b'x'; 4096]);
    }
}
