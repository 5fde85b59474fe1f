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
        block_maps("fuzz_a_spoiled_vdi_neither_panics_nor_hangs", vdis()),
        block_maps("fuzz_a_spoiled_vhd_neither_panics_nor_hangs", vhds()),
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

fn block_maps(function: &'static str, seeds: Vec<(&'static str, Seed)>) -> Corpus {
    Corpus {
        source: "crates/block/src/formats/block_map/tests/fuzz.rs",
        function,
        modules: "formats__block_map__tests__fuzz",
        seeds,
    }
}

/// A number in the place of one of the header's, which the target numbers, or of one of the table's.
fn field(index: u8, value: u64) -> Seed {
    field_of(Seed::default(), index, value)
}

fn field_of(seed: Seed, index: u8, value: u64) -> Seed {
    seed.length(1).choice(1, SPOILS).u8(index).choice(3, 4).u64(value)
}

fn table_entry(index: u8, value: u64) -> Seed {
    table_entry_of(Seed::default(), index, value)
}

fn table_entry_of(seed: Seed, index: u8, value: u64) -> Seed {
    seed.length(1).choice(2, SPOILS).u8(index).choice(3, 4).u64(value)
}

fn vdis() -> Vec<(&'static str, Seed)> {
    vec![
        ("good", Seed::default().length(0)),
        ("map_behind_the_end", field(4, 0xffff_fe00)),
        ("data_on_the_map", field(5, 512)),
        ("all_the_bytes_there_are", field(7, u64::MAX)),
        ("size_of_the_largest_disk", field(7, (1 << 62) - 512)),
        ("blocks_of_nothing", field(8, 0)),
        ("depends_on_another", field(13, 1)),
        ("a_block_behind_the_end", table_entry(0, 0xffff_fffd)),
        ("two_entries_for_a_block", table_entry(0, 0)),
    ]
}

fn vhds() -> Vec<(&'static str, Seed)> {
    let mended = || Seed::default().bool(true);
    vec![
        ("good", mended().length(0)),
        ("a_header_whose_checksum_is_wrong", field_of(Seed::default().bool(false), 7, 17)),
        ("no_difference", field_of(mended(), 4, 3)),
        ("fixed", field_of(mended(), 4, 2)),
        ("table_behind_the_end", field_of(mended(), 5, 1 << 40)),
        ("blocks_of_nothing", field_of(mended(), 8, 0)),
        ("blocks_of_a_sector", field_of(mended(), 8, 512)),
        ("another_parent", field_of(mended(), 9, 0)),
        ("a_parents_name_behind_the_end", field_of(mended(), 12, u64::MAX)),
        ("a_parents_name_of_4_gib", field_of(mended(), 11, u64::MAX)),
        ("a_block_over_the_table", table_entry_of(mended(), 2, 4)),
        ("a_block_behind_the_end", table_entry_of(mended(), 2, 0xffff_fffe)),
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
