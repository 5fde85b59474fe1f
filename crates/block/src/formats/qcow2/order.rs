//! The order in which an image's changes become stable.
//!
//! imago writes metadata in an order that suits a killed process. A power cut keeps any part of what was not synced, so
//! here, where all that imago writes passes through, each write first waits for what it relies on:
//!
//! - A table entry that refers to a cluster relies on the cluster's refcount, which is stable from when it grows. Where
//!   there was more than zeros before, or the cluster may hold something old, it relies on the contents, too. Else what
//!   a cut leaves is zeros, as before: a file reads as zeros where it was never written.
//! - A refcount that is lowered relies on the entry being gone.
//! - Tables that move rely on all that is in them; and whoever uses their old place, on their being gone from it.
//!
//! Two things make that cheap. A refcount that grows takes those of the free clusters behind it along, for
//! [`RESERVE_CLUSTERS`]: the [`Reserve`]. imago does not know of it. What is allocated there waits for no refcount, and
//! the file is long enough for it. After a cut or a kill these clusters are leaked; an image that is closed gives them
//! back. And copied data wait for one sync for all writes of a batch, which are as many as arrived during the sync
//! before.
//!
//! Nothing is held back until a flush, as QEMU does: what was acknowledged must outlive the process, so its entries
//! have to be in the page cache, and the kernel may write that at any time.

use super::entries::{OFFSET_MASK, entries_of};
use super::header::{Header, Table};
use super::image_file::ImageFile;
use super::refblock::{Refblock, refcount};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Clusters whose refcounts become stable at once: 16 MiB in clusters of 64 KiB.
const RESERVE_CLUSTERS: usize = 256;

/// Where the header has the size of the disk.
const SIZE_AT: Range<usize> = 24..32;

/// What was written of an image and is not stable. For its one writer.
pub(super) struct Order {
    file: Arc<ImageFile>,
    data_file: Option<Arc<ImageFile>>,
    header: Header,
    /// By index in the refcount table; 0 is none.
    refblocks: Vec<u64>,
    /// By offset.
    tables: HashMap<u64, Part>,
    reserve: Option<Reserve>,
    /// Whatever is written to data clusters must be stable before it is referred to.
    pub(super) keeps_contents: bool,
    /// From here on, clusters that are not in use read as zeros, whatever of them is stable.
    fresh_from: u64,
    length_at_open: u64,
    /// The size of the disk in the header stays as it is.
    keeps_size: bool,
    unstable: Unstable,
}

#[derive(Clone, Copy, Debug, Default)]
struct Unstable {
    contents: bool,
    /// Entries of tables.
    references: bool,
}

/// Free clusters whose refcounts are one in the file.
struct Reserve {
    refblock: usize,
    /// The block as imago knows it.
    bytes: Vec<u8>,
    /// Indices in the block; some may be in use by now.
    range: Range<usize>,
}

/// What lies at an offset.
#[derive(Clone, Copy, Debug)]
enum Part {
    Header,
    L1,
    RefcountTable,
    Refblock(usize),
    L2Table,
    Other,
}

impl Order {
    /// Of an image that has been checked.
    pub(super) fn new(file: Arc<ImageFile>, header: &Header) -> io::Result<Self> {
        let mut order = Self {
            fresh_from: if file.is_growing() { file.length_bytes() } else { u64::MAX },
            length_at_open: file.length_bytes(),
            keeps_size: false,
            file,
            data_file: None,
            header: header.clone(),
            refblocks: Vec::new(),
            tables: HashMap::new(),
            reserve: None,
            keeps_contents: false,
            unstable: Unstable::default(),
        };
        order.read_tables()?;
        Ok(order)
    }

    /// Whatever size the disk is given, the file goes on saying the one that it has.
    pub(super) fn keep_size(&mut self) {
        self.keeps_size = true;
    }

    pub(super) fn set_data_file(&mut self, file: Arc<ImageFile>) {
        self.data_file = Some(file);
    }

    fn read_tables(&mut self) -> io::Result<()> {
        self.refblocks = self.file.entries(self.header.refcounts)?;
        let l1 = self.file.entries(self.header.l1)?;
        let l2_tables = l1.into_iter().map(|entry| (entry & OFFSET_MASK, Part::L2Table));
        let refblocks = self.refblocks.iter().zip(0..).map(|(&offset, index)| (offset, Part::Refblock(index)));
        self.tables = l2_tables.chain(refblocks).filter(|&(offset, _)| offset != 0).collect();
        Ok(())
    }

    /// Makes all that was written stable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.sync()?;
        self.data_file.as_ref().map_or(Ok(()), |file| file.sync())?;
        self.unstable = Unstable::default();
        Ok(())
    }

    /// What follows relies on all that was written before.
    fn barrier(&mut self) -> io::Result<()> {
        self.file.barrier()?;
        self.data_file.as_ref().map_or(Ok(()), |file| file.barrier())?;
        self.unstable = Unstable::default();
        Ok(())
    }

    /// Clusters that are freed from now on may keep what they held.
    pub(super) fn frees_keep_contents(&mut self) {
        self.fresh_from = u64::MAX;
    }

    /// imago writes to the image's own file.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.part_at(offset) {
            Part::Header => self.write_header(bytes, offset),
            Part::L1 => self.write_l1(bytes, offset),
            Part::RefcountTable => self.write_refcount_table(bytes, offset),
            Part::Refblock(index) => self.write_refblock(index, bytes),
            Part::L2Table => {
                if self.unstable.contents {
                    self.barrier()?;
                }
                self.unstable.references = true;
                self.file.write(bytes, offset)
            }
            Part::Other => {
                self.note_contents(offset);
                self.file.write(bytes, offset)
            }
        }
    }

    /// imago writes to data clusters at `offset`, or zeroes them.
    pub(super) fn note_contents(&mut self, offset: u64) {
        self.unstable.contents |= self.keeps_contents || offset < self.fresh_from;
    }

    /// Reads what imago takes for the block of refcounts at `offset`, if that differs from the file.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> bool {
        let reserve = self.reserve.as_ref().filter(|reserve| self.refblocks.get(reserve.refblock) == Some(&offset));
        match reserve {
            Some(reserve) if reserve.bytes.len() == buffer.len() => {
                buffer.copy_from_slice(&reserve.bytes);
                true
            }
            _ => false,
        }
    }

    /// Gives the reserve back, and the length that it gave the file. For when the image is closed.
    pub(super) fn end_reserve(&mut self) -> io::Result<()> {
        let Some(Reserve { refblock, bytes, range }) = self.reserve.take() else { return Ok(()) };
        self.file.write(&bytes, self.refblocks[refblock])?;
        let order = self.header.refcount_order;
        let used = range.clone().rev().find(|&at| refcount(&bytes, order, at) != 0);
        let used_end = used.map_or(range.start, |last| last + 1);
        if self.file.length_bytes() == self.end_of(refblock, range.end) {
            self.file.truncate(self.end_of(refblock, used_end).max(self.length_at_open))?;
        }
        Ok(())
    }

    /// Where the clusters up to an index in a block of refcounts end.
    fn end_of(&self, refblock: usize, end: usize) -> u64 {
        (refblock as u64 * self.refcounts_per_block() + end as u64) << self.header.cluster_bits
    }

    fn part_at(&self, offset: u64) -> Part {
        let within = |table: Table| (table.offset_bytes..table.offset_bytes + table.length_bytes).contains(&offset);
        if offset < self.header.cluster_bytes() {
            Part::Header
        } else if within(self.header.l1) {
            Part::L1
        } else if within(self.header.refcounts) {
            Part::RefcountTable
        } else {
            self.tables.get(&offset).copied().unwrap_or(Part::Other)
        }
    }

    fn write_header(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = bytes.to_vec();
        if let (true, 0, Some(size)) = (self.keeps_size, offset, bytes.get_mut(SIZE_AT)) {
            size.copy_from_slice(&self.header.size_bytes.to_be_bytes());
        }
        let bytes = &bytes[..];
        let (Some(l1), Some(refcounts)) = (table_in(bytes, 40, 36), table_in(bytes, 48, 56)) else {
            return self.file.write(bytes, offset);
        };
        let l1 = Table { length_bytes: l1.length_bytes * 8, ..l1 };
        let refcounts = Table { length_bytes: refcounts.length_bytes << self.header.cluster_bits, ..refcounts };
        if offset != 0 || (l1 == self.header.l1 && refcounts == self.header.refcounts) {
            return self.file.write(bytes, offset);
        }
        if l1 != self.header.l1 {
            for cluster in (l1.offset_bytes..l1.offset_bytes + l1.length_bytes).step_by(1 << self.header.cluster_bits) {
                self.count(cluster)?;
            }
        }
        self.barrier()?;
        self.file.write(bytes, offset)?;
        self.barrier()?;
        // What lay at the old place stays there.
        self.frees_keep_contents();
        (self.header.l1, self.header.refcounts) = (l1, refcounts);
        self.read_tables()
    }

    fn write_l1(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let old = self.file.entries(Table { offset_bytes: offset, length_bytes: bytes.len() as u64 })?;
        let new: Vec<_> = entries_of(bytes).map(|entry| entry & OFFSET_MASK).collect();
        let changed = || old.iter().map(|entry| entry & OFFSET_MASK).zip(&new).filter(|&(old, &new)| old != new);
        let replaces = changed().any(|(old, _)| old != 0);
        // Of a fresh table a cut leaves some entries, each in order by itself, and zeros.
        let is_fresh = changed().all(|(_, &table)| table >= self.fresh_from);
        for &table in new.iter().filter(|&&table| table != 0) {
            self.count(table)?;
        }
        if replaces || !is_fresh || self.unstable.contents {
            self.barrier()?;
        }
        self.file.write(bytes, offset)?;
        self.unstable.references = true;
        if replaces {
            self.barrier()?;
            self.frees_keep_contents();
        }
        self.tables.extend(new.into_iter().filter(|&table| table != 0).map(|table| (table, Part::L2Table)));
        Ok(())
    }

    fn write_refcount_table(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let first = ((offset - self.header.refcounts.offset_bytes) / 8) as usize;
        for (index, refblock) in (first..).zip(entries_of(bytes)) {
            if refblock != 0 && self.refblocks.get(index) != Some(&refblock) {
                self.count(refblock)?;
            }
        }
        self.barrier()?;
        // What is allocated from a new block is not counted before its entry is there.
        self.file.write_stable(bytes, offset)?;
        for (index, refblock) in (first..).zip(entries_of(bytes)).filter(|&(_, refblock)| refblock != 0) {
            self.tables.insert(refblock, Part::Refblock(index));
            self.refblocks[index] = refblock;
        }
        Ok(())
    }

    /// Sees to it that the refcount of a table that is about to be used is in the file: imago has it in memory.
    fn count(&mut self, cluster: u64) -> io::Result<()> {
        let cluster = cluster >> self.header.cluster_bits;
        let per_block = self.refcounts_per_block();
        let (refblock, index) = ((cluster / per_block) as usize, (cluster % per_block) as usize);
        match self.refblocks.get(refblock) {
            // A new block that counts itself.
            None | Some(0) => Ok(()),
            Some(&offset) => {
                let mut bytes = vec![0; self.header.cluster_bytes() as usize];
                if !self.read(&mut bytes, offset) {
                    self.file.read(&mut bytes, offset)?;
                }
                let mut block = Refblock { bytes, order: self.header.refcount_order };
                if block.get(index) == 0 {
                    block.set_to_one(index);
                }
                self.write_refblock(refblock, &block.bytes)
            }
        }
    }

    fn refcounts_per_block(&self) -> u64 {
        (self.header.cluster_bytes() * 8) >> self.header.refcount_order
    }

    /// Writes a block of refcounts as imago knows it, and those of the reserve with it.
    fn write_refblock(&mut self, index: usize, bytes: &[u8]) -> io::Result<()> {
        let offset = self.refblocks[index];
        let order = self.header.refcount_order;
        let in_file = Refblock::read(&self.file, &self.header, offset)?;
        let mut block = Refblock { bytes: bytes.to_vec(), order };
        let reserved = self.reserve.as_ref().filter(|reserve| reserve.refblock == index);
        let known = reserved.map_or(&in_file.bytes, |reserve| &reserve.bytes);
        let lowered = block.changed(known).any(|at| block.get(at) < refcount(known, order, at));
        if lowered && self.unstable.references {
            self.barrier()?;
        }
        let last_grown = block.changed(&in_file.bytes).rev().find(|&at| block.get(at) > in_file.get(at));
        let range = match (last_grown, self.reserve.take()) {
            (Some(last), before) => {
                if let Some(before) = before.filter(|before| before.refblock != index) {
                    self.file.write(&before.bytes, self.refblocks[before.refblock])?;
                }
                let end = (last + 1 + RESERVE_CLUSTERS).min(self.refcounts_per_block() as usize);
                Some(last + 1..end)
            }
            (None, Some(reserve)) if reserve.refblock == index => Some(reserve.range),
            (None, reserve) => {
                self.reserve = reserve;
                None
            }
        };
        if let Some(range) = range {
            range.clone().filter(|&at| refcount(bytes, order, at) == 0).for_each(|at| block.set_to_one(at));
            // What is in use lies in the file, whatever a cut keeps of the writes that make it longer.
            self.file.reach(self.end_of(index, range.end))?;
            self.reserve = Some(Reserve { refblock: index, bytes: bytes.to_vec(), range });
        }
        if block.bytes == in_file.bytes {
            return Ok(());
        }
        match last_grown {
            // Refcounts that grow wait for themselves alone: a sync would wait for all data that the guest has written.
            Some(_) => self.file.write_stable(&block.bytes, offset),
            None => self.file.write(&block.bytes, offset),
        }
    }
}

/// A table's place in a header, whose length has the header's own unit.
fn table_in(header: &[u8], offset_at: usize, length_at: usize) -> Option<Table> {
    let offset = header.get(offset_at..offset_at + 8)?.try_into().ok()?;
    let length = header.get(length_at..length_at + 4)?.try_into().ok()?;
    let (offset_bytes, length) = (u64::from_be_bytes(offset), u32::from_be_bytes(length));
    Some(Table { offset_bytes, length_bytes: length.into() })
}
