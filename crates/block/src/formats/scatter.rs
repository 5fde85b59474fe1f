//! A request in pieces: some for the queues of other disks, some for a thread, some that are done where they are found.

use crate::wait::{one_event, wait_readable};
use crate::{Completion, MemoryMap, Operation, Queue, QueueError, Request, RequestError, Segment};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Events that [`Scatter::wait`] passes on without allocating, its own included.
const EVENTS_INLINE: usize = 16;

/// Requests that the rings of all files of an image together carry for each of its queue's.
const RINGS_SHARE: usize = 8;

/// Requests that one ring carries at least.
const RING_DEPTH_MIN: usize = 16;

/// How many requests the queue of each file carries for an image's that carries `depth`: a request is mostly in one of
/// so many files.
pub(super) fn ring_depth(depth: usize, files: usize) -> usize {
    (depth * RINGS_SHARE / files.max(1)).max(RING_DEPTH_MIN).min(depth)
}

/// Slots of a queue whose requests are carried out in pieces by the queues below it.
///
/// [`Scatter::begin`] takes a slot; [`Scatter::send`], [`Scatter::lend`] and [`Scatter::fail`] say what becomes of
/// its pieces; [`Scatter::end`] closes it. It completes when all its pieces have, with the first error.
pub(crate) struct Scatter {
    queues: Vec<Box<dyn Queue>>,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// Slots that completed and were not reaped.
    finished: Vec<u16>,
    /// Slots that can go on.
    resumed: Vec<u16>,
    /// Pieces that found their queue full, in order.
    waiting: VecDeque<Waiting>,
    reaped: Vec<Completion>,
    returns: Arc<Returns>,
    /// Pieces that a thread has.
    lent: usize,
    /// Readable while any queue's event or the returns's is.
    epoll: OwnedFd,
    /// The returns's event was signalled from here: for `finished`, or because there is something to submit.
    signalled: bool,
    /// Something was not submitted, which whoever caused it may not have been able to say.
    stalled: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    token: u64,
    pieces: u32,
    result: Result<(), RequestError>,
}

struct Waiting {
    slot: u16,
    queue: usize,
    operation: Operation,
    offset_bytes: u64,
    segments: Vec<Segment>,
}

/// Where another thread says that it is done with a piece.
pub(crate) struct Returns {
    letters: Mutex<Vec<(u16, Letter)>>,
    any: AtomicBool,
    event: OwnedFd,
}

/// What became of a lent piece.
#[derive(Clone, Copy, Debug)]
enum Letter {
    Ended(Result<(), RequestError>),
    /// What it waited for is there.
    Resume,
}

impl Returns {
    fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { letters: Mutex::default(), any: AtomicBool::new(false), event })
    }

    /// Says how a lent piece of `slot` ended.
    pub(crate) fn post(&self, slot: u16, result: Result<(), RequestError>) {
        self.send(slot, Letter::Ended(result));
    }

    /// Says that a lent piece of `slot` can go on: [`Split::resumed`].
    pub(crate) fn resume(&self, slot: u16) {
        self.send(slot, Letter::Resume);
    }

    fn send(&self, slot: u16, letter: Letter) {
        let mut letters = self.letters();
        letters.push((slot, letter));
        self.any.store(true, Ordering::Release);
        // Under the lock, so that whoever takes the letters also takes the signal.
        self.signal();
    }

    fn letters(&self) -> MutexGuard<'_, Vec<(u16, Letter)>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self) {
        // It can only fail when the event is at its maximum, and then it is signalled.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        // It fails when the event is not signalled, which is what is wanted.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl Scatter {
    /// Slots over `queues`: as many as the deepest of them carries, and not more than `depth`.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub(crate) fn new(queues: Vec<Box<dyn Queue>>, depth: usize) -> io::Result<Self> {
        let depth = queues.iter().map(|queue| queue.depth()).max().unwrap_or(depth).min(depth);
        let returns = Arc::new(Returns::new()?);
        let events = queues.iter().filter_map(|queue| queue.completion_event()).chain([returns.event.as_fd()]);
        let epoll = one_event(events)?;
        Ok(Self {
            reaped: Vec::with_capacity(queues.iter().map(|queue| queue.depth()).max().unwrap_or(0)),
            queues,
            slots: vec![Slot { token: 0, pieces: 0, result: Ok(()) }; depth].into(),
            free: (0..depth as u16).rev().collect(),
            finished: Vec::with_capacity(depth),
            resumed: Vec::new(),
            waiting: VecDeque::new(),
            returns,
            lent: 0,
            epoll,
            signalled: false,
            stalled: false,
        })
    }

    pub(crate) fn depth(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a slot for a request.
    pub(crate) fn begin(&mut self, token: u64) -> Result<u16, QueueError> {
        let slot = self.free.pop().ok_or(QueueError::Full)?;
        self.slots[usize::from(slot)] = Slot { token, pieces: 1, result: Ok(()) };
        Ok(slot)
    }

    /// Gives a piece to a queue.
    pub(crate) fn send(
        &mut self,
        slot: u16,
        queue: usize,
        operation: Operation,
        offset_bytes: u64,
        segments: &[Segment],
    ) {
        self.slots[usize::from(slot)].pieces += 1;
        let request = Request { operation, offset_bytes, segments, token: u64::from(slot) };
        if self.waiting.is_empty() && self.queues[queue].push(&request).is_ok() {
            return;
        }
        self.waiting.push_back(Waiting { slot, queue, operation, offset_bytes, segments: segments.to_vec() });
    }

    /// A piece goes to another thread, which [`Returns::post`]s how it ended, or lets it [`Returns::resume`].
    pub(crate) fn lend(&mut self, slot: u16) -> Arc<Returns> {
        self.slots[usize::from(slot)].pieces += 1;
        self.lent += 1;
        Arc::clone(&self.returns)
    }

    /// The request fails, whatever becomes of its pieces.
    pub(crate) fn fail(&mut self, slot: u16, error: RequestError) {
        let result = &mut self.slots[usize::from(slot)].result;
        *result = result.and(Err(error));
    }

    /// No piece follows.
    pub(crate) fn end(&mut self, slot: u16) {
        self.piece_ended(slot, Ok(()));
    }

    fn piece_ended(&mut self, slot: u16, result: Result<(), RequestError>) {
        let state = &mut self.slots[usize::from(slot)];
        state.result = state.result.and(result);
        state.pieces -= 1;
        if state.pieces == 0 {
            self.finished.push(slot);
        }
    }

    pub(crate) fn submit(&mut self) -> io::Result<()> {
        let submitted = self.submit_all();
        self.stalled = submitted.is_err();
        submitted
    }

    fn submit_all(&mut self) -> io::Result<()> {
        loop {
            self.submit_queues()?;
            let stuck = self.waiting.len();
            if self.has_silent_completions() {
                self.collect();
            }
            self.refill();
            if self.waiting.len() == stuck {
                break;
            }
        }
        self.signal_finished();
        Ok(())
    }

    fn submit_queues(&mut self) -> io::Result<()> {
        self.queues.iter_mut().filter(|queue| queue.in_flight() > 0).try_for_each(|queue| queue.submit())
    }

    /// Pushes what waits, as far as there is room.
    fn refill(&mut self) {
        while let Some(Waiting { slot, queue, operation, offset_bytes, segments }) = self.waiting.front() {
            let request =
                Request { operation: *operation, offset_bytes: *offset_bytes, segments, token: u64::from(*slot) };
            if self.queues[*queue].push(&request).is_err() {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// What needed no queue is as ready as anything: a poll of the event must see it.
    fn signal_finished(&mut self) {
        if !self.finished.is_empty() {
            self.signal();
        }
    }

    fn signal(&mut self) {
        if !self.signalled {
            self.signalled = true;
            self.returns.signal();
        }
    }

    /// Takes back what the queues have done. Nothing finished means that no queue has anything more: a queue's event
    /// tells of what comes after a reap that brought nothing.
    fn collect(&mut self) {
        let mut reaped = mem::take(&mut self.reaped);
        loop {
            for queue in &mut self.queues {
                if queue.in_flight() > 0 {
                    queue.reap(&mut reaped);
                }
            }
            let came = !reaped.is_empty();
            for completion in reaped.drain(..) {
                self.piece_ended(completion.token as u16, completion.result);
            }
            if !came || !self.finished.is_empty() {
                break;
            }
        }
        self.reaped = reaped;
    }

    /// Whether a queue without an event has done something.
    fn has_silent_completions(&self) -> bool {
        self.queues.iter().any(|queue| queue.completion_event().is_none() && queue.in_flight() > 0)
    }

    fn take_returns(&mut self) {
        if self.signalled || self.returns.any.load(Ordering::Acquire) {
            self.signalled = false;
            let returns = Arc::clone(&self.returns);
            let mut letters = returns.letters();
            returns.clear();
            returns.any.store(false, Ordering::Relaxed);
            for (slot, letter) in letters.drain(..) {
                self.lent -= 1;
                match letter {
                    Letter::Ended(result) => self.piece_ended(slot, result),
                    Letter::Resume => self.resumed.push(slot),
                }
            }
        }
    }

    /// Carries on with the pieces that can. What else comes by letter meanwhile is taken, too: each takes its signal
    /// along.
    fn carry_on(&mut self, split: &mut impl Split) {
        self.take_returns();
        while !self.resumed.is_empty() {
            let mut resumed = mem::take(&mut self.resumed);
            for slot in resumed.drain(..) {
                if let Err(error) = split.resumed(self, slot) {
                    self.fail(slot, error);
                }
                self.end(slot);
            }
            self.resumed = resumed;
            // Nobody submits for them; what is not taken now is taken when the caller does, whom the event wakes for
            // that.
            let _ = self.submit();
            self.take_returns();
        }
    }

    /// Appends what completed to `completions`; `split` hears of each slot.
    pub(crate) fn reap(&mut self, completions: &mut Vec<Completion>, split: &mut impl Split) {
        self.carry_on(split);
        self.collect();
        if !self.waiting.is_empty() {
            self.refill();
            // What is not taken now is taken when the caller submits: it is woken for that, and for what has no event
            // of its own.
            if self.submit_queues().is_err() || self.has_silent_completions() {
                self.signal();
            }
        }
        for slot in self.finished.drain(..) {
            let Slot { token, result, .. } = self.slots[usize::from(slot)];
            split.ended(slot);
            completions.push(Completion { token, result });
            self.free.push(slot);
        }
        if self.stalled && self.in_flight() > 0 {
            self.signal();
        }
    }

    pub(crate) fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    pub(crate) fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        if self.is_ready() {
            return Ok(());
        }
        self.submit_queues()?;
        self.stalled = false;
        let mut busy = self.queues.iter_mut().filter(|queue| queue.in_flight() > 0);
        match (busy.next(), busy.next()) {
            (Some(only), None) if self.lent == 0 => return only.wait(events, timeout),
            (Some(only), None) if events.len() < EVENTS_INLINE => {
                let mut all = [self.returns.event.as_fd(); EVENTS_INLINE];
                all[1..=events.len()].copy_from_slice(events);
                return only.wait(&all[..=events.len()], timeout);
            }
            _ => {}
        }
        self.collect();
        if !self.waiting.is_empty() {
            // What was collected made room, and only what is on its way is waited for.
            self.refill();
            self.submit_queues()?;
        }
        if self.is_ready() {
            return Ok(());
        }
        wait_readable(Some(self.epoll.as_fd()), events, timeout).map(drop)
    }

    fn is_ready(&self) -> bool {
        !self.finished.is_empty() || self.returns.any.load(Ordering::Acquire) || self.has_silent_completions()
    }
}

impl Drop for Scatter {
    fn drop(&mut self) {
        // The queues drain themselves; a thread that has a piece still uses the caller's memory.
        while self.lent > 0 {
            // Whatever poll says, the returns says it better.
            let _ = wait_readable(Some(self.returns.event.as_fd()), &[], None);
            self.take_returns();
        }
    }
}

/// How a request comes apart: what is particular to a format. A [`ScatterQueue`] of it is a [`Queue`].
pub(crate) trait Split: Send {
    /// Gives the pieces of `request` to `scatter`, for `slot`.
    ///
    /// # Errors
    /// What the request ends with, when those pieces that were given have ended.
    fn start(&mut self, scatter: &mut Scatter, slot: u16, request: &Request<'_>) -> Result<(), RequestError>;

    /// A piece of `slot` that was lent came back to be carried on: gives what is left of it to `scatter`.
    ///
    /// # Errors
    /// As [`Split::start`].
    fn resumed(&mut self, _scatter: &mut Scatter, _slot: u16) -> Result<(), RequestError> {
        Ok(())
    }

    /// All pieces of `slot` have ended.
    fn ended(&mut self, _slot: u16) {}
}

/// A queue whose requests are split.
pub(crate) struct ScatterQueue<S: Split> {
    // Dropped first: until the queues below have been drained, their requests use what the other has.
    scatter: Scatter,
    split: S,
}

impl<S: Split> ScatterQueue<S> {
    pub(crate) fn new(scatter: Scatter, split: S) -> Self {
        Self { scatter, split }
    }
}

impl<S: Split> Queue for ScatterQueue<S> {
    fn depth(&self) -> usize {
        self.scatter.depth()
    }

    fn in_flight(&self) -> usize {
        self.scatter.in_flight()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        let slot = self.scatter.begin(request.token)?;
        if let Err(error) = self.split.start(&mut self.scatter, slot, request) {
            self.scatter.fail(slot, error);
        }
        self.scatter.end(slot);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.scatter.submit()
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.scatter.reap(completions, &mut self.split);
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.scatter.completion_event()
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        self.scatter.wait(events, timeout)
    }
}

impl<S: Split> Drop for ScatterQueue<S> {
    fn drop(&mut self) {
        // What waits to be carried on is, too. Where that fails, the scatter sees to what is lent.
        let _ = self.drain(&mut Vec::new());
    }
}

/// Walks a request's segments and cuts pieces off their front.
pub(crate) struct Cutter<'a> {
    segments: &'a [Segment],
    /// Bytes of the first segment that are gone.
    gone_bytes: u32,
}

impl<'a> Cutter<'a> {
    pub(crate) fn new(segments: &'a [Segment]) -> Self {
        Self { segments, gone_bytes: 0 }
    }

    /// The segments of the next `length_bytes`, into `piece`.
    pub(crate) fn cut(&mut self, mut length_bytes: u64, piece: &mut Vec<Segment>) {
        piece.clear();
        while length_bytes > 0 {
            let Some(first) = self.segments.first() else { return };
            let left_bytes = first.length_bytes - self.gone_bytes;
            // At most what is left of a segment, so it fits.
            let taken_bytes = length_bytes.min(u64::from(left_bytes)) as u32;
            if taken_bytes > 0 {
                // A segment outside the memory map may wrap around; it is refused where it is used.
                let offset_bytes = first.offset_bytes.saturating_add(u64::from(self.gone_bytes));
                piece.push(Segment { length_bytes: taken_bytes, offset_bytes, ..*first });
            }
            length_bytes -= u64::from(taken_bytes);
            self.gone_bytes += taken_bytes;
            if self.gone_bytes == first.length_bytes {
                self.segments = &self.segments[1..];
                self.gone_bytes = 0;
            }
        }
    }
}

/// Copies bytes to a request's segments, which take no more of them than there are.
pub(crate) fn copy_to(memory: &MemoryMap, segments: &[Segment], mut bytes: &[u8]) -> Result<(), RequestError> {
    for &segment in segments {
        let slice = memory.slice(segment).ok_or(RequestError::BadSegment)?;
        let (now, later) = bytes.split_at_checked(slice.len()).ok_or(RequestError::Os(libc::EIO))?;
        slice.copy_from(now);
        bytes = later;
    }
    Ok(())
}

/// What the guest is told of an error.
pub(crate) fn errno_of(error: &io::Error) -> RequestError {
    RequestError::Os(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::layer;
    use crate::{Disk, MemoryDisk, MemoryMap};

    /// A queue that cannot submit at first, and whose event says nothing of that.
    struct Refusing {
        queue: Box<dyn Queue>,
        refusals: u32,
        event: OwnedFd,
    }

    impl layer::QueueLayer for Refusing {
        fn below(&self) -> &dyn Queue {
            &*self.queue
        }

        fn below_mut(&mut self) -> &mut dyn Queue {
            &mut *self.queue
        }

        fn submit(&mut self) -> io::Result<()> {
            if self.refusals > 0 {
                self.refusals -= 1;
                return Err(rustix::io::Errno::AGAIN.into());
            }
            self.queue.submit()
        }

        fn completion_event(&self) -> Option<BorrowedFd<'_>> {
            Some(self.event.as_fd())
        }
    }

    /// Requests of one piece.
    struct Whole;

    impl Split for Whole {
        fn start(&mut self, _: &mut Scatter, _: u16, _: &Request<'_>) -> Result<(), RequestError> {
            Ok(())
        }
    }

    #[test]
    fn what_could_not_be_submitted_makes_the_event_readable() {
        let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
        let queue = MemoryDisk::new(4096, 512).unwrap().open_queue(&memory, 4).unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let mut scatter = Scatter::new(vec![Box::new(Refusing { queue, refusals: 2, event })], 4).unwrap();
        let is_readable = |scatter: &Scatter| {
            let mut descriptors = [rustix::event::PollFd::new(&scatter.epoll, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut descriptors, Some(&rustix::time::Timespec::default())).unwrap() == 1
        };
        let slot = scatter.begin(7).unwrap();
        scatter.send(slot, 0, Operation::Read, 0, &[Segment { region: 0, offset_bytes: 0, length_bytes: 512 }]);
        scatter.end(slot);
        let mut completions = Vec::with_capacity(4);
        for _ in 0..2 {
            // As where a request goes on within a reap, which cannot say it.
            assert!(scatter.submit().is_err());
            for _ in 0..2 {
                scatter.reap(&mut completions, &mut Whole);
                assert!(completions.is_empty() && is_readable(&scatter));
            }
        }
        scatter.submit().unwrap();
        while scatter.in_flight() > 0 {
            scatter.reap(&mut completions, &mut Whole);
        }
        assert_eq!(completions, [Completion { token: 7, result: Ok(()) }]);
        scatter.reap(&mut completions, &mut Whole);
        assert!(!is_readable(&scatter));
    }
}
