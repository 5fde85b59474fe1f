//! A disk without demands, on top of one that has some.
//!
//! Requests that suit the inner disk pass through as they are. Others are dealt with here:
//!
//! - more bytes or segments than it takes: in pieces;
//! - memory that is not aligned: through a bounce buffer, a region that the queue adds to the memory map;
//! - reads of parts of blocks: the whole blocks into the bounce buffer;
//! - writes of parts of blocks: read, merged and written by the [`merge::Merger`], which all queues of a disk share;
//! - discards: the whole blocks in the range, if there are any;
//! - zeroes: the whole blocks by the inner disk, the edges as writes.
//!
//! # Why no write is lost
//!
//! A merge reads a block and writes it back with a part changed. Whatever else was written to that block in between
//! would be lost. Two merges of one block go one after the other, because there is one merger, with a lock. A write of
//! whole blocks must not take that lock, so it goes by Dekker's rule: it publishes its range
//! ([`in_flight::WritesInFlight`]) and then looks whether anything is being merged; a merge says that it is there and
//! then looks through the published ranges. One of the two sees the other.
//!
//! - The write sees the merge: it takes the lock, and if the two overlap, the merger carries it out in its turn.
//! - The merge sees the write: it marks it. The write may have reached the disk or not, before or after the merge read
//!   the block. So once it completes it is done again, by the merger, before anybody is told that it is done. That is
//!   what it costs to write the same bytes twice at the same time, once as whole blocks and once not; no sane guest
//!   does.
//!
//! A merge never waits for another queue's write: that queue may belong to the thread that waits. Whoever has something
//! in the merger can drive it, and what it needs to go on it has: a queue of its own, and the written bytes in memory
//! of its own.

mod bounce;
mod in_flight;
mod limits;
mod mailbox;
mod merge;
mod pending;
mod queue;
mod wakeup;

use super::layer;
use crate::{Disk, Geometry, MemoryMap, Queue, SEGMENTS_MAX};
use limits::Limits;
use merge::Merger;
use queue::AlignedQueue;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// What an [`AlignedDisk`] looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlignOptions {
    /// Its logical block size: a power of two from 512 to 65536, smaller or larger than the inner disk's.
    pub logical_block_bytes: u32,
}

impl Default for AlignOptions {
    fn default() -> Self {
        Self { logical_block_bytes: 512 }
    }
}

/// A disk around a disk that takes requests of any length, with any number of segments, anywhere in memory, and in
/// logical blocks of any size; whatever the inner disk's are, no write to a part of one loses another's.
///
/// Requests that suit the inner disk cost no lock, no allocation and no copy. Geometry::physical_block_bytes still says
/// what suits it.
pub struct AlignedDisk {
    inner: Arc<dyn Disk>,
    logical_block_bytes: u32,
    /// Made with the first queue that may need it.
    merger: Mutex<Option<Arc<Merger>>>,
}

impl AlignedDisk {
    /// A disk on top of `inner`.
    ///
    /// # Errors
    /// When the logical block size is no power of two from 512 to 65536.
    pub fn new(inner: Arc<dyn Disk>, options: &AlignOptions) -> io::Result<Self> {
        let AlignOptions { logical_block_bytes } = *options;
        crate::file::check_logical_block(logical_block_bytes).map_err(io::Error::other)?;
        Ok(Self { inner, logical_block_bytes, merger: Mutex::new(None) })
    }

    /// A disk on top of `inner` if that makes any demands that this one would not make, else `inner` itself.
    ///
    /// # Errors
    /// As [`AlignedDisk::new`].
    pub fn where_needed(inner: Arc<dyn Disk>, options: &AlignOptions) -> io::Result<Arc<dyn Disk>> {
        let is_needed = Limits::of(&inner.geometry()).are_demanding(options.logical_block_bytes);
        Ok(if is_needed { Arc::new(Self::new(inner, options)?) } else { inner })
    }

    fn merger(&self, limits: &Limits) -> io::Result<Arc<Merger>> {
        let mut merger = self.merger.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(merger) = &*merger {
            return Ok(Arc::clone(merger));
        }
        let made = Arc::new(Merger::new(&*self.inner, limits)?);
        *merger = Some(Arc::clone(&made));
        Ok(made)
    }
}

impl layer::DiskLayer for AlignedDisk {
    fn below(&self) -> &dyn Disk {
        &*self.inner
    }

    fn geometry(&self) -> Geometry {
        let inner = self.inner.geometry();
        let block_bytes = u64::from(self.logical_block_bytes);
        Geometry {
            // What does not fill a larger block cannot be addressed.
            capacity_bytes: inner.capacity_bytes - inner.capacity_bytes % block_bytes,
            logical_block_bytes: self.logical_block_bytes,
            physical_block_bytes: inner
                .physical_block_bytes
                .max(inner.logical_block_bytes)
                .max(self.logical_block_bytes),
            segments_max: SEGMENTS_MAX,
            transfer_bytes_max: u64::MAX,
            memory_align_bytes: 1,
            ..inner
        }
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let geometry = self.inner.geometry();
        let limits = Limits::of(&geometry);
        if !limits.are_demanding(self.logical_block_bytes) {
            return self.inner.open_queue(memory, depth);
        }
        limits.check()?;
        let merger = if geometry.read_only { None } else { Some(self.merger(&limits)?) };
        Ok(Box::new(AlignedQueue::open(&self.inner, limits, merger, memory, depth)?))
    }
}
