//! A disk that is read by whoever waits for it: what is behind an image's own data.

use crate::{Completion, Disk, Geometry, MemoryMap, Operation, Queue, Request, Segment};
use std::io;
use vm_memory::{Bytes, GuestAddress};

/// The buffer that a disk is read through.
const BUFFER_BYTES: usize = 256 << 10;

pub(super) struct SourceDisk {
    geometry: Geometry,
    memory: MemoryMap,
    queue: Box<dyn Queue>,
    completions: Vec<Completion>,
}

impl SourceDisk {
    pub(super) fn new(disk: &dyn Disk) -> io::Result<Self> {
        let memory = MemoryMap::allocate(&[(0, BUFFER_BYTES)]).map_err(io::Error::other)?;
        let queue = disk.open_queue(&memory, 1)?;
        Ok(Self { geometry: disk.geometry(), memory, queue, completions: Vec::with_capacity(1) })
    }

    /// Reads bytes from an offset on; what lies behind the disk's end reads as zeros.
    pub(super) fn read(&mut self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        let block_bytes = u64::from(self.geometry.logical_block_bytes);
        let most = (BUFFER_BYTES as u64).min(self.geometry.transfer_bytes_max) / block_bytes * block_bytes;
        while !buffer.is_empty() {
            let Some(left) = self.geometry.capacity_bytes.checked_sub(offset).filter(|&left| left > 0) else {
                buffer.fill(0);
                return Ok(());
            };
            let skipped = offset % block_bytes;
            let wanted = (skipped + left.min(buffer.len() as u64)).next_multiple_of(block_bytes).min(most);
            // Fits: the buffer is no longer than that.
            let segment = Segment { region: 0, length_bytes: wanted as u32, offset_bytes: 0 };
            let (operation, segments) = (Operation::Read, [segment]);
            let request = Request { operation, offset_bytes: offset - skipped, segments: &segments, token: 0 };
            self.queue.push(&request).map_err(io::Error::other)?;
            self.completions.clear();
            self.queue.drain(&mut self.completions)?;
            let result = self.completions.first().map_or(Ok(()), |completion| completion.result);
            result.map_err(io::Error::other)?;
            let (piece, rest) = buffer.split_at_mut(((wanted - skipped) as usize).min(buffer.len()));
            self.memory.guest_memory().read_slice(piece, GuestAddress(skipped)).map_err(io::Error::other)?;
            offset += piece.len() as u64;
            buffer = rest;
        }
        Ok(())
    }
}
