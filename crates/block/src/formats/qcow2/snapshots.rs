//! What an image refers to beside its disk: tables of snapshots. QEMU's docs/interop/qcow2.txt, "Snapshots".

use super::header::{DISK_MAX_BYTES, Header, Table, in_whole_sectors};
use crate::formats::WritableFile;
use std::io;
use std::ops::Range;

/// QEMU's limits.
const SNAPSHOTS_MAX: u32 = 65536;
const TABLES_MAX_BYTES: u64 = 64 << 20;
pub(super) const L1_MAX_BYTES: u64 = 32 << 20;

const SNAPSHOT_BYTES: usize = 40;
/// Most bytes that a snapshot says of itself beside its names: QEMU's limit.
const EXTRA_MAX_BYTES: u32 = 1024;
/// Most bytes of a name, or an ID, that are read, four times as many as QEMU keeps; in a hole of a file they are free.
const TEXT_MAX_BYTES: u16 = 1023;

/// A table, and the tables that its entries name.
#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) own: Option<Table>,
    pub(super) tables: Vec<Table>,
    /// What is wrong with it; what comes behind that is not known.
    pub(super) flaw: Option<String>,
}

/// A snapshot, for people. Texts are as its maker liked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qcow2Snapshot {
    /// A number, mostly.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Bytes of a machine's state that are kept with it.
    pub vm_state_bytes: u64,
    /// When it was made: seconds since 1970, and nanoseconds.
    pub date: (u32, u32),
    /// How long the machine had run, in nanoseconds.
    pub vm_clock_ns: u64,
    /// How many instructions the machine had executed, if that was counted.
    pub instructions: Option<u64>,
}

/// The snapshots, and their L1 tables.
pub(super) fn snapshots(file: &WritableFile, header: &Header) -> io::Result<Directory> {
    walk_snapshots(file, header, |_, _| Ok(()))
}

/// A snapshot as whoever changes the table of snapshots knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundSnapshot {
    pub(super) described: Qcow2Snapshot,
    pub(super) l1: Table,
    /// Size of the disk when it was made; `None`: it does not say, and has the size that the disk has now.
    pub(super) own_size_bytes: Option<u64>,
    /// The same, or that.
    pub(super) size_bytes: u64,
    /// Where its whole entry is in the table of snapshots.
    pub(super) place: Range<usize>,
}

/// The snapshots, all of which can be used.
pub(super) fn found(file: &WritableFile, header: &Header) -> io::Result<Vec<FoundSnapshot>> {
    let mut found = Vec::new();
    let directory = walk_snapshots(file, header, |entry, at| {
        if u32_of(entry, 36) > EXTRA_MAX_BYTES || u16_of(entry, 12).max(u16_of(entry, 14)) > TEXT_MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a snapshot says too much of itself"));
        }
        let described = describe(file, entry, at)?;
        // A table of them is bounded.
        let start = (at - header.snapshots_offset_bytes) as usize;
        let place = start..start + entry_bytes(entry) as usize;
        let l1 = l1_of(entry, header);
        // Old ones do not say.
        let mut own_size = [0; 8];
        file.read(&mut own_size, at + SNAPSHOT_BYTES as u64 + 8)?;
        let own_size_bytes = (u32_of(entry, 36) >= 16).then_some(u64::from_be_bytes(own_size));
        let size_bytes = own_size_bytes.map_or(header.size_bytes, in_whole_sectors);
        found.push(FoundSnapshot { described, l1, own_size_bytes, size_bytes, place });
        Ok(())
    })?;
    let bad_table = |found: &&FoundSnapshot| {
        let Table { offset_bytes, length_bytes } = found.l1;
        length_bytes > L1_MAX_BYTES
            || !offset_bytes.is_multiple_of(header.cluster_bytes())
            || !file.has(offset_bytes, length_bytes)
            || found.size_bytes > DISK_MAX_BYTES
    };
    let flaw = directory.flaw.or_else(|| {
        let bad = found.iter().find(bad_table)?;
        Some(format!("the snapshot {:?} has an L1 table that cannot be", bad.described.name))
    });
    match flaw {
        Some(flaw) => Err(io::Error::new(io::ErrorKind::InvalidData, flaw)),
        None => Ok(found),
    }
}

/// What the snapshots say of themselves, as far as they can be read; of a longer name its beginning.
pub(super) fn described(file: &WritableFile, header: &Header) -> io::Result<Vec<Qcow2Snapshot>> {
    let mut found = Vec::new();
    walk_snapshots(file, header, |entry, at| {
        found.push(describe(file, entry, at)?);
        Ok(())
    })?;
    Ok(found)
}

/// Of the snapshot whose entry begins at `at`.
fn describe(file: &WritableFile, entry: &[u8; SNAPSHOT_BYTES], at: u64) -> io::Result<Qcow2Snapshot> {
    const EXTRA_BYTES: usize = 24;
    let (extra_bytes, id_bytes, name_bytes) = (u32_of(entry, 36), u16_of(entry, 12), u16_of(entry, 14));
    let mut extra = [0; EXTRA_BYTES];
    let known_bytes = EXTRA_BYTES.min(extra_bytes as usize);
    file.read(&mut extra[..known_bytes], at + SNAPSHOT_BYTES as u64)?;
    let id_at = at + SNAPSHOT_BYTES as u64 + u64::from(extra_bytes);
    let text = |at: u64, length: u16| {
        let mut bytes = vec![0; length.min(TEXT_MAX_BYTES).into()];
        file.read(&mut bytes, at)?;
        Ok::<_, io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(Qcow2Snapshot {
        id: text(id_at, id_bytes)?,
        name: text(id_at + u64::from(id_bytes), name_bytes)?,
        vm_state_bytes: if known_bytes >= 8 { u64_of(&extra, 0) } else { u32_of(entry, 32).into() },
        date: (u32_of(entry, 16), u32_of(entry, 20)),
        vm_clock_ns: u64_of(entry, 24),
        instructions: (known_bytes == EXTRA_BYTES).then(|| u64_of(&extra, 16)).filter(|&count| count != u64::MAX),
    })
}

/// Goes through the entries of the snapshot table, and shows each and where it begins to `see`.
fn walk_snapshots(
    file: &WritableFile,
    header: &Header,
    mut see: impl FnMut(&[u8; SNAPSHOT_BYTES], u64) -> io::Result<()>,
) -> io::Result<Directory> {
    let mut found = Directory::default();
    let start = header.snapshots_offset_bytes;
    if header.snapshots == 0 {
        return Ok(found);
    }
    if header.snapshots > SNAPSHOTS_MAX || !start.is_multiple_of(header.cluster_bytes()) || start == 0 {
        found.flaw = Some(format!("the snapshot table of {} entries at {start} cannot be", header.snapshots));
        return Ok(found);
    }
    let mut at = start;
    for _ in 0..header.snapshots {
        let mut entry = [0; SNAPSHOT_BYTES];
        if !file.has(at, SNAPSHOT_BYTES as u64) || at - start > TABLES_MAX_BYTES {
            found.flaw = Some(format!("the snapshot table at {start} does not lie within the file"));
            break;
        }
        file.read(&mut entry, at)?;
        // A sector that was lost, or is another's: whose it was is not known, nor what it led to. Each has an id.
        if u16_of(&entry, 12) == 0 && u16_of(&entry, 14) == 0 {
            let what = if entry == [0; SNAPSHOT_BYTES] { "zeros" } else { "something else" };
            found.flaw = Some(format!("the snapshot table at {start} has {what} in the place of a snapshot"));
            break;
        }
        see(&entry, at)?;
        found.tables.push(l1_of(&entry, header));
        at += entry_bytes(&entry);
    }
    found.own = Some(Table { offset_bytes: start, length_bytes: at - start });
    Ok(found)
}

/// The L1 table of an entry. One without entries lies nowhere, but where one could be.
fn l1_of(entry: &[u8; SNAPSHOT_BYTES], header: &Header) -> Table {
    let table = Table { offset_bytes: u64_of(entry, 0), length_bytes: u64::from(u32_of(entry, 8)) * 8 };
    match table.length_bytes == 0 && table.offset_bytes.is_multiple_of(header.cluster_bytes()) {
        true => Table { offset_bytes: 0, ..table },
        false => table,
    }
}

/// How long an entry is, with what follows it.
fn entry_bytes(entry: &[u8; SNAPSHOT_BYTES]) -> u64 {
    let texts = u64::from(u16_of(entry, 12)) + u64::from(u16_of(entry, 14));
    (SNAPSHOT_BYTES as u64 + u64::from(u32_of(entry, 36)) + texts).next_multiple_of(8)
}

pub(super) fn u64_of(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

pub(super) fn u32_of(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

pub(super) fn u16_of(bytes: &[u8], at: usize) -> u16 {
    u16::from(bytes[at]) << 8 | u16::from(bytes[at + 1])
}
