//! Bitmaps of what was written, which are kept inside of an image: their directory, and the bits of each. QEMU's
//! docs/interop/qcow2.txt, "Bitmaps".
//!
//! A bit stands for so many bytes of the disk as the bitmap's granularity says, the lowest bit of a byte first. Bits
//! lie in clusters that the bitmap's table names; where it names none they are all zeros, or all ones.

use super::entries::entries_of;
use super::header::{Header, TABLE_MAX_BYTES, Table};
use super::snapshots::{Directory, u16_of, u32_of, u64_of};
use crate::formats::WritableFile;
use std::io;
use std::ops::Range;

/// QEMU's limits.
pub(super) const BITMAPS_MAX: u32 = 65535;
pub(super) const DIRECTORY_MAX_BYTES: u64 = 64 << 20;
pub(super) const NAME_MAX_BYTES: usize = 1023;
pub(super) const GRANULARITY_MIN_BITS: u8 = 9;
pub(super) const GRANULARITY_MAX_BITS: u8 = 31;
/// Most bytes of a bitmap's bits.
const BITS_MAX_BYTES: u64 = 512 << 20;

const ENTRY_BYTES: usize = 24;
/// Most bytes that a bitmap says of itself beside its name, of which QEMU knows none.
const EXTRA_MAX_BYTES: usize = 64;
/// Where the flags of a bitmap are in its entry.
pub(super) const FLAGS_AT: usize = 12;

/// It is being written to, or was not closed well: it says nothing any more.
pub(super) const IN_USE: u32 = 1 << 0;
/// Who writes to the disk sets its bits.
pub(super) const AUTO: u32 = 1 << 1;
/// Who does not know what else the entry says may use it.
const EXTRA_DATA_COMPATIBLE: u32 = 1 << 2;
const FLAGS: u32 = IN_USE | AUTO | EXTRA_DATA_COMPATIBLE;
/// The only type there is: what was written.
const DIRTY_TRACKING: u8 = 1;

const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
/// Of a table's entry without an offset.
const ALL_ONES: u64 = 1;

/// A bitmap, as its entry in the directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bitmap {
    pub(super) table: Table,
    pub(super) flags: u32,
    kind: u8,
    pub(super) granularity_bits: u8,
    extra: Vec<u8>,
    pub(super) name: Vec<u8>,
}

impl Bitmap {
    /// One that is kept from now on.
    pub(super) fn new(name: &[u8], granularity_bits: u8) -> Self {
        let table = Table { offset_bytes: 0, length_bytes: 0 };
        let name = name.to_vec();
        Self { table, flags: AUTO, kind: DIRTY_TRACKING, granularity_bits, extra: Vec::new(), name }
    }

    /// "Bitmap directory entry": its 24 bytes, and what follows them.
    fn of(entry: &[u8; ENTRY_BYTES], extra: Vec<u8>, name: Vec<u8>) -> Self {
        Self {
            table: table_of(entry),
            flags: u32_of(entry, FLAGS_AT),
            kind: entry[16],
            granularity_bits: entry[17],
            extra,
            name,
        }
    }

    /// Its entry.
    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut bytes = self.table.offset_bytes.to_be_bytes().to_vec();
        // Tables, names and what else there is of them were read out of such fields, or are bounded.
        bytes.extend(((self.table.length_bytes / 8) as u32).to_be_bytes());
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend([self.kind, self.granularity_bits]);
        bytes.extend((self.name.len() as u16).to_be_bytes());
        bytes.extend((self.extra.len() as u32).to_be_bytes());
        bytes.extend(&self.extra);
        bytes.extend(&self.name);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    /// Whether there is more of it than is read.
    fn says_too_much(&self) -> bool {
        self.extra.len() > EXTRA_MAX_BYTES
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.flags & IN_USE != 0
    }

    pub(super) fn is_auto(&self) -> bool {
        self.flags & AUTO != 0
    }

    /// Whether its bits mean what is known here, for a disk of `size_bytes`. The error goes on after "the bitmap NAME".
    pub(super) fn usable(&self, size_bytes: u64, cluster_bytes: u64) -> Result<(), &'static str> {
        let is_understood = self.kind == DIRTY_TRACKING
            && self.flags & !FLAGS == 0
            && (self.extra.is_empty() || self.flags & EXTRA_DATA_COMPATIBLE != 0)
            && !self.says_too_much();
        if self.is_in_use() {
            return Err("was not closed well, or not kept: its bits mean nothing, and it can only be removed");
        }
        if !is_understood || !(GRANULARITY_MIN_BITS..=GRANULARITY_MAX_BITS).contains(&self.granularity_bits) {
            return Err("says of itself what is not known here");
        }
        let Table { offset_bytes, length_bytes } = self.table;
        let is_possible = offset_bytes.is_multiple_of(cluster_bytes) && length_bytes <= TABLE_MAX_BYTES;
        match table_entries(size_bytes, self.granularity_bits, cluster_bytes) {
            Some(entries) if entries * 8 == length_bytes && is_possible => Ok(()),
            _ => Err("is not of a disk of this size"),
        }
    }
}

fn table_of(entry: &[u8; ENTRY_BYTES]) -> Table {
    Table { offset_bytes: u64_of(entry, 0), length_bytes: u64::from(u32_of(entry, 8)) * 8 }
}

/// Entries of the table of a bitmap for a disk of `size_bytes`; `None` if it would have too many bits.
pub(super) fn table_entries(size_bytes: u64, granularity_bits: u8, cluster_bytes: u64) -> Option<u64> {
    let bytes = size_bytes.div_ceil(1 << granularity_bits).div_ceil(8);
    let entries = bytes.div_ceil(cluster_bytes);
    (entries * cluster_bytes <= BITS_MAX_BYTES).then_some(entries)
}

/// The bitmaps' directory, and their tables.
pub(super) fn directory(file: &WritableFile, header: &Header) -> io::Result<Directory> {
    walk(file, header, |_, _| ())
}

/// The bitmaps, each with where its entry lies.
///
/// # Errors
/// When the directory cannot be read, or cannot be.
pub(super) fn bitmaps(file: &WritableFile, header: &Header) -> io::Result<Vec<(Bitmap, u64)>> {
    let mut found = Vec::new();
    let flaw = walk(file, header, |bitmap, at| found.push((bitmap, at)))?.flaw;
    let says_too_much = found.iter().any(|(bitmap, _)| bitmap.says_too_much());
    match flaw.or_else(|| says_too_much.then(|| "a bitmap says too much of itself".to_owned())) {
        Some(flaw) => Err(io::Error::new(io::ErrorKind::InvalidData, flaw)),
        None => Ok(found),
    }
}

/// Goes through the entries of the directory, and shows each with where it begins to `see`.
pub(super) fn walk(file: &WritableFile, header: &Header, mut see: impl FnMut(Bitmap, u64)) -> io::Result<Directory> {
    let mut found = Directory::default();
    let Some(directory) = header.bitmaps else { return Ok(found) };
    let Table { offset_bytes, length_bytes } = directory.table;
    let is_possible = directory.bitmaps <= BITMAPS_MAX && length_bytes <= DIRECTORY_MAX_BYTES;
    if !is_possible || !offset_bytes.is_multiple_of(header.cluster_bytes()) || !file.has(offset_bytes, length_bytes) {
        found.flaw = Some(format!("the bitmap directory of {length_bytes} bytes at {offset_bytes} cannot be"));
        return Ok(found);
    }
    found.own = Some(directory.table);
    let (mut at, end) = (offset_bytes, offset_bytes + length_bytes);
    for _ in 0..directory.bitmaps {
        let mut entry = [0; ENTRY_BYTES];
        let extra_at = at + ENTRY_BYTES as u64;
        if extra_at <= end {
            file.read(&mut entry, at)?;
            found.tables.push(table_of(&entry));
        }
        let (extra_bytes, name_bytes) = (u32_of(&entry, 20), u16_of(&entry, 18));
        let name_at = extra_at + u64::from(extra_bytes);
        let entry_end = name_at + u64::from(name_bytes);
        if entry_end > end {
            found.flaw = Some(format!("the bitmap directory at {offset_bytes} is cut off"));
            break;
        }
        let mut extra = vec![0; (extra_bytes as usize).min(EXTRA_MAX_BYTES + 1)];
        let mut name = vec![0; name_bytes.into()];
        file.read(&mut extra, extra_at)?;
        file.read(&mut name, name_at)?;
        see(Bitmap::of(&entry, extra, name), at);
        at = entry_end.next_multiple_of(8);
    }
    Ok(found)
}

/// The clusters that a bitmap's table names.
pub(super) fn in_table(file: &WritableFile, table: Table) -> impl Iterator<Item = io::Result<u64>> {
    file.used_entries(table).filter_map(|found| found.map(|(_, entry)| place_of(entry)).transpose())
}

/// Where the bits are that an entry of a table is for, if they have a place.
pub(super) fn place_of(entry: u64) -> Option<u64> {
    Some(entry & OFFSET_MASK).filter(|&offset| offset != 0)
}

/// The same of bits that have none: whether they are ones.
pub(super) fn are_ones(entry: u64) -> bool {
    entry & OFFSET_MASK == 0 && entry & ALL_ONES != 0
}

/// The bits of a bitmap, read from its beginning to its end.
pub(super) struct Bits<'a> {
    file: &'a WritableFile,
    cluster_bytes: u64,
    granularity_bits: u8,
    size_bytes: u64,
    entries: &'a [u64],
    /// The cluster of them that was read last, and its index.
    read: Option<(u64, Vec<u64>)>,
}

impl<'a> Bits<'a> {
    /// Of a bitmap that has been found to be usable: `entries` are its table's.
    pub(super) fn new(file: &'a WritableFile, header: &Header, granularity_bits: u8, entries: &'a [u64]) -> Self {
        let (cluster_bytes, size_bytes) = (header.cluster_bytes(), header.size_bytes);
        Self { file, cluster_bytes, granularity_bits, size_bytes, entries, read: None }
    }

    /// The first run of bytes of the disk, from one on, whose bits are set; it may go on in another.
    pub(super) fn next_run(&mut self, from: u64) -> io::Result<Option<Range<u64>>> {
        let per_cluster = self.cluster_bytes * 8;
        // Of a disk that ends in the middle of what a bit stands for, that one was found before.
        let end_bit = if from < self.size_bytes { self.size_bytes.div_ceil(1 << self.granularity_bits) } else { 0 };
        let mut bit = from >> self.granularity_bits;
        while bit < end_bit {
            let index = bit / per_cluster;
            let end = ((index + 1) * per_cluster).min(end_bit);
            let entry = self.entries.get(index as usize).copied().unwrap_or(0);
            let run = match place_of(entry) {
                None if are_ones(entry) => Some(bit..end),
                None => None,
                Some(offset) => {
                    let first = index * per_cluster;
                    let words = self.words(index, offset)?;
                    let word = |index: usize| words.get(index).copied().unwrap_or(0);
                    run_of(word, bit - first..end - first).map(|run| first + run.start..first + run.end)
                }
            };
            if let Some(run) = run {
                let bits = self.granularity_bits;
                return Ok(Some((run.start << bits).max(from)..(run.end << bits).min(self.size_bytes)));
            }
            bit = end;
        }
        Ok(None)
    }

    fn words(&mut self, index: u64, offset: u64) -> io::Result<&[u64]> {
        if self.read.as_ref().is_none_or(|(read, _)| *read != index) {
            if !offset.is_multiple_of(self.cluster_bytes) {
                let message = format!("the bits of a bitmap at {offset} do not begin with a cluster");
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            let mut bytes = vec![0; self.cluster_bytes as usize];
            self.file.read(&mut bytes, offset)?;
            // Of eight bytes, the first has the lowest bits.
            self.read = Some((index, entries_of(&bytes).map(u64::swap_bytes).collect()));
        }
        Ok(self.read.as_ref().map_or(&[], |(_, words)| words))
    }
}

/// The first run of set bits within a range of them, of words that are asked for by their index.
pub(super) fn run_of(word: impl Fn(usize) -> u64, range: Range<u64>) -> Option<Range<u64>> {
    let start = next_bit(&word, range.clone(), true)?;
    let end = next_bit(&word, start..range.end, false).unwrap_or(range.end);
    Some(start..end)
}

/// The first bit of a range that is set, or is not.
fn next_bit(word: &impl Fn(usize) -> u64, range: Range<u64>, is_set: bool) -> Option<u64> {
    let mut at = range.start;
    while at < range.end {
        let word = word((at / 64) as usize);
        let wanted = (if is_set { word } else { !word }) >> (at % 64);
        if wanted != 0 {
            return Some(at + u64::from(wanted.trailing_zeros())).filter(|&bit| bit < range.end);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_bits() {
        let of = |words: [u64; 3]| move |index: usize| words[index];
        let words = of([0xf0 | 1 << 63, 0b11, 0]);
        let mut runs = Vec::new();
        let mut at = 0;
        while let Some(run) = run_of(words, at..192) {
            at = run.end;
            runs.push(run);
        }
        assert_eq!(runs, [4..8, 63..66]);
        assert_eq!(run_of(words, 5..6), Some(5..6));
        assert_eq!(run_of(of([u64::MAX; 3]), 3..128), Some(3..128));
    }

    #[test]
    fn an_entry_is_written_as_it_was_read() {
        let table = Table { offset_bytes: 1 << 16, length_bytes: 24 };
        let bitmap = Bitmap { table, extra: vec![7; 5], flags: AUTO | 4, ..Bitmap::new(b"one", 12) };
        let encoded = bitmap.encoded();
        assert_eq!(encoded.len() % 8, 0);
        let (entry, rest) = encoded.split_first_chunk().unwrap();
        assert_eq!(Bitmap::of(entry, rest[..5].to_vec(), rest[5..8].to_vec()), bitmap);
    }

    #[test]
    fn tables_are_as_long_as_the_disk_wants() {
        assert_eq!(table_entries(1, 9, 512), Some(1));
        assert_eq!(table_entries((512 * 8) << 9, 9, 512), Some(1));
        assert_eq!(table_entries(((512 * 8) << 9) + 1, 9, 512), Some(2));
        assert_eq!(table_entries(1 << 41, 9, 1 << 16), Some(8192));
        assert_eq!(table_entries(1 << 42, 9, 1 << 16), None);
    }
}
