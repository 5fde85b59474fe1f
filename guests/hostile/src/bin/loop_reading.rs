//! Reads the first sector again and again, and reports nothing. The VMM's timeout ends it: requests are no
//! progress.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{DATA, begin, bring_up};
use blockyard_guest_runtime::block::{ControlBlock, Operation};
use blockyard_virtqueue::Buffer;

blockyard_guest_runtime::entry!(main);

fn main() {
    let config = begin();
    let mut input = bring_up(&config, "input");
    let block = ControlBlock::new(0);
    loop {
        let data = Buffer { address: DATA, length: input.block_bytes, writable: true };
        input.add(0, 0, block.prepare(Operation::Read, 0, Some(data)));
        input.publish();
        while let Ok(None) = input.pop_used(0) {
            core::hint::spin_loop();
        }
    }
}
