//! The requests of a driver that are not answered, and what of them the disk has.

use crate::REQUEST_COST_BYTES_MIN;
use crate::rest::{Rest, piece_bytes};
use blockyard_block::{
    Completion, Disk, Geometry, MemoryMap, Operation, Queue, QueueError, Request, RequestError, Segment,
};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A queue of a disk, with the requests that one driver has there. Those that are longer than what a disk is given at a
/// time are given to it piece by piece, one long request after another. Nothing is allocated per request. `P` is what
/// it takes to answer one.
pub(crate) struct DiskRequests<P> {
    disk: Arc<dyn Disk>,
    disk_generation: u64,
    queue: Box<dyn Queue>,
    requests: Requests<P>,
    /// What the disk has not been given yet of the last request that was begun.
    rest: Rest,
    /// Of a discard of several ranges, those that come after that, the next one last.
    ranges: Vec<Range<u64>>,
    /// Pieces that are over. Those before `looked_at` are the requests' no more.
    completions: Vec<Completion>,
    looked_at: usize,
}

impl<P: Copy> DiskRequests<P> {
    /// Opens a queue of the disk for so many requests, and pieces of long ones, at a time.
    pub(crate) fn open(disk: Arc<dyn Disk>, memory: &MemoryMap, depth: usize) -> io::Result<Self> {
        let disk_generation = disk.generation();
        let queue = disk.open_queue(memory, depth)?;
        Ok(Self {
            disk,
            disk_generation,
            requests: Requests::new(queue.depth().clamp(1, depth)),
            rest: Rest::new(),
            ranges: Vec::new(),
            completions: Vec::with_capacity(queue.depth()),
            looked_at: 0,
            queue,
        })
    }

    /// The disk's queue.
    pub(crate) fn queue(&self) -> &dyn Queue {
        &*self.queue
    }

    /// What the disk's geometry is now, if it may have changed since the queue was opened or this was asked last.
    pub(crate) fn changed_geometry(&mut self) -> Option<Geometry> {
        let generation = self.disk.generation();
        (std::mem::replace(&mut self.disk_generation, generation) != generation).then(|| self.disk.geometry())
    }

    /// Requests and pieces that the disk has.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.in_flight
    }

    /// What they cost, counted as in [`crate::Limit::cost_bytes`].
    pub(crate) fn in_flight_cost_bytes(&self) -> u64 {
        self.requests.in_flight_cost_bytes
    }

    /// Whether there is something of a long request that the disk has not been given.
    pub(crate) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Whether there is a token for what is begun next: the next piece of a long request, or else another request.
    pub(crate) fn has_room(&self) -> bool {
        match self.rest.request() {
            Some(request) => self.requests.has_token_for(request),
            None => self.requests.has_token(),
        }
    }

    /// Gives the disk a request, or as much of it as it is given at once: there is no rest of another. `places` are
    /// those of the disk, in bytes, and `segments[range]` the memory; of what else there is in `segments`, nothing need
    /// be kept. What it costs; `None` when there is no token.
    pub(crate) fn begin(
        &mut self,
        pending: P,
        operation: Operation,
        places: Range<u64>,
        segments: &mut Vec<Segment>,
        range: Range<usize>,
    ) -> Option<u64> {
        let token = self.requests.take_token()?;
        let (offset_bytes, length_bytes) = (places.start, places.end - places.start);
        if piece_bytes(operation, offset_bytes, length_bytes) == length_bytes {
            let request = Request { operation, offset_bytes, segments: &segments[range], token: token.into() };
            let pushed = self.queue.push(&request);
            self.requests.begin(token, pending);
            return Some(self.given(token, token, length_bytes, pushed));
        }
        self.rest.set(token, operation, places, segments, range);
        self.requests.begin_long(token, pending);
        Some(self.go_on())
    }

    /// As [`DiskRequests::begin`], a discard of these ranges, of which the last is the first and none is empty. They
    /// are taken.
    pub(crate) fn begin_discards(&mut self, pending: P, ranges: &mut Vec<Range<u64>>) -> Option<u64> {
        let token = self.requests.take_token()?;
        self.requests.begin_long(token, pending);
        self.ranges.append(ranges);
        self.next_range(token);
        Some(self.go_on())
    }

    /// The next range of a discard is what the disk is given next. False if there is none.
    fn next_range(&mut self, request: u32) -> bool {
        let Some(range) = self.ranges.pop() else { return false };
        self.rest.set_places(request, Operation::Discard { length_bytes: range.end - range.start }, range);
        true
    }

    /// Gives the disk the next piece of a long request, for which there is room. What that costs.
    pub(crate) fn go_on(&mut self) -> u64 {
        let Some(request) = self.rest.request() else { return 0 };
        let Some(token) = self.requests.take_token_for(request) else { return 0 };
        let queue = &mut self.queue;
        let (bytes, pushed) = self.rest.next_piece(token, |piece| (piece.length_bytes(), queue.push(piece)));
        let is_last = self.rest.is_empty() && !self.next_range(request);
        let cost_bytes = self.given(token, request, bytes, pushed);
        if is_last {
            // The piece is not over, so neither is the request.
            self.requests.finish_one(request);
        }
        cost_bytes
    }

    /// Notes that the disk was given a piece of the request that began with the token `request`. What it costs.
    fn given(&mut self, token: u32, request: u32, bytes: u64, pushed: Result<(), QueueError>) -> u64 {
        let cost_bytes = bytes.max(REQUEST_COST_BYTES_MIN);
        self.requests.give(token, request, cost_bytes);
        if pushed.is_err() {
            // Not before `depth` requests are in flight, and there are no more tokens than that.
            let result = Err(RequestError::Os(Errno::BUSY.raw_os_error()));
            self.completions.push(Completion { token: token.into(), result });
        }
        cost_bytes
    }

    /// Starts what the disk was given.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.queue.submit()
    }

    /// Takes what the disk has done, for [`DiskRequests::next_finished`]. How much.
    pub(crate) fn reap(&mut self) -> usize {
        self.forget_looked_at();
        self.queue.reap(&mut self.completions);
        self.completions.len()
    }

    /// As [`DiskRequests::reap`], of all that the disk has: waits for it.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        self.forget_looked_at();
        self.queue.drain(&mut self.completions)
    }

    fn forget_looked_at(&mut self) {
        self.completions.drain(..std::mem::take(&mut self.looked_at));
    }

    /// The next request that is over, with why it failed if it did. The driver hears no more than that it failed:
    /// of one that did, the disk is given no more.
    #[inline]
    pub(crate) fn next_finished(&mut self) -> Option<(P, Option<RequestError>)> {
        while let Some(&Completion { token, result }) = self.completions.get(self.looked_at) {
            self.looked_at += 1;
            // A token that is not in flight cannot come from a disk that keeps its word; it must not free one twice.
            if !self.requests.is_in_flight(token) {
                continue;
            }
            let request = self.requests.take_back(token as u32);
            if let Err(error) = result {
                self.requests.fail(request, error);
                if self.rest.request() == Some(request) {
                    self.end_rest(request);
                }
            }
            let finished = self.requests.finish_one(request);
            if finished.is_some() {
                return finished;
            }
        }
        None
    }

    /// Gives the disk no more of a long request that it has a part of. That request never finishes.
    pub(crate) fn abandon_rest(&mut self) {
        if let Some(request) = self.rest.request() {
            self.requests.abandon(request);
            self.end_rest(request);
        }
    }

    /// Nothing more of the long request is given to the disk.
    fn end_rest(&mut self, request: u32) {
        self.rest.clear();
        self.ranges.clear();
        self.requests.finish_one(request);
    }
}

/// Requests that are not answered and the pieces that the disk has, by token. Most requests are one piece. `P` is what
/// it takes to answer one.
struct Requests<P> {
    slots: Vec<Slot<P>>,
    /// The tokens that nothing has.
    free: Vec<u32>,
    /// Requests and pieces that the disk has.
    in_flight: usize,
    /// What they cost.
    in_flight_cost_bytes: u64,
}

/// A token: what the disk has under it, and the request that began with it.
#[derive(Clone, Copy)]
struct Slot<P> {
    piece: Piece,
    begun: Begun<P>,
}

/// What the disk has.
#[derive(Clone, Copy)]
struct Piece {
    in_flight: bool,
    /// The token that its request began with.
    request: u32,
    cost_bytes: u64,
}

/// A request that is not answered.
#[derive(Clone, Copy)]
struct Begun<P> {
    /// `None` before the token's first request.
    request: Option<P>,
    /// Pieces in flight, and one for the rest, if there is one.
    unfinished: u32,
    /// How the first piece that failed did.
    failure: Option<RequestError>,
    /// It is not to be answered.
    abandoned: bool,
}

impl<P> Begun<P> {
    const fn new(request: Option<P>, unfinished: u32) -> Self {
        Self { request, unfinished, failure: None, abandoned: false }
    }
}

impl<P> Slot<P> {
    const FREE: Self =
        Self { piece: Piece { in_flight: false, request: 0, cost_bytes: 0 }, begun: Begun::new(None, 0) };
}

impl<P: Copy> Requests<P> {
    /// Room for so many, requests and pieces.
    fn new(depth: usize) -> Self {
        Self {
            slots: vec![Slot::FREE; depth],
            free: (0..depth as u32).rev().collect(),
            in_flight: 0,
            in_flight_cost_bytes: 0,
        }
    }

    /// Whether there is a token.
    fn has_token(&self) -> bool {
        !self.free.is_empty()
    }

    /// A token.
    fn take_token(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Whether the disk has something under a token, or whatever else a disk says is one.
    fn is_in_flight(&self, token: u64) -> bool {
        self.slots.get(token as usize).is_some_and(|slot| slot.piece.in_flight)
    }

    /// Whether there is a token for the next piece of the request that began with the token `request`.
    fn has_token_for(&self, request: u32) -> bool {
        self.has_token() || !self.is_in_flight(request.into())
    }

    /// That token: the request's own, if the disk has nothing under it.
    fn take_token_for(&mut self, request: u32) -> Option<u32> {
        if self.is_in_flight(request.into()) { self.take_token() } else { Some(request) }
    }

    /// A request begins with a token, and is given to the disk under it.
    fn begin(&mut self, token: u32, request: P) {
        self.slots[token as usize].begun = Begun::new(Some(request), 0);
    }

    /// A request begins with a token, of which the disk is given one piece after another; [`Requests::finish_one`] is
    /// for when it has been given the last, too.
    fn begin_long(&mut self, token: u32, request: P) {
        self.slots[token as usize] = Slot { begun: Begun::new(Some(request), 1), ..Slot::FREE };
    }

    /// The disk is given a piece of the request that began with the token `request`.
    fn give(&mut self, token: u32, request: u32, cost_bytes: u64) {
        self.slots[token as usize].piece = Piece { in_flight: true, request, cost_bytes };
        self.slots[request as usize].begun.unfinished += 1;
        self.in_flight += 1;
        self.in_flight_cost_bytes += cost_bytes;
    }

    /// The disk has done with what it has under a token; the token that the request of that began with, for
    /// [`Requests::finish_one`].
    #[inline]
    fn take_back(&mut self, token: u32) -> u32 {
        let piece = &mut self.slots[token as usize].piece;
        piece.in_flight = false;
        let Piece { request, cost_bytes, .. } = *piece;
        self.in_flight -= 1;
        self.in_flight_cost_bytes -= cost_bytes;
        if token != request {
            self.free.push(token);
        }
        request
    }

    /// A piece of a request has failed: the first says how the request does.
    fn fail(&mut self, request: u32, error: RequestError) {
        self.slots[request as usize].begun.failure.get_or_insert(error);
    }

    /// A request is not to be answered.
    fn abandon(&mut self, request: u32) {
        self.slots[request as usize].begun.abandoned = true;
    }

    /// One of what the request that began with the token `request` waits for is over. With the last, the request is:
    /// then it is here, with why it failed if it did, if it is to be answered.
    #[inline]
    fn finish_one(&mut self, request: u32) -> Option<(P, Option<RequestError>)> {
        let begun = &mut self.slots[request as usize].begun;
        begun.unfinished -= 1;
        if begun.unfinished > 0 {
            return None;
        }
        let Begun { request: pending, failure, abandoned, .. } = *begun;
        self.free.push(request);
        Some((pending.filter(|_| !abandoned)?, failure))
    }
}
