//! Whatever is on a disk: what is listed lies within it, and what may be written harms nobody.

use crate::image::{Image, MbrEntry, both_headers};
use blockyard_block::partition_table::{Partition, PartitionTable, TableChoice};
use bolero::TypeGenerator;

const BLOCK_BYTES: u32 = 512;
const BLOCKS: usize = 256;

fn check(image: &Image) {
    for choice in [TableChoice::Auto, TableChoice::Mbr, TableChoice::Gpt] {
        if let Ok(table) = image.read_as(choice) {
            check_table(&table, image.bytes.len() as u64);
            table.warnings.iter().for_each(|warning| assert!(!warning.to_string().is_empty()));
        }
    }
}

fn check_table(table: &PartitionTable, capacity_bytes: u64) {
    let block_bytes = u64::from(BLOCK_BYTES);
    for partition in &table.partitions {
        let range = &partition.range_bytes;
        assert!(range.start < range.end && range.end <= capacity_bytes, "{partition:?}");
        assert!(range.start.is_multiple_of(block_bytes) && range.end.is_multiple_of(block_bytes), "{partition:?}");
    }
    let numbers = table.partitions.iter().map(|partition| partition.number);
    assert!(numbers.is_sorted_by(|one, other| one < other), "{table:?}");
    for partition in &table.partitions {
        let Ok(range) = table.range(partition.number, false) else { continue };
        assert!(range.start >= block_bytes, "the first block can be written: {partition:?}");
        let shares = |other: &&Partition| other.range_bytes.start < range.end && range.start < other.range_bytes.end;
        let others = table.partitions.iter().filter(|other| other.number != partition.number);
        // A logical partition lies within an extended one, which nobody can use.
        let mut others = others.filter(|other| !other.kind.is_extended() || !partition.is_logical());
        assert_eq!(others.find(shares), None, "{partition:?} can be written");
    }
}

/// Pieces of a disk: block, offset in it (two bytes), length (two bytes), bytes. The corpus has tables that sfdisk
/// made.
#[test]
fn fuzz_any_bytes_of_a_disk() {
    blockyard_fuzz::check!(500).for_each(|pieces: &[u8]| {
        let mut image = Image::new(BLOCKS, BLOCK_BYTES);
        let mut left = pieces;
        while let [block, offset_low, offset_high, length_low, length_high, rest @ ..] = left {
            let offset = usize::from(u16::from_le_bytes([*offset_low, *offset_high])) % BLOCK_BYTES as usize;
            let length = usize::from(u16::from_le_bytes([*length_low, *length_high])).min(rest.len());
            let (bytes, later) = rest.split_at(length);
            let start = usize::from(*block) * BLOCK_BYTES as usize + offset;
            let end = (start + length).min(image.bytes.len());
            image.bytes[start..end].copy_from_slice(&bytes[..end - start]);
            left = later;
        }
        check(&image);
    });
}

/// An entry that is likely to be one, and to meet others.
#[derive(Clone, Debug, TypeGenerator)]
struct LikelyEntry {
    kind: u8,
    start: u8,
    length: u8,
    huge: u8,
}

impl LikelyEntry {
    fn entry(&self) -> MbrEntry {
        const KINDS: [u8; 8] = [0x05, 0x0f, 0x85, 0x83, 0x83, 0x05, 0xee, 0x00];
        let shift = if self.huge < 16 { 24 } else { 0 };
        MbrEntry {
            indicator: 0,
            kind: KINDS[usize::from(self.kind % 8)],
            start: u32::from(self.start) << shift,
            length: u32::from(self.length) << shift,
        }
    }
}

/// Boot records anywhere.
#[test]
fn fuzz_chains_of_boot_records() {
    blockyard_fuzz::check!(500).with_type::<Vec<(u8, [LikelyEntry; 4])>>().for_each(|records| {
        let mut image = Image::new(BLOCKS, BLOCK_BYTES);
        for (block, entries) in records {
            image.put_record(u64::from(*block), &entries.clone().map(|entry| entry.entry()));
        }
        check(&image);
    });
}

/// What is different from a good GPT, in a copy whose checksums are right.
#[derive(Clone, Debug, TypeGenerator)]
enum Change {
    Nothing,
    HeaderBytes(u32),
    OtherBlock(u64),
    FirstUsable(u8),
    LastUsable(u8),
    LastUsableAnything(u64),
    ArrayBlock(u8),
    ArrayBlockAnything(u64),
    EntryCount(u8),
    EntryBytesShift(u8),
    EntryBytes(u32),
}

/// A hostile table has right checksums: both copies are changed and written with these.
#[test]
fn fuzz_gpts_with_right_checksums() {
    type Input = ([Vec<Change>; 2], Vec<(u8, u8, u8)>, bool);
    blockyard_fuzz::check!(500).with_type::<Input>().for_each(|(changes, entries, backup_first)| {
        let mut image = Image::new(BLOCKS, BLOCK_BYTES);
        image.put_record(0, &[crate::image::entry(0xee, 1, u32::MAX)]);
        let entries: Vec<_> =
            entries.iter().map(|&(kind, first, last)| (kind, u64::from(first), u64::from(last))).collect();
        let mut headers = both_headers(BLOCKS as u64, BLOCK_BYTES);
        for (header, changes) in headers.iter_mut().zip(changes) {
            for change in changes.iter().take(3) {
                match *change {
                    Change::Nothing => {}
                    Change::HeaderBytes(bytes) => header.header_bytes = bytes,
                    Change::OtherBlock(block) => header.other_block = block,
                    Change::FirstUsable(block) => header.first_usable = block.into(),
                    Change::LastUsable(block) => header.last_usable = block.into(),
                    Change::LastUsableAnything(block) => header.last_usable = block,
                    Change::ArrayBlock(block) => header.array_block = block.into(),
                    Change::ArrayBlockAnything(block) => header.array_block = block,
                    Change::EntryCount(count) => header.entry_count = count.into(),
                    Change::EntryBytesShift(shift) => header.entry_bytes = 128 << (shift % 8),
                    Change::EntryBytes(bytes) => header.entry_bytes = bytes,
                }
            }
        }
        if *backup_first {
            headers.reverse();
        }
        headers.iter().for_each(|header| image.put_gpt(header, &entries));
        check(&image);
    });
}
