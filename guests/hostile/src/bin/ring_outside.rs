//! Puts the parts of a virtqueue outside memory, or where they are not aligned, and notifies. The device does not take
//! it, or needs a reset.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, Findings, RawQueue, begin, negotiate};
use blockyard_guest_runtime::shared::QueueAddresses;
use blockyard_guest_runtime::virtio_mmio::register;
use blockyard_protocol::layout::{INPUT_VIRTQUEUES, QUEUE_SIZE, VIRTIO_MMIO};
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut findings = Findings::new(&config);
    let good = QueueAddresses::new(INPUT_VIRTQUEUES, 0);
    let end = config.memory_size;
    for (what, addresses) in [
        ("descriptors", QueueAddresses { descriptors: end, ..good }),
        ("available", QueueAddresses { available: end - 4, ..good }),
        ("used", QueueAddresses { used: end - 16, ..good }),
        ("far", QueueAddresses { used: 1 << 60, ..good }),
        ("wrap", QueueAddresses { descriptors: u64::MAX - 15, ..good }),
        ("device", QueueAddresses { available: VIRTIO_MMIO.start, ..good }),
        ("odd", QueueAddresses { available: good.available + 1, ..good }),
    ] {
        findings.attempt(what, || {
            let queue = RawQueue::new(&config, "input");
            let registers = queue.registers();
            negotiate(registers);
            registers.write(register::QUEUE_SELECT, 0);
            registers.write_queue(u32::from(QUEUE_SIZE), &addresses);
            registers.start();
            queue.request(0, 0, DATA, 512);
            queue.offer(0)
        });
    }
    findings.report(GuestOperation::Probe);
}
