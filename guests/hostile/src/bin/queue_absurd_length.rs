//! Offers requests with absurd lengths: almost 4 GiB, several times 4 GiB in one chain, nothing, half a sector. Each
//! fails with status 1, without much work.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, Findings, NEXT, RawQueue, STATUS, WRITE, begin};
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut findings = Findings::new(&config);
    for (what, length) in [("4 GiB", u32::MAX), ("2 GiB", 0x8000_0000), ("nothing", 0), ("half", 256), ("odd", 513)] {
        findings.attempt(what, || {
            let queue = RawQueue::new(&config, "input");
            queue.request(0, 0, DATA, length);
            queue.offer(0)
        });
    }
    findings.attempt("many", || {
        let queue = RawQueue::new(&config, "input");
        queue.request(0, 0, DATA, u32::MAX);
        for index in 1..100 {
            queue.descriptor(index, DATA, u32::MAX, NEXT | WRITE, index + 1);
        }
        queue.descriptor(100, STATUS, 1, WRITE, 0);
        queue.offer(0)
    });
    findings.report(GuestOperation::Read);
}
