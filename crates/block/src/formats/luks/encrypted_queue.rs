//! The queue of an encrypted disk.
//!
//! The disk below is given ciphertext alone, in buffers that the queue adds to the memory map. What is in the clear
//! goes from and to the requests' own memory through a scratch buffer, by the thread that has the queue: a write's
//! when it is pushed, a read's when it is reaped.

use super::{SECTOR_BYTES, SectorCipher};
use crate::layers::layer;
use crate::wait::one_event;
use crate::{Completion, Disk, Geometry, MemoryMap, Operation, Queue, QueueError, Request, RequestError, Segment};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use vm_memory::VolatileSlice;
use zeroize::Zeroizing;

/// Buffers of a queue, and the length of each.
const BUFFERS: usize = 128;
const BUFFER_BYTES: usize = 16 << 10;

/// Buffers of a piece, at most: while one is with the disk, the next is encrypted.
const PIECE_BUFFERS_MAX: usize = 16;

/// Requests with more make room for them once.
const SEGMENTS_USUAL: usize = 16;

/// In the token of a request below that has no buffers, above its slot.
const NO_PIECE: u64 = 1 << 32;

pub(super) struct EncryptedQueue {
    cipher: Arc<SectorCipher>,
    geometry: Geometry,
    below: Box<dyn Queue>,
    /// The memory of the queue above, and a region of buffers.
    memory: MemoryMap,
    /// The region's index. Those before it are the queue's above.
    region: u32,
    free_buffers: Vec<u16>,
    /// Most bytes of a piece, and what all are multiples of.
    piece_bytes_max: u64,
    block_bytes: u64,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    pieces: Box<[Piece]>,
    free_pieces: Vec<u16>,
    /// Slots of which something is still to be pushed.
    waiting: VecDeque<u16>,
    /// What ended without the disk below.
    ended: Vec<Completion>,
    /// `None` when the queue below ends everything in `submit`.
    bell: Option<Bell>,
    /// Something was pushed that could not be submitted.
    stalled: bool,
    reaped: Vec<Completion>,
    segments: Vec<Segment>,
    scratch: Zeroizing<Vec<u8>>,
}

/// A request.
struct Slot {
    token: u64,
    operation: Operation,
    offset_bytes: u64,
    length_bytes: u64,
    segments: Vec<Segment>,
    /// How much of it is on its way or done.
    sent_bytes: u64,
    /// Requests below.
    pieces: u32,
    result: Result<(), RequestError>,
}

/// A request below.
struct Piece {
    slot: u16,
    /// Which part of its request.
    start_bytes: u64,
    length_bytes: u64,
    buffers: Vec<u16>,
}

impl EncryptedQueue {
    pub(super) fn open(
        disk: &dyn Disk,
        geometry: Geometry,
        cipher: &Arc<SectorCipher>,
        memory: &MemoryMap,
        depth: usize,
    ) -> io::Result<Self> {
        let demands = disk.geometry();
        let (memory, region) = memory.with_region(BUFFERS * BUFFER_BYTES).map_err(io::Error::other)?;
        let block_bytes = u64::from(demands.logical_block_bytes);
        let buffers = PIECE_BUFFERS_MAX.min(demands.segments_max as usize);
        let piece_bytes_max = demands.transfer_bytes_max.min((buffers * BUFFER_BYTES) as u64);
        let piece_bytes_max = piece_bytes_max - piece_bytes_max % block_bytes;
        if piece_bytes_max == 0 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the disk's blocks are too large for encryption"));
        }
        let below = disk.open_queue(&memory, depth)?;
        let depth = below.depth();
        let bell = below.completion_event().map(Bell::beside).transpose()?;
        let piece =
            || Piece { slot: 0, start_bytes: 0, length_bytes: 0, buffers: Vec::with_capacity(PIECE_BUFFERS_MAX) };
        Ok(Self {
            cipher: Arc::clone(cipher),
            geometry,
            below,
            memory,
            region,
            free_buffers: (0..BUFFERS as u16).rev().collect(),
            piece_bytes_max,
            block_bytes,
            slots: (0..depth).map(|_| Slot::new()).collect(),
            free: (0..depth as u16).rev().collect(),
            pieces: (0..depth).map(|_| piece()).collect(),
            free_pieces: (0..depth as u16).rev().collect(),
            waiting: VecDeque::with_capacity(depth),
            ended: Vec::with_capacity(depth),
            bell,
            stalled: false,
            reaped: Vec::with_capacity(depth),
            segments: Vec::with_capacity(PIECE_BUFFERS_MAX),
            scratch: Zeroizing::new(vec![0; BUFFER_BYTES]),
        })
    }

    fn judge(&self, request: &Request<'_>) -> Result<(), RequestError> {
        self.geometry.check(request)?;
        self.geometry.check_alignment(request)?;
        let is_inside = |segment: &Segment| segment.region < self.region && self.memory.contains(*segment);
        if request.segments.iter().all(is_inside) { Ok(()) } else { Err(RequestError::BadSegment) }
    }

    /// Ends a request that the disk below knows nothing of.
    fn end(&mut self, slot: u16, result: Result<(), RequestError>) {
        self.ended.push(Completion { token: self.slots[usize::from(slot)].token, result });
        self.free.push(slot);
    }

    /// Pushes what is left of a request, as far as there is room. Whether that is all of it.
    fn send(&mut self, slot: u16) -> bool {
        loop {
            let pending = &mut self.slots[usize::from(slot)];
            let is_flush = pending.operation == Operation::Flush;
            if pending.is_sent() {
                return true;
            }
            if self.below.in_flight() >= self.below.depth() {
                return false;
            }
            if !is_flush {
                if !self.send_piece(slot) {
                    return false;
                }
                continue;
            }
            let token = NO_PIECE | u64::from(slot);
            let flush = Request { operation: Operation::Flush, offset_bytes: 0, segments: &[], token };
            if self.below.push(&flush).is_err() {
                return false;
            }
            pending.sent_bytes = u64::MAX;
            pending.pieces += 1;
        }
    }

    /// The same of one piece. Whether there was room for one.
    fn send_piece(&mut self, slot: u16) -> bool {
        let pending = &mut self.slots[usize::from(slot)];
        let start_bytes = pending.sent_bytes;
        let room_bytes = (self.free_buffers.len() * BUFFER_BYTES) as u64;
        let most_bytes = self.piece_bytes_max.min(room_bytes - room_bytes % self.block_bytes);
        let length_bytes = (pending.length_bytes - start_bytes).min(most_bytes);
        let (Some(&number), true) = (self.free_pieces.last(), length_bytes > 0) else { return false };
        let piece = &mut self.pieces[usize::from(number)];
        (piece.slot, piece.start_bytes, piece.length_bytes) = (slot, start_bytes, length_bytes);
        self.segments.clear();
        let mut cursor = Cursor::at(&pending.segments, start_bytes);
        let offset_bytes = pending.offset_bytes + start_bytes;
        for at in (0..length_bytes).step_by(BUFFER_BYTES) {
            let Some(buffer) = self.free_buffers.pop() else { break };
            piece.buffers.push(buffer);
            let segment = buffer_segment(self.region, buffer, length_bytes - at);
            self.segments.push(segment);
            let scratch = &mut self.scratch[..segment.length_bytes as usize];
            match pending.operation {
                Operation::Read => continue,
                Operation::Write { .. } => cursor.copy(&self.memory, scratch, |slice, bytes| _ = slice.copy_to(bytes)),
                _ => scratch.fill(0),
            }
            self.cipher.encrypt((offset_bytes + at) / SECTOR_BYTES as u64, scratch);
            if let Some(slice) = self.memory.slice(segment) {
                slice.copy_from(scratch);
            }
        }
        let operation = match pending.operation {
            Operation::WriteZeroes { .. } => Operation::Write { force_unit_access: false },
            operation => operation,
        };
        let request = Request { operation, offset_bytes, segments: &self.segments, token: u64::from(number) };
        if self.below.push(&request).is_err() {
            self.free_buffers.append(&mut piece.buffers);
            return false;
        }
        self.free_pieces.pop();
        pending.pieces += 1;
        pending.sent_bytes += length_bytes;
        true
    }

    fn push_waiting(&mut self) {
        while let Some(&slot) = self.waiting.front() {
            if !self.send(slot) {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// A request below ended; perhaps the one above did.
    fn take(&mut self, completion: Completion) -> Option<Completion> {
        let slot = if completion.token & NO_PIECE != 0 {
            completion.token as u16
        } else {
            self.take_piece(completion.token as u16, completion.result)
        };
        let pending = &mut self.slots[usize::from(slot)];
        pending.pieces -= 1;
        if completion.result.is_err() {
            pending.result = pending.result.and(completion.result);
            // No more of it is sent.
            pending.sent_bytes = u64::MAX;
        }
        if pending.pieces > 0 || !pending.is_sent() {
            return None;
        }
        let ended = Completion { token: pending.token, result: pending.result };
        if ended.result.is_err() {
            self.waiting.retain(|&other| other != slot);
        }
        self.free.push(slot);
        Some(ended)
    }

    /// Decrypts what was read, and gives the buffers back.
    fn take_piece(&mut self, number: u16, result: Result<(), RequestError>) -> u16 {
        let piece = &mut self.pieces[usize::from(number)];
        let pending = &self.slots[usize::from(piece.slot)];
        let mut cursor = Cursor::at(&pending.segments, piece.start_bytes);
        let is_read = pending.operation == Operation::Read && result.is_ok();
        for (at, &buffer) in (0..piece.length_bytes).step_by(BUFFER_BYTES).zip(&piece.buffers).filter(|_| is_read) {
            let segment = buffer_segment(self.region, buffer, piece.length_bytes - at);
            let scratch = &mut self.scratch[..segment.length_bytes as usize];
            if let Some(slice) = self.memory.slice(segment) {
                slice.copy_to(scratch);
            }
            let offset_bytes = pending.offset_bytes + piece.start_bytes + at;
            self.cipher.decrypt(offset_bytes / SECTOR_BYTES as u64, scratch);
            cursor.copy(&self.memory, scratch, |slice, bytes| slice.copy_from(bytes));
        }
        self.free_buffers.append(&mut piece.buffers);
        self.free_pieces.push(number);
        piece.slot
    }

    fn gather(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        loop {
            self.below.reap(&mut self.reaped);
            let came = !self.reaped.is_empty();
            for index in 0..self.reaped.len() {
                completions.extend(self.take(self.reaped[index]));
            }
            self.reaped.clear();
            // Pieces alone: the event below tells of more only once nothing comes.
            if !came || completions.len() > before {
                return;
            }
        }
    }

    /// Pushes what has been waiting, now that something may have made room.
    fn get_on(&mut self) {
        if !self.waiting.is_empty() {
            self.push_waiting();
            self.stalled |= self.below.submit().is_err();
        }
        if let (true, Some(bell)) = (self.stalled, &self.bell) {
            // Who wakes up submits, and hears of it.
            bell.ring();
        }
    }
}

impl layer::QueueLayer for EncryptedQueue {
    fn below(&self) -> &dyn Queue {
        &*self.below
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.below
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.ended.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        if Queue::in_flight(self) >= self.slots.len() {
            return Err(QueueError::Full);
        }
        let slot = self.free.pop().ok_or(QueueError::Full)?;
        self.slots[usize::from(slot)].begin(request);
        let judged = self.judge(request);
        let is_done = match request.operation {
            Operation::Flush => false,
            Operation::Discard { .. } => true,
            _ => request.length_bytes() == 0,
        };
        if judged.is_err() || is_done {
            self.end(slot, judged);
        } else if !self.waiting.is_empty() || !self.send(slot) {
            self.waiting.push_back(slot);
        }
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.push_waiting();
        self.below.submit()?;
        self.stalled = false;
        let Some(bell) = &self.bell else {
            let mut ended = std::mem::take(&mut self.ended);
            let mut submitted = Ok(());
            while self.free.len() < self.slots.len() && submitted.is_ok() {
                self.gather(&mut ended);
                self.push_waiting();
                submitted = self.below.submit();
            }
            self.ended = ended;
            return submitted;
        };
        if !self.ended.is_empty() {
            bell.ring();
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.bell.iter().for_each(Bell::hear);
        self.gather(completions);
        completions.append(&mut self.ended);
        self.get_on();
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(|bell| bell.either.as_fd())
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        if !self.ended.is_empty() {
            return Ok(());
        }
        if self.stalled {
            self.below.submit()?;
            self.stalled = false;
        }
        self.below.wait(events, timeout)
    }
}

impl Drop for EncryptedQueue {
    fn drop(&mut self) {
        // Nobody is left to tell how it went. A broken queue below drains itself when it is dropped.
        let _ = self.drain(&mut Vec::with_capacity(self.slots.len()));
    }
}

impl Slot {
    fn new() -> Self {
        Self {
            token: 0,
            operation: Operation::Flush,
            offset_bytes: 0,
            length_bytes: 0,
            segments: Vec::with_capacity(SEGMENTS_USUAL),
            sent_bytes: 0,
            pieces: 0,
            result: Ok(()),
        }
    }

    fn begin(&mut self, request: &Request<'_>) {
        self.token = request.token;
        self.operation = request.operation;
        self.offset_bytes = request.offset_bytes;
        self.length_bytes = request.length_bytes();
        self.segments.clear();
        self.segments.extend_from_slice(request.segments);
        (self.sent_bytes, self.pieces, self.result) = (0, 0, Ok(()));
    }

    fn is_sent(&self) -> bool {
        // A flush has no bytes, and is sent nevertheless.
        self.sent_bytes >= self.length_bytes.max(1)
    }
}

/// The first bytes of a buffer, as many as are wanted of it.
fn buffer_segment(region: u32, buffer: u16, wanted_bytes: u64) -> Segment {
    let length_bytes = wanted_bytes.min(BUFFER_BYTES as u64) as u32;
    Segment { region, length_bytes, offset_bytes: u64::from(buffer) * BUFFER_BYTES as u64 }
}

/// A place in a request's segments.
struct Cursor<'a> {
    segments: &'a [Segment],
    /// Bytes of the first segment that are behind it.
    gone_bytes: u32,
}

impl<'a> Cursor<'a> {
    fn at(segments: &'a [Segment], mut offset_bytes: u64) -> Self {
        let mut rest = segments;
        while let Some((first, others)) = rest.split_first() {
            if offset_bytes < u64::from(first.length_bytes) {
                break;
            }
            offset_bytes -= u64::from(first.length_bytes);
            rest = others;
        }
        // Less than the segment's length.
        Self { segments: rest, gone_bytes: offset_bytes as u32 }
    }

    /// Copies the next bytes, as `copy` does, and goes on behind them. The segments were found to lie in memory.
    fn copy(&mut self, memory: &MemoryMap, mut bytes: &mut [u8], copy: impl Fn(VolatileSlice<'_>, &mut [u8])) {
        while let (Some(&first), false) = (self.segments.first(), bytes.is_empty()) {
            let left_bytes = first.length_bytes - self.gone_bytes;
            let length_bytes = bytes.len().min(left_bytes as usize);
            let (now, later) = bytes.split_at_mut(length_bytes);
            let offset_bytes = first.offset_bytes + u64::from(self.gone_bytes);
            // At most the segment's length.
            let segment = Segment { length_bytes: length_bytes as u32, offset_bytes, ..first };
            if let Some(slice) = memory.slice(segment).filter(|_| length_bytes > 0) {
                copy(slice, now);
            }
            bytes = later;
            self.gone_bytes += length_bytes as u32;
            if self.gone_bytes == first.length_bytes {
                (self.segments, self.gone_bytes) = (&self.segments[1..], 0);
            }
        }
    }
}

/// An event of the queue's own, and one that is readable while that or another is.
struct Bell {
    own: OwnedFd,
    either: OwnedFd,
}

impl Bell {
    fn beside(event: BorrowedFd<'_>) -> io::Result<Self> {
        let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let either = one_event([event, own.as_fd()])?;
        Ok(Self { own, either })
    }

    fn ring(&self) {
        // It can only fail when the event is at its maximum, and then it is readable.
        let _ = rustix::io::write(&self.own, &1_u64.to_ne_bytes());
    }

    fn hear(&self) {
        // It fails when nobody rang, which is what is wanted.
        let _ = rustix::io::read(&self.own, &mut [0; 8]);
    }
}
