//! Snapshots inside of an image: making, showing again and removing them. QEMU's docs/interop/qcow2.txt, "Snapshots".
//!
//! Each step leaves an image whose disk and snapshots are whole: what is referred to is counted before, and what is no
//! more referred to is so stably before its count is lowered. Cut off in between, clusters are leaked or marked as
//! shared that are not. The latter is an error to who checks the image, and so is one that is marked dirty meanwhile:
//! whoever opens it next to write to it repairs it. Version 2 has no such mark.

use super::Metadata;
use crate::formats::qcow2::entries::{COPIED, Entry, Mapping, OFFSET_MASK};
use crate::formats::qcow2::header::{
    ENCRYPTION_AT, Header, INCOMPATIBLE_AT, INCOMPATIBLE_DIRTY, SIZE_AT, SNAPSHOTS_AT, TABLE_MAX_BYTES, Table,
};
use crate::formats::qcow2::snapshots::{self, FoundSnapshot};
use rustix::io::Errno;
use std::io;
use std::ops::Range;

/// Clusters that are counted together: their blocks of refcounts are written once.
const COUNTED_TOGETHER: usize = 1 << 20;

/// A snapshot that is made.
pub(in crate::formats::qcow2) struct NewSnapshot<'a> {
    pub(in crate::formats::qcow2) id: &'a str,
    pub(in crate::formats::qcow2) name: &'a str,
    /// Seconds since 1970, and nanoseconds.
    pub(in crate::formats::qcow2) date: (u32, u32),
    /// Size of the disk.
    pub(in crate::formats::qcow2) size_bytes: u64,
}

/// Which entries say that what they lead to is theirs alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks {
    None,
    /// Those whose refcounts are one.
    ByRefcount,
}

impl Metadata {
    /// Makes a snapshot of the disk as it is.
    ///
    /// # Errors
    /// When the image has no room for it, its refcounts cannot be higher, or it cannot be read or written.
    pub(in crate::formats::qcow2) fn make_snapshot(
        &mut self,
        header: &Header,
        new: &NewSnapshot<'_>,
    ) -> io::Result<()> {
        self.write_entries()?;
        let l1 = self.l1;
        self.for_clusters(l1, |metadata, clusters| metadata.allocator.can_raise(clusters))?;
        self.set_dirty(true)?;
        let made = self.share(header, new);
        // What failed is no more shared than before, or leaked at worst.
        let settled = if made.is_ok() { Ok(()) } else { self.mark(l1, true, Marks::ByRefcount) };
        made.and(settled.and_then(|()| self.set_dirty(false)))
    }

    /// Says that refcounts and what entries say of them may disagree, or that they do not any more, on stable storage.
    fn set_dirty(&mut self, is_dirty: bool) -> io::Result<()> {
        let Some(incompatible) = self.incompatible else { return Ok(()) };
        self.barrier()?;
        let features = if is_dirty { incompatible | INCOMPATIBLE_DIRTY } else { incompatible };
        self.file.write_header(&features.to_be_bytes(), INCOMPATIBLE_AT)
    }

    fn share(&mut self, header: &Header, new: &NewSnapshot<'_>) -> io::Result<()> {
        let l1 = self.l1;
        // Before anything is shared, nothing says that it is not.
        self.mark(l1, true, Marks::None)?;
        self.barrier()?;
        let mut placed = Vec::new();
        // What takes room comes before what is shared: it may not be had.
        let shared = self.place_snapshot(header, new, &mut placed).and_then(|table| self.raise(l1).map(|()| table));
        self.replace_snapshots(header, shared, header.snapshots + 1, &placed)
    }

    /// Writes the L1 table of a new snapshot, and a table of snapshots that has it, to clusters that are said.
    fn place_snapshot(
        &mut self,
        header: &Header,
        new: &NewSnapshot<'_>,
        placed: &mut Vec<Range<u64>>,
    ) -> io::Result<Table> {
        let mut copy = vec![0; self.l1.length_bytes as usize];
        self.file.read(&mut copy, self.l1.offset_bytes)?;
        let l1 = self.write_table(&copy, placed)?;
        let mut table = self.snapshot_table(header, None)?;
        table.extend(new.entry(l1));
        self.write_table(&table, placed)
    }

    /// Removes the snapshot `found`, and frees what it alone refers to.
    ///
    /// # Errors
    /// When the image cannot be read or written.
    pub(in crate::formats::qcow2) fn remove_snapshot(
        &mut self,
        header: &Header,
        found: &FoundSnapshot,
    ) -> io::Result<()> {
        self.write_entries()?;
        let mut table = self.snapshot_table(header, Some(found))?;
        table.drain(found.place.clone());
        let mut placed = Vec::new();
        let placing = match table.is_empty() {
            true => Ok(Table { offset_bytes: 0, length_bytes: 0 }),
            false => self.write_table(&table, &mut placed),
        };
        let dirty = placing.and_then(|table| self.set_dirty(true).map(|()| table));
        self.replace_snapshots(header, dirty, header.snapshots - 1, &placed)?;
        self.lower(found.l1)?;
        self.free_table(found.l1)?;
        self.mark(self.l1, true, Marks::ByRefcount)?;
        self.set_dirty(false)
    }

    /// Makes the disk what it was when the snapshot `found` was made.
    ///
    /// # Errors
    /// When the image has no room for that, or cannot be read or written.
    pub(in crate::formats::qcow2) fn apply_snapshot(&mut self, found: &FoundSnapshot) -> io::Result<()> {
        self.write_entries()?;
        let wanted = found.size_bytes.div_ceil(1 << self.layout.table_covers_bits()) * 8;
        let length_bytes = found.l1.length_bytes.max(wanted);
        if length_bytes > TABLE_MAX_BYTES {
            return Err(Errno::FBIG.into());
        }
        self.for_clusters(found.l1, |metadata, clusters| metadata.allocator.can_raise(clusters))?;
        self.set_dirty(true)?;
        let mut placed = Vec::new();
        let shown = self.share_shown(found.l1, length_bytes, &mut placed);
        let new = self.or_free(shown, &placed).or_else(|error| {
            // The disk shares no more than it did.
            self.mark(self.l1, true, Marks::ByRefcount)?;
            self.set_dirty(false)?;
            Err(error)
        })?;
        self.barrier()?;
        // All of them are in one sector. Between the two is the sort of encryption.
        let mut encryption = [0; 4];
        self.file.read(&mut encryption, ENCRYPTION_AT)?;
        let entries = u32::try_from(length_bytes / 8).map_err(|_| Errno::FBIG)?;
        let fields =
            [&found.size_bytes.to_be_bytes()[..], &encryption, &entries.to_be_bytes(), &new.offset_bytes.to_be_bytes()];
        self.file.write_header(&fields.concat(), SIZE_AT)?;
        let old = std::mem::replace(&mut self.l1, new);
        self.pages = [None, None];
        self.lower(old)?;
        self.free_table(old)?;
        self.mark(new, true, Marks::ByRefcount)?;
        self.set_dirty(false)
    }

    /// The table of snapshots, all of which can be used, and which has `one` of them.
    fn snapshot_table(&self, header: &Header, one: Option<&FoundSnapshot>) -> io::Result<Vec<u8>> {
        let found = snapshots::found(&self.file, header)?;
        if one.is_some_and(|one| !found.contains(one)) {
            return Err(Errno::NOENT.into());
        }
        let mut table = vec![0; found.last().map_or(0, |last| last.place.end)];
        self.file.read(&mut table, header.snapshots_offset_bytes)?;
        Ok(table)
    }

    /// Writes an L1 table of `length_bytes` that shows what a snapshot's does, and counts what it leads to.
    fn share_shown(
        &mut self,
        snapshot_l1: Table,
        length_bytes: u64,
        placed: &mut Vec<Range<u64>>,
    ) -> io::Result<Table> {
        self.mark(snapshot_l1, false, Marks::None)?;
        let mut bytes = vec![0; snapshot_l1.length_bytes as usize];
        self.file.read(&mut bytes, snapshot_l1.offset_bytes)?;
        bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|entry| entry[0] &= !((COPIED >> 56) as u8));
        bytes.resize(length_bytes as usize, 0);
        let new = self.write_table(&bytes, placed)?;
        self.raise(snapshot_l1)?;
        Ok(new)
    }

    /// Puts another table of so many snapshots in force, and frees the old one. Where there is none, what was `placed`
    /// for it is freed.
    fn replace_snapshots(
        &mut self,
        header: &Header,
        table: io::Result<Table>,
        count: u32,
        placed: &[Range<u64>],
    ) -> io::Result<()> {
        let table = self.or_free(table, placed)?;
        let old = snapshots::snapshots(&self.file, header)?.own;
        self.barrier()?;
        // Both are in one sector.
        let fields = [&count.to_be_bytes()[..], &table.offset_bytes.to_be_bytes()].concat();
        self.file.write_header(&fields, SNAPSHOTS_AT)?;
        old.map_or(Ok(()), |old| self.free_table(old))
    }

    fn free_table(&mut self, table: Table) -> io::Result<()> {
        let bits = self.layout.cluster_bits;
        let clusters = table.offset_bytes >> bits..(table.offset_bytes + table.length_bytes).div_ceil(1 << bits);
        if clusters.is_empty() { Ok(()) } else { self.free(std::slice::from_ref(&clusters)) }
    }

    /// Counts one more use of all that an L1 table leads to; or of nothing.
    fn raise(&mut self, l1: Table) -> io::Result<()> {
        let mut raised = 0;
        let done = self.for_clusters(l1, |metadata, clusters| {
            metadata.allocator.raise(clusters)?;
            raised += 1;
            Ok(())
        });
        if done.is_err() {
            let mut left = raised;
            // What cannot be lowered again is leaked.
            let _ = self.for_clusters(l1, |metadata, clusters| {
                if left == 0 {
                    return Err(Errno::CANCELED.into());
                }
                left -= 1;
                metadata.allocator.lower_all(clusters)
            });
        }
        done
    }

    /// Takes away one use of all that an L1 table led to. That it does no more is stable.
    fn lower(&mut self, l1: Table) -> io::Result<()> {
        self.for_clusters(l1, |metadata, clusters| {
            let mut ranges: Vec<Range<u64>> = Vec::new();
            for &cluster in clusters {
                match ranges.last_mut() {
                    Some(last) if last.end == cluster => last.end += 1,
                    // A cluster of compressed ones, once more.
                    _ => ranges.push(cluster..cluster + 1),
                }
            }
            metadata.free(&ranges)
        })
    }

    /// Shows all clusters that an L1 table leads to, tables included, in pieces, each in order.
    fn for_clusters(&mut self, l1: Table, mut each: impl FnMut(&mut Self, &[u64]) -> io::Result<()>) -> io::Result<()> {
        let bits = self.layout.cluster_bits;
        let mut clusters = Vec::new();
        let tables = self.file.entries(l1)?;
        for table in tables.into_iter().map(|entry| entry & OFFSET_MASK).filter(|&table| table != 0) {
            clusters.push(table >> bits);
            for entry in self.l2_entries(table)? {
                match entry {
                    Entry::Plain(Mapping { place: Some(place), .. }) if !self.layout.has_data_file => {
                        clusters.push(place.offset_bytes >> bits);
                    }
                    Entry::Compressed(place) => {
                        let end = place.offset_bytes.saturating_add(place.length_bytes).div_ceil(1 << bits);
                        clusters.extend(place.offset_bytes >> bits..end);
                    }
                    Entry::Plain(_) => {}
                    Entry::Invalid => {
                        let message = format!("the L2 table at {table} has an entry that makes no sense");
                        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                    }
                }
            }
            if clusters.len() >= COUNTED_TOGETHER {
                clusters.sort_unstable();
                each(self, &clusters)?;
                clusters.clear();
            }
        }
        clusters.sort_unstable();
        if clusters.is_empty() { Ok(()) } else { each(self, &clusters) }
    }

    fn l2_entries(&self, table: u64) -> io::Result<Vec<Entry>> {
        let words = self.file.entries(Table { offset_bytes: table, length_bytes: self.layout.cluster_bytes() })?;
        let entry = |words: &[u64]| self.layout.entry(words[0], words.get(1).copied().unwrap_or(0));
        Ok(words.chunks(self.layout.entry_words()).map(entry).collect())
    }

    /// Writes what the entries behind an L1 table, and its own if `with_l1`, say of being alone.
    fn mark(&mut self, l1: Table, with_l1: bool, marks: Marks) -> io::Result<()> {
        let bits = self.layout.cluster_bits;
        let mut l1_entries = self.file.entries(l1)?;
        for l1_entry in &mut l1_entries {
            let table = *l1_entry & OFFSET_MASK;
            if table == 0 {
                continue;
            }
            let place = Table { offset_bytes: table, length_bytes: self.layout.cluster_bytes() };
            let old = self.file.entries(place)?;
            let mut new = old.clone();
            for entry in new.chunks_mut(self.layout.entry_words()) {
                let is = self.layout.entry(entry[0], entry.get(1).copied().unwrap_or(0));
                if let Entry::Plain(Mapping { place: Some(place), .. }) = is
                    && !self.layout.has_data_file
                {
                    entry[0] = self.marked(entry[0], place.offset_bytes >> bits, marks)?;
                }
            }
            if new != old {
                self.file.write(&bytes_of(&new), table)?;
            }
            *l1_entry = self.marked(*l1_entry, table >> bits, marks)?;
        }
        self.pages = [None, None];
        if with_l1 { self.file.write(&bytes_of(&l1_entries), l1.offset_bytes) } else { Ok(()) }
    }

    fn marked(&mut self, entry: u64, cluster: u64, marks: Marks) -> io::Result<u64> {
        let is_alone = marks == Marks::ByRefcount && self.allocator.refcount(cluster)? == 1;
        Ok(if is_alone { entry | COPIED } else { entry & !COPIED })
    }
}

fn bytes_of(entries: &[u64]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.to_be_bytes()).collect()
}

impl NewSnapshot<'_> {
    /// As the table of snapshots has it.
    fn entry(&self, l1: Table) -> Vec<u8> {
        const EXTRA_BYTES: u32 = 24;
        let mut bytes = l1.offset_bytes.to_be_bytes().to_vec();
        // An L1 table has no more entries than a number of 32 bits says.
        bytes.extend(((l1.length_bytes / 8) as u32).to_be_bytes());
        // Whoever made the names has bounded them.
        bytes.extend((self.id.len() as u16).to_be_bytes());
        bytes.extend((self.name.len() as u16).to_be_bytes());
        bytes.extend(self.date.0.to_be_bytes());
        bytes.extend(self.date.1.to_be_bytes());
        bytes.extend([0; 8]); // How long the machine had run.
        bytes.extend([0; 4]); // Bytes of its state.
        bytes.extend(EXTRA_BYTES.to_be_bytes());
        bytes.extend([0; 8]); // The same, in a larger number.
        bytes.extend(self.size_bytes.to_be_bytes());
        bytes.extend(u64::MAX.to_be_bytes()); // Instructions were not counted.
        bytes.extend(self.id.as_bytes());
        bytes.extend(self.name.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }
}
