//! Making partition tables: a GPT with its backup and a protective MBR (UEFI 2.10, sections 5.2.3 and 5.3), or an MBR.
//!
//! Partitions begin at multiples of a mebibyte, as all current tools have it, and follow one another.

use super::crc32::crc32;
use super::guid::Guid;
use super::kind::PartitionKind;
use super::{PartitionTable, Scheme};
use crate::random_bytes::random_bytes;
use crate::{Disk, size, write_bytes};
use std::io;
use std::ops::Range;

/// Where partitions begin.
const ALIGNMENT_BYTES: u64 = 1 << 20;

/// Entries in a GPT, and bytes in each: everybody's.
const GPT_ENTRIES: u64 = 128;
const GPT_ENTRY_BYTES: u64 = 128;
/// UTF-16 units of a name.
pub(super) const GPT_NAME_UNITS_MAX: usize = 36;

/// Entries in an MBR.
const MBR_ENTRIES: usize = 4;

/// A partition that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPartition {
    /// Its size, rounded up to whole blocks; `None` for all that the others leave, which one partition may have.
    pub length_bytes: Option<u64>,
    /// What it is for: of the table's scheme.
    pub kind: PartitionKind,
    /// Its name, of up to 36 UTF-16 units, in a GPT; empty in an MBR.
    pub name: String,
    /// Whether a BIOS boots from it: the active flag in an MBR, the legacy flag in a GPT.
    pub is_bootable: bool,
}

/// Why a table cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum NewTableError {
    /// The partitions do not fit each other, the scheme or the disk.
    #[error("{0}")]
    Impossible(String),
    /// The disk.
    #[error("cannot write the partition table")]
    Write(#[from] io::Error),
}

fn impossible<T>(problem: impl Into<String>) -> Result<T, NewTableError> {
    Err(NewTableError::Impossible(problem.into()))
}

/// Where `partitions` are on a disk of `capacity_bytes` in blocks of `block_bytes`.
///
/// # Errors
/// When they do not fit.
pub fn lay_out(
    scheme: Scheme,
    partitions: &[NewPartition],
    capacity_bytes: u64,
    block_bytes: u64,
) -> Result<Vec<Range<u64>>, NewTableError> {
    check(scheme, partitions)?;
    let usable_end = match scheme {
        Scheme::Gpt => capacity_bytes.saturating_sub(block_bytes + array_blocks(block_bytes) * block_bytes),
        Scheme::Mbr => capacity_bytes,
    };
    let too_small = || {
        let wanted: u64 = partitions.iter().filter_map(|partition| partition.length_bytes).fold(0, u64::saturating_add);
        NewTableError::Impossible(format!(
            "a disk of {} has no room for these partitions ({}, each from a mebibyte on) and their table",
            size::exact(capacity_bytes),
            size::exact(wanted)
        ))
    };
    let rounded = |length: u64| length.checked_next_multiple_of(block_bytes);
    let aligned = |length: u64| length.checked_next_multiple_of(ALIGNMENT_BYTES);
    // The last partition needs no room behind it up to the next mebibyte.
    let mut rest_bytes = usable_end.checked_sub(ALIGNMENT_BYTES).ok_or_else(too_small)?;
    for (index, partition) in partitions.iter().enumerate() {
        let Some(length) = partition.length_bytes else { continue };
        let is_last = index + 1 == partitions.len();
        let taken = if is_last { rounded(length) } else { aligned(length) };
        rest_bytes = taken.and_then(|taken| rest_bytes.checked_sub(taken)).ok_or_else(too_small)?;
    }
    let rest_bytes = rest_bytes - rest_bytes % ALIGNMENT_BYTES;
    let mut at = ALIGNMENT_BYTES;
    let mut ranges = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let length = partition.length_bytes.and_then(rounded).unwrap_or(rest_bytes);
        if length == 0 {
            return Err(too_small());
        }
        ranges.push(at..at + length);
        // Checked above: all of them fit.
        at += length.next_multiple_of(ALIGNMENT_BYTES);
    }
    Ok(ranges)
}

fn check(scheme: Scheme, partitions: &[NewPartition]) -> Result<(), NewTableError> {
    let entries_max = if scheme == Scheme::Gpt { GPT_ENTRIES as usize } else { MBR_ENTRIES };
    if partitions.len() > entries_max {
        let more = if scheme == Scheme::Mbr { ": a GPT has more" } else { "" };
        return impossible(format!("{} partitions are too many: at most {entries_max}{more}", partitions.len()));
    }
    if partitions.iter().filter(|partition| partition.length_bytes.is_none()).count() > 1 {
        return impossible("only one partition can have the rest of the disk");
    }
    for NewPartition { kind, name, .. } in partitions {
        match (scheme, kind) {
            (Scheme::Gpt, PartitionKind::Gpt(_)) if name.encode_utf16().count() > GPT_NAME_UNITS_MAX => {
                return impossible(format!("the name {name:?} is too long: at most {GPT_NAME_UNITS_MAX} letters"));
            }
            (Scheme::Mbr, PartitionKind::Mbr(_)) if !name.is_empty() => {
                return impossible("partitions of an MBR have no names");
            }
            (Scheme::Gpt, PartitionKind::Gpt(_)) | (Scheme::Mbr, PartitionKind::Mbr(_)) => {}
            _ => return impossible(format!("the type {kind} is one of the other kind of table")),
        }
    }
    Ok(())
}

impl PartitionTable {
    /// Writes a new table to a disk that has none, or whose table is not needed any more. What lies in the partitions
    /// stays. Gives back where they are. Nothing is flushed.
    ///
    /// # Errors
    /// When the partitions do not fit, or the disk cannot be written.
    pub fn create(
        disk: &dyn Disk,
        scheme: Scheme,
        partitions: &[NewPartition],
    ) -> Result<Vec<Range<u64>>, NewTableError> {
        let geometry = disk.geometry();
        let block_bytes = u64::from(geometry.logical_block_bytes);
        let ranges = lay_out(scheme, partitions, geometry.capacity_bytes, block_bytes)?;
        Self::create_at(disk, scheme, partitions, &ranges)?;
        Ok(ranges)
    }

    /// As [`PartitionTable::create`], with the partitions at `ranges`, in bytes: whatever the partitions say of their
    /// lengths.
    ///
    /// # Errors
    /// As [`PartitionTable::check_ranges`], or when the disk cannot be written.
    pub fn create_at(
        disk: &dyn Disk,
        scheme: Scheme,
        partitions: &[NewPartition],
        ranges: &[Range<u64>],
    ) -> Result<(), NewTableError> {
        Self::check_ranges(disk, scheme, partitions, ranges)?;
        let geometry = disk.geometry();
        let block_bytes = u64::from(geometry.logical_block_bytes);
        match scheme {
            Scheme::Mbr => write_bytes(disk, 0, &mbr(partitions, ranges, block_bytes)?)?,
            Scheme::Gpt => {
                let blocks = geometry.capacity_bytes / block_bytes;
                let gpt = GptCopies::new(partitions, ranges, blocks, block_bytes)?;
                gpt.write(disk)?;
                write_bytes(disk, 0, &gpt.block(&boot_record(0, &[protective(blocks)])))?;
            }
        }
        Ok(())
    }

    /// Whether `partitions` can be at `ranges`.
    ///
    /// # Errors
    /// When one is no partition of the scheme, lies where the table or another one is, or is not of whole blocks.
    pub fn check_ranges(
        disk: &dyn Disk,
        scheme: Scheme,
        partitions: &[NewPartition],
        ranges: &[Range<u64>],
    ) -> Result<(), NewTableError> {
        let without_lengths: Vec<_> =
            partitions.iter().map(|partition| NewPartition { length_bytes: Some(0), ..partition.clone() }).collect();
        check(scheme, &without_lengths)?;
        let geometry = disk.geometry();
        let block_bytes = u64::from(geometry.logical_block_bytes);
        let table_blocks = if scheme == Scheme::Gpt { 2 + array_blocks(block_bytes) } else { 1 };
        let backup_blocks = if scheme == Scheme::Gpt { 1 + array_blocks(block_bytes) } else { 0 };
        let (first, end) = (
            table_blocks * block_bytes,
            (geometry.capacity_bytes / block_bytes * block_bytes).saturating_sub(backup_blocks * block_bytes),
        );
        if ranges.len() != partitions.len() || end < first {
            return impossible("the disk has no room for this table");
        }
        for (index, range) in ranges.iter().enumerate() {
            let number = index + 1;
            if range.start < first || range.end > end || range.start >= range.end {
                return impossible(format!("partition {number} must lie between the bytes {first} and {end}"));
            }
            if [range.start, range.end].iter().any(|at| !at.is_multiple_of(block_bytes)) {
                return impossible(format!("partition {number} is not made of whole blocks of {block_bytes} bytes"));
            }
            if let Some(other) =
                ranges[..index].iter().position(|other| other.start < range.end && range.start < other.end)
            {
                return impossible(format!("partition {number} shares bytes with partition {}", other + 1));
            }
        }
        Ok(())
    }
}

fn array_blocks(block_bytes: u64) -> u64 {
    (GPT_ENTRIES * GPT_ENTRY_BYTES).div_ceil(block_bytes)
}

/// Both copies of a GPT, and where they are.
pub(super) struct GptCopies {
    pub(super) block_bytes: u64,
    pub(super) disk: Guid,
    pub(super) entry_bytes: u32,
    /// The array: a multiple of `entry_bytes`.
    pub(super) entries: Vec<u8>,
    /// For partitions.
    pub(super) usable_blocks: Range<u64>,
    /// Where the primary copy's array begins.
    pub(super) primary_array: u64,
    /// Where the backup's header is.
    pub(super) backup: u64,
    /// Where its array begins.
    pub(super) backup_array: u64,
}

impl GptCopies {
    fn new(partitions: &[NewPartition], ranges: &[Range<u64>], blocks: u64, block_bytes: u64) -> io::Result<Self> {
        let mut entries = Vec::with_capacity((GPT_ENTRIES * GPT_ENTRY_BYTES) as usize);
        for (partition, range) in partitions.iter().zip(ranges) {
            entries.extend(entry(partition, range, block_bytes, Guid::random()?));
        }
        entries.resize((GPT_ENTRIES * GPT_ENTRY_BYTES) as usize, 0);
        let backup_array = blocks - 1 - array_blocks(block_bytes);
        Ok(Self {
            block_bytes,
            disk: Guid::random()?,
            entry_bytes: GPT_ENTRY_BYTES as u32,
            entries,
            usable_blocks: 2 + array_blocks(block_bytes)..backup_array,
            primary_array: 2,
            backup: blocks - 1,
            backup_array,
        })
    }

    /// Writes both, the backup first, so that one of them is whole whatever happens.
    pub(super) fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        let mut array = self.entries.clone();
        array.resize(array.len().next_multiple_of(self.block_bytes as usize), 0);
        for (own, other, at) in [(self.backup, 1, self.backup_array), (1, self.backup, self.primary_array)] {
            write_bytes(disk, at * self.block_bytes, &array)?;
            write_bytes(disk, own * self.block_bytes, &self.block(&self.header(own, other, at)))?;
        }
        Ok(())
    }

    fn block(&self, beginning: &[u8]) -> Vec<u8> {
        let mut bytes = beginning.to_vec();
        bytes.resize(self.block_bytes as usize, 0);
        bytes
    }

    /// UEFI 2.10, table 5-5.
    fn header(&self, own_block: u64, other_block: u64, array_block: u64) -> Vec<u8> {
        const HEADER_BYTES: u32 = 92;
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
        bytes.extend(b"EFI PART");
        bytes.extend(0x0001_0000_u32.to_le_bytes());
        bytes.extend(HEADER_BYTES.to_le_bytes());
        bytes.extend([0; 8]); // The checksum, and zeros.
        for block in [own_block, other_block, self.usable_blocks.start, self.usable_blocks.end - 1] {
            bytes.extend(block.to_le_bytes());
        }
        bytes.extend(self.disk.to_bytes());
        bytes.extend(array_block.to_le_bytes());
        bytes.extend((self.entries.len() as u32 / self.entry_bytes).to_le_bytes());
        bytes.extend(self.entry_bytes.to_le_bytes());
        bytes.extend(crc32(&[&self.entries]).to_le_bytes());
        let checksum = crc32(&[&bytes]);
        bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// UEFI 2.10, table 5-6.
pub(super) fn entry(
    partition: &NewPartition,
    range: &Range<u64>,
    block_bytes: u64,
    guid: Guid,
) -> [u8; GPT_ENTRY_BYTES as usize] {
    const LEGACY_BOOT: u64 = 1 << 2;
    let kind = if let PartitionKind::Gpt(kind) = partition.kind { kind } else { Guid::ZERO };
    let attributes = if partition.is_bootable { LEGACY_BOOT } else { 0 };
    let mut bytes = [0; GPT_ENTRY_BYTES as usize];
    bytes[..16].copy_from_slice(&kind.to_bytes());
    bytes[16..32].copy_from_slice(&guid.to_bytes());
    bytes[32..40].copy_from_slice(&(range.start / block_bytes).to_le_bytes());
    bytes[40..48].copy_from_slice(&(range.end / block_bytes - 1).to_le_bytes());
    bytes[48..56].copy_from_slice(&attributes.to_le_bytes());
    for (place, unit) in bytes[56..].chunks_exact_mut(2).zip(partition.name.encode_utf16()) {
        place.copy_from_slice(&unit.to_le_bytes());
    }
    bytes
}

/// An MBR's entry, 16 bytes.
pub(super) fn record(
    indicator: u8,
    kind: u8,
    cylinders: [[u8; 3]; 2],
    start_block: u32,
    length_blocks: u32,
) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0] = indicator;
    bytes[1..4].copy_from_slice(&cylinders[0]);
    bytes[4] = kind;
    bytes[5..8].copy_from_slice(&cylinders[1]);
    bytes[8..12].copy_from_slice(&start_block.to_le_bytes());
    bytes[12..].copy_from_slice(&length_blocks.to_le_bytes());
    bytes
}

/// The entry that covers the disk: UEFI 2.10, table 5-4.
pub(super) fn protective(blocks: u64) -> [u8; 16] {
    let length = u32::try_from(blocks - 1).unwrap_or(u32::MAX);
    record(0, 0xee, [[0, 2, 0], [0xff; 3]], 1, length)
}

fn boot_record(identifier: u32, records: &[[u8; 16]]) -> [u8; 512] {
    let mut bytes = [0; 512];
    bytes[440..444].copy_from_slice(&identifier.to_le_bytes());
    for (place, record) in bytes[446..510].chunks_exact_mut(16).zip(records) {
        place.copy_from_slice(record);
    }
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

/// What says that only the block numbers count.
pub(super) const CYLINDERS: [[u8; 3]; 2] = [[0xfe, 0xff, 0xff]; 2];

/// All of the first block.
fn mbr(partitions: &[NewPartition], ranges: &[Range<u64>], block_bytes: u64) -> Result<Vec<u8>, NewTableError> {
    let mut records = Vec::with_capacity(MBR_ENTRIES);
    for (partition, range) in partitions.iter().zip(ranges) {
        let block = |bytes: u64| u32::try_from(bytes / block_bytes).ok();
        let (Some(start), Some(length)) = (block(range.start), block(range.end - range.start)) else {
            return impossible("an MBR cannot tell what lies beyond 2^32 blocks: take a GPT");
        };
        let PartitionKind::Mbr(kind) = partition.kind else { continue };
        records.push(record(if partition.is_bootable { 0x80 } else { 0 }, kind, CYLINDERS, start, length));
    }
    let mut bytes = boot_record(u32::from_le_bytes(random_bytes()?), &records).to_vec();
    bytes.resize(block_bytes as usize, 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;
    use crate::partition_table::{TableChoice, read_as};

    const MIB: u64 = 1 << 20;

    fn partition(length_bytes: Option<u64>, kind: PartitionKind) -> NewPartition {
        NewPartition { length_bytes, kind, name: String::new(), is_bootable: false }
    }

    fn linux(scheme: Scheme) -> PartitionKind {
        PartitionKind::of_word("linux", scheme).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (scheme, block_bytes) in [(Scheme::Gpt, 512), (Scheme::Gpt, 4096), (Scheme::Mbr, 512), (Scheme::Mbr, 4096)]
        {
            let disk = MemoryDisk::new(100 * MIB, block_bytes).unwrap();
            let mut partitions: Vec<_> =
                [Some(10 * MIB), Some(MIB + 1), None].map(|length| partition(length, linux(scheme))).into();
            partitions[0].is_bootable = true;
            if scheme == Scheme::Gpt {
                partitions[1].name = "größer".to_owned();
            }
            let ranges = PartitionTable::create(&disk, scheme, &partitions).unwrap();
            let table = read_as(&disk, TableChoice::Auto).unwrap();
            assert!(table.warnings.is_empty(), "{:?}", table.warnings);
            assert_eq!(table.scheme, Some(scheme));
            assert!(table.partitions.iter().map(|found| &found.range_bytes).eq(&ranges));
            assert!(table.partitions.iter().map(|found| &found.name).eq(partitions.iter().map(|new| &new.name)));
            assert!(ranges.iter().all(|range| range.start.is_multiple_of(MIB)));
            assert_eq!(ranges[0], MIB..11 * MIB);
            assert_eq!(ranges[1].end - ranges[1].start, MIB + u64::from(block_bytes));
            assert_eq!(ranges[2].start, 13 * MIB);
            assert!(table.partitions[0].attributes != 0 && table.partitions[1].attributes == 0);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let gpt = linux(Scheme::Gpt);
        let fails = |scheme, partitions: &[NewPartition], capacity| {
            lay_out(scheme, partitions, capacity, 512).unwrap_err().to_string()
        };
        assert!(fails(Scheme::Gpt, &[partition(Some(10 * MIB), gpt)], 11 * MIB).contains("no room"));
        assert!(fails(Scheme::Gpt, &[partition(None, gpt)], MIB).contains("no room"));
        assert!(fails(Scheme::Gpt, &[partition(None, gpt)], 0).contains("no room"));
        assert!(fails(Scheme::Gpt, &[partition(Some(u64::MAX), gpt)], 11 * MIB).contains("no room"));
        assert!(fails(Scheme::Gpt, &[partition(Some(0), gpt)], 11 * MIB).contains("no room"));
        assert!(fails(Scheme::Gpt, &vec![partition(None, gpt); 2], 11 * MIB).contains("rest"));
        assert!(fails(Scheme::Gpt, &vec![partition(Some(1), gpt); 129], 1 << 40).contains("at most 128"));
        assert!(fails(Scheme::Mbr, &vec![partition(Some(1), linux(Scheme::Mbr)); 5], 1 << 30).contains("a GPT"));
        assert!(fails(Scheme::Mbr, &[partition(None, gpt)], 1 << 30).contains("other kind"));
        let long = NewPartition { name: "x".repeat(37), ..partition(None, gpt) };
        assert!(fails(Scheme::Gpt, &[long], 1 << 30).contains("too long"));
        lay_out(Scheme::Mbr, &[partition(Some(10 * MIB), linux(Scheme::Mbr))], 11 * MIB, 512).unwrap();
    }

    #[test]
    fn an_mbr_refuses_what_it_cannot_tell() {
        let disk = crate::NullDisk::new(3 << 40, 512).unwrap();
        let partitions = [partition(None, linux(Scheme::Mbr))];
        let error = PartitionTable::create(&disk, Scheme::Mbr, &partitions).unwrap_err();
        assert!(error.to_string().contains("take a GPT"), "{error}");
    }
}
