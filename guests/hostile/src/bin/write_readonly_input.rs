//! Writes to the input, makes it zero, and discards it. The device says status 1 (or 2 to what it does not offer), and
//! the file is as it was.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, Findings, RawQueue, begin};
use blockyard_guest_runtime::shared::words64;
use blockyard_protocol::messages::GuestOperation;
use core::sync::atomic::Ordering::Relaxed;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut findings = Findings::new(&config);
    for (what, operation, length) in [("write", 1, 512), ("write zeroes", 13, 16), ("discard", 11, 16)] {
        findings.attempt(what, || {
            let queue = RawQueue::new(&config, "input");
            queue.request(operation, 0, DATA, length);
            // As a segment: from sector 0, one sector.
            words64(DATA, 2)[1].store(1, Relaxed);
            queue.offer(0)
        });
    }
    findings.report(GuestOperation::Write);
}
