//! A worker's memory for the requests it has in hand.
//!
//! Nobody knows how long the next message is before it was read, so it is read into a large buffer. What turns out to
//! be small moves on to a small one: many requests at once need little memory. A buffer is
//!
//! ```text
//! | a page whose end takes the message's header | payload: the data area | two blocks of scratch |
//! ```
//!
//! The header's place is such that a write's payload begins on a page, wherever the kernel wants it from there; and a
//! read's reply has its header put before its data, so that one write(2) of one range is the reply.

use super::message::WRITE_PREFIX_BYTES;
use blockyard_block::limits::{LOGICAL_BLOCK_MAX_BYTES, REQUEST_BYTES_MAX};
use blockyard_block::{MemoryMap, MemoryMapError, Segment};
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use vm_memory::{Bytes, ReadVolatile, VolatileMemoryError, VolatileSlice, WriteVolatile};

/// Longest read and write: what the kernel sends at most unless its fs.fuse.max_pages_limit was raised.
pub(super) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
const _: () = assert!(TRANSFER_BYTES_MAX as u64 <= REQUEST_BYTES_MAX);
const _: () = assert!(TRANSFER_BYTES_MAX.is_multiple_of(LOGICAL_BLOCK_MAX_BYTES));
/// Longest transfer of a small buffer.
const SMALL_BYTES: u32 = 64 << 10;
/// Eight megabytes stay in a processor's cache.
const LARGE_COUNT: usize = 8;
const SMALL_COUNT: usize = 64;
/// How many requests a worker has in hand at most.
pub(super) const BUFFER_COUNT: usize = LARGE_COUNT + SMALL_COUNT;

const PAGE_BYTES: u64 = 4096;

/// Index of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u16);

impl Slot {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The slot of that index; `None` when there is none.
    pub(super) fn new(index: usize) -> Option<Self> {
        (index < BUFFER_COUNT).then_some(Self(index as u16))
    }

    fn is_large(self) -> bool {
        self.index() < LARGE_COUNT
    }
}

/// All buffers of a worker, and which are free. The last that was given back is taken first: its memory is the warmest.
pub(super) struct Buffers {
    memory: MemoryMap,
    large_free: Vec<Slot>,
    small_free: Vec<Slot>,
    block_bytes: u32,
}

impl Buffers {
    /// Buffers for a disk of such blocks.
    pub(super) fn new(block_bytes: u32) -> Result<Self, MemoryMapError> {
        let total = offset_of(BUFFER_COUNT, block_bytes);
        let length =
            usize::try_from(total).map_err(|_| MemoryMapError::Layout("larger than an address space".into()))?;
        let slots = (0..BUFFER_COUNT).rev().filter_map(Slot::new);
        let (large_free, small_free) = slots.partition(|slot| slot.is_large());
        Ok(Self { memory: MemoryMap::allocate(&[(0, length)])?, large_free, small_free, block_bytes })
    }

    /// What requests point into.
    pub(super) fn memory(&self) -> &MemoryMap {
        &self.memory
    }

    /// Whether [`Self::take`] has one.
    pub(super) fn available(&self) -> bool {
        !self.large_free.is_empty()
    }

    /// A buffer for the next message.
    pub(super) fn take(&mut self) -> Option<Slot> {
        self.large_free.pop()
    }

    pub(super) fn give_back(&mut self, slot: Slot) {
        let free = if slot.is_large() { &mut self.large_free } else { &mut self.small_free };
        free.push(slot);
    }

    /// The buffer in which a read of `length` bytes goes on: `slot`, or a small one for it.
    pub(super) fn settle_read(&mut self, slot: Slot, length: u32) -> Slot {
        if length > SMALL_BYTES {
            return slot;
        }
        let Some(small) = self.small_free.pop() else { return slot };
        self.give_back(slot);
        small
    }

    /// The buffer in which a write of `length` bytes goes on: `slot`, where its payload is, or a small one that this is
    /// copied to because no large one is left for the next message.
    pub(super) fn settle_write(&mut self, slot: Slot, length: u32) -> Slot {
        if length > SMALL_BYTES || self.available() {
            return slot;
        }
        let Some(small) = self.small_free.pop() else { return slot };
        let (from, to) = (self.data(slot, 0, length), self.data(small, 0, length));
        if let (Some(from), Some(to)) = (self.memory.slice(from), self.memory.slice(to)) {
            from.copy_to_volatile_slice(to);
        }
        self.give_back(slot);
        small
    }

    /// `length` bytes of the data area, from `offset`.
    pub(super) fn data(&self, slot: Slot, offset: u64, length: u32) -> Segment {
        let start = offset_of(slot.index(), self.block_bytes) + PAGE_BYTES;
        Segment { region: 0, offset_bytes: start + offset, length_bytes: length }
    }

    /// The scratch block for the first or the last block of a change.
    pub(super) fn scratch(&self, slot: Slot, which: usize) -> Segment {
        let block = u64::from(self.block_bytes);
        let end = offset_of(slot.index() + 1, self.block_bytes);
        let offset_bytes = end - scratch_bytes(self.block_bytes) + block * which as u64;
        Segment { region: 0, offset_bytes, length_bytes: self.block_bytes }
    }

    /// The bytes of a segment of this memory.
    fn slice(&self, segment: Segment) -> io::Result<VolatileSlice<'_>> {
        self.memory.slice(segment).ok_or_else(|| ErrorKind::InvalidInput.into())
    }

    /// Reads the next message; its header comes to lie before the data area. Gives its length.
    pub(super) fn receive(&self, slot: Slot, mut device: BorrowedFd<'_>) -> io::Result<usize> {
        let mut place = self.slice(self.message(slot, TRANSFER_BYTES_MAX))?;
        device.read_volatile(&mut place).map_err(into_io_error)
    }

    /// Copies the first bytes of a message out, for parsing: what is judged is what is used.
    pub(super) fn copy_message(&self, slot: Slot, bytes: &mut [u8]) -> io::Result<()> {
        self.slice(self.message(slot, TRANSFER_BYTES_MAX))?.read_slice(bytes, 0).map_err(into_io_error)
    }

    /// Sends `length` bytes of the data area, from `offset`, with `header` before them.
    pub(super) fn send(
        &self,
        slot: Slot,
        offset: u64,
        length: u32,
        header: &[u8],
        mut device: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let data = self.data(slot, offset, length);
        let reply = Segment {
            offset_bytes: data.offset_bytes - header.len() as u64,
            length_bytes: length + header.len() as u32,
            ..data
        };
        let place = self.slice(reply)?;
        place.write_slice(header, 0).map_err(into_io_error)?;
        device.write_volatile(&place).map(drop).map_err(into_io_error)
    }

    /// Changes bytes `range` of a scratch block: to the data area's from `payload`, or to zeros.
    pub(super) fn patch(
        &self,
        slot: Slot,
        which: usize,
        range: std::ops::Range<usize>,
        payload: Option<u64>,
    ) -> io::Result<()> {
        let block = self.slice(self.scratch(slot, which))?;
        let part = block.subslice(range.start, range.len()).map_err(into_io_error)?;
        match payload {
            Some(offset) => self.slice(self.data(slot, offset, range.len() as u32))?.copy_to_volatile_slice(part),
            None => (0..part.len()).try_for_each(|offset| part.write_obj(0_u8, offset)).map_err(into_io_error)?,
        }
        Ok(())
    }

    fn message(&self, slot: Slot, payload_bytes: u32) -> Segment {
        let data = self.data(slot, 0, payload_bytes);
        let prefix = WRITE_PREFIX_BYTES as u32;
        Segment {
            offset_bytes: data.offset_bytes - u64::from(prefix),
            length_bytes: data.length_bytes + prefix,
            ..data
        }
    }
}

/// Where a buffer starts, and the one before it ends.
fn offset_of(index: usize, block_bytes: u32) -> u64 {
    // An unaligned read takes up to a block more at each end.
    let bytes = |transfer_bytes: u32| {
        PAGE_BYTES + u64::from(transfer_bytes) + scratch_bytes(block_bytes) + scratch_bytes(block_bytes)
    };
    let large = index.min(LARGE_COUNT) as u64;
    let small = index as u64 - large;
    large * bytes(TRANSFER_BYTES_MAX) + small * bytes(SMALL_BYTES)
}

/// Two blocks, in whole pages.
fn scratch_bytes(block_bytes: u32) -> u64 {
    (2 * u64::from(block_bytes)).next_multiple_of(PAGE_BYTES)
}

fn into_io_error(error: VolatileMemoryError) -> io::Error {
    match error {
        VolatileMemoryError::IOError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_payloads_begin_on_pages() {
        for block_bytes in [512, 4096, 65536] {
            let buffers = Buffers::new(block_bytes).expect("memory");
            let mut end = 0;
            for slot in (0..BUFFER_COUNT).filter_map(Slot::new) {
                let transfer = if slot.is_large() { TRANSFER_BYTES_MAX } else { SMALL_BYTES };
                let data = buffers.data(slot, 0, transfer + 2 * block_bytes);
                assert_eq!(data.offset_bytes % PAGE_BYTES, 0);
                assert!(data.offset_bytes >= end + WRITE_PREFIX_BYTES as u64);
                let scratch = buffers.scratch(slot, 0);
                assert!(scratch.offset_bytes >= data.offset_bytes + u64::from(data.length_bytes));
                let last = buffers.scratch(slot, 1);
                end = last.offset_bytes + u64::from(block_bytes);
                assert!(buffers.memory.slice(last).is_some());
            }
            assert!(Slot::new(BUFFER_COUNT).is_none());
        }
    }

    #[test]
    fn many_small_requests_leave_a_large_buffer_for_the_next_message() {
        let mut buffers = Buffers::new(512).expect("memory");
        for _ in 0..SMALL_COUNT {
            let slot = buffers.take().expect("a large buffer");
            assert!(!buffers.settle_read(slot, 4096).is_large());
        }
        let mut writes = Vec::new();
        while let Some(slot) = buffers.take() {
            writes.push(buffers.settle_write(slot, 4096));
        }
        assert_eq!(writes.len(), LARGE_COUNT, "no small one is left: every large one is used");
        writes.into_iter().for_each(|slot| buffers.give_back(slot));
        assert!(buffers.available());
    }

    #[test]
    fn a_small_write_keeps_its_payload_when_it_moves() {
        let mut buffers = Buffers::new(512).expect("memory");
        let slots: Vec<_> = std::iter::from_fn(|| buffers.take()).collect();
        let slot = slots[0];
        let bytes: Vec<u8> = (0..=255).collect();
        buffers.slice(buffers.data(slot, 0, 256)).expect("inside").write_slice(&bytes, 0).expect("written");
        let settled = buffers.settle_write(slot, 256);
        assert!(!settled.is_large());
        let mut copied = vec![0; 256];
        buffers.slice(buffers.data(settled, 0, 256)).expect("inside").read_slice(&mut copied, 0).expect("read");
        assert_eq!(copied, bytes);
    }
}
