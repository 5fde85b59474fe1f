//! A virtqueue and the memory that it lies in.
//!
//! One sealed memfd holds all that a queue shares with its server: the rings, a control block for each request (header,
//! range, status, a short descriptor table), longer tables, zeros to write from, and the I/O buffer. What is written
//! there is never believed when it is read back: only the used ring, judged by [`DriverQueue`], the status bytes, and
//! data.

use super::io_buffer::GRANULE_BYTES;
use blockyard_block::{MemoryMap, QUEUE_DEPTH_MAX, Segment};
use blockyard_virtqueue::{
    AddError, Buffer, Chain, DeviceError, DriverQueue, Rings, available_bytes, available_words, descriptor_bytes,
    descriptor_words, used_bytes, used_words, write_table,
};
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use vm_memory::{GuestMemoryBackend, VolatileSlice};

/// Descriptors in the largest ring. libvhost-user takes no more, and no queue carries more requests.
pub(super) const RING_SIZE_MAX: u16 = 1024;
const _: () = assert!(QUEUE_DEPTH_MAX <= RING_SIZE_MAX as usize);

/// Most segments of data in one request to the server.
pub(super) const PIECE_SEGMENTS_MAX: usize = 254;
/// Descriptors of a request that are not data: header and status, and a range's.
pub(super) const FRAME_DESCRIPTORS: usize = 2;

/// Zeros that requests share where the server cannot write zeros by itself.
pub(super) const ZEROS_BYTES: u64 = 64 << 10;

/// A control block: header and range of 16 bytes each, the status byte, and a table of four descriptors. Two cache
/// lines.
const CONTROL_BYTES: u64 = 128;
const HEADER: u64 = 0;
const RANGE: u64 = 16;
const STATUS: u64 = 32;
const SHORT_TABLE: u64 = 64;
const SHORT_TABLE_ENTRIES: usize = 4;
const DESCRIPTOR_BYTES: u64 = 16;
const _: () = assert!(SHORT_TABLE + SHORT_TABLE_ENTRIES as u64 * DESCRIPTOR_BYTES == CONTROL_BYTES);

/// Bytes of a request's header and of a range.
pub(super) const HEADER_BYTES: u32 = 16;
pub(super) const RANGE_BYTES: u32 = 16;

/// What a status byte is before the server writes it.
const STATUS_NONE: u8 = 0xff;

/// How a queue's memory is laid out: offsets in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingShape {
    /// Descriptors.
    pub(super) size: u16,
    pub(super) event_idx: bool,
    /// Whether a request's descriptors lie in a table of its own.
    pub(super) indirect: bool,
    /// Most segments of data in a request.
    pub(super) segments_max: usize,
    pub(super) buffer_bytes: u64,
    available: u64,
    used: u64,
    controls: u64,
    tables: u64,
    zeros: u64,
    buffer: u64,
}

impl RingShape {
    /// A ring for `depth` requests in flight, of at most `segments_max` segments each.
    pub(super) fn new(depth: usize, indirect: bool, event_idx: bool, segments_max: u32, buffer_bytes: u64) -> Self {
        // A few more than one: a request that is split has pieces in flight, too.
        let wanted = if indirect { depth.max(8) } else { depth.saturating_mul(4).max(32) };
        let size = wanted.next_power_of_two().min(RING_SIZE_MAX.into()) as u16;
        let most = if indirect { PIECE_SEGMENTS_MAX } else { PIECE_SEGMENTS_MAX.min(usize::from(size) / 2) };
        let segments_max = (segments_max as usize).clamp(1, most);
        let page = |offset: u64| offset.next_multiple_of(GRANULE_BYTES);
        let count = u64::from(size);
        let available = descriptor_bytes(size) as u64;
        let used = (available + available_bytes(size) as u64).next_multiple_of(64);
        let controls = (used + used_bytes(size) as u64).next_multiple_of(CONTROL_BYTES);
        let tables = controls + count * CONTROL_BYTES;
        let entries = if indirect { (segments_max + FRAME_DESCRIPTORS) as u64 } else { 0 };
        let zeros = page(tables + count * entries * DESCRIPTOR_BYTES);
        let buffer = zeros + ZEROS_BYTES;
        let buffer_bytes = page(buffer_bytes);
        Self { size, event_idx, indirect, segments_max, buffer_bytes, available, used, controls, tables, zeros, buffer }
    }

    fn total_bytes(&self) -> u64 {
        self.buffer + self.buffer_bytes
    }

    fn table_entries(&self) -> usize {
        self.segments_max + FRAME_DESCRIPTORS
    }
}

/// Where a server finds the three parts of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingAddresses {
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
}

/// The driver's side of a virtqueue and its memory. A chain is known by the index of its control block.
#[derive(Debug)]
pub(super) struct Ring {
    // Before the memory that it points into, so that it is dropped first.
    queue: Box<DriverQueue<'static, { RING_SIZE_MAX as usize }, u16>>,
    memory: MemoryMap,
    base: *mut u8,
    shape: RingShape,
    /// Where the server finds the memory.
    address: u64,
}

// SAFETY: `base` is into the mapping that `memory` keeps; nothing there belongs to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Allocates memory for a ring.
    pub(super) fn allocate(shape: &RingShape) -> io::Result<MemoryMap> {
        let bytes = usize::try_from(shape.total_bytes()).map_err(io::Error::other)?;
        MemoryMap::allocate(&[(0, bytes)]).map_err(io::Error::other)
    }

    /// An empty virtqueue in `memory`, made by [`Ring::allocate`] for the same shape, that the server finds at
    /// `address`.
    pub(super) fn new(memory: MemoryMap, shape: RingShape, address: u64) -> io::Result<Self> {
        let region = memory.guest_memory().iter().next();
        let base = region.filter(|region| region.size() as u64 >= shape.total_bytes()).map(|region| region.as_ptr());
        let base = base.ok_or_else(|| io::Error::other("no memory for a virtqueue"))?;
        let size = shape.size;
        // SAFETY: the offsets are within the mapping, which is as long as `shape` says and page-aligned, and aligned
        // for what lies there. It is shared with another process, hence atomics. The mapping lives as long as `memory`,
        // which is in the same struct as the queue that keeps these slices, is dropped after it, and is never replaced;
        // no function hands them out.
        let rings = unsafe {
            Rings::new(
                size,
                std::slice::from_raw_parts(base.cast::<AtomicU64>(), descriptor_words(size)),
                std::slice::from_raw_parts(
                    base.add(shape.available as usize).cast::<AtomicU16>(),
                    available_words(size),
                ),
                std::slice::from_raw_parts(base.add(shape.used as usize).cast::<AtomicU16>(), used_words(size)),
            )
        };
        let queue = DriverQueue::new(rings.map_err(io::Error::other)?, shape.event_idx).map_err(io::Error::other)?;
        Ok(Self { queue: Box::new(queue), memory, base, shape, address })
    }

    pub(super) fn shape(&self) -> &RingShape {
        &self.shape
    }

    pub(super) fn addresses(&self) -> RingAddresses {
        let at = |offset| self.address + offset;
        RingAddresses { descriptors: at(0), available: at(self.shape.available), used: at(self.shape.used) }
    }

    /// Whether a chain of as many descriptors can be added.
    pub(super) fn has_room(&self, descriptors: usize) -> bool {
        let wanted = if self.shape.indirect { 1 } else { descriptors };
        usize::from(self.queue.free()) >= wanted
    }

    /// Chains added and not popped.
    pub(super) fn in_flight(&self) -> u16 {
        self.queue.in_flight()
    }

    /// Prepares the control block `index`: a header, and a range where the request has one.
    pub(super) fn prepare(&self, index: u16, request: u32, sector: u64, range: Option<(u64, u32, u32)>) {
        let [kind, place] = self.words(self.control(index) + HEADER);
        kind.store(u64::from(request).to_le(), Ordering::Relaxed);
        place.store(sector.to_le(), Ordering::Relaxed);
        if let Some((sector, sectors, flags)) = range {
            let [start, rest] = self.words(self.control(index) + RANGE);
            start.store(sector.to_le(), Ordering::Relaxed);
            rest.store((u64::from(sectors) | u64::from(flags) << 32).to_le(), Ordering::Relaxed);
        }
        self.status_byte(index).store(STATUS_NONE, Ordering::Relaxed);
    }

    pub(super) fn header(&self, index: u16) -> Buffer {
        let address = self.address + self.control(index) + HEADER;
        Buffer { address, length: HEADER_BYTES, writable: false }
    }

    pub(super) fn range(&self, index: u16) -> Buffer {
        Buffer { address: self.address + self.control(index) + RANGE, length: RANGE_BYTES, writable: false }
    }

    pub(super) fn status(&self, index: u16) -> Buffer {
        Buffer { address: self.address + self.control(index) + STATUS, length: 1, writable: true }
    }

    pub(super) fn zeros_address(&self) -> u64 {
        self.address + self.shape.zeros
    }

    pub(super) fn buffer_address(&self) -> u64 {
        self.address + self.shape.buffer
    }

    /// A part of the I/O buffer; `None` when it lies outside.
    pub(super) fn buffer(&self, offset_bytes: u64, length_bytes: u32) -> Option<VolatileSlice<'_>> {
        self.memory.slice(Segment { region: 0, length_bytes, offset_bytes: self.shape.buffer + offset_bytes })
    }

    /// What the server wrote as the status of a chain that was popped.
    pub(super) fn read_status(&self, index: u16) -> u8 {
        self.status_byte(index).load(Ordering::Relaxed)
    }

    /// Adds the chain that belongs to control block `index`.
    pub(super) fn add(&mut self, index: u16, buffers: &[Buffer]) -> Result<(), AddError> {
        if !self.shape.indirect {
            return self.queue.add(index, &Chain::Direct(buffers));
        }
        let (offset, entries) = if buffers.len() <= SHORT_TABLE_ENTRIES {
            (self.control(index) + SHORT_TABLE, SHORT_TABLE_ENTRIES)
        } else {
            let entries = self.shape.table_entries();
            (self.shape.tables + u64::from(index) * entries as u64 * DESCRIPTOR_BYTES, entries)
        };
        // SAFETY: the table of `index`, which is below the ring's size, lies within the mapping and is aligned to 16
        // bytes.
        let words =
            unsafe { std::slice::from_raw_parts(self.base.add(offset as usize).cast::<AtomicU64>(), 2 * entries) };
        let table = write_table(words, self.address + offset, buffers)?;
        self.queue.add(index, &Chain::Indirect(table))
    }

    /// Shows the server what was added. Whether it wants to be notified.
    pub(super) fn publish(&mut self) -> bool {
        self.queue.publish()
    }

    pub(super) fn has_used(&self) -> bool {
        self.queue.has_used()
    }

    /// The control block of a chain that the server is done with.
    pub(super) fn pop_used(&mut self) -> Result<Option<u16>, DeviceError> {
        Ok(self.queue.pop_used()?.map(|used| used.token))
    }

    /// Asks for an interrupt after another `count` chains. Whether there may be none, because they are used already.
    pub(super) fn enable_interrupt_after(&self, count: u16) -> bool {
        self.queue.enable_interrupt_after(count)
    }

    fn control(&self, index: u16) -> u64 {
        assert!(index < self.shape.size, "every control block's index comes from a list of them");
        self.shape.controls + u64::from(index) * CONTROL_BYTES
    }

    fn words(&self, offset: u64) -> &[AtomicU64; 2] {
        // SAFETY: callers pass places in a control block of an index below the ring's size: within the mapping, and
        // aligned to 16 bytes.
        unsafe { &*self.base.add(offset as usize).cast() }
    }

    fn status_byte(&self, index: u16) -> &AtomicU8 {
        // SAFETY: a control block of an index below the ring's size lies within the mapping.
        unsafe { &*self.base.add((self.control(index) + STATUS) as usize).cast() }
    }
}
