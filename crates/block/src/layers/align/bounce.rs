//! The memory that a queue adds to its memory map, for what cannot go where it is wanted.

use super::limits::Limits;
use crate::{MemoryMap, MemoryMapError, Segment};

/// Buffers of a queue, and how much each of them moves.
const BUFFERS: u32 = 16;
const BUFFER_BYTES: u64 = 64 << 10;

/// Buffers start on pages, aligned for any device.
const STRIDE_UNIT_BYTES: u64 = 4096;

pub(super) struct BouncePool {
    region: u32,
    /// The most that one buffer moves: whole blocks.
    pub(super) buffer_bytes: u64,
    stride_bytes: u64,
    transfers: Box<[BounceTransfer]>,
    free: Vec<u16>,
}

/// What a buffer is used for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BounceTransfer {
    /// Where on the disk the bytes are that the request wants.
    pub(super) position: u64,
    /// Where they are in the buffer, and how many.
    pub(super) skip_bytes: u64,
    pub(super) length_bytes: u64,
}

impl BouncePool {
    /// Adds a region of buffers to `memory`.
    pub(super) fn beside(memory: &MemoryMap, limits: &Limits) -> Result<(Self, MemoryMap), MemoryMapError> {
        let buffer_bytes = limits.buffer_bytes(BUFFER_BYTES);
        let stride_bytes = buffer_bytes.next_multiple_of(STRIDE_UNIT_BYTES);
        let (memory, region) = memory.with_region((stride_bytes * u64::from(BUFFERS)) as usize)?;
        let transfers = (0..BUFFERS).map(|_| BounceTransfer::default()).collect();
        let pool = Self { region, buffer_bytes, stride_bytes, transfers, free: (0..BUFFERS as u16).rev().collect() };
        Ok((pool, memory))
    }

    /// The buffer that would be taken next.
    pub(super) fn next(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// Takes the buffer that `next` named.
    pub(super) fn take(&mut self, transfer: BounceTransfer) {
        if let Some(buffer) = self.free.pop() {
            self.transfers[usize::from(buffer)] = transfer;
        }
    }

    pub(super) fn give_back(&mut self, buffer: u16) -> BounceTransfer {
        self.free.push(buffer);
        self.transfers[usize::from(buffer)]
    }

    /// A part of a buffer as a segment.
    pub(super) fn segment(&self, buffer: u16, skip_bytes: u64, length_bytes: u64) -> Segment {
        Segment {
            region: self.region,
            // A buffer is at most a block of 1 MiB.
            length_bytes: length_bytes as u32,
            offset_bytes: u64::from(buffer) * self.stride_bytes + skip_bytes,
        }
    }
}
