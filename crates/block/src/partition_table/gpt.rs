//! The GUID partition table (UEFI 2.10, section 5.3).
//!
//! A copy is a header of one logical block and an array of entries; the primary copy starts at block 1, the backup's
//! header is the disk's last block. Each has a checksum of the header and one of the array. A copy is judged as a whole
//! and used whole or not at all.

use super::crc32::crc32;
use super::error::{GptFault, LeftOut, Warning};
use super::guid::Guid;
use super::kind::PartitionKind;
use super::{Found, Partition};
use crate::DiskReader;
use std::ops::Range;

const SIGNATURE: &[u8; 8] = b"EFI PART";
const HEADER_BYTES_MIN: u32 = 92;
const ENTRY_BYTES_MIN: u32 = 128;
/// Largest array of entries that is read: 8192 entries of 128 bytes, where everybody's tables have 128 entries.
const ARRAY_BYTES_MAX: u64 = 1 << 20;
const PRIMARY_BLOCK: u64 = 1;
/// Least block that is for partitions: the MBR and the header are in front.
const USABLE_MIN: u64 = 2;

/// A copy that was judged: its checksums are right, and it keeps out of its own range for partitions.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    /// Where its header is.
    pub(super) block: u64,
    pub(super) header: Header,
    pub(super) array: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Where the other copy's header is, if it is where it should be.
    other_block: u64,
    /// For partitions: never empty, within the disk.
    pub(super) usable_blocks: Range<u64>,
    pub(super) disk: Guid,
    pub(super) array_block: u64,
    entry_count: u32,
    pub(super) entry_bytes: u32,
    array_checksum: u32,
}

/// Both copies.
pub(super) struct Gpt {
    pub(super) primary: Result<Copy, GptFault>,
    pub(super) backup: Result<Copy, GptFault>,
    /// Whether the backup was found where the primary copy says, and that is not the end of the disk.
    backup_not_at_end: bool,
}

impl Gpt {
    /// Reads both copies of a disk of `blocks` logical blocks.
    pub(super) fn read(reader: &mut DiskReader, blocks: u64, block_bytes: u32) -> Self {
        let last = blocks.saturating_sub(1);
        let mut copies = Copies { reader, blocks, block_bytes };
        let primary = copies.read(PRIMARY_BLOCK);
        let said = primary.as_ref().map_or(last, |copy| copy.header.other_block);
        let mut backup = copies.read(said);
        let backup_not_at_end = backup.is_ok() && said != last;
        if backup.is_err() && said != last {
            backup = copies.read(last).map_err(|at_end| backup.err().filter(is_there).unwrap_or(at_end));
        }
        Self { primary, backup, backup_not_at_end }
    }

    /// Whether the copy that is found without looking for it is valid.
    pub(super) fn has_primary(&self) -> bool {
        self.primary.is_ok()
    }

    /// Whether there is nothing at all that looks like a copy.
    pub(super) fn is_absent(&self) -> bool {
        let absent = |copy: &Result<Copy, GptFault>| matches!(copy, Err(GptFault::Absent));
        absent(&self.primary) && absent(&self.backup)
    }

    /// The copy that counts, and what there is to say about the other.
    ///
    /// # Errors
    /// What is wrong with each, when none is valid.
    pub(super) fn choose(self) -> Result<(Copy, Vec<Warning>), (GptFault, GptFault)> {
        match (self.primary, self.backup) {
            (Ok(primary), Ok(backup)) => {
                let differ = (!primary.agrees_with(&backup)).then_some(Warning::CopiesDiffer);
                let not_at_end = self.backup_not_at_end.then_some(Warning::BackupNotAtEnd);
                Ok((primary, differ.into_iter().chain(not_at_end).collect()))
            }
            (Ok(primary), Err(fault)) => Ok((primary, vec![Warning::BackupDamaged(fault)])),
            (Err(fault), Ok(backup)) => Ok((backup, vec![Warning::PrimaryDamaged(fault)])),
            (Err(primary), Err(backup)) => Err((primary, backup)),
        }
    }
}

fn is_there(fault: &GptFault) -> bool {
    *fault != GptFault::Absent
}

/// Whether a header's signature is where it would be on a disk of this block size.
pub(super) fn has_signature(reader: &mut DiskReader, block_bytes: u64) -> bool {
    let mut signature = [0; 8];
    reader.read(PRIMARY_BLOCK * block_bytes, &mut signature).is_ok() && signature == *SIGNATURE
}

impl Copy {
    fn agrees_with(&self, other: &Self) -> bool {
        let said = |copy: &Self| {
            let Header { usable_blocks, disk, entry_count, entry_bytes, array_checksum, .. } = copy.header.clone();
            (usable_blocks, disk, entry_count, entry_bytes, array_checksum)
        };
        said(self) == said(other)
    }

    /// The partitions.
    pub(super) fn partitions(&self, blocks: u64, block_bytes: u32) -> Found {
        let usable = &self.header.usable_blocks;
        let bytes = |blocks: Range<u64>| blocks.start * u64::from(block_bytes)..blocks.end * u64::from(block_bytes);
        let in_front = bytes(0..usable.start);
        let behind = bytes(usable.end.min(blocks.saturating_sub(1))..blocks);
        let mut found = Found { table: vec![in_front, behind], ..Found::default() };
        for (number, entry) in (1..).zip(self.array.chunks_exact(self.header.entry_bytes as usize)) {
            let Some(entry) = Entry::parse(entry) else { continue };
            match entry.blocks_within(usable) {
                Ok(blocks) => found.partitions.push(Partition {
                    number,
                    range_bytes: bytes(blocks),
                    kind: PartitionKind::Gpt(entry.kind),
                    name: entry.name,
                    guid: Some(entry.guid),
                    attributes: entry.attributes,
                    restriction: None,
                }),
                Err(why) => found.warnings.push(Warning::LeftOut { number, why }),
            }
        }
        found
    }
}

/// An entry in use.
struct Entry {
    kind: Guid,
    guid: Guid,
    first_block: u64,
    last_block: u64,
    attributes: u64,
    name: String,
}

impl Entry {
    /// `None` for an entry that is not in use. `bytes` are at least 128.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let kind = guid(bytes, 0);
        if kind == Guid::ZERO {
            return None;
        }
        let units = bytes[56..128].chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        let name = char::decode_utf16(units.take_while(|&unit| unit != 0))
            .map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        Some(Self {
            kind,
            guid: guid(bytes, 16),
            first_block: double_word(bytes, 32),
            last_block: double_word(bytes, 40),
            attributes: double_word(bytes, 48),
            name,
        })
    }

    fn blocks_within(&self, usable: &Range<u64>) -> Result<Range<u64>, LeftOut> {
        if self.last_block < self.first_block {
            return Err(LeftOut::Reversed);
        }
        match self.last_block.checked_add(1) {
            Some(end) if usable.start <= self.first_block && end <= usable.end => Ok(self.first_block..end),
            _ => Err(LeftOut::NotUsable),
        }
    }
}

struct Copies<'a> {
    reader: &'a mut DiskReader,
    blocks: u64,
    block_bytes: u32,
}

impl Copies<'_> {
    fn read(&mut self, block: u64) -> Result<Copy, GptFault> {
        if block < PRIMARY_BLOCK || block >= self.blocks {
            return Err(GptFault::Absent);
        }
        let mut bytes = vec![0; self.block_bytes as usize];
        self.read_bytes(block, &mut bytes)?;
        let header = Header::parse(&bytes, block, self.blocks)?;
        let mut array = vec![0; header.array_bytes() as usize];
        self.read_bytes(header.array_block, &mut array)?;
        if crc32(&[&array]) != header.array_checksum {
            return Err(GptFault::ArrayChecksum);
        }
        Ok(Copy { block, header, array })
    }

    fn read_bytes(&mut self, block: u64, bytes: &mut [u8]) -> Result<(), GptFault> {
        // A block of the disk: its offset fits 64 bits.
        let offset = block * u64::from(self.block_bytes);
        self.reader.read(offset, bytes).map_err(|error| GptFault::Unreadable(error.to_string()))
    }
}

impl Header {
    /// Judges the block at `block` of a disk of `blocks`.
    fn parse(bytes: &[u8], block: u64, blocks: u64) -> Result<Self, GptFault> {
        if !bytes.starts_with(SIGNATURE) {
            return Err(GptFault::Absent);
        }
        let length = word(bytes, 12);
        if length < HEADER_BYTES_MIN || length as usize > bytes.len() {
            return Err(GptFault::HeaderLength(length));
        }
        let header = &bytes[..length as usize];
        if crc32(&[&header[..16], &[0; 4], &header[20..]]) != word(header, 16) {
            return Err(GptFault::HeaderChecksum);
        }
        if double_word(header, 24) != block {
            return Err(GptFault::HeaderPlace(double_word(header, 24)));
        }
        let header = Self {
            other_block: double_word(header, 32),
            usable_blocks: double_word(header, 40)..double_word(header, 48).saturating_add(1),
            disk: guid(header, 56),
            array_block: double_word(header, 72),
            entry_count: word(header, 80),
            entry_bytes: word(header, 84),
            array_checksum: word(header, 88),
        };
        header.check(block, blocks, bytes.len() as u64)?;
        Ok(header)
    }

    fn check(&self, block: u64, blocks: u64, block_bytes: u64) -> Result<(), GptFault> {
        if self.entry_bytes < ENTRY_BYTES_MIN || !self.entry_bytes.is_power_of_two() {
            return Err(GptFault::EntryLength(self.entry_bytes));
        }
        if self.entry_count == 0 || self.array_bytes() > ARRAY_BYTES_MAX {
            return Err(GptFault::EntryCount(self.entry_count));
        }
        let usable = &self.usable_blocks;
        let on_disk = USABLE_MIN <= usable.start && usable.start < usable.end && usable.end <= blocks;
        if !on_disk || usable.contains(&block) {
            return Err(GptFault::Usable);
        }
        let array_end = self.array_block.checked_add(self.array_bytes().div_ceil(block_bytes));
        let array = self.array_block..array_end.ok_or(GptFault::ArrayPlace)?;
        let apart = array.end <= usable.start || usable.end <= array.start;
        if array.start < USABLE_MIN || array.end > blocks || array.contains(&block) || !apart {
            return Err(GptFault::ArrayPlace);
        }
        Ok(())
    }

    fn array_bytes(&self) -> u64 {
        u64::from(self.entry_count) * u64::from(self.entry_bytes)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn double_word(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

fn guid(bytes: &[u8], at: usize) -> Guid {
    let mut guid = [0; 16];
    guid.copy_from_slice(&bytes[at..at + 16]);
    Guid::from_bytes(guid)
}
