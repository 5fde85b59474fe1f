//! Seeds of the image formats' targets.

use super::{Corpus, Seed};

pub(super) fn corpora() -> Vec<Corpus> {
    vec![
        Corpus {
            source: "crates/block/src/formats/qcow2/tests/fuzz.rs",
            function: "fuzz_a_spoiled_image_neither_panics_nor_hangs",
            modules: "formats__qcow2__tests__fuzz",
            seeds: spoiled_images(),
        },
        Corpus {
            source: "crates/block/src/formats/qcow2/tests/fuzz.rs",
            function: "fuzz_what_the_checker_calls_clean_opens",
            modules: "formats__qcow2__tests__fuzz",
            seeds: spoiled_images(),
        },
        Corpus {
            source: "crates/block/src/formats/vmdk/tests.rs",
            function: "fuzz_a_descriptor_is_understood_or_refused_but_never_half",
            modules: "formats__vmdk__tests",
            seeds: descriptors(),
        },
    ]
}

/// Variants of the target's `Spoil`.
const SPOILS: u16 = 4;

fn entry(byte: u16, value: u64) -> Seed {
    Seed::default().length(1).choice(1, SPOILS).u16(byte / 8).u64(value)
}

fn spoiled_images() -> Vec<(&'static str, Seed)> {
    vec![
        ("good", Seed::default().length(0)),
        ("cut_off_in_the_header", Seed::default().length(1).choice(3, SPOILS).u16(80)),
        ("cut_off_in_the_tables", Seed::default().length(1).choice(3, SPOILS).u16(2048)),
        ("l1_table_far_away", entry(40, 1 << 55)),
        ("l1_table_on_the_header", entry(40, 0)),
        ("refcount_table_far_away", entry(48, 1 << 55)),
        ("size_of_the_largest_disk", entry(24, 1 << 56)),
        ("marked_dirty", entry(72, 1)),
    ]
}

/// Variants of the target's `Line`.
const LINES: u16 = 3;

fn extent(seed: Seed, access: u8, sectors: u64, kind: u8, name: u8, offset: u64) -> Seed {
    seed.choice(0, LINES).u8(access).u64(sectors).u8(kind).u8(name).u64(offset)
}

fn descriptors() -> Vec<(&'static str, Seed)> {
    let lines = |count| Seed::default().bool(true).length(count);
    vec![
        ("flat", extent(lines(1), 0, 16, 0, 0, 0)),
        ("zeros", extent(lines(1), 2, 16, 2, 0, 0)),
        ("two_extents_too_large_together", extent(extent(lines(2), 0, 1 << 53, 2, 0, 64), 0, 1 << 53, 2, 0, 64)),
        ("a_name_that_does_not_end", extent(lines(1), 0, 16, 0, 2, 0)),
        ("a_parent", lines(1).choice(1, LINES).u8(1).u8(0)),
    ]
}
