//! What a guest may still take of the host's storage.
//!
//! Storage is given by the block, so blocks are counted: one byte in each block of a hole takes them all. Files that
//! are written a little at a time, one piece after the other, take each block once. A request is paid for before it is
//! carried out, and what is removed is not given back: a bound on all that is written, too.

use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// What file systems give at least, and mostly.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Bytes of storage that are left, or as many as there are.
#[derive(Debug, Default)]
pub(crate) struct Room(Option<AtomicU64>);

/// Where the last write of an open file ended.
#[derive(Debug)]
pub(crate) struct LastBlock(AtomicU64);

impl Default for LastBlock {
    fn default() -> Self {
        // No file is so long.
        Self(AtomicU64::new(u64::MAX))
    }
}

impl Room {
    /// So much; `None` bounds nothing.
    pub(crate) fn of(bytes: Option<u64>) -> Self {
        Self(bytes.map(AtomicU64::new))
    }

    /// Whether anything is counted at all.
    pub(crate) fn is_bounded(&self) -> bool {
        self.0.is_some()
    }

    /// Takes so many blocks.
    ///
    /// # Errors
    /// ENOSPC where they are not left; then none is taken.
    pub(crate) fn take(&self, blocks: u64) -> Result<(), Errno> {
        let Some(left) = &self.0 else { return Ok(()) };
        let take = |left: u64| left.checked_sub(blocks.checked_mul(BLOCK_BYTES)?);
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map(drop).map_err(|_| Errno::NOSPC)
    }

    /// Takes the blocks that a range of a file lies in, but for the one that was written to last and is written on.
    ///
    /// # Errors
    /// As [`Room::take`].
    pub(crate) fn take_range(&self, last: &LastBlock, offset: u64, length: u64) -> Result<(), Errno> {
        if length == 0 || !self.is_bounded() {
            return Ok(());
        }
        let (from, to) = (offset / BLOCK_BYTES, offset.saturating_add(length - 1) / BLOCK_BYTES);
        let paid = u64::from(last.0.load(Ordering::Relaxed) == from);
        self.take(to - from + 1 - paid)?;
        last.0.store(to, Ordering::Relaxed);
        Ok(())
    }
}
