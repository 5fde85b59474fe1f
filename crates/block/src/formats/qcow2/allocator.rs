//! Which clusters of an image's file are in use: its refcounts, for its one writer.
//!
//! A table's entry that is stable must never lead to a cluster whose refcount is not. So what is allocated comes from
//! the [reserve](Allocator::reserve): clusters that nobody uses and whose refcounts are one, on stable storage, before
//! any of them is handed out. One write that waits for itself alone thus serves [`RESERVE_CLUSTERS`]. After a cut or a
//! kill those are leaked; an image that is closed gives them back.
//!
//! A refcount that is lowered relies on the entry being gone: whoever calls [`Allocator::lower`] has seen to that.

use super::entries::{OFFSET_MASK, entries_of};
use super::header::{Header, REFCOUNTS_AT, TABLE_MAX_BYTES, Table};
use super::refblock::Refblock;
use crate::formats::WritableFile;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Clusters whose refcounts become stable at once: 16 MiB in clusters of 64 KiB.
const RESERVE_CLUSTERS: u64 = 256;

pub(super) struct Allocator {
    file: Arc<WritableFile>,
    cluster_bits: u32,
    /// Refcounts have two to the power of this, in bits.
    order: u32,
    table: Table,
    /// Clusters that are counted in the file and used by nobody, in order.
    reserve: VecDeque<Range<u64>>,
    /// No cluster before this one is free, but for those in the reserve.
    search_from: u64,
    /// Clusters from this one on that are not in use read as zeros, whatever of them is stable.
    fresh_from: u64,
    length_at_open: u64,
    /// The block that was looked at last: which, where, and what it says.
    block: Option<(u64, u64, Refblock)>,
}

impl Allocator {
    /// Of an image that has been checked.
    pub(super) fn new(file: Arc<WritableFile>, header: &Header) -> Self {
        let length_at_open = file.length_bytes();
        let fresh_from = if file.is_growing() { length_at_open.div_ceil(header.cluster_bytes()) } else { u64::MAX };
        Self {
            cluster_bits: header.cluster_bits,
            order: header.refcount_order,
            table: header.refcounts,
            reserve: VecDeque::new(),
            search_from: 0,
            fresh_from,
            length_at_open,
            block: None,
            file,
        }
    }

    /// Takes up to `count` clusters that lie one after the other.
    ///
    /// # Errors
    /// When there are no more, or the file cannot be read or written.
    pub(super) fn allocate(&mut self, count: u64) -> io::Result<Range<u64>> {
        if self.reserve.is_empty() {
            self.fill_reserve()?;
        }
        let Some(first) = self.reserve.front_mut() else { return Err(Errno::NOSPC.into()) };
        let taken = first.start..first.end.min(first.start.saturating_add(count));
        first.start = taken.end;
        if first.is_empty() {
            self.reserve.pop_front();
        }
        Ok(taken)
    }

    /// Takes `count` clusters that lie one after the other, all of them.
    ///
    /// # Errors
    /// As [`Allocator::allocate`].
    pub(super) fn allocate_run(&mut self, count: u64) -> io::Result<Range<u64>> {
        if let Some(index) = self.reserve.iter().position(|range| range.end - range.start >= count) {
            let range = &mut self.reserve[index];
            let taken = range.start..range.start + count;
            range.start = taken.end;
            if range.is_empty() {
                self.reserve.remove(index);
            }
            return Ok(taken);
        }
        // Behind everything, where there is room for any number.
        let per_block = self.per_block();
        loop {
            let start = self.end_of_counted()?;
            let end = start.checked_add(count).filter(|&end| end <= self.clusters_max()).ok_or(Errno::NOSPC)?;
            let mut blocks = start / per_block..end.div_ceil(per_block);
            let missing = blocks.find_map(|index| match self.block_offset(index) {
                Ok(0) => Some(Ok(index)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            });
            match missing.transpose()? {
                Some(missing) => self.add_blocks(missing, count)?,
                None => {
                    self.file.reach(end << self.cluster_bits)?;
                    self.change(start..end, |count| count.checked_add(1))?;
                    return Ok(start..end);
                }
            }
        }
    }

    /// Gives back what was allocated and is neither used nor written.
    pub(super) fn give_back(&mut self, clusters: Range<u64>) {
        if !clusters.is_empty() {
            self.reserve.push_front(clusters);
        }
    }

    /// The same of what may have been written.
    pub(super) fn give_back_written(&mut self, clusters: Range<u64>) {
        self.fresh_from = u64::MAX;
        self.give_back(clusters);
    }

    /// Whether a cluster that was just allocated reads as zeros, whatever of it is stable.
    pub(super) fn is_fresh(&self, cluster: u64) -> bool {
        cluster >= self.fresh_from
    }

    /// The refcount of a cluster.
    pub(super) fn refcount(&mut self, cluster: u64) -> io::Result<u64> {
        let per_block = self.per_block();
        let Some((_, block)) = self.block(cluster / per_block)? else { return Ok(0) };
        Ok(block.get((cluster % per_block) as usize))
    }

    /// Whether the refcounts of clusters, which are in order, can be higher.
    ///
    /// # Errors
    /// When they cannot, or cannot be read.
    pub(super) fn can_raise(&mut self, clusters: &[u64]) -> io::Result<()> {
        let bits = 1_u32 << self.order;
        let max = if bits < u64::BITS { (1 << bits) - 1 } else { u64::MAX };
        for same in clusters.chunk_by(|one, other| one == other) {
            if self.refcount(same[0])? > max - (same.len() as u64).min(max) {
                let message = format!("its refcounts of {bits} bits cannot be higher: convert it to a new image");
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
        Ok(())
    }

    /// Raises the refcounts of clusters that are in use, which are in order, on stable storage.
    pub(super) fn raise(&mut self, clusters: &[u64]) -> io::Result<()> {
        self.raise_by(clusters, 1)
    }

    /// The same by more than one.
    pub(super) fn raise_by(&mut self, clusters: &[u64], more: u64) -> io::Result<()> {
        self.change(clusters.iter().copied(), |count| count.checked_add(more))
    }

    /// Lowers refcounts that were just raised.
    pub(super) fn lower_all(&mut self, clusters: &[u64]) -> io::Result<()> {
        self.lower_by(clusters, 1)
    }

    /// Lowers refcounts of clusters, which are in order, of which so many uses each are gone, stably.
    pub(super) fn lower_by(&mut self, clusters: &[u64], less: u64) -> io::Result<()> {
        self.change(clusters.iter().copied(), |count| count.checked_sub(less))
    }

    /// Lowers the refcounts of clusters, of which one use is gone, stably. Those that nobody uses now may be allocated
    /// again; what they held is given back to the file's file system.
    pub(super) fn lower(&mut self, clusters: Range<u64>) -> io::Result<()> {
        self.search_from = self.search_from.min(clusters.start);
        self.change(clusters, |count| count.checked_sub(1))
    }

    /// Makes that what `clusters` hold is no longer known, and its storage the file system's, of those that only one
    /// uses. To be stable before they are lowered.
    pub(super) fn empty(&mut self, clusters: Range<u64>) -> io::Result<()> {
        let mut run: Option<Range<u64>> = None;
        for cluster in clusters {
            if self.refcount(cluster)? > 1 {
                continue;
            }
            match &mut run {
                Some(run) if run.end == cluster => run.end += 1,
                _ => {
                    let before = run.replace(cluster..cluster + 1);
                    before.into_iter().for_each(|run| self.punch(run));
                }
            }
        }
        run.into_iter().for_each(|run| self.punch(run));
        Ok(())
    }

    fn punch(&mut self, clusters: Range<u64>) {
        let (offset, length) =
            (clusters.start << self.cluster_bits, (clusters.end - clusters.start) << self.cluster_bits);
        if self.file.punch_hole(offset, length).is_err() {
            // From now on a cluster may have been used before.
            self.fresh_from = u64::MAX;
        }
    }

    /// Gives the reserve back, and the length that it gave the file. For when the image is closed.
    pub(super) fn close(&mut self) -> io::Result<()> {
        let mut ranges: Vec<_> = self.reserve.drain(..).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        for range in &ranges {
            self.change(range.clone(), |count| count.checked_sub(1))?;
        }
        let mut end = self.file.length_bytes().div_ceil(1 << self.cluster_bits);
        for range in ranges.iter().rev() {
            if range.end != end {
                break;
            }
            end = range.start;
        }
        if end << self.cluster_bits < self.file.length_bytes() {
            self.file.truncate((end << self.cluster_bits).max(self.length_at_open))?;
        }
        Ok(())
    }

    fn per_block(&self) -> u64 {
        (8 << self.cluster_bits) >> self.order
    }

    /// How many clusters the file may have.
    fn clusters_max(&self) -> u64 {
        match self.file.is_growing() {
            true => (OFFSET_MASK >> self.cluster_bits) + 1,
            false => self.file.length_bytes() >> self.cluster_bits,
        }
    }

    /// Where a block of refcounts lies; 0 if there is none.
    fn block_offset(&self, index: u64) -> io::Result<u64> {
        if index >= self.table.length_bytes / 8 {
            return Ok(0);
        }
        let mut entry = [0; 8];
        self.file.read(&mut entry, self.table.offset_bytes + index * 8)?;
        let offset = u64::from_be_bytes(entry);
        if !offset.is_multiple_of(1 << self.cluster_bits) {
            let message = format!("the block of refcounts at {offset} does not begin with a cluster");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(offset)
    }

    fn block(&mut self, index: u64) -> io::Result<Option<(u64, &mut Refblock)>> {
        if self.block.as_ref().is_none_or(|(at_hand, ..)| *at_hand != index) {
            self.block = match self.block_offset(index)? {
                0 => None,
                offset => {
                    let mut bytes = vec![0; 1 << self.cluster_bits];
                    self.file.read(&mut bytes, offset)?;
                    Some((index, offset, Refblock { bytes, order: self.order }))
                }
            };
        }
        Ok(self.block.as_mut().map(|(_, offset, block)| (*offset, block)))
    }

    /// Changes the refcounts of clusters in their blocks. Those that grow are stable when this returns.
    fn change(&mut self, clusters: impl Iterator<Item = u64>, new: impl Fn(u64) -> Option<u64>) -> io::Result<()> {
        let per_block = self.per_block();
        let mut clusters = clusters.peekable();
        while let Some(&first) = clusters.peek() {
            let index = first / per_block;
            self.change_block(index, |block| {
                while let Some(cluster) = clusters.next_if(|cluster| cluster / per_block == index) {
                    let at = (cluster % per_block) as usize;
                    if !new(block.get(at)).is_some_and(|count| block.set(at, count)) {
                        let message = format!("the refcount of cluster {cluster} cannot be what it would have to");
                        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Changes a block, in memory and in the file, or neither. What grows waits for itself alone: a sync would wait for
    /// all data that the guest has written.
    fn change_block<T>(&mut self, index: u64, change: impl FnOnce(&mut Refblock) -> io::Result<T>) -> io::Result<T> {
        let file = Arc::clone(&self.file);
        let Some((offset, block)) = self.block(index)? else {
            let message = format!("there is no block {index} of refcounts");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        };
        let old = block.bytes.clone();
        let changed = change(block).and_then(|value| {
            let bytes = block.changed_bytes(&old);
            let at = offset + bytes.start as u64;
            match block.grows(&old, &bytes) {
                true => file.write_stable(&block.bytes[bytes], at)?,
                false => file.write(&block.bytes[bytes], at)?,
            }
            Ok(value)
        });
        if changed.is_err() {
            // What the file has of it is not known, but it is no less than this.
            block.bytes = old;
        }
        changed
    }

    fn fill_reserve(&mut self) -> io::Result<()> {
        let (per_block, cluster_bits, file) = (self.per_block(), self.cluster_bits, Arc::clone(&self.file));
        let clusters_max = self.clusters_max();
        while self.reserve.is_empty() {
            let (index, within) = (self.search_from / per_block, self.search_from % per_block);
            let first = index * per_block;
            if self.search_from >= clusters_max {
                return Err(Errno::NOSPC.into());
            }
            if self.block(index)?.is_none() {
                self.add_blocks(index, 0)?;
            }
            let candidates = within as usize..per_block.min(clusters_max - first) as usize;
            let taken = self.change_block(index, |block| {
                let free: Vec<usize> =
                    candidates.filter(|&at| block.get(at) == 0).take(RESERVE_CLUSTERS as usize).collect();
                free.iter().for_each(|&at| block.set_to_one(at));
                // What is in use lies in the file, whatever a cut keeps of the writes that make it longer.
                let end = free.last().map_or(0, |&last| first + last as u64 + 1);
                file.reach(end << cluster_bits)?;
                Ok(free)
            })?;
            self.search_from = taken.last().map_or(first + per_block, |&last| first + last as u64 + 1);
            for cluster in taken.into_iter().map(|at| first + at as u64) {
                match self.reserve.back_mut() {
                    Some(range) if range.end == cluster => range.end += 1,
                    _ => self.reserve.push_back(cluster..cluster + 1),
                }
            }
        }
        Ok(())
    }

    /// The first cluster behind all that are counted, from which on all blocks are there, up to the last that is.
    fn end_of_counted(&mut self) -> io::Result<u64> {
        let per_block = self.per_block();
        let mut entries = vec![0; self.table.length_bytes as usize];
        self.file.read(&mut entries, self.table.offset_bytes)?;
        let blocks: Vec<_> = entries_of(&entries).collect();
        let Some(last) = blocks.iter().rposition(|&entry| entry != 0) else { return Ok(0) };
        let mut end = (last as u64 + 1) * per_block;
        for index in (0..=last as u64).rev() {
            let Some((_, block)) = self.block(index)? else { break };
            // Many may have been added for a run that is to come.
            end = index * per_block;
            if let Some(used) = (0..per_block as usize).rev().find(|&at| block.get(at) != 0) {
                return Ok(end + used as u64 + 1);
            }
        }
        Ok(end)
    }

    /// Adds blocks of refcounts from `first_block` on, whose clusters nobody uses: for themselves, and `more` clusters.
    /// They lie in what they count; and so does a new refcount table, if the old one has no room for them.
    fn add_blocks(&mut self, first_block: u64, more: u64) -> io::Result<()> {
        let (per_block, entries) = (self.per_block(), self.table.length_bytes / 8);
        let first = first_block * per_block;
        let (mut blocks, mut table_clusters) = (1, 0);
        loop {
            let needed_blocks = (blocks + table_clusters + more).div_ceil(per_block);
            let needed_entries = first_block + needed_blocks;
            let needed_table = match needed_entries <= entries {
                true => 0,
                // Twice as large, so that it seldom moves.
                false => (needed_entries.max(entries * 2) * 8).div_ceil(1 << self.cluster_bits),
            };
            if (needed_blocks, needed_table) == (blocks, table_clusters) {
                break;
            }
            // They only grow, and each by less than what they are for.
            (blocks, table_clusters) = (needed_blocks, needed_table);
        }
        let (end, table_bytes) = (first + blocks + table_clusters, table_clusters << self.cluster_bits);
        if end > self.clusters_max() || table_bytes > TABLE_MAX_BYTES {
            return Err(Errno::NOSPC.into());
        }
        self.block = None;
        self.file.reach(end << self.cluster_bits)?;
        let offset_of = |cluster: u64| cluster << self.cluster_bits;
        for block in 0..blocks {
            let mut counts = Refblock::empty(self.cluster_bits, self.order);
            let used = (blocks + table_clusters).saturating_sub(block * per_block).min(per_block);
            (0..used as usize).for_each(|at| counts.set_to_one(at));
            self.file.write(&counts.bytes, offset_of(first + block))?;
        }
        let new: Vec<u8> = (first..first + blocks).flat_map(|block| offset_of(block).to_be_bytes()).collect();
        if table_clusters == 0 {
            // What an entry leads to is there before it.
            self.file.barrier()?;
            return self.file.write_stable(&new, self.table.offset_bytes + first_block * 8);
        }
        let mut bytes = vec![0; self.table.length_bytes as usize];
        self.file.read(&mut bytes, self.table.offset_bytes)?;
        bytes.resize(table_bytes as usize, 0);
        bytes[first_block as usize * 8..][..new.len()].copy_from_slice(&new);
        let moved = Table { offset_bytes: offset_of(first + blocks), length_bytes: table_bytes };
        self.file.write(&bytes, moved.offset_bytes)?;
        self.file.barrier()?;
        // Both are in one sector. The number fits, as the table's size is bounded.
        let fields = [&moved.offset_bytes.to_be_bytes()[..], &(table_clusters as u32).to_be_bytes()].concat();
        self.file.write_header(&fields, REFCOUNTS_AT)?;
        let old = std::mem::replace(&mut self.table, moved);
        // What lay at the old place stays there.
        self.fresh_from = u64::MAX;
        let old_start = old.offset_bytes >> self.cluster_bits;
        self.lower(old_start..old_start + (old.length_bytes >> self.cluster_bits))
    }
}
