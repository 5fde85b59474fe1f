//! Reads and writes addresses that guests can reach and where neither memory nor a device is. The VMM says so, or
//! answers as an empty bus does; in that case the guest reports what it read.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{begin, report};
use blockyard_guest_runtime::mmio;
use blockyard_protocol::layout::VIRTIO_MMIO;
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    let address = VIRTIO_MMIO.end + 0x1000;
    // SAFETY: neither this program nor a device is there.
    let value = unsafe {
        mmio::write32(address, 1);
        mmio::read32(address)
    };
    report(GuestOperation::Read, 0, format_args!("read {value:#x}"));
}
