//! What the inner disk demands.

use crate::limits::{LOGICAL_BLOCK_MAX_BYTES, SEGMENTS_MAX};
use crate::{Geometry, Operation, Request, Segment};
use std::io;
use std::ops::Range;

/// Largest block and memory alignment that are dealt with.
const BLOCK_BYTES_MAX: u64 = 1 << 20;
const MEMORY_ALIGN_BYTES_MAX: u64 = 4096;
const _: () = assert!(BLOCK_BYTES_MAX >= LOGICAL_BLOCK_MAX_BYTES as u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A power of two.
    pub(super) block_bytes: u64,
    /// At least one block.
    pub(super) transfer_bytes_max: u64,
    pub(super) segments_max: usize,
    /// A power of two.
    pub(super) memory_align_bytes: u64,
}

impl Limits {
    pub(super) fn of(geometry: &Geometry) -> Self {
        let block_bytes = u64::from(geometry.logical_block_bytes);
        Self {
            block_bytes,
            transfer_bytes_max: geometry.transfer_bytes_max.max(block_bytes),
            segments_max: geometry.segments_max.max(1) as usize,
            memory_align_bytes: u64::from(geometry.memory_align_bytes).max(1),
        }
    }

    /// Whether a disk of blocks of `logical_block_bytes` has requests that this one does not take.
    pub(super) fn are_demanding(&self, logical_block_bytes: u32) -> bool {
        self.block_bytes > u64::from(logical_block_bytes)
            || self.transfer_bytes_max < u64::MAX
            || self.segments_max < SEGMENTS_MAX as usize
            || self.memory_align_bytes > 1
    }

    /// # Errors
    /// When the disk demands more than can be given.
    pub(super) fn check(&self) -> io::Result<()> {
        let bad = |what: String| Err(io::Error::new(io::ErrorKind::Unsupported, what));
        if !self.block_bytes.is_power_of_two() || self.block_bytes > BLOCK_BYTES_MAX {
            return bad(format!("the disk has logical blocks of {} bytes; 1 MiB is the most", self.block_bytes));
        }
        if !self.memory_align_bytes.is_power_of_two() || self.memory_align_bytes > MEMORY_ALIGN_BYTES_MAX {
            return bad(format!(
                "the disk wants memory aligned to {} bytes; 4096 is the most",
                self.memory_align_bytes
            ));
        }
        Ok(())
    }

    /// Whether the request can be passed on as it is. Its segments have to be in the first `regions`.
    pub(super) fn suit(&self, request: &Request<'_>, regions: u32) -> bool {
        match request.operation {
            Operation::Flush => true,
            Operation::Read | Operation::Write { .. } => {
                let Some(length_bytes) = self.length_of_suitable(request.segments, regions) else { return false };
                self.is_whole(request.offset_bytes | length_bytes) && length_bytes <= self.transfer_bytes_max
            }
            Operation::Discard { length_bytes } | Operation::WriteZeroes { length_bytes, .. } => {
                self.is_whole(request.offset_bytes | length_bytes) && length_bytes > 0
            }
        }
    }

    /// The segments' length, if each of them will do and they are something.
    fn length_of_suitable(&self, segments: &[Segment], regions: u32) -> Option<u64> {
        let (mut length_bytes, mut bits) = (0, 0);
        for segment in segments {
            if segment.region >= regions {
                return None;
            }
            length_bytes += u64::from(segment.length_bytes);
            bits |= segment.offset_bytes | u64::from(segment.length_bytes);
        }
        let suitable = segments.len() <= self.segments_max && self.is_aligned_in_memory(bits) && length_bytes > 0;
        suitable.then_some(length_bytes)
    }

    /// Whether these are whole blocks. Several numbers may be or-ed.
    pub(super) fn is_whole(&self, bytes: u64) -> bool {
        bytes & (self.block_bytes - 1) == 0
    }

    pub(super) fn is_aligned_in_memory(&self, bytes: u64) -> bool {
        bytes & (self.memory_align_bytes - 1) == 0
    }

    /// The start of the block that a byte is in.
    pub(super) fn floor(&self, bytes: u64) -> u64 {
        bytes & !(self.block_bytes - 1)
    }

    /// The end of the block before a byte, on a disk: nothing there is near the end of a u64.
    pub(super) fn ceiling(&self, bytes: u64) -> u64 {
        self.floor(bytes.saturating_add(self.block_bytes - 1))
    }

    /// The blocks that a range touches.
    pub(super) fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        self.floor(range.start)..self.ceiling(range.end)
    }

    /// How much one transfer through a buffer moves: at most `bytes`, at least a block.
    pub(super) fn buffer_bytes(&self, bytes: u64) -> u64 {
        self.floor(bytes.min(self.transfer_bytes_max)).max(self.block_bytes)
    }
}
