//! Requests in flight: split into what the server takes, put into the ring, and taken back out of it.

use super::io_buffer::{GRANULE_BYTES, IoBuffer};
use super::limits::{Limits, SECTOR_BYTES};
use super::ring::{FRAME_DESCRIPTORS, Ring, ZEROS_BYTES};
use super::slot::{Parts, Piece, Slot, Step, Work};
use blockyard_block::limits::REQUEST_BYTES_MAX;
use blockyard_block::{Completion, Geometry, MemoryMap, Operation, Request, RequestError};
use blockyard_virtqueue::{Buffer, DeviceError};
use std::collections::VecDeque;
use virtio_bindings::virtio_blk as blk;

/// A region of the memory map.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionView {
    pub(super) length_bytes: u64,
    /// Where the server finds it; `None` when it does not map it.
    pub(super) address: Option<u64>,
}

/// Memory that requests' segments lie in.
#[derive(Debug)]
struct RequestMemory {
    memory: MemoryMap,
    regions: Box<[RegionView]>,
    /// Whether data go through the I/O buffer.
    copies: bool,
}

/// Requests in flight. Does nothing by itself: its owner decides when the server is notified, and when to look.
#[derive(Debug)]
pub(super) struct Transfers {
    pub(super) ring: Ring,
    pub(super) geometry: Geometry,
    limits: Limits,
    /// One for each whose requests these are; `None` where nobody's are at the moment.
    memories: Vec<Option<RequestMemory>>,
    slots: Box<[Slot]>,
    free_slots: Vec<u16>,
    pieces: Box<[Piece]>,
    free_pieces: Vec<u16>,
    io_buffer: IoBuffer,
    /// Requests that need more of the server than there was room for, in their order. The first gets all there is, so
    /// that each gets its turn.
    backlog: VecDeque<u16>,
    /// Where a request's buffers are put together.
    buffers: Vec<Buffer>,
    next_sequence: u64,
}

/// How much of a request goes next.
struct Plan {
    length_bytes: u64,
    segments: usize,
    copied: bool,
}

impl Transfers {
    /// None, of nobody's memory yet.
    pub(super) fn new(ring: Ring, depth: usize, geometry: Geometry, limits: Limits) -> Self {
        let shape = *ring.shape();
        Self {
            ring,
            geometry,
            limits,
            memories: Vec::new(),
            slots: (0..depth).map(|_| Slot::new()).collect(),
            free_slots: (0..depth as u16).rev().collect(),
            pieces: vec![Piece::FREE; shape.size.into()].into(),
            free_pieces: (0..shape.size).rev().collect(),
            io_buffer: IoBuffer::new(shape.buffer_bytes, shape.size.into()),
            backlog: VecDeque::with_capacity(depth),
            buffers: Vec::with_capacity(shape.segments_max + FRAME_DESCRIPTORS + 1),
            next_sequence: 0,
        }
    }

    /// Takes memory in that requests' segments lie in from now on. The server finds its regions at `addresses`, if it
    /// maps them. What it is called here.
    pub(super) fn add_memory(&mut self, memory: &MemoryMap, addresses: Option<&[u64]>) -> usize {
        let regions = memory.regions().enumerate().map(|(index, (_, length_bytes))| {
            let address = addresses.and_then(|addresses| addresses.get(index).copied());
            RegionView { length_bytes, address }
        });
        let regions: Box<[_]> = regions.collect();
        let copies = regions.iter().any(|region| region.address.is_none());
        let index = self.memories.iter().position(Option::is_none).unwrap_or_else(|| {
            self.memories.push(None);
            self.memories.len() - 1
        });
        self.memories[index] = Some(RequestMemory { memory: memory.clone(), regions, copies });
        index
    }

    /// Forgets memory of which no request is in flight.
    pub(super) fn remove_memory(&mut self, index: usize) {
        self.memories[index] = None;
    }

    /// Nobody waits for the requests of this memory any more, and it is not touched: they end when the server is done
    /// with what it has of them, or gone.
    pub(super) fn abandon(&mut self, memory: usize) {
        for slot in self.slots.iter_mut().filter(|slot| slot.busy && slot.memory == memory) {
            slot.result = Err(RequestError::Os(libc::ECANCELED));
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Requests that have not ended.
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    /// Takes a request of one of the memories, which ends at once if it is wrong in itself or there is nothing to do.
    pub(super) fn begin(&mut self, memory: usize, request: &Request<'_>, ended: &mut Vec<Completion>) {
        let result = match self.judge(memory, request) {
            Ok(Some(work)) => match self.free_slots.pop() {
                Some(index) => {
                    self.slots[usize::from(index)].begin(memory, request, work, self.limits.flush);
                    self.queue(index);
                    if self.backlog.len() == 1 {
                        self.pump(ended);
                    }
                    return;
                }
                None => Err(RequestError::Os(libc::EBUSY)),
            },
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        ended.push(Completion { token: request.token, result });
    }

    /// What the server is to do for a request; `None` when nothing.
    fn judge(&self, memory: usize, request: &Request<'_>) -> Result<Option<Work>, RequestError> {
        self.geometry.check(request)?;
        let work = match request.operation {
            Operation::Read => Work::Read,
            Operation::Write { .. } => Work::Write,
            Operation::Flush => return Ok((self.limits.flush && !self.geometry.read_only).then_some(Work::Flush)),
            Operation::Discard { .. } if self.limits.discard_bytes_max == 0 => return Ok(None),
            Operation::Discard { .. } => Work::Discard,
            Operation::WriteZeroes { .. } if self.limits.zeroes_bytes_max == 0 => Work::WriteOfZeros,
            Operation::WriteZeroes { may_unmap, .. } => {
                Work::WriteZeroes { unmap: may_unmap && self.limits.zeroes_may_unmap }
            }
        };
        if matches!(work, Work::Read | Work::Write) {
            let regions = self.memory(memory).map_or(&[][..], |memory| &memory.regions);
            let inside = request.segments.iter().all(|segment| {
                let region = regions.get(segment.region as usize);
                let end = segment.offset_bytes.checked_add(u64::from(segment.length_bytes));
                region.zip(end).is_some_and(|(region, end)| end <= region.length_bytes)
            });
            if !inside {
                return Err(RequestError::BadSegment);
            }
        }
        // As the server would say it.
        self.geometry.check_alignment(request).map_err(|_| RequestError::Os(libc::EINVAL))?;
        Ok((request.length_bytes() > 0).then_some(work))
    }

    fn memory(&self, index: usize) -> Option<&RequestMemory> {
        self.memories.get(index)?.as_ref()
    }

    fn queue(&mut self, index: u16) {
        self.slots[usize::from(index)].queued = true;
        self.backlog.push_back(index);
    }

    /// Puts as much of the backlog into the ring as there is room for. Whether that was anything.
    pub(super) fn pump(&mut self, ended: &mut Vec<Completion>) -> bool {
        let before = self.next_sequence;
        while let Some(&index) = self.backlog.front() {
            let all = loop {
                match self.slots[usize::from(index)].next_step() {
                    Step::Nothing => break true,
                    step if !self.issue(index, step) => break false,
                    _ => {}
                }
            };
            if !all {
                break;
            }
            self.backlog.pop_front();
            self.slots[usize::from(index)].queued = false;
            self.settle(index, ended);
        }
        self.next_sequence != before
    }

    /// Puts the next piece of a request into the ring; false when there is no room.
    fn issue(&mut self, slot_index: u16, step: Step) -> bool {
        let Some(&index) = self.free_pieces.last() else { return false };
        let slot = &self.slots[usize::from(slot_index)];
        let (work, plan) = match step {
            Step::Flush => (Work::Flush, Plan { length_bytes: 0, segments: 0, copied: false }),
            _ => (slot.work, self.plan(slot)),
        };
        if !self.ring.has_room(plan.segments + FRAME_DESCRIPTORS + 1) {
            return false;
        }
        let buffer = match plan.copied.then(|| self.io_buffer.take(plan.length_bytes)) {
            Some(None) => return false,
            Some(some) => some,
            None => None,
        };
        self.free_pieces.pop();
        let slot = &mut self.slots[usize::from(slot_index)];
        self.pieces[usize::from(index)] = Piece {
            busy: true,
            slot: slot_index,
            sequence: self.next_sequence,
            work,
            offset_bytes: slot.offset_bytes + slot.issued_bytes,
            length_bytes: plan.length_bytes,
            cursor: slot.cursor,
            buffer,
        };
        self.next_sequence += 1;
        let mut parts = Parts::new(&slot.segments, slot.cursor, plan.length_bytes, u32::MAX);
        parts.by_ref().for_each(drop);
        slot.cursor = parts.cursor;
        slot.issued_bytes += plan.length_bytes;
        slot.pieces += 1;
        slot.flush_left &= step != Step::Flush;
        if !self.place(index) {
            // There was room, so it is no chain that a ring takes: none that is made here.
            self.release(index, Err(RequestError::Os(libc::EIO)));
        }
        true
    }

    /// How much of a request goes next: at least a block.
    fn plan(&self, slot: &Slot) -> Plan {
        let left = slot.length_bytes - slot.issued_bytes;
        let one = |most: u64| Plan { length_bytes: left.min(most), segments: 1, copied: false };
        let segments_max = self.ring.shape().segments_max;
        let part_bytes_max = u64::from(self.limits.segment_bytes_max);
        let block_bytes = u64::from(self.geometry.logical_block_bytes);
        let whole = |bytes: u64| if bytes == left { bytes } else { bytes - bytes % block_bytes };
        match slot.work {
            Work::Discard => one(self.limits.discard_bytes_max),
            Work::WriteZeroes { .. } => one(self.limits.zeroes_bytes_max),
            Work::WriteOfZeros => {
                let part = ZEROS_BYTES.min(part_bytes_max);
                let length_bytes = whole(left.min(part * segments_max as u64));
                Plan { length_bytes, segments: length_bytes.div_ceil(part) as usize, copied: false }
            }
            Work::Read | Work::Write | Work::Flush => {
                let room = left.min(REQUEST_BYTES_MAX);
                let parts = Parts::new(&slot.segments, slot.cursor, room, self.limits.segment_bytes_max);
                let (segments, bytes) = parts
                    .take(segments_max)
                    .fold((0, 0), |(count, bytes), part| (count + 1, bytes + u64::from(part.length_bytes)));
                let copies = self.memory(slot.memory).is_none_or(|memory| memory.copies);
                match whole(bytes) {
                    length_bytes if length_bytes > 0 && !copies => Plan { length_bytes, segments, copied: false },
                    // Also where as many segments as the server takes are less than a block.
                    _ => {
                        let length_bytes = whole(room.min(self.copied_bytes_max()));
                        let segments = length_bytes.div_ceil(part_bytes_max) as usize;
                        Plan { length_bytes, segments, copied: true }
                    }
                }
            }
        }
    }

    /// Most bytes that go through the I/O buffer in one piece: a quarter of it, so that copying and the server's work
    /// overlap.
    fn copied_bytes_max(&self) -> u64 {
        let shape = self.ring.shape();
        let unit = GRANULE_BYTES.max(u64::from(self.geometry.logical_block_bytes));
        let quarter = shape.buffer_bytes / 4;
        let taken = u64::from(self.limits.segment_bytes_max) * shape.segments_max as u64;
        (quarter - quarter % unit).max(unit).min(taken)
    }

    /// Writes a piece's control block and descriptors, and adds it to the ring. Also what a fresh ring is filled with:
    /// everything comes out of this process's memory.
    fn place(&mut self, index: u16) -> bool {
        let piece = self.pieces[usize::from(index)];
        let sector = piece.offset_bytes / SECTOR_BYTES;
        // The limits are in 32 bits of sectors.
        let sectors = (piece.length_bytes / SECTOR_BYTES) as u32;
        let (request, sector, range) = match piece.work {
            Work::Read => (blk::VIRTIO_BLK_T_IN, sector, None),
            Work::Write | Work::WriteOfZeros => (blk::VIRTIO_BLK_T_OUT, sector, None),
            Work::Flush => (blk::VIRTIO_BLK_T_FLUSH, 0, None),
            Work::Discard => (blk::VIRTIO_BLK_T_DISCARD, 0, Some((sector, sectors, 0))),
            Work::WriteZeroes { unmap } => {
                (blk::VIRTIO_BLK_T_WRITE_ZEROES, 0, Some((sector, sectors, u32::from(unmap))))
            }
        };
        self.ring.prepare(index, request, sector, range);
        self.buffers.clear();
        self.buffers.push(self.ring.header(index));
        if range.is_some() {
            self.buffers.push(self.ring.range(index));
        }
        match (piece.work, piece.buffer) {
            (Work::Read | Work::Write, Some(buffer)) => {
                if piece.work == Work::Write {
                    self.copy(&piece);
                }
                let address = self.ring.buffer_address() + buffer.offset_bytes;
                self.push_run(address, piece.length_bytes, u64::MAX, piece.work == Work::Read);
            }
            (Work::Read | Work::Write, None) => self.push_segments(&piece),
            (Work::WriteOfZeros, _) => {
                self.push_run(self.ring.zeros_address(), piece.length_bytes, ZEROS_BYTES, false);
            }
            (Work::Flush | Work::Discard | Work::WriteZeroes { .. }, _) => {}
        }
        self.buffers.push(self.ring.status(index));
        self.ring.add(index, &self.buffers).is_ok()
    }

    /// Descriptors for `length_bytes` bytes from `address` on, which begin anew after `period_bytes`.
    fn push_run(&mut self, address: u64, length_bytes: u64, period_bytes: u64, writable: bool) {
        let part_bytes_max = u64::from(self.limits.segment_bytes_max).min(period_bytes);
        let mut done = 0;
        while done < length_bytes {
            // Within 32 bits: no longer than a segment.
            let length = (length_bytes - done).min(part_bytes_max);
            let offset = if period_bytes == u64::MAX { done } else { 0 };
            self.buffers.push(Buffer { address: address + offset, length: length as u32, writable });
            done += length;
        }
    }

    fn push_segments(&mut self, piece: &Piece) {
        let slot = &self.slots[usize::from(piece.slot)];
        let Some(memory) = self.memories.get(slot.memory).and_then(Option::as_ref) else { return };
        let writable = piece.work == Work::Read;
        for part in Parts::new(&slot.segments, piece.cursor, piece.length_bytes, self.limits.segment_bytes_max) {
            let region = memory.regions[part.region as usize].address.unwrap_or_default();
            self.buffers.push(Buffer { address: region + part.offset_bytes, length: part.length_bytes, writable });
        }
    }

    /// Copies a piece's data: of a write into the I/O buffer, of a read out of it.
    fn copy(&self, piece: &Piece) {
        let Some(buffer) = piece.buffer else { return };
        let slot = &self.slots[usize::from(piece.slot)];
        let Some(memory) = self.memory(slot.memory) else { return };
        let mut offset_bytes = buffer.offset_bytes;
        for part in Parts::new(&slot.segments, piece.cursor, piece.length_bytes, u32::MAX) {
            let inside = self.ring.buffer(offset_bytes, part.length_bytes).zip(memory.memory.slice(part));
            // Both were judged when the request came.
            if let Some((buffer, memory)) = inside {
                match piece.work {
                    Work::Read => buffer.copy_to_volatile_slice(memory),
                    _ => memory.copy_to_volatile_slice(buffer),
                }
            }
            offset_bytes += u64::from(part.length_bytes);
        }
    }

    /// Takes back what the server is done with.
    pub(super) fn pop_all(&mut self, ended: &mut Vec<Completion>) -> Result<(), DeviceError> {
        // No more than there are in flight: nothing is added meanwhile.
        while let Some(index) = self.ring.pop_used()? {
            let result = match u32::from(self.ring.read_status(index)) {
                blk::VIRTIO_BLK_S_OK => Ok(()),
                blk::VIRTIO_BLK_S_UNSUPP => Err(RequestError::Unsupported),
                // Whatever else it says, it did not do it.
                _ => Err(RequestError::Os(libc::EIO)),
            };
            let piece = &self.pieces[usize::from(index)];
            if result.is_ok() && piece.work == Work::Read && self.slots[usize::from(piece.slot)].result.is_ok() {
                self.copy(piece);
            }
            let slot = self.release(index, result);
            self.settle(slot, ended);
        }
        Ok(())
    }

    /// Frees a piece that has ended. Whose it was.
    fn release(&mut self, index: u16, result: Result<(), RequestError>) -> u16 {
        let piece = std::mem::replace(&mut self.pieces[usize::from(index)], Piece::FREE);
        if let Some(buffer) = piece.buffer {
            self.io_buffer.give(buffer);
        }
        self.free_pieces.push(index);
        let slot = &mut self.slots[usize::from(piece.slot)];
        slot.pieces -= 1;
        // The first error counts.
        slot.result = slot.result.and(result);
        if slot.next_step() == Step::Flush && !slot.queued {
            self.queue(piece.slot);
        }
        piece.slot
    }

    /// Ends a request of which nothing is left to do.
    fn settle(&mut self, index: u16, ended: &mut Vec<Completion>) {
        let slot = &mut self.slots[usize::from(index)];
        if slot.busy && slot.is_done() {
            slot.busy = false;
            ended.push(Completion { token: slot.token, result: slot.result });
            self.free_slots.push(index);
        }
    }

    /// Goes on with another, empty ring of the same shape: asks everything again that was not answered, in the order in
    /// which it was asked first, but what is part of a request that failed.
    pub(super) fn replace_ring(&mut self, ring: Ring, ended: &mut Vec<Completion>) {
        self.ring = ring;
        let mut order: Vec<(u64, u16)> = self
            .pieces
            .iter()
            .zip(0..)
            .filter(|(piece, _)| piece.busy)
            .map(|(piece, index)| (piece.sequence, index))
            .collect();
        order.sort_unstable();
        for (_, index) in order {
            let has_failed = self.slots[usize::from(self.pieces[usize::from(index)].slot)].result.is_err();
            if has_failed || !self.place(index) {
                let slot = self.release(index, Err(RequestError::Os(libc::EIO)));
                self.settle(slot, ended);
            }
        }
        self.pump(ended);
    }

    /// Ends every request with `error`. Nothing more may be begun.
    pub(super) fn fail(&mut self, error: RequestError, ended: &mut Vec<Completion>) {
        for (slot, index) in self.slots.iter_mut().zip(0..).filter(|(slot, _)| slot.busy) {
            slot.busy = false;
            slot.queued = false;
            ended.push(Completion { token: slot.token, result: Err(error) });
            self.free_slots.push(index);
        }
        self.backlog.clear();
    }
}
