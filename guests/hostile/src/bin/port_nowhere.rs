//! Uses ports that nothing listens to. The VMM says so, or answers as an empty bus does; in that case the guest reports
//! what it read.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{begin, report};
use blockyard_guest_runtime::port;
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    port::write8(0x1234, 1);
    port::write_bytes(0x4321, &[0; 64]);
    let value = port::read32(0xcf8);
    report(GuestOperation::Read, 0, format_args!("read {value:#x}"));
}
