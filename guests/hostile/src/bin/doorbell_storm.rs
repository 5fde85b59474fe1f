//! Rings doorbells as fast as it can while it resets the device and sets it up again. The VMM takes it; the guest then
//! reports that an honest bring-up works.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, Findings, RawQueue, begin};
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    for _ in 0..200 {
        let queue = RawQueue::new(&config, "input");
        queue.request(0, 0, DATA, 512);
        for _ in 0..100 {
            queue.registers().notify(0);
        }
    }
    let mut findings = Findings::new(&config);
    findings.attempt("afterwards", || {
        let queue = RawQueue::new(&config, "input");
        queue.request(0, 0, DATA, 512);
        queue.offer(0)
    });
    findings.report(GuestOperation::Probe);
}
