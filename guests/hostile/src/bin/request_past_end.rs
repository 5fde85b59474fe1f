//! Reads and writes past the ends of the disks, in part or as a whole. Each fails with status 1, and no file is longer
//! than it was.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, Findings, RawQueue, begin, bring_up, sectors};
use blockyard_guest_runtime::shared::words64;
use blockyard_protocol::messages::GuestOperation;
use core::sync::atomic::Ordering::Relaxed;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut findings = Findings::new(&config);
    let sectors = sectors(&bring_up(&config, "input"));
    for (what, sector, length) in [
        ("end", sectors, 65536),
        ("across", sectors.saturating_sub(1), 131_072),
        ("far", 1 << 54, 65536),
        ("wrap", u64::MAX, 65536),
    ] {
        findings.attempt(what, || {
            let queue = RawQueue::new(&config, "input");
            queue.request(0, sector, DATA, length);
            queue.offer(0)
        });
    }
    for (what, operation, length, segment) in [
        ("write", 1, 65536, [0; 2]),
        ("write wrap", 1, 65536, [0; 2]),
        ("write zeroes", 13, 16, [0, u64::from(u32::MAX)]),
        ("write zeroes wrap", 13, 16, [u64::MAX, 8]),
    ] {
        findings.attempt(what, || {
            let queue = RawQueue::new(&config, "output");
            let sector = if what == "write wrap" { u64::MAX - 7 } else { sectors };
            queue.request(operation, sector, DATA, length);
            for (word, value) in words64(DATA, 2).iter().zip(segment) {
                word.store(value, Relaxed);
            }
            queue.offer(0)
        });
    }
    findings.report(GuestOperation::Read);
}
