//! A disk that is a range of another one.

use super::layer;
use crate::{Completion, Disk, Extent, Geometry, MemoryMap, Operation, Queue, QueueError, Request, RequestError};
use std::io;
use std::ops::Range;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Why a range cannot be a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// Nothing lies in it.
    #[error("the range {start_bytes}..{end_bytes} is empty")]
    Empty {
        /// Where it starts.
        start_bytes: u64,
        /// Where it ends.
        end_bytes: u64,
    },
    /// It reaches past the end of the disk.
    #[error("the range ends at byte {end_bytes}, the disk at byte {capacity_bytes}")]
    OutOfRange {
        /// Where it ends.
        end_bytes: u64,
        /// Where the disk does.
        capacity_bytes: u64,
    },
    /// It begins or ends within a logical block.
    #[error(
        "the range {start_bytes}..{end_bytes} is not made of whole blocks: the disk has blocks of \
         {logical_block_bytes} bytes"
    )]
    Unaligned {
        /// Where it starts.
        start_bytes: u64,
        /// Where it ends.
        end_bytes: u64,
        /// The disk's logical block.
        logical_block_bytes: u32,
    },
}

/// A range of a disk as a disk of its own: no request that enters here touches a byte outside the range.
///
/// When the disk below becomes smaller than the range's end, this one does too; it never becomes larger than the range.
pub struct PartitionDisk {
    disk: Arc<dyn Disk>,
    range: Range<u64>,
    read_only: bool,
}

impl PartitionDisk {
    /// Confines `disk` to `range`, in bytes; `read_only` refuses changes even if the disk takes them.
    ///
    /// # Errors
    /// When the range is empty, does not lie on the disk or is not made of whole logical blocks.
    pub fn new(disk: Arc<dyn Disk>, range: Range<u64>, read_only: bool) -> Result<Self, PartitionError> {
        let Range { start: start_bytes, end: end_bytes } = range;
        let Geometry { capacity_bytes, logical_block_bytes, .. } = disk.geometry();
        if start_bytes >= end_bytes {
            return Err(PartitionError::Empty { start_bytes, end_bytes });
        }
        if end_bytes > capacity_bytes {
            return Err(PartitionError::OutOfRange { end_bytes, capacity_bytes });
        }
        if [start_bytes, end_bytes].iter().any(|bytes| !bytes.is_multiple_of(logical_block_bytes.into())) {
            return Err(PartitionError::Unaligned { start_bytes, end_bytes, logical_block_bytes });
        }
        Ok(Self { disk, range, read_only })
    }

    /// All of `disk`, growing with it; `read_only` refuses changes.
    pub fn whole(disk: Arc<dyn Disk>, read_only: bool) -> Self {
        Self { disk, range: 0..u64::MAX, read_only }
    }

    /// Where it lies on the disk below.
    pub fn range_bytes(&self) -> Range<u64> {
        self.range.clone()
    }

    /// How much of the range a disk of this geometry still has, in whole blocks.
    fn capacity_bytes(&self, geometry: &Geometry) -> u64 {
        let block_bytes = u64::from(geometry.logical_block_bytes);
        if !self.range.start.is_multiple_of(block_bytes) {
            return 0;
        }
        let there = geometry.capacity_bytes.min(self.range.end).saturating_sub(self.range.start);
        there - there % block_bytes
    }
}

impl layer::DiskLayer for PartitionDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn geometry(&self) -> Geometry {
        let inner = self.disk.geometry();
        let read_only = inner.read_only || self.read_only;
        Geometry {
            capacity_bytes: self.capacity_bytes(&inner),
            physical_block_bytes: physical_block_bytes(&inner, self.range.start),
            read_only,
            discard: inner.discard && !read_only,
            write_zeroes: inner.write_zeroes && !read_only,
            ..inner
        }
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        Disk::geometry(self).check_extent_range(&range)?;
        // What lies on the partition lies on the disk, so neither sum overflows.
        let asked = self.range.start + range.start..self.range.start + range.end;
        let extent = self.disk.extents(asked)?;
        let length_bytes = extent.length_bytes.clamp(1, range.end - range.start);
        Ok(Extent { offset_bytes: range.start, length_bytes, kind: extent.kind })
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.disk.open_queue(memory, depth)?;
        let refused = Vec::with_capacity(queue.depth());
        Ok(Box::new(PartitionQueue { queue, range: self.range.clone(), read_only: self.read_only, refused }))
    }
}

/// The disk's, as far as the partition's start keeps to it: a requester aligns to its own disk's start.
fn physical_block_bytes(geometry: &Geometry, start_bytes: u64) -> u32 {
    let aligned_to = 1 << start_bytes.trailing_zeros().min(31);
    geometry.physical_block_bytes.min(aligned_to).max(geometry.logical_block_bytes)
}

/// Offset of a request that lies on no disk: a capacity is a multiple of 512.
const NOWHERE_BYTES: u64 = u64::MAX;

struct PartitionQueue {
    queue: Box<dyn Queue>,
    range: Range<u64>,
    read_only: bool,
    /// Tokens of changes that were refused and not yet reaped.
    refused: Vec<u64>,
}

impl PartitionQueue {
    /// The request's place on the disk below.
    fn place(&self, request: &Request<'_>) -> Result<u64, RequestError> {
        if request.operation == Operation::Flush {
            return Ok(0);
        }
        if self.read_only && request.operation != Operation::Read {
            return Err(RequestError::ReadOnly);
        }
        let start = self.range.start.checked_add(request.offset_bytes).ok_or(RequestError::OutOfRange)?;
        let end = start.checked_add(request.length_bytes()).ok_or(RequestError::OutOfRange)?;
        if end <= self.range.end { Ok(start) } else { Err(RequestError::OutOfRange) }
    }
}

impl layer::QueueLayer for PartitionQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    /// A request that is refused goes down as a read of nothing from nowhere, which fails there: so its completion
    /// comes the way all of them come, and wakes whoever waits on the queue below.
    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        match self.place(request) {
            Ok(offset_bytes) => self.queue.push(&Request { offset_bytes, ..*request }),
            Err(error) => {
                let nothing = Request {
                    operation: Operation::Read,
                    offset_bytes: NOWHERE_BYTES,
                    segments: &[],
                    token: request.token,
                };
                self.queue.push(&nothing)?;
                if error == RequestError::ReadOnly {
                    self.refused.push(request.token);
                }
                Ok(())
            }
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.queue.reap(completions);
        if self.refused.is_empty() {
            return;
        }
        for completion in &mut completions[before..] {
            if completion.result != Err(RequestError::OutOfRange) {
                continue;
            }
            // Two requests of one token that both failed cannot be told apart by anybody.
            if let Some(index) = self.refused.iter().position(|&token| token == completion.token) {
                self.refused.swap_remove(index);
                completion.result = Err(RequestError::ReadOnly);
            }
        }
        if self.queue.in_flight() == 0 {
            // Left over if the disk below fails in another way.
            self.refused.clear();
        }
    }
}
