//! Bytes get where they belong.

use crate::on_every_engine;
use crate::rig::{REGION_BYTES, Rig, WRITE, options, pattern};
use blockyard_block::{Completion, Engine, FileOptions, Operation, Segment};
use std::fs;

on_every_engine!(
    reads_what_the_file_holds,
    writes_reach_the_file,
    forced_writes_and_flushes_succeed,
    unsafe_cache_answers_flushes,
    requests_cross_memory_regions,
    more_segments_than_one_call_takes,
    long_requests_go_side_by_side,
    empty_segments_are_nothing,
    requests_of_no_length_succeed,
    padding_reads_as_zeros,
    writes_to_the_padding_make_it_part_of_the_file,
    an_empty_file_is_an_empty_disk,
    any_offset_and_length_will_do,
    flush_of_a_read_only_disk_succeeds,
);

fn reads_what_the_file_holds(engine: Engine) {
    let contents = pattern(1 << 20, 1);
    let mut rig = Rig::new(engine, &contents);
    assert_eq!(rig.disk.geometry().capacity_bytes, 1 << 20);
    assert_eq!(rig.read(0, 1 << 20).unwrap(), contents);
    assert_eq!(rig.read(4096, 512).unwrap(), contents[4096..4608]);
}

fn writes_reach_the_file(engine: Engine) {
    let mut contents = pattern(1 << 20, 1);
    let mut rig = Rig::new(engine, &contents);
    let bytes = pattern(12288, 2);
    rig.write(8192, &bytes).unwrap();
    contents[8192..][..12288].copy_from_slice(&bytes);
    assert_eq!(rig.contents(), contents);
}

/// Long enough for an engine to have several threads do them, with short ones between and one that is wrong.
fn long_requests_go_side_by_side(engine: Engine) {
    const MIB: usize = 1 << 20;
    let mut contents = pattern(4 * MIB, 1);
    let mut rig = Rig::new(engine, &contents);
    let bytes = pattern(2 * MIB, 2);
    for alone in [true, false] {
        rig.poke(0, &bytes);
        let [first, second, third, last] = [0, 1, 2, 3].map(|mib| rig.segments((mib * MIB) as u64, MIB));
        let long = [
            (WRITE, MIB, &first),
            (Operation::Read, 0, &third),
            (WRITE, 3 * MIB, &second),
            (Operation::Read, 2 * MIB, &last),
        ];
        let [short, beyond] = [rig.segments(0, 4096), rig.segments(0, MIB)];
        let mut results = Vec::new();
        for (token, (operation, offset, segments)) in long.into_iter().enumerate() {
            while rig.queue.in_flight() == rig.queue.depth() {
                results.extend(rig.drain());
            }
            rig.push(operation, offset as u64, segments, token as u64);
            if alone {
                results.extend(rig.drain());
            }
        }
        results.extend(rig.drain());
        results.sort_by_key(|completion| completion.token);
        let expected: Vec<_> = (0..4).map(|token| Completion { token, result: Ok(()) }).collect();
        assert_eq!(results, expected);
        contents[MIB..][..MIB].copy_from_slice(&bytes[..MIB]);
        contents[3 * MIB..].copy_from_slice(&bytes[MIB..]);
        assert_eq!(rig.contents(), contents);
        assert_eq!(rig.peek(2 * MIB as u64, MIB), contents[..MIB]);
        assert_eq!(rig.peek(3 * MIB as u64, MIB), contents[2 * MIB..][..MIB]);
        assert!(rig.perform(WRITE, 7 * MIB as u64 / 2, &beyond).is_err(), "half of it lies beyond the end");
        rig.perform(Operation::Read, 0, &short).unwrap();
        assert_eq!(rig.peek(0, 4096), contents[..4096]);
    }
}

fn forced_writes_and_flushes_succeed(engine: Engine) {
    let mut rig = Rig::new(engine, &[0; 8192]);
    let bytes = pattern(4096, 3);
    rig.write_as(Operation::Write { force_unit_access: true }, 4096, &bytes).unwrap();
    rig.perform(Operation::Flush, 0, &[]).unwrap();
    assert_eq!(rig.contents()[4096..], bytes);
}

fn unsafe_cache_answers_flushes(engine: Engine) {
    let options = FileOptions { cache_unsafe: true, ..options(engine) };
    let mut rig = Rig::with(&[0; 8192], &options, 4);
    rig.write_as(Operation::Write { force_unit_access: true }, 0, &[1; 512]).unwrap();
    rig.perform(Operation::Flush, 0, &[]).unwrap();
    assert_eq!(rig.contents()[..512], [1; 512]);
}

fn flush_of_a_read_only_disk_succeeds(engine: Engine) {
    let options = FileOptions { read_only: true, ..options(engine) };
    Rig::with(&[0; 8192], &options, 4).perform(Operation::Flush, 0, &[]).unwrap();
}

fn requests_cross_memory_regions(engine: Engine) {
    let contents = pattern(16384, 4);
    let mut rig = Rig::new(engine, &contents);
    let address = REGION_BYTES as u64 - 4096;
    let segments = rig.segments(address, 8192);
    assert_eq!(segments.len(), 2);
    rig.perform(Operation::Read, 4096, &segments).unwrap();
    assert_eq!(rig.peek(address, 8192), contents[4096..12288]);
    rig.perform(Operation::Write { force_unit_access: false }, 0, &segments).unwrap();
    assert_eq!(rig.contents()[..8192], contents[4096..12288]);
}

fn more_segments_than_one_call_takes(engine: Engine) {
    let contents = pattern(3000 * 512, 5);
    let mut rig = Rig::new(engine, &contents);
    // Backwards in memory, so that no two segments can be taken as one.
    let segments: Vec<_> =
        (0..3000).rev().map(|n| Segment { region: 0, length_bytes: 512, offset_bytes: n * 512 }).collect();
    rig.perform(Operation::Read, 0, &segments).unwrap();
    for (n, segment) in segments.iter().enumerate() {
        assert_eq!(rig.peek(segment.offset_bytes, 512), contents[n * 512..][..512]);
    }
    let mut rig = Rig::new(engine, &vec![0; contents.len()]);
    for (n, segment) in segments.iter().enumerate() {
        rig.poke(segment.offset_bytes, &contents[n * 512..][..512]);
    }
    rig.perform(Operation::Write { force_unit_access: true }, 0, &segments).unwrap();
    assert!(rig.contents() == contents);
}

fn empty_segments_are_nothing(engine: Engine) {
    let contents = pattern(4096, 6);
    let mut rig = Rig::new(engine, &contents);
    let empty = Segment { region: 1, length_bytes: 0, offset_bytes: 100 };
    let [full] = rig.segments(0, 4096)[..] else { panic!() };
    rig.perform(Operation::Read, 0, &[empty, full, empty]).unwrap();
    assert_eq!(rig.peek(0, 4096), contents);
}

fn requests_of_no_length_succeed(engine: Engine) {
    let mut rig = Rig::new(engine, &[0; 4096]);
    for offset in [0, 512, 4096] {
        rig.perform(Operation::Read, offset, &[]).unwrap();
        rig.perform(Operation::Write { force_unit_access: true }, offset, &[]).unwrap();
        rig.perform(Operation::Discard { length_bytes: 0 }, offset, &[]).unwrap();
        rig.perform(Operation::WriteZeroes { length_bytes: 0, may_unmap: false }, offset, &[]).unwrap();
    }
}

fn padding_reads_as_zeros(engine: Engine) {
    let contents = pattern(10_000, 7);
    let options = FileOptions { logical_block_bytes: 4096, ..options(engine) };
    let mut rig = Rig::with(&contents, &options, 4);
    assert_eq!(rig.disk.geometry().capacity_bytes, 12288);
    assert_eq!(rig.file.length_bytes(), 10_000);
    let mut padded = contents;
    padded.resize(12288, 0);
    assert_eq!(rig.read(0, 12288).unwrap(), padded);
    assert_eq!(rig.read(8192, 4096).unwrap(), padded[8192..]);
    assert_eq!(rig.read(11_264, 512).unwrap(), [0; 512]);
    // The end of the file inside one of several segments, and segments that are all padding.
    rig.poke(0, &[0xee; 12288]);
    let segments: Vec<_> =
        (0..24).map(|n| Segment { region: 0, length_bytes: 512, offset_bytes: (23 - n) * 512 }).collect();
    rig.perform(Operation::Read, 0, &segments).unwrap();
    for n in 0..24 {
        assert_eq!(rig.peek((23 - n as u64) * 512, 512), padded[n * 512..][..512]);
    }
}

fn writes_to_the_padding_make_it_part_of_the_file(engine: Engine) {
    let options = FileOptions { logical_block_bytes: 65536, ..options(engine) };
    let mut rig = Rig::with(&pattern(70_001, 8), &options, 4);
    let mut bytes = pattern(70_001, 9);
    bytes.resize(131_072, 0);
    // Zeros are there already.
    rig.write(0, &bytes).unwrap();
    assert!(rig.contents() == bytes[..70_001]);
    assert!(rig.read(0, 131_072).unwrap() == bytes);
    for operation in [
        Operation::Discard { length_bytes: 60_000 },
        Operation::WriteZeroes { length_bytes: 60_000, may_unmap: true },
        Operation::WriteZeroes { length_bytes: 60_000, may_unmap: false },
    ] {
        rig.perform(operation, 71_000, &[]).unwrap();
        rig.perform(operation, 69_000, &[]).unwrap();
    }
    assert_eq!(fs::metadata(&rig.path).unwrap().len(), 70_001);
    assert!(rig.contents()[..69_000] == bytes[..69_000]);
    let bytes = pattern(131_072, 10);
    rig.write_as(Operation::Write { force_unit_access: true }, 70_656, &bytes[70_656..71_168]).unwrap();
    assert_eq!(rig.contents().len(), 131_072);
    assert!(rig.contents()[70_656..71_168] == bytes[70_656..71_168]);
    rig.write(0, &bytes).unwrap();
    assert!(rig.contents() == bytes);
    assert!(rig.read(0, 131_072).unwrap() == bytes);
}

fn an_empty_file_is_an_empty_disk(engine: Engine) {
    let mut rig = Rig::new(engine, &[]);
    assert_eq!(rig.disk.geometry().capacity_bytes, 0);
    rig.perform(Operation::Flush, 0, &[]).unwrap();
    rig.perform(Operation::Read, 0, &[]).unwrap();
    assert!(rig.read(0, 512).is_err());
}

fn any_offset_and_length_will_do(engine: Engine) {
    let mut contents = pattern(10_240, 10);
    let mut rig = Rig::new(engine, &contents);
    assert_eq!(rig.read(3, 4999).unwrap(), contents[3..5002]);
    rig.write(777, &[9; 3]).unwrap();
    contents[777..780].fill(9);
    assert_eq!(rig.contents(), contents);
}
