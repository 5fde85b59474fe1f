//! Changing a table in place. What is not asked for stays as it is, to the byte: boot code, GUIDs, the order of
//! entries, and all that lies in partitions.

use super::gpt::{Copy, Gpt};
use super::guid::Guid;
use super::kind::PartitionKind;
use super::new_table::{CYLINDERS, GPT_NAME_UNITS_MAX, GptCopies, NewPartition, entry, protective, record};
use super::{PartitionTable, PartitionTableError, Scheme, read};
use crate::{Disk, DiskReader, write_bytes};
use std::io;
use std::ops::Range;

/// A change of a partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// A new partition of these bytes, in the first entry that is free.
    Add(Range<u64>, PartitionKind),
    /// Of the partition with that number.
    Entry(u32, EntryChange),
    /// The disk's own GUID, in a GPT.
    DiskGuid(Guid),
    /// A GPT's backup goes to the end of a disk that has become larger, and partitions may lie where there is room now.
    Expand,
}

/// A change of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// It is none any more; what lies in it stays.
    Delete,
    /// It ends before this byte of the disk.
    End(u64),
    /// What it is for.
    Kind(PartitionKind),
    /// Whether a BIOS boots from it: in an MBR, where one partition can have that, no other has it then.
    Bootable(bool),
    /// Its name, in a GPT.
    Name(String),
    /// Its attributes, in a GPT (UEFI 2.10, section 5.3.3).
    Attributes(u64),
    /// Its own GUID, in a GPT.
    Guid(Guid),
}

/// Why a table cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// It is none, or not a sound one.
    #[error(transparent)]
    Table(#[from] PartitionTableError),
    /// The change makes no sense.
    #[error("{0}")]
    Impossible(String),
    /// The disk.
    #[error("cannot write the partition table")]
    Write(#[from] io::Error),
}

fn impossible<T>(problem: impl Into<String>) -> Result<T, ChangeError> {
    Err(ChangeError::Impossible(problem.into()))
}

const NOT_IN_MBR: &str = "an MBR has no names, GUIDs and attributes, and no backup: a GPT has";

impl PartitionTable {
    /// Changes a disk's table. Nothing is flushed.
    ///
    /// # Errors
    /// When the disk has no table, or the change is not possible: then nothing was written; when the disk fails.
    pub fn change(disk: &dyn Disk, change: &TableChange) -> Result<(), ChangeError> {
        let table = read(disk)?;
        match change {
            TableChange::Add(range, _) => check_range(disk, &table, range, None)?,
            TableChange::Entry(number, what) => {
                let Some(partition) = table.partitions.iter().find(|partition| partition.number == *number) else {
                    return impossible(format!("there is no partition {number}"));
                };
                if let EntryChange::End(end) = what {
                    if partition.kind.is_extended() {
                        return impossible("an extended partition keeps its length");
                    }
                    check_range(disk, &table, &(partition.range_bytes.start..*end), Some(*number))?;
                }
            }
            TableChange::DiskGuid(_) | TableChange::Expand => {}
        }
        match table.scheme {
            None => impossible("the disk has no partition table"),
            Some(Scheme::Gpt) => change_gpt(disk, change),
            Some(Scheme::Mbr) => change_mbr(disk, change),
        }
    }
}

/// Whether a partition can have these bytes: whole blocks that no other has.
fn check_range(
    disk: &dyn Disk,
    table: &PartitionTable,
    range: &Range<u64>,
    own_number: Option<u32>,
) -> Result<(), ChangeError> {
    let block_bytes = u64::from(disk.geometry().logical_block_bytes);
    if range.start >= range.end || [range.start, range.end].iter().any(|at| !at.is_multiple_of(block_bytes)) {
        return impossible(format!("a partition has whole blocks of {block_bytes} bytes, and at least one"));
    }
    let shares = |other: &&super::Partition| {
        let theirs = &other.range_bytes;
        // A logical partition lies in an extended one.
        let within = |inner: &Range<u64>, outer: &Range<u64>| outer.start <= inner.start && inner.end <= outer.end;
        let is_inside = own_number.is_some_and(|number| number >= 5) && other.kind.is_extended();
        Some(other.number) != own_number
            && theirs.start < range.end
            && range.start < theirs.end
            && !(is_inside && within(range, theirs))
    };
    match table.partitions.iter().find(shares) {
        Some(other) => impossible(format!("these bytes are partition {}'s", other.number)),
        None => Ok(()),
    }
}

fn change_gpt(disk: &dyn Disk, change: &TableChange) -> Result<(), ChangeError> {
    let geometry = disk.geometry();
    let (block_bytes, blocks) =
        (u64::from(geometry.logical_block_bytes), geometry.capacity_bytes / u64::from(geometry.logical_block_bytes));
    let mut reader = DiskReader::new(disk)?;
    let mut gpt = copies(Gpt::read(&mut reader, blocks, geometry.logical_block_bytes), blocks, block_bytes)?;
    let entry_bytes = gpt.entry_bytes as usize;
    match change {
        TableChange::Add(range, kind) => {
            let free = gpt.entries.chunks_exact_mut(entry_bytes).find(|entry| entry[..16] == [0; 16]);
            let Some(free) = free else { return impossible("the table has no entry left") };
            let new = NewPartition { length_bytes: None, kind: *kind, name: String::new(), is_bootable: false };
            let PartitionKind::Gpt(_) = kind else { return impossible(format!("the type {kind} is an MBR's")) };
            free[..128].copy_from_slice(&entry(&new, range, block_bytes, Guid::random()?));
            check_usable(&gpt.usable_blocks, range, block_bytes)?;
        }
        TableChange::Entry(number, what) => {
            if let EntryChange::End(end) = what {
                check_usable(&gpt.usable_blocks, &(gpt.usable_blocks.start * block_bytes..*end), block_bytes)?;
            }
            // The partition is there: so is its entry.
            let entry = gpt.entries.chunks_exact_mut(entry_bytes).nth(*number as usize - 1);
            let Some(entry) = entry else { return impossible(format!("there is no partition {number}")) };
            change_gpt_entry(entry, what, block_bytes)?;
        }
        TableChange::DiskGuid(guid) => gpt.disk = *guid,
        TableChange::Expand => {
            let array_blocks = (gpt.entries.len() as u64).div_ceil(block_bytes);
            (gpt.backup, gpt.backup_array) = (blocks - 1, blocks - 1 - array_blocks);
            if gpt.backup_array < gpt.usable_blocks.end {
                return impossible("the disk has no room for the backup behind its partitions");
            }
            gpt.usable_blocks.end = gpt.backup_array;
            // The protective MBR covers what there is now, but a hybrid one says what it likes.
            let mut sector = vec![0; block_bytes as usize];
            DiskReader::new(disk)?.read(0, &mut sector)?;
            gpt.write(disk)?;
            if sector[450] == 0xee && sector[462..510].iter().all(|&byte| byte == 0) {
                sector[446..462].copy_from_slice(&protective(blocks));
                write_bytes(disk, 0, &sector)?;
            }
            return Ok(());
        }
    }
    Ok(gpt.write(disk)?)
}

/// Both copies as they are to be written: where they are, or, of one that is damaged, where it belongs.
fn copies(gpt: Gpt, blocks: u64, block_bytes: u64) -> Result<GptCopies, ChangeError> {
    let primary = gpt.primary.as_ref().ok().map(|copy| copy.header.array_block);
    let backup = gpt.backup.as_ref().ok().map(|copy| (copy.block, copy.header.array_block));
    let Ok((Copy { header, array, .. }, _)) = gpt.choose() else { return impossible("the GPT is damaged") };
    let array_blocks = (array.len() as u64).div_ceil(block_bytes);
    let primary_array = primary.unwrap_or(2);
    let (backup, backup_array) = backup.unwrap_or((blocks - 1, (blocks - 1).saturating_sub(array_blocks)));
    if primary_array + array_blocks > header.usable_blocks.start || backup_array < header.usable_blocks.end {
        return impossible("the GPT leaves no room for its other copy");
    }
    Ok(GptCopies {
        block_bytes,
        disk: header.disk,
        entry_bytes: header.entry_bytes,
        entries: array,
        usable_blocks: header.usable_blocks,
        primary_array,
        backup,
        backup_array,
    })
}

fn check_usable(usable: &Range<u64>, range: &Range<u64>, block_bytes: u64) -> Result<(), ChangeError> {
    let (first, end) = (usable.start * block_bytes, usable.end * block_bytes);
    match range.start < first || range.end > end {
        true => impossible(format!("a partition of this GPT lies between the bytes {first} and {end}")),
        false => Ok(()),
    }
}

/// UEFI 2.10, table 5-6.
fn change_gpt_entry(entry: &mut [u8], change: &EntryChange, block_bytes: u64) -> Result<(), ChangeError> {
    const LEGACY_BOOT: u8 = 1 << 2;
    match change {
        EntryChange::Delete => entry.fill(0),
        EntryChange::End(end) => entry[40..48].copy_from_slice(&(end / block_bytes - 1).to_le_bytes()),
        EntryChange::Kind(PartitionKind::Gpt(kind)) => entry[..16].copy_from_slice(&kind.to_bytes()),
        EntryChange::Kind(kind) => return impossible(format!("the type {kind} is an MBR's")),
        EntryChange::Bootable(true) => entry[48] |= LEGACY_BOOT,
        EntryChange::Bootable(false) => entry[48] &= !LEGACY_BOOT,
        EntryChange::Name(name) if name.encode_utf16().count() > GPT_NAME_UNITS_MAX => {
            return impossible(format!("the name {name:?} is too long: at most {GPT_NAME_UNITS_MAX} letters"));
        }
        EntryChange::Name(name) => {
            entry[56..128].fill(0);
            for (place, unit) in entry[56..128].chunks_exact_mut(2).zip(name.encode_utf16()) {
                place.copy_from_slice(&unit.to_le_bytes());
            }
        }
        EntryChange::Attributes(attributes) => entry[48..56].copy_from_slice(&attributes.to_le_bytes()),
        EntryChange::Guid(guid) => entry[16..32].copy_from_slice(&guid.to_bytes()),
    }
    Ok(())
}

fn change_mbr(disk: &dyn Disk, change: &TableChange) -> Result<(), ChangeError> {
    let geometry = disk.geometry();
    let block_bytes = u64::from(geometry.logical_block_bytes);
    let mut sector = vec![0; block_bytes as usize];
    DiskReader::new(disk)?.read(0, &mut sector)?;
    let block = |bytes: u64| match u32::try_from(bytes / block_bytes) {
        Ok(block) => Ok(block),
        Err(_) => impossible("an MBR cannot tell what lies beyond 2^32 blocks: take a GPT"),
    };
    let place = |index: usize| 446 + 16 * index..462 + 16 * index;
    match change {
        TableChange::Add(range, kind) => {
            let PartitionKind::Mbr(kind) = kind else { return impossible(format!("the type {kind} is a GPT's")) };
            let free = (0..4).find(|&index| sector[place(index)][4] == 0);
            let Some(free) = free else { return impossible("an MBR has four primary partitions at most") };
            if range.start < block_bytes || range.end > geometry.capacity_bytes {
                return impossible(format!(
                    "a partition lies between the bytes {block_bytes} and {}",
                    geometry.capacity_bytes
                ));
            }
            let new = record(0, *kind, CYLINDERS, block(range.start)?, block(range.end - range.start)?);
            sector[place(free)].copy_from_slice(&new);
        }
        TableChange::Entry(5.., _) => {
            return impossible("logical partitions are left as they are: primary ones can be changed");
        }
        TableChange::Entry(number, what) => {
            let own = *number as usize - 1;
            if matches!(what, EntryChange::Bootable(true)) {
                (0..4).for_each(|index| sector[place(index)][0] = 0);
            }
            let entry = &mut sector[place(own)];
            match what {
                EntryChange::Delete => entry.fill(0),
                EntryChange::Kind(PartitionKind::Mbr(kind)) => entry[4] = *kind,
                EntryChange::Kind(kind) => return impossible(format!("the type {kind} is a GPT's")),
                EntryChange::Bootable(is) => entry[0] = if *is { 0x80 } else { 0 },
                EntryChange::End(end) if *end > geometry.capacity_bytes => {
                    return impossible(format!("the disk ends at byte {}", geometry.capacity_bytes));
                }
                EntryChange::End(end) => {
                    let start = u32::from_le_bytes([entry[8], entry[9], entry[10], entry[11]]);
                    let length = block(*end)? - start;
                    let changed = record(entry[0], entry[4], CYLINDERS, start, length);
                    entry.copy_from_slice(&changed);
                }
                EntryChange::Name(_) | EntryChange::Attributes(_) | EntryChange::Guid(_) => {
                    return impossible(NOT_IN_MBR);
                }
            }
        }
        TableChange::DiskGuid(_) | TableChange::Expand => return impossible(NOT_IN_MBR),
    }
    Ok(write_bytes(disk, 0, &sector)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;

    const MIB: u64 = 1 << 20;

    fn disk(scheme: Scheme, block_bytes: u32) -> MemoryDisk {
        let disk = MemoryDisk::new(64 * MIB, block_bytes).unwrap();
        let kind = PartitionKind::of_word("linux", scheme).unwrap();
        let partition = NewPartition { length_bytes: Some(10 * MIB), kind, name: String::new(), is_bootable: false };
        PartitionTable::create(&disk, scheme, &vec![partition; 3]).unwrap();
        disk
    }

    fn bytes_of(disk: &MemoryDisk) -> Vec<u8> {
        let mut bytes = vec![0; disk.geometry().capacity_bytes as usize];
        DiskReader::new(disk).unwrap().read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_change_changes_what_it_says_and_nothing_else() {
        for (scheme, block_bytes) in [(Scheme::Gpt, 512), (Scheme::Gpt, 4096), (Scheme::Mbr, 512), (Scheme::Mbr, 4096)]
        {
            let disk = disk(scheme, block_bytes);
            write_bytes(&disk, 0, &[&[0xeb; 440][..], &bytes_of(&disk)[440..block_bytes as usize]].concat()).unwrap();
            let swap = PartitionKind::of_word("swap", scheme).unwrap();
            let mut wanted = read(&disk).unwrap();
            let mut check = |change: TableChange, expect: &dyn Fn(&mut PartitionTable)| {
                PartitionTable::change(&disk, &change).unwrap();
                expect(&mut wanted);
                let found = read(&disk).unwrap();
                assert_eq!(found, wanted, "{change:?}");
                assert_eq!(bytes_of(&disk)[..440], [0xeb; 440]);
            };
            check(TableChange::Entry(2, EntryChange::Delete), &|table| drop(table.partitions.remove(1)));
            check(TableChange::Entry(1, EntryChange::End(15 * MIB)), &|table| {
                table.partitions[0].range_bytes.end = 15 * MIB;
            });
            check(TableChange::Entry(3, EntryChange::Kind(swap)), &|table| table.partitions[1].kind = swap);
            check(TableChange::Entry(3, EntryChange::Bootable(true)), &|table| {
                table.partitions[1].attributes = if scheme == Scheme::Gpt { 4 } else { 0x80 };
            });
            check(TableChange::Entry(3, EntryChange::Bootable(false)), &|table| table.partitions[1].attributes = 0);
            if scheme == Scheme::Gpt {
                let guid = Guid::random().unwrap();
                check(TableChange::Entry(1, EntryChange::Name("größer".into())), &|table| {
                    table.partitions[0].name = "größer".into();
                });
                check(TableChange::Entry(1, EntryChange::Attributes(1 << 60)), &|table| {
                    table.partitions[0].attributes = 1 << 60;
                });
                check(TableChange::Entry(1, EntryChange::Guid(guid)), &|table| table.partitions[0].guid = Some(guid));
                check(TableChange::DiskGuid(guid), &|table| table.disk_guid = Some(guid));
            }
            PartitionTable::change(&disk, &TableChange::Add(40 * MIB..41 * MIB, swap)).unwrap();
            let added = &read(&disk).unwrap().partitions[1];
            assert_eq!((added.number, &added.range_bytes, added.kind), (2, &(40 * MIB..41 * MIB), swap));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_nothing_is_written() {
        for scheme in [Scheme::Gpt, Scheme::Mbr] {
            let disk = disk(scheme, 512);
            let before = bytes_of(&disk);
            let kind = PartitionKind::of_word("linux", scheme).unwrap();
            let mut bad = vec![
                TableChange::Entry(4, EntryChange::Delete),
                TableChange::Entry(1, EntryChange::End(12 * MIB)),
                TableChange::Entry(1, EntryChange::End(MIB)),
                TableChange::Entry(3, EntryChange::End(64 * MIB + 512)),
                TableChange::Entry(3, EntryChange::End(40 * MIB + 1)),
                TableChange::Add(0..MIB, kind),
                TableChange::Add(5 * MIB..6 * MIB, kind),
                TableChange::Add(60 * MIB..65 * MIB, kind),
                TableChange::Add(60 * MIB..60 * MIB, kind),
                TableChange::Entry(1, EntryChange::Name("x".repeat(37))),
            ];
            let other = if scheme == Scheme::Gpt { Scheme::Mbr } else { Scheme::Gpt };
            let other = PartitionKind::of_word("linux", other).unwrap();
            bad.extend([TableChange::Add(60 * MIB..61 * MIB, other), TableChange::Entry(1, EntryChange::Kind(other))]);
            for change in bad {
                let error = PartitionTable::change(&disk, &change).unwrap_err();
                assert!(matches!(error, ChangeError::Impossible(_)), "{change:?}: {error}");
                assert!(bytes_of(&disk) == before, "{change:?}");
            }
        }
        let empty = MemoryDisk::new(MIB, 512).unwrap();
        assert!(PartitionTable::change(&empty, &TableChange::Expand).is_err());
    }

    #[test]
    fn a_damaged_copy_is_made_good_by_a_change() {
        for damaged_block in [1, 64 * MIB / 512 - 1] {
            let disk = disk(Scheme::Gpt, 512);
            write_bytes(&disk, damaged_block * 512, &[0; 512]).unwrap();
            PartitionTable::change(&disk, &TableChange::Entry(1, EntryChange::Name("a".into()))).unwrap();
            let table = read(&disk).unwrap();
            assert!(table.warnings.is_empty() && table.partitions[0].name == "a", "{:?}", table.warnings);
        }
    }

    /// A table whose backup is at the very end but for its header, which lies in front of all partitions: nobody makes
    /// such tables, but they are valid.
    #[test]
    fn a_backup_that_moves_to_the_end_takes_no_partitions_last_blocks() {
        const BLOCKS: u64 = 64 * MIB / 512;
        let disk = MemoryDisk::new(64 * MIB, 512).unwrap();
        let kind = PartitionKind::of_word("linux", Scheme::Gpt).unwrap();
        let partition = NewPartition { length_bytes: None, kind, name: String::new(), is_bootable: false };
        let usable_blocks = 41..BLOCKS - 32;
        let range = usable_blocks.start * 512..usable_blocks.end * 512;
        let mut entries = entry(&partition, &range, 512, Guid::random().unwrap()).to_vec();
        entries.resize(128 * 128, 0);
        let (disk_guid, backup_array) = (Guid::random().unwrap(), usable_blocks.end);
        let gpt = GptCopies {
            block_bytes: 512,
            disk: disk_guid,
            entry_bytes: 128,
            entries,
            usable_blocks,
            primary_array: 2,
            backup: 40,
            backup_array,
        };
        gpt.write(&disk).unwrap();
        let mut boot_record = [0; 512];
        boot_record[446..462].copy_from_slice(&protective(BLOCKS));
        boot_record[510..].copy_from_slice(&[0x55, 0xaa]);
        write_bytes(&disk, 0, &boot_record).unwrap();
        write_bytes(&disk, range.end - 512, &[7; 512]).unwrap();
        assert_eq!(read(&disk).unwrap().partitions[0].range_bytes, range);
        let before = bytes_of(&disk);
        let error = PartitionTable::change(&disk, &TableChange::Expand).unwrap_err();
        assert!(matches!(error, ChangeError::Impossible(_)), "{error}");
        assert!(bytes_of(&disk) == before, "it was written all the same");
    }
}
