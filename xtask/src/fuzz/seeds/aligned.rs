//! Requests that do not fit a disk: crates/block/tests/aligned/model.rs says what the bytes are.

use super::{Corpus, Seed};

pub(super) fn corpora() -> [Corpus; 1] {
    [Corpus {
        source: "crates/block/tests/aligned/model.rs",
        function: "random_requests_do_what_a_vector_does_whatever_the_disk_demands",
        modules: "model",
        seeds: requests(),
    }]
}

const ACTIONS: u16 = 7;
const DRAIN: u8 = 6;

/// A disk of blocks of 512 << `block` bytes; the other demands by their place in the target's tables.
fn demands(block: u8, transfer: u8, segments: u8, memory: u8, depth: u8) -> Seed {
    [block, transfer, segments, memory, depth].into_iter().fold(Seed::default(), Seed::u8).u64(1)
}

fn read(seed: Seed, offset: u32, length: u16) -> Seed {
    seed.choice(0, ACTIONS).u32(offset).u16(length).u8(1).u8(2)
}

fn write(seed: Seed, offset: u32, length: u16, force_unit_access: bool) -> Seed {
    seed.choice(1, ACTIONS).u32(offset).u16(length).u8(1).u8(2).u8(0x5a).bool(force_unit_access)
}

fn zero(seed: Seed, offset: u32, length: u16, may_unmap: bool) -> Seed {
    seed.choice(3, ACTIONS).u32(offset).u16(length).bool(may_unmap)
}

fn requests() -> Vec<(&'static str, Seed)> {
    let (roomy, strict) = (demands(3, 0, 0, 0, 2), demands(3, 1, 1, 3, 0));
    let within = |seed: Seed| write(write(seed.length(2), 512, 512, false), 1024, 512, false);
    vec![
        ("two-writes-within-a-block", within(roomy.clone())),
        ("two-writes-within-a-block-one-at-a-time", within(strict.clone())),
        ("a-write-over-the-edge-of-a-block", write(strict.clone().length(1), 3584, 1024, true)),
        ("a-write-and-a-read-of-its-block", read(write(roomy.clone().length(2), 512, 512, false), 0, 4096)),
        ("zeroes-and-a-write-within-a-block", write(zero(roomy.length(2), 512, 2048, true), 1024, 512, false)),
        ("more-than-the-disk-takes-at-once", read(strict.length(2), 512, 60_000).choice(DRAIN, ACTIONS)),
    ]
}
