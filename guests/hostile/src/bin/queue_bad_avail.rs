//! Lets the available ring's index jump further than the ring is long, and backwards. The device needs a reset, or uses
//! no more than the ring has.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, Findings, RawQueue, begin};
use blockyard_protocol::layout::QUEUE_SIZE;
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut findings = Findings::new(&config);
    for (what, index) in [("jump", 0x8000), ("one too many", QUEUE_SIZE + 1), ("back", u16::MAX)] {
        findings.attempt(what, || {
            let queue = RawQueue::new(&config, "input");
            queue.request(0, 0, DATA, 512);
            queue.set_available_index(index)
        });
    }
    findings.report(GuestOperation::Read);
}
