//! Writes everything everywhere in both devices' registers, reads it all back, in every order of bring-up, then rings
//! doorbells of virtqueues that do not exist. The VMM takes it; the guest then reports that an honest bring-up works.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, Findings, RawQueue, begin, registers};
use blockyard_protocol::layout::VIRTIO_MMIO_STRIDE;
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    for name in ["input", "output"] {
        let registers = registers(&config, name);
        for value in [0, 1, 3, 4, 0xf, 0x7f, 0x8000, u32::MAX] {
            for offset in (0..VIRTIO_MMIO_STRIDE.min(0x200)).step_by(4) {
                registers.write(offset, value);
                registers.read(offset);
            }
        }
        for queue in [1, 4, 255, 0xffff, u32::MAX] {
            registers.notify(queue);
        }
        registers.config8(0xeff);
        registers.config16(0xefe);
    }
    let queue = RawQueue::new(&config, "input");
    queue.request(0, 0, DATA, 512);
    let mut findings = Findings::new();
    findings.note("afterwards", queue.offer(0));
    findings.report(GuestOperation::Probe);
}
