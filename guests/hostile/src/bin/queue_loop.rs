//! Offers chains that never end: a descriptor that is followed by itself, and two that follow each other. The device
//! counts to the queue's size at most and gives up: it needs a reset, or uses the chain with an error.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, Findings, HEADER, NEXT, RawQueue, STATUS, WRITE, begin};
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut findings = Findings::new(&config);
    findings.attempt("itself", || {
        let queue = RawQueue::new(&config, "input");
        queue.header(0, 0);
        queue.descriptor(0, HEADER, 16, NEXT, 0);
        queue.offer(0)
    });
    findings.attempt("data", || {
        let queue = RawQueue::new(&config, "input");
        queue.request(0, 0, DATA, 512);
        queue.descriptor(1, DATA, 512, NEXT | WRITE, 1);
        queue.offer(0)
    });
    findings.attempt("round", || {
        let queue = RawQueue::new(&config, "input");
        queue.request(0, 0, DATA, 512);
        queue.descriptor(2, STATUS, 1, NEXT | WRITE, 0);
        queue.offer(0)
    });
    findings.report(GuestOperation::Read);
}
