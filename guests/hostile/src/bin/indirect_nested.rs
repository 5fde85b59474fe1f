//! Offers indirect tables that may not be: one in another, one followed by a descriptor, lengths that are none, one
//! outside memory, one that is followed by itself, one with a next outside. The device needs a reset, or uses the chain
//! with an error.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{
    DATA, Findings, HEADER, INDIRECT, NEXT, RawQueue, STATUS, TABLE, WRITE, begin, table_descriptor,
};
use blockyard_protocol::messages::GuestOperation;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut findings = Findings::new(&config);
    let mut attempt = |what, length, flags, prepare: &dyn Fn(&RawQueue)| {
        findings.attempt(what, || {
            let queue = RawQueue::new(&config, "input");
            queue.request(0, 0, DATA, 512);
            table_descriptor(0, HEADER, 16, NEXT, 1);
            table_descriptor(1, DATA, 512, NEXT | WRITE, 2);
            table_descriptor(2, STATUS, 1, WRITE, 0);
            queue.descriptor(0, TABLE, length, flags, 1);
            prepare(&queue);
            queue.offer(0)
        });
    };
    attempt("good", 48, INDIRECT, &|_| {});
    attempt("nested", 48, INDIRECT, &|_| table_descriptor(1, TABLE, 48, INDIRECT, 0));
    attempt("followed", 48, INDIRECT | NEXT, &|_| {});
    attempt("odd", 47, INDIRECT, &|_| {});
    attempt("empty", 0, INDIRECT, &|_| {});
    attempt("huge", 0xffff_fff0, INDIRECT, &|_| {});
    attempt("outside", 48, INDIRECT, &|queue| queue.descriptor(0, 1 << 40, 48, INDIRECT, 0));
    attempt("round", 48, INDIRECT, &|_| table_descriptor(2, STATUS, 1, NEXT | WRITE, 0));
    attempt("next outside", 48, INDIRECT, &|_| table_descriptor(1, DATA, 512, NEXT | WRITE, 3));
    findings.report(GuestOperation::Read);
}
