//! Seeds of the image formats' targets.

use super::{Corpus, Seed};

pub(super) fn corpora() -> Vec<Corpus> {
    vec![
        Corpus {
            source: "crates/block/src/formats/qcow2/tests/fuzz.rs",
            function: "fuzz_a_spoiled_image_neither_panics_nor_hangs",
            modules: "formats__qcow2__tests__fuzz",
            seeds: spoiled_images(&Seed::default().u8(USED_IN_ALL_WAYS)),
        },
        Corpus {
            source: "crates/block/src/formats/qcow2/tests/fuzz.rs",
            function: "fuzz_what_the_checker_calls_clean_opens",
            modules: "formats__qcow2__tests__fuzz",
            seeds: spoiled_images(&Seed::default()),
        },
        block_maps("fuzz_a_spoiled_vdi_neither_panics_nor_hangs", vdis()),
        block_maps("fuzz_a_spoiled_vhd_neither_panics_nor_hangs", vhds()),
        block_maps("fuzz_a_spoiled_vhdx_neither_panics_nor_hangs", vhdxs()),
        Corpus {
            source: "crates/block/src/formats/block_map/vhdx/unfinished.rs",
            function: "fuzz_a_spoiled_entry_is_judged_and_never_whole_when_it_is_not",
            modules: "formats__block_map__vhdx__unfinished__tests",
            seeds: log_entries(),
        },
        block_maps("fuzz_a_spoiled_qed_neither_panics_nor_hangs", qeds()),
        block_maps("fuzz_a_spoiled_parallels_neither_panics_nor_hangs", parallels()),
        block_maps("fuzz_a_spoiled_vmdk_neither_panics_nor_hangs", vmdks()),
        block_maps("fuzz_a_spoiled_compressed_vmdk_neither_panics_nor_hangs", compressed_vmdks()),
        block_maps("fuzz_a_spoiled_vmdk_of_esx_neither_panics_nor_hangs", vmdks_of_esx()),
        block_maps("fuzz_a_spoiled_space_efficient_vmdk_neither_panics_nor_hangs", space_efficient_vmdks()),
        Corpus {
            source: "crates/block/src/formats/ova/tests.rs",
            function: "fuzz_any_archive_is_disks_or_a_sentence",
            modules: "formats__ova__tests",
            seeds: archives(),
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

/// What the target for spoiled images takes for all of its uses.
const USED_IN_ALL_WAYS: u8 = 0;

fn entry(before: &Seed, byte: u16, value: u64) -> Seed {
    before.clone().length(1).choice(1, SPOILS).u16(byte / 8).u64(value)
}

fn spoiled_images(before: &Seed) -> Vec<(&'static str, Seed)> {
    vec![
        ("good", before.clone().length(0)),
        ("cut_off_in_the_header", before.clone().length(1).choice(3, SPOILS).u16(80)),
        ("cut_off_in_the_tables", before.clone().length(1).choice(3, SPOILS).u16(2048)),
        ("l1_table_far_away", entry(before, 40, 1 << 55)),
        ("l1_table_on_the_header", entry(before, 40, 0)),
        ("refcount_table_far_away", entry(before, 48, 1 << 55)),
        ("size_of_the_largest_disk", entry(before, 24, 1 << 56)),
        ("marked_dirty", entry(before, 72, 1)),
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

/// Of images whose checksums are made right, or not.
fn mended(is_mended: bool) -> Seed {
    Seed::default().bool(is_mended)
}

/// A number in the place of one of the header's, which the target numbers.
fn field(index: u8, value: u64) -> Seed {
    mended(true).length(1).choice(1, SPOILS).u8(index).choice(3, 4).u64(value)
}

/// The same, of one of the table's.
fn table_entry(index: u8, value: u64) -> Seed {
    mended(true).length(1).choice(2, SPOILS).u8(index).choice(3, 4).u64(value)
}

fn vdis() -> Vec<(&'static str, Seed)> {
    vec![
        ("good", mended(true).length(0)),
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
    vec![
        ("good", mended(true).length(0)),
        ("a_header_whose_checksum_is_wrong", mended(false).length(1).choice(1, SPOILS).u8(7).choice(3, 4).u64(17)),
        ("no_difference", field(4, 3)),
        ("fixed", field(4, 2)),
        ("table_behind_the_end", field(5, 1 << 40)),
        ("blocks_of_nothing", field(8, 0)),
        ("blocks_of_a_sector", field(8, 512)),
        ("another_parent", field(9, 0)),
        ("a_parents_name_behind_the_end", field(12, u64::MAX)),
        ("a_parents_name_of_4_gib", field(11, u64::MAX)),
        ("a_block_over_the_table", table_entry(2, 4)),
        ("a_block_behind_the_end", table_entry(2, 0xffff_fffe)),
    ]
}

fn vhdxs() -> Vec<(&'static str, Seed)> {
    vec![
        ("good", mended(true).length(0)),
        ("the_log_is_done_with", field(1, 0)),
        ("a_log_of_4_gib", field(4, 0xfff0_0000)),
        ("a_log_behind_the_end", field(5, 1 << 40)),
        ("the_table_on_the_headers", field(7, 0)),
        ("the_metadata_on_the_table", field(10, 3 << 20)),
        ("metadata_outside_of_their_region", field(13, 0xffff_ffff)),
        ("blocks_of_256_mib", field(18, 256 << 20)),
        ("no_difference", field(19, 0)),
        ("a_disk_of_64_tib", field(20, 64 << 40)),
        ("sectors_of_4096", field(21, 4096)),
        ("an_entry_longer_than_the_log", field(27, 0x7fff_f000)),
        ("a_tail_nowhere", field(28, 4096)),
        ("more_descriptors_than_there_is_room_for", field(30, 0xffff_ffff)),
        ("the_file_was_longer", field(31, 1 << 40)),
        ("the_file_is_to_be_longer", field(32, 1 << 40)),
        ("zeros_without_end", field(33, 1 << 50)),
        ("zeros_on_the_headers", field(34, 64 << 10)),
        ("a_page_behind_the_end", field(36, 1 << 40)),
        ("a_block_on_the_headers", table_entry(1, 6)),
        ("a_block_behind_the_end", table_entry(1, 1 << 50 | 6)),
        ("a_state_that_means_nothing", table_entry(1, 4)),
    ]
}

/// Which earlier log lies below, units of 512 bytes that were not written, and bytes that are others.
fn log_entries() -> Vec<(&'static str, Seed)> {
    let entry = |earlier: u8, not_written: &[u8], damaged: &[(u16, u8)]| {
        let units = not_written.iter().fold(Seed::default().u8(earlier).length(not_written.len()), |s, &n| s.u8(n));
        damaged.iter().fold(units.length(damaged.len()), |seed, &(at, value)| seed.u16(at).u8(value)).bool(false)
    };
    let last_sector: Vec<u8> = (16..24).collect();
    vec![
        ("good", entry(0, &[], &[])),
        ("no_last_sector", entry(0, &last_sector, &[])),
        ("no_last_sector_over_another_log", entry(1, &last_sector, &[])),
        ("no_last_unit_of_zeros", entry(0, &[23], &[])),
        ("no_descriptors", entry(0, &[0], &[])),
        ("descriptors_of_another_log", entry(2, &[8, 9, 10, 11, 12, 13, 14, 15], &[])),
        ("a_damaged_number", entry(0, &[], &[(24, 7)])),
        ("a_damaged_signature", entry(0, &[], &[(0, 0)])),
        ("a_damaged_length", entry(0, &last_sector, &[(9, 0xff)])),
    ]
}

fn qeds() -> Vec<(&'static str, Seed)> {
    vec![
        ("good", mended(true).length(0)),
        ("clusters_of_nothing", field(0, 0)),
        ("clusters_of_64_mib", field(0, 64 << 20)),
        ("a_header_longer_than_the_file", field(2, 0xffff_ffff)),
        ("features_to_come", field(3, 8)),
        ("no_backing_file", field(3, 0)),
        ("a_backing_file_that_is_not_raw", field(3, 1)),
        ("l1_table_behind_the_end", field(6, 1 << 40)),
        ("size_of_the_largest_disk", field(7, 1 << 30)),
        ("a_name_behind_the_header", field(8, 4094)),
        ("an_l2_table_on_the_l1_table", field(11, 4096)),
        ("a_cluster_behind_the_end", table_entry(0, 1 << 40)),
        ("a_cluster_within_a_cluster", table_entry(0, 4096 * 3 + 512)),
    ]
}

fn parallels() -> Vec<(&'static str, Seed)> {
    vec![
        ("good", mended(true).length(0)),
        ("clusters_of_nothing", field(5, 0)),
        ("clusters_of_63_sectors", field(5, 63)),
        ("a_table_longer_than_the_file", field(6, 0xffff_ffff)),
        ("a_table_shorter_than_the_disk", field(6, 1)),
        ("all_the_bytes_there_are", field(7, u64::MAX)),
        ("not_closed", field(8, 0x746f_6e59)),
        ("data_from_the_end_on", field(9, 0xffff_ffff)),
        ("a_cluster_behind_the_end", table_entry(0, 0xffff_ffff)),
    ]
}

fn vmdks() -> Vec<(&'static str, Seed)> {
    vec![
        ("good", mended(true).length(0)),
        ("a_disk_of_all_the_bytes_there_are", field(2, u64::MAX)),
        ("grains_of_nothing", field(3, 0)),
        ("grains_of_1_gib", field(3, 0x20_0000)),
        ("a_descriptor_behind_the_end", field(4, 1 << 50)),
        ("a_descriptor_over_everything", field(5, 1 << 50)),
        ("tables_of_one_entry", field(6, 1)),
        ("the_redundant_directory_on_the_header", field(7, 0)),
        ("the_directory_behind_the_end", field(8, 1 << 40)),
        ("the_directory_at_the_end", field(8, u64::MAX)),
        ("text_that_was_transferred", field(10, 0)),
        ("compressed_after_all", field(11, 1)),
        ("a_table_on_the_directory", field(13, 7)),
        ("a_grain_behind_the_end", table_entry(0, 0xffff_ffff)),
        ("a_grain_on_the_header", table_entry(0, 0)),
        ("two_entries_for_a_grain", table_entry(1, 9)),
    ]
}

fn compressed_vmdks() -> Vec<(&'static str, Seed)> {
    vec![
        ("good", mended(true).length(0)),
        ("a_footer_of_another_disk", field(14, 1)),
        ("a_footer_without_tables", field(20, u64::MAX)),
        ("a_footer_that_is_none", field(26, 0)),
        ("a_table_behind_the_end", field(29, 0xffff_ffff)),
        ("a_grain_of_nothing", field(31, 0)),
        ("a_grain_of_4_gib", field(31, 0xffff_ffff)),
        ("a_grain_that_is_noise", field(32, 0x0123_4567_89ab_cdef)),
        ("not_marked", field(1, 1)),
        ("a_grain_on_the_tables", table_entry(0, 15)),
    ]
}

fn vmdks_of_esx() -> Vec<(&'static str, Seed)> {
    vec![
        ("good", mended(true).length(0)),
        ("a_disk_of_2_tib", field(2, 0xffff_ffff)),
        ("grains_of_nothing", field(3, 0)),
        ("the_directory_on_the_header", field(4, 0)),
        ("more_tables_than_there_are", field(5, 0xffff_ffff)),
        ("a_table_behind_the_end", field(7, 0xffff_ffff)),
        ("a_grain_behind_the_end", table_entry(0, 0xffff_ffff)),
    ]
}

fn space_efficient_vmdks() -> Vec<(&'static str, Seed)> {
    vec![
        ("good", mended(true).length(0)),
        ("a_disk_of_64_tib", field(1, 1 << 37)),
        ("the_second_header_behind_the_end", field(9, 1 << 50)),
        ("the_directory_behind_the_end", field(15, 1 << 50)),
        ("the_tables_on_the_directory", field(17, 4)),
        ("grains_without_end", field(24, 1 << 54)),
        ("a_journal_that_is_not_done", field(26, 1)),
        ("a_table_that_is_not_there", field(27, 0x1000_0000_ffff_ffff)),
        ("a_grain_behind_the_end", table_entry(0, 0x3fff_ffff_ffff_ffff)),
        ("an_entry_that_means_nothing", table_entry(0, 0x4000_0000_0000_0000)),
    ]
}

/// Variants of the target's `Item`.
const ITEMS: u16 = 3;

fn archives() -> Vec<(&'static str, Seed)> {
    let with = |count| Seed::default().bool(true).length(count);
    let member =
        |seed: Seed, kind: u8, name: u8, bytes: u8| seed.choice(0, ITEMS).u8(kind).u8(name).u8(bytes).bool(false);
    vec![
        ("good", with(0)),
        ("two_descriptions", member(with(1), 0, 0, 1)),
        ("a_disk_twice", member(with(1), 0, 1, 0)),
        ("a_link_of_that_name", member(with(1), 3, 1, 4)),
        ("a_manifest_by_a_record", member(member(with(2), 5, 4, 2), 0, 4, 3)),
        ("a_manifest_of_another_disk", member(with(1), 0, 2, 3)),
        ("another_name_by_a_record", member(member(with(2), 5, 4, 2), 0, 0, 1)),
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
