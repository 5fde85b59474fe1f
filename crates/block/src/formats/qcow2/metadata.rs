//! Where an image's clusters lie, as its one writer changes it: the entries of its tables, and the order in which they
//! become stable.
//!
//! A power cut keeps any part of what was not synced. So each write first waits for what it relies on:
//!
//! - An entry that leads to a cluster relies on the cluster's refcount ([`super::allocator`]) and, where more than
//!   zeros was to be read before or the cluster may hold something old, on its contents. Else what a cut leaves is
//!   zeros, as before: a file reads as zeros where it was never written.
//! - A refcount that is lowered relies on the entry being gone.
//! - Tables that move rely on all that is in them; and whoever uses their old place, on their being gone from it.
//!
//! Entries are changed in memory, and written for a batch of requests together ([`Metadata::write_entries`]), before
//! any of these is acknowledged: so one sync serves all whose contents must be stable. Nothing is held back longer, as
//! QEMU does: what was acknowledged must outlive the process.

mod bitmaps;
mod snapshots;

use super::allocator::Allocator;
use super::entries::{COPIED, Entry, Layout, Mapping, OFFSET_MASK, Place};
use super::header::{Header, L1_AT, SIZE_AT, TABLE_MAX_BYTES, Table};
use crate::formats::WritableFile;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

pub(super) use bitmaps::Bitmaps;
pub(super) use snapshots::NewSnapshot;

/// Most of a table that is read at once.
const PAGE_BYTES: u64 = 4096;

/// Which of the pages that are kept is of which tables.
const L1_PAGE: usize = 0;
const L2_PAGE: usize = 1;

/// More changed entries than that are written before others are changed.
const ENTRIES_MAX: usize = 64 << 10;

/// The tables of an image that is written to.
pub(super) struct Metadata {
    file: Arc<WritableFile>,
    data_file: Option<Arc<WritableFile>>,
    layout: Layout,
    /// What the header says that others must know, of version 3.
    incompatible: Option<u64>,
    allocator: Allocator,
    l1: Table,
    /// Entries that are not in the file yet, by cluster of the disk.
    entries: BTreeMap<u64, [u64; 2]>,
    /// L2 tables that the L1 table in the file does not name yet, by their index there.
    tables: BTreeMap<u64, u64>,
    /// What was read last of the file's L1 table, and of an L2 table, and from where.
    pages: [Option<(u64, Vec<u8>)>; 2],
    /// Pending entries rely on contents that are not stable.
    needs_contents: bool,
    /// Clusters of the file that are not used any more once all entries are written.
    gone: Vec<Range<u64>>,
    /// From here on a data file reads as zeros, whatever of it is stable, until it is written.
    data_fresh_from: u64,
}

impl Metadata {
    /// Of an image that has been checked.
    pub(super) fn new(file: Arc<WritableFile>, header: &Header) -> Self {
        Self {
            data_file: None,
            layout: Layout::of(header),
            incompatible: (header.version >= 3).then_some(header.incompatible),
            allocator: Allocator::new(Arc::clone(&file), header),
            l1: header.l1,
            entries: BTreeMap::new(),
            tables: BTreeMap::new(),
            pages: [None, None],
            needs_contents: false,
            gone: Vec::new(),
            data_fresh_from: u64::MAX,
            file,
        }
    }

    pub(super) fn set_data_file(&mut self, file: Arc<WritableFile>) {
        self.data_fresh_from = if file.is_growing() { file.length_bytes() } else { u64::MAX };
        self.data_file = Some(file);
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// Where the data are.
    pub(super) fn data(&self) -> &WritableFile {
        self.data_file.as_ref().unwrap_or(&self.file)
    }

    /// What a cluster of the disk is.
    pub(super) fn entry(&mut self, cluster: u64) -> io::Result<Entry> {
        if let Some(&[word, parts]) = self.entries.get(&cluster) {
            return Ok(self.layout.entry_of(cluster, word, parts));
        }
        let Some(table) = self.table(cluster >> self.layout.table_bits())? else {
            return Ok(Entry::Plain(Mapping::NOTHING));
        };
        let within = (cluster & ((1 << self.layout.table_bits()) - 1)) * self.layout.entry_bytes();
        let at = table.offset_bytes + within;
        let word = self.word(L2_PAGE, at)?;
        let parts = if self.layout.is_extended { self.word(L2_PAGE, at + 8)? } else { 0 };
        Ok(self.layout.entry_of(cluster, word, parts))
    }

    /// The first cluster from `cluster` on for which there is a table, or `end`.
    pub(super) fn next_with_table(&mut self, cluster: u64, end: u64) -> io::Result<u64> {
        let table_bits = self.layout.table_bits();
        let mut at = cluster;
        while at < end && self.table(at >> table_bits)?.is_none() {
            at = ((at >> table_bits) + 1) << table_bits;
            if at >> table_bits >= self.l1.length_bytes / 8 {
                return Ok(end);
            }
        }
        Ok(at.min(end))
    }

    /// Says what a cluster of the disk is from now on.
    pub(super) fn set(&mut self, cluster: u64, mapping: Mapping) -> io::Result<()> {
        if self.entries.len() >= ENTRIES_MAX {
            self.write_entries()?;
        }
        self.own_table(cluster >> self.layout.table_bits())?;
        self.entries.insert(cluster, self.layout.words(mapping));
        Ok(())
    }

    /// Takes up to `count` clusters for the data of the disk's clusters from `cluster` on; their offset, and how many.
    pub(super) fn allocate(&mut self, cluster: u64, count: u64) -> io::Result<(u64, u64)> {
        if self.layout.has_data_file {
            return Ok((cluster << self.layout.cluster_bits, count));
        }
        let taken = self.allocator.allocate(count)?;
        Ok((taken.start << self.layout.cluster_bits, taken.end - taken.start))
    }

    /// Gives back what was allocated and neither set nor written.
    pub(super) fn give_back(&mut self, offset_bytes: u64, count: u64) {
        if !self.layout.has_data_file {
            let first = offset_bytes >> self.layout.cluster_bits;
            self.allocator.give_back(first..first + count);
        }
    }

    /// Gives back what was allocated and not set, though it may have been written.
    pub(super) fn give_back_written(&mut self, offset_bytes: u64, count: u64) {
        if !self.layout.has_data_file {
            let first = offset_bytes >> self.layout.cluster_bits;
            self.allocator.give_back_written(first..first + count);
        }
    }

    /// Whether a cluster for data reads as zeros, whatever of it is stable, but for what was written since it was
    /// allocated.
    pub(super) fn is_fresh(&self, offset_bytes: u64) -> bool {
        match self.layout.has_data_file {
            // Zeros in the file are none on the disk.
            _ if !self.data().cipher().is_none() => false,
            true => offset_bytes >= self.data_fresh_from,
            false => self.allocator.is_fresh(offset_bytes >> self.layout.cluster_bits),
        }
    }

    /// What is set from now on relies on all contents that were written.
    pub(super) fn need_contents(&mut self) {
        self.needs_contents = true;
    }

    /// What an entry leads to is not used by it any more.
    pub(super) fn release_entry(&mut self, entry: Entry) {
        match entry {
            Entry::Compressed(compressed) => self.release(compressed.offset_bytes, compressed.length_bytes),
            Entry::Plain(Mapping { place: Some(place), .. }) => {
                self.release(place.offset_bytes, self.layout.cluster_bytes());
            }
            Entry::Plain(_) | Entry::Invalid => {}
        }
    }

    /// What lies there of the disk is not used any more. Clusters of a data file are nobody else's.
    pub(super) fn release(&mut self, offset_bytes: u64, length_bytes: u64) {
        if !self.layout.has_data_file {
            self.let_go(offset_bytes, length_bytes);
        }
    }

    /// The same of the image's own file.
    fn let_go(&mut self, offset_bytes: u64, length_bytes: u64) {
        let bits = self.layout.cluster_bits;
        let range = offset_bytes >> bits..offset_bytes.saturating_add(length_bytes).div_ceil(1 << bits);
        match self.gone.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.gone.push(range),
        }
    }

    /// How many ranges of clusters wait for being freed here.
    pub(super) fn gone_count(&self) -> usize {
        self.gone.len()
    }

    /// Clusters that no entry in the file leads to any more: they may be freed when nobody is on the way to them.
    pub(super) fn take_gone(&mut self) -> Vec<Range<u64>> {
        if self.entries.is_empty() && self.tables.is_empty() { std::mem::take(&mut self.gone) } else { Vec::new() }
    }

    /// Frees clusters that nobody uses.
    pub(super) fn free(&mut self, clusters: &[Range<u64>]) -> io::Result<()> {
        if clusters.is_empty() {
            return Ok(());
        }
        // That nothing leads to them is stable before they are emptied, and that before they are others'.
        self.barrier()?;
        clusters.iter().try_for_each(|range| self.allocator.empty(range.clone()))?;
        self.barrier()?;
        // What cannot be freed is leaked.
        let freed = clusters.iter().map(|range| self.allocator.lower(range.clone()));
        freed.fold(Ok(()), io::Result::and)
    }

    /// Writes the changed entries to the file: the page cache has them then.
    pub(super) fn write_entries(&mut self) -> io::Result<()> {
        if self.entries.is_empty() && self.tables.is_empty() {
            return Ok(());
        }
        if self.needs_contents {
            self.barrier()?;
            self.needs_contents = false;
        }
        self.pages = [None, None];
        let (entry_bytes, table_bits, words) =
            (self.layout.entry_bytes(), self.layout.table_bits(), self.layout.entry_words());
        let mut run: Option<(u64, Vec<u8>)> = None;
        let mut next = None;
        let entries = std::mem::take(&mut self.entries);
        let written = (|| {
            for (&cluster, entry) in &entries {
                let is_next = next == Some(cluster) && cluster & ((1 << table_bits) - 1) != 0;
                if !is_next {
                    run.take().map_or(Ok(()), |(at, bytes)| self.file.write(&bytes, at))?;
                    let table = self.table(cluster >> table_bits)?.ok_or(Errno::IO)?;
                    let within = (cluster & ((1 << table_bits) - 1)) * entry_bytes;
                    run = Some((table.offset_bytes + within, Vec::new()));
                }
                if let Some((_, bytes)) = &mut run {
                    entry[..words].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
                }
                next = Some(cluster + 1);
            }
            run.take().map_or(Ok(()), |(at, bytes)| self.file.write(&bytes, at))?;
            for (&index, &table) in &self.tables {
                self.file.write(&(table | COPIED).to_be_bytes(), self.l1.offset_bytes + index * 8)?;
            }
            Ok(())
        })();
        self.pages = [None, None];
        match written {
            Ok(()) => self.tables.clear(),
            // They are written again with the next.
            Err(_) => self.entries = entries,
        }
        written
    }

    /// Makes all that was written stable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.data_file.as_ref().map_or(Ok(()), |file| file.sync())?;
        self.file.sync()
    }

    /// What follows relies on all that was written before.
    fn barrier(&self) -> io::Result<()> {
        self.data_file.as_ref().map_or(Ok(()), |file| file.barrier())?;
        self.file.barrier()
    }

    /// Writes a table to clusters of its own, which are `allocated` from then on, as is what could not be written.
    fn write_table(&mut self, bytes: &[u8], allocated: &mut Vec<Range<u64>>) -> io::Result<Table> {
        let bits = self.layout.cluster_bits;
        let clusters = self.allocator.allocate_run((bytes.len() as u64).div_ceil(1 << bits).max(1))?;
        allocated.push(clusters.clone());
        let offset_bytes = clusters.start << bits;
        let mut padded = bytes.to_vec();
        padded.resize(((clusters.end - clusters.start) << bits) as usize, 0);
        self.file.write(&padded, offset_bytes)?;
        Ok(Table { offset_bytes, length_bytes: bytes.len() as u64 })
    }

    /// The same; where it was not done, what was `placed` for it is freed. What cannot be freed is leaked.
    fn or_free<T>(&mut self, done: io::Result<T>, placed: &[Range<u64>]) -> io::Result<T> {
        if done.is_err() {
            let _ = self.free(placed);
        }
        done
    }

    /// Gives back what was reserved. For when the image is closed, after [`Metadata::write_entries`].
    pub(super) fn close(&mut self) -> io::Result<()> {
        self.allocator.close()
    }

    /// Sees to it that the L1 table has room for a disk of `size_bytes`.
    pub(super) fn reach(&mut self, size_bytes: u64) -> io::Result<()> {
        let entries = size_bytes.div_ceil(1 << self.layout.table_covers_bits());
        if entries <= self.l1.length_bytes / 8 {
            return Ok(());
        }
        if entries * 8 > TABLE_MAX_BYTES {
            return Err(Errno::FBIG.into());
        }
        self.write_entries()?;
        let bits = self.layout.cluster_bits;
        let mut bytes = vec![0; self.l1.length_bytes as usize];
        self.file.read(&mut bytes, self.l1.offset_bytes)?;
        bytes.resize((entries * 8) as usize, 0);
        let mut placed = Vec::new();
        let moved = self.write_table(&bytes, &mut placed);
        let moved = self.or_free(moved, &placed)?;
        self.barrier()?;
        // Both are in one sector. The number fits, as the table's size is bounded.
        let fields = [&(entries as u32).to_be_bytes()[..], &moved.offset_bytes.to_be_bytes()].concat();
        self.file.write_header(&fields, L1_AT)?;
        self.pages = [None, None];
        let old = std::mem::replace(&mut self.l1, moved);
        let first = old.offset_bytes >> bits;
        let clusters = first..first + old.length_bytes.div_ceil(1 << bits);
        self.free(std::slice::from_ref(&clusters))
    }

    /// Writes the size of the disk into the header, where it is stable.
    pub(super) fn write_size(&mut self, size_bytes: u64) -> io::Result<()> {
        self.write_entries()?;
        self.barrier()?;
        self.file.write_header(&size_bytes.to_be_bytes(), SIZE_AT)
    }

    /// Forgets all L2 tables from the one with an index on, with what they lead to. For a disk that no longer reaches
    /// there.
    pub(super) fn cut_off_tables(&mut self, first: u64) -> io::Result<()> {
        let table_bits = self.layout.table_bits();
        for index in first..self.l1.length_bytes / 8 {
            let Some(table) = self.table(index)? else { continue };
            for cluster in index << table_bits..(index + 1) << table_bits {
                let entry = self.entry(cluster)?;
                self.release_entry(entry);
            }
            self.file.write(&0_u64.to_be_bytes(), self.l1.offset_bytes + index * 8)?;
            self.pages = [None, None];
            self.let_go(table.offset_bytes, self.layout.cluster_bytes());
        }
        Ok(())
    }

    /// Where an L2 table lies.
    fn table(&mut self, index: u64) -> io::Result<Option<Place>> {
        if let Some(&offset_bytes) = self.tables.get(&index) {
            return Ok(Some(Place { offset_bytes, is_own: true }));
        }
        if index >= self.l1.length_bytes / 8 {
            return Ok(None);
        }
        let entry = self.word(L1_PAGE, self.l1.offset_bytes + index * 8)?;
        let place = Place { offset_bytes: entry & OFFSET_MASK, is_own: entry & COPIED != 0 };
        if !place.offset_bytes.is_multiple_of(self.layout.cluster_bytes()) {
            return Err(Errno::IO.into());
        }
        Ok((place.offset_bytes != 0).then_some(place))
    }

    /// Sees to it that there is an L2 table that may be written to.
    fn own_table(&mut self, index: u64) -> io::Result<()> {
        let old = self.table(index)?;
        if old.is_some_and(|table| table.is_own) {
            return Ok(());
        }
        if index >= self.l1.length_bytes / 8 {
            self.reach((index + 1) << self.layout.table_covers_bits())?;
        }
        let taken = self.allocator.allocate(1)?;
        let offset = taken.start << self.layout.cluster_bits;
        let is_fresh = self.allocator.is_fresh(taken.start);
        if let Err(error) = self.fill_table(offset, old) {
            self.allocator.give_back_written(taken);
            return Err(error);
        }
        // Of a fresh table a cut leaves some entries, each in order by itself, and zeros.
        self.needs_contents |= old.is_some() || !is_fresh;
        if let Some(shared) = old {
            // Snapshots go on using it.
            self.let_go(shared.offset_bytes, self.layout.cluster_bytes());
        }
        self.tables.insert(index, offset);
        Ok(())
    }

    /// Writes a table as another one is, or without entries: that it has storage is known before anything is in it.
    fn fill_table(&self, offset: u64, as_is: Option<Place>) -> io::Result<()> {
        let mut bytes = vec![0; self.layout.cluster_bytes() as usize];
        as_is.map_or(Ok(()), |shared| self.file.read(&mut bytes, shared.offset_bytes))?;
        self.file.write(&bytes, offset)
    }

    /// A word of a table in the file.
    fn word(&mut self, page: usize, offset: u64) -> io::Result<u64> {
        let page_bytes = PAGE_BYTES.min(self.layout.cluster_bytes());
        let (start, at) = (offset - offset % page_bytes, (offset % page_bytes) as usize);
        let page = &mut self.pages[page];
        if page.as_ref().is_none_or(|(at, _)| *at != start) {
            let mut bytes = page.take().map_or_else(Vec::new, |(_, bytes)| bytes);
            bytes.resize(page_bytes as usize, 0);
            self.file.read(&mut bytes, start)?;
            *page = Some((start, bytes));
        }
        let word = page.as_ref().and_then(|(_, bytes)| bytes.get(at..at + 8)?.try_into().ok());
        Ok(word.map_or(0, u64::from_be_bytes))
    }
}
