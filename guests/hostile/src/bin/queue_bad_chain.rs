//! Offers chains that are no requests: no status byte, a header that the device should write, a header too short, one
//! in pieces (which is allowed: status 0), an unknown type (status 2), and a head or a next that is no descriptor.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, Findings, HEADER, NEXT, RawQueue, WRITE, begin};
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut findings = Findings::new(&config);
    let mut attempt = |what, head, prepare: &dyn Fn(&RawQueue)| {
        findings.attempt(what, || {
            let queue = RawQueue::new(&config, "input");
            queue.request(0, 0, DATA, 512);
            prepare(&queue);
            queue.offer(head)
        });
    };
    attempt("no status", 0, &|queue| queue.descriptor(0, HEADER, 16, 0, 0));
    attempt("writable header", 0, &|queue| queue.descriptor(0, HEADER, 16, NEXT | WRITE, 1));
    attempt("short header", 0, &|queue| queue.descriptor(0, HEADER, 8, NEXT, 1));
    attempt("header in pieces", 0, &|queue| {
        queue.descriptor(0, HEADER, 5, NEXT, 10);
        queue.descriptor(10, HEADER + 5, 11, NEXT, 1);
    });
    attempt("unknown type", 0, &|queue| queue.header(0x1234, 0));
    attempt("next outside", 0, &|queue| queue.descriptor(1, DATA, 512, NEXT | WRITE, 0xfff0));
    attempt("head outside", 0xfff0, &|_| {});
    findings.report(GuestOperation::Read);
}
