//! The MBR and its chain of logical partitions.
//!
//! There is no standard; this is what Linux's block/partitions/msdos.c and libfdisk agree on. An MBR counts in logical
//! blocks, whatever their size; its four entries start at byte 446 of the first, its signature is at byte 510.

use super::boot_sector;
use super::error::{LeftOut, Warning};
use super::kind::PartitionKind;
use super::{Found, Partition, Restriction};
use crate::DiskReader;
use std::io;
use std::ops::Range;

/// Highest number of a logical partition, as on Linux (`DISK_MAX_PARTS`).
const NUMBER_MAX: u32 = 255;
/// Most links of all chains together: enough for [`NUMBER_MAX`] partitions, one a link.
const LINKS_MAX: usize = 256;
const SECTOR_BYTES: usize = 512;
const ENTRIES_OFFSET: usize = 446;
const ENTRY_BYTES: usize = 16;
/// Covers a whole disk for tools that do not know GPT.
const PROTECTIVE: u8 = 0xee;

/// What the first sector is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mbr {
    /// Not a partition table.
    Absent,
    /// The boot sector of a file system that has the whole disk.
    FileSystem,
    /// Says that there is a GPT, and nothing else.
    Protective,
    /// Says that there is a GPT, and has entries beside that.
    Hybrid([Entry; 4]),
    /// A table, perhaps without entries.
    Table([Entry; 4]),
}

/// An entry: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    boot_indicator: u8,
    kind: u8,
    /// Counted from what the table it is in counts from.
    start_block: u32,
    length_blocks: u32,
}

impl Entry {
    fn parse(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { boot_indicator: bytes[0], kind: bytes[4], start_block: number(8), length_blocks: number(12) }
    }

    /// The four entries of a boot record; `None` without its signature.
    fn parse_all(sector: &[u8; SECTOR_BYTES]) -> Option<[Self; 4]> {
        let entries = &sector[ENTRIES_OFFSET..];
        let entry = |index: usize| entries.get(index * ENTRY_BYTES..)?.first_chunk().map(Self::parse);
        (sector[510..] == [0x55, 0xaa]).then_some([entry(0)?, entry(1)?, entry(2)?, entry(3)?])
    }

    pub(super) fn is_used(&self) -> bool {
        self.kind != 0 && self.length_blocks != 0
    }

    pub(super) fn is_protective(&self) -> bool {
        self.kind == PROTECTIVE
    }

    fn is_extended(&self) -> bool {
        self.length_blocks != 0 && PartitionKind::Mbr(self.kind).is_extended()
    }

    /// The entry's blocks on the disk, if it counts from block `origin`.
    fn blocks(&self, origin: u64) -> Range<u64> {
        // The origin is a block of a disk, whose bytes fit 64 bits; the sum is far from wrapping.
        let start = origin.saturating_add(u64::from(self.start_block));
        start..start.saturating_add(u64::from(self.length_blocks))
    }

    /// The bytes of the disk that a used entry of the MBR itself stands for, as far as they can be said.
    pub(super) fn range_bytes(&self, block_bytes: u32) -> Range<u64> {
        let blocks = self.blocks(0);
        blocks.start * u64::from(block_bytes)..blocks.end * u64::from(block_bytes)
    }
}

/// Reads the first sector.
pub(super) fn recognise(reader: &mut DiskReader, blocks: u64) -> io::Result<Mbr> {
    let mut start = boot_sector::Start::default();
    let length = start.len().min(usize::try_from(reader.capacity_bytes()).unwrap_or(usize::MAX));
    if length < SECTOR_BYTES {
        return Ok(Mbr::Absent);
    }
    reader.read(0, &mut start[..length])?;
    Ok(judge(&start, blocks))
}

fn judge(start: &boot_sector::Start, blocks: u64) -> Mbr {
    let Some(entries) = start.first_chunk().and_then(Entry::parse_all) else { return Mbr::Absent };
    if entries.iter().any(|entry| !matches!(entry.boot_indicator, 0 | 0x80)) {
        return Mbr::Absent;
    }
    let used = || entries.iter().filter(|entry| entry.is_used());
    if used().any(Entry::is_protective) {
        return if used().all(Entry::is_protective) { Mbr::Protective } else { Mbr::Hybrid(entries) };
    }
    let sound = used().all(|entry| entry.start_block > 0 && entry.blocks(0).end <= blocks);
    // A boot sector of these file systems is theirs. An ext file system leaves the sector to others, so that what is in
    // there may be a table on a disk that once was one file system as a whole.
    if boot_sector::is_fat_or_ntfs(start) || (boot_sector::is_ext(start) && (used().next().is_none() || !sound)) {
        return Mbr::FileSystem;
    }
    Mbr::Table(entries)
}

/// Reads a first sector as a table, even where it looks like a file system's.
pub(super) fn force(reader: &mut DiskReader) -> io::Result<Option<[Entry; 4]>> {
    if reader.capacity_bytes() < SECTOR_BYTES as u64 {
        return Ok(None);
    }
    let mut sector = [0; SECTOR_BYTES];
    reader.read(0, &mut sector)?;
    Ok(Entry::parse_all(&sector))
}

/// Whether any entry is in use.
pub(super) fn has_partitions(entries: &[Entry; 4]) -> bool {
    entries.iter().any(Entry::is_used)
}

/// The partitions of a table, with the logical ones that its extended partitions lead to.
pub(super) fn partitions(
    reader: &mut DiskReader,
    entries: &[Entry; 4],
    blocks: u64,
    block_bytes: u32,
) -> io::Result<Found> {
    let first_block = std::iter::once(0..u64::from(block_bytes)).collect();
    let found = Found { table: first_block, ..Found::default() };
    let mut chain = Chain { reader, blocks, block_bytes, visited: Vec::new(), last: 4, found };
    for (number, entry) in (1..).zip(entries) {
        // A protective entry has nothing of its own: it stands for a GPT.
        if entry.is_used() && !entry.is_protective() {
            chain.add(number, entry, entry.blocks(0), &(0..u64::MAX), LeftOut::PastTheEnd);
        }
    }
    for entry in entries.iter().filter(|entry| entry.is_used() && entry.is_extended() && entry.start_block > 0) {
        chain.follow(entry.blocks(0))?;
    }
    Ok(chain.found)
}

/// A walk along the chains of extended boot records.
struct Chain<'a> {
    reader: &'a mut DiskReader,
    /// Of the disk.
    blocks: u64,
    block_bytes: u32,
    /// Blocks that were read as links: one is never read twice, so that every walk ends.
    visited: Vec<u64>,
    /// The last number given.
    last: u32,
    found: Found,
}

impl Chain<'_> {
    /// Follows the chain of the extended partition at `extended`, in blocks.
    fn follow(&mut self, extended: Range<u64>) -> io::Result<()> {
        let (mut block, mut length_blocks) = (extended.start, extended.end - extended.start);
        loop {
            if self.visited.contains(&block) {
                self.warn(Warning::ChainLoops { last: self.last });
                return Ok(());
            }
            if self.visited.len() == LINKS_MAX {
                self.warn(Warning::TooMany(NUMBER_MAX));
                return Ok(());
            }
            if block >= self.blocks || !extended.contains(&block) {
                self.warn(Warning::ChainLeaves { last: self.last });
                return Ok(());
            }
            let Some(entries) = self.read_link(block)? else {
                // An extended partition without any logical one need not have a record.
                if block != extended.start {
                    self.warn(Warning::ChainBroken { last: self.last });
                }
                return Ok(());
            };
            if !self.add_logical(&entries, block, length_blocks, &extended) {
                self.warn(Warning::TooMany(NUMBER_MAX));
                return Ok(());
            }
            let Some(link) = entries.iter().find(|entry| entry.is_extended()) else { return Ok(()) };
            (block, length_blocks) = (link.blocks(extended.start).start, u64::from(link.length_blocks));
        }
    }

    fn read_link(&mut self, block: u64) -> io::Result<Option<[Entry; 4]>> {
        self.visited.push(block);
        let bytes = self.bytes(&(block..block + 1));
        let mut sector = [0; SECTOR_BYTES];
        self.reader.read(bytes.start, &mut sector)?;
        let entries = Entry::parse_all(&sector);
        if entries.is_some() {
            self.found.table.push(bytes);
        }
        Ok(entries)
    }

    /// Adds a link's own partitions, numbered as Linux does: whatever has a length and is no link takes a number. False
    /// when there are no numbers left.
    fn add_logical(&mut self, entries: &[Entry; 4], block: u64, length_blocks: u64, extended: &Range<u64>) -> bool {
        let link = block..block.saturating_add(length_blocks);
        for (index, entry) in entries.iter().enumerate() {
            let blocks = entry.blocks(block);
            if entry.length_blocks == 0 || entry.is_extended() {
                continue;
            }
            // The last two entries sometimes hold garbage.
            if index >= 2 && !(lies_within(&blocks, &link) && lies_within(&blocks, extended)) {
                continue;
            }
            if self.last == NUMBER_MAX {
                return false;
            }
            self.last += 1;
            if entry.is_used() {
                self.add(self.last, entry, blocks, extended, LeftOut::OutsideExtended);
            }
        }
        true
    }

    /// Adds a partition, unless it lies past the end of the disk or, which is `otherwise`, reaches out of `within`. Of
    /// one that begins on the disk and ends behind it, there is what the disk has.
    fn add(&mut self, number: u32, entry: &Entry, mut blocks: Range<u64>, within: &Range<u64>, otherwise: LeftOut) {
        let is_cut_off = blocks.end > self.blocks;
        if blocks.start >= self.blocks {
            self.warn(Warning::LeftOut { number, why: LeftOut::PastTheEnd });
        } else if !lies_within(&blocks, within) {
            self.warn(Warning::LeftOut { number, why: if is_cut_off { LeftOut::PastTheEnd } else { otherwise } });
        } else {
            if is_cut_off {
                blocks.end = self.blocks;
                self.warn(Warning::CutOff(number));
            }
            let range_bytes = self.bytes(&blocks);
            self.found.partitions.push(Partition {
                number,
                range_bytes,
                kind: PartitionKind::Mbr(entry.kind),
                name: String::new(),
                guid: None,
                attributes: u64::from(entry.boot_indicator),
                restriction: is_cut_off.then_some(Restriction::CutOff),
            });
        }
    }

    /// The bytes of blocks that lie within the disk.
    fn bytes(&self, blocks: &Range<u64>) -> Range<u64> {
        blocks.start * u64::from(self.block_bytes)..blocks.end * u64::from(self.block_bytes)
    }

    fn warn(&mut self, warning: Warning) {
        self.found.warnings.push(warning);
    }
}

fn lies_within(inner: &Range<u64>, outer: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
