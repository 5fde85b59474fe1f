//! Gives a virtqueue sizes that none can have, and uses it. The device does not take it, or needs a reset: there is no
//! answer to what is in it.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, Findings, RawQueue, begin, negotiate};
use blockyard_guest_runtime::shared::QueueAddresses;
use blockyard_guest_runtime::virtio_mmio::register;
use blockyard_protocol::layout::INPUT_VIRTQUEUES;
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut findings = Findings::new(&config);
    for (what, size) in [("3", 3), ("0", 0), ("4096", 4096), ("65536", 65536), ("2 to 31", 1 << 31)] {
        findings.attempt(what, || {
            let queue = RawQueue::new(&config, "input");
            let registers = queue.registers();
            negotiate(registers);
            registers.write(register::QUEUE_SELECT, 0);
            registers.write_queue(size, &QueueAddresses::new(INPUT_VIRTQUEUES, 0));
            registers.start();
            queue.request(0, 0, DATA, 512);
            queue.offer(0)
        });
    }
    findings.report(GuestOperation::Probe);
}
