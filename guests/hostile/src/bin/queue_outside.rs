//! Offers requests whose buffers lie outside memory, in part or as a whole. Each fails with status 1 where the status
//! byte itself is inside; where it is not, the chain is used without one, or the device needs a reset.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, Findings, NEXT, RawQueue, WRITE, begin};
use blockyard_protocol::layout::VIRTIO_MMIO;
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut findings = Findings::new(&config);
    let end = config.memory_size;
    for (what, address, length) in [
        ("end", end, 512),
        ("across", end - 256, 512),
        ("device", VIRTIO_MMIO.start, 512),
        ("far", 1 << 52, 512),
        ("wrap", u64::MAX - 255, 512),
    ] {
        findings.attempt(what, || {
            let queue = RawQueue::new(&config, "input");
            queue.request(0, 0, address, length);
            queue.offer(0)
        });
    }
    findings.attempt("header", || {
        let queue = RawQueue::new(&config, "input");
        queue.request(0, 0, DATA, 512);
        queue.descriptor(0, end, 16, NEXT, 1);
        queue.offer(0)
    });
    findings.attempt("status byte", || {
        let queue = RawQueue::new(&config, "input");
        queue.request(0, 0, DATA, 512);
        queue.descriptor(2, end, 1, WRITE, 0);
        queue.offer(0)
    });
    findings.report(GuestOperation::Read);
}
