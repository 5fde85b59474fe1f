//! A disk that takes no more than so many requests and bytes a second.

mod bucket;
#[cfg(test)]
mod tests;

use super::clock::{Clock, MonotonicClock};
use super::hurry::{nothing_is_held_back, until_next_look};
use super::layer;
use super::timed_event::{Due, TimedEvent};
use crate::{Completion, Disk, Geometry, MemoryMap, Operation, Queue, QueueError, Request, Segment};
use bucket::Bucket;
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// What a [`ThrottledDisk`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleLimits {
    /// Requests a second, of any operation. `None`: any number.
    pub iops: Option<NonZeroU64>,
    /// Bytes a second. `None`: any number.
    pub bytes_per_second: Option<NonZeroU64>,
    /// How much may be saved up while the disk is idle: what the limits allow in this time. Zero: nothing.
    pub burst: Duration,
}

impl ThrottleLimits {
    /// The burst where nobody says another: long enough to hide how a guest bunches its requests, too short to
    /// notice.
    pub const BURST_DEFAULT: Duration = Duration::from_millis(100);
}

/// A disk whose requests wait until the limits allow them. All its queues share the limits. A queue's requests go in
/// the order in which they were pushed; only the first that is held back has its time reserved, so that one queue's
/// many or huge requests leave others theirs: queues that all want more take turns, a request each.
///
/// A request goes when nothing is owed, however large it is; what it took beyond the allowance, later ones wait for. A
/// flush and a discard move no bytes, and neither does zeroing where the disk has a cheap way to do it. A request that
/// the disk refuses costs nothing. A requester that comes back late finds that all may go which was held back
/// meanwhile.
///
/// Dropping a queue sends what it holds back on at once.
pub struct ThrottledDisk {
    disk: Arc<dyn Disk>,
    limits: Arc<Limits>,
}

impl ThrottledDisk {
    /// Holds `disk` to `limits`.
    pub fn new(disk: Arc<dyn Disk>, limits: &ThrottleLimits) -> Self {
        Self::with_clock(disk, limits, Arc::new(MonotonicClock::new()))
    }

    fn with_clock(disk: Arc<dyn Disk>, limits: &ThrottleLimits, clock: Arc<dyn Clock>) -> Self {
        let bucket = |rate: Option<NonZeroU64>| rate.map(|rate| Bucket::new(rate, limits.burst));
        let limits = Limits { iops: bucket(limits.iops), bytes: bucket(limits.bytes_per_second), clock };
        Self { disk, limits: Arc::new(limits) }
    }
}

impl layer::DiskLayer for ThrottledDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.disk.open_queue(memory, depth)?;
        let event = TimedEvent::new(queue.completion_event())?;
        let depth = queue.depth();
        Ok(Box::new(ThrottledQueue {
            disk: Arc::clone(&self.disk),
            generation: self.disk.generation(),
            geometry: self.disk.geometry(),
            limits: Arc::clone(&self.limits),
            held: VecDeque::with_capacity(depth),
            spare: (0..depth).map(|_| HeldRequest::EMPTY).collect(),
            pushing_at_ns: None,
            submit_error: None,
            event,
            queue,
        }))
    }
}

struct Limits {
    iops: Option<Bucket>,
    bytes: Option<Bucket>,
    clock: Arc<dyn Clock>,
}

impl Limits {
    /// Pays for a request of `bytes`, if it is to be paid for; gives the time at which it may go, not before `now_ns`.
    fn reserve(&self, bytes: Option<u64>, now_ns: u64) -> u64 {
        let Some(bytes) = bytes else { return now_ns };
        let request_at_ns = self.iops.as_ref().map_or(0, |bucket| bucket.reserve(1, now_ns));
        let bytes_at_ns = match &self.bytes {
            Some(bucket) if bytes > 0 => bucket.reserve(bytes, now_ns),
            _ => 0,
        };
        request_at_ns.max(bytes_at_ns).max(now_ns)
    }
}

/// A request that waits for its time, with segments of its own.
struct HeldRequest {
    operation: Operation,
    offset_bytes: u64,
    segments: Vec<Segment>,
    token: u64,
    /// What it counts for; `None` when the disk will refuse it.
    bytes: Option<u64>,
    /// When it was pushed, and once it is the first, when it may go.
    goes_at_ns: u64,
}

impl HeldRequest {
    const EMPTY: Self = Self {
        operation: Operation::Flush,
        offset_bytes: 0,
        segments: Vec::new(),
        token: 0,
        bytes: None,
        goes_at_ns: 0,
    };

    fn set(&mut self, request: &Request<'_>, bytes: Option<u64>, goes_at_ns: u64) {
        self.operation = request.operation;
        self.offset_bytes = request.offset_bytes;
        self.segments.clear();
        self.segments.extend_from_slice(request.segments);
        self.token = request.token;
        self.bytes = bytes;
        self.goes_at_ns = goes_at_ns;
    }

    fn request(&self) -> Request<'_> {
        Request {
            operation: self.operation,
            offset_bytes: self.offset_bytes,
            segments: &self.segments,
            token: self.token,
        }
    }
}

/// While nothing is held, requests go straight on: the clock is read once a batch, and that is all it costs.
struct ThrottledQueue {
    // Dropped before the event that watches it.
    queue: Box<dyn Queue>,
    disk: Arc<dyn Disk>,
    generation: u64,
    /// The disk's, as of `generation`.
    geometry: Geometry,
    limits: Arc<Limits>,
    /// In the order of pushing, which is that of going.
    held: VecDeque<HeldRequest>,
    /// Taken in turn, so that all soon have room for the segments that requests come with.
    spare: VecDeque<HeldRequest>,
    /// When the first request of this batch was pushed.
    pushing_at_ns: Option<u64>,
    /// What went wrong when requests were sent on from `reap`, which cannot say so.
    submit_error: Option<io::Error>,
    event: TimedEvent,
}

impl ThrottledQueue {
    /// What the request counts for; `None` when the disk will refuse it.
    fn bytes(&mut self, request: &Request<'_>) -> Option<u64> {
        if self.disk.generation() != self.generation {
            self.generation = self.disk.generation();
            self.geometry = self.disk.geometry();
        }
        self.geometry.check(request).ok()?;
        match request.operation {
            Operation::Flush | Operation::Discard { .. } => Some(0),
            Operation::WriteZeroes { .. } if self.geometry.write_zeroes => Some(0),
            _ => Some(request.length_bytes()),
        }
    }

    /// Pushes what may go by now to the disk; whether that was anything.
    fn release(&mut self, now_ns: u64) -> bool {
        let before = self.held.len();
        let is_all_due = nothing_is_held_back();
        while let Some(held) = self.held.front() {
            let went_at_ns = held.goes_at_ns;
            if (went_at_ns > now_ns && !is_all_due) || self.queue.push(&held.request()).is_err() {
                break;
            }
            self.spare.extend(self.held.pop_front());
            if let Some(next) = self.held.front_mut() {
                // As if at the moment when its turn came: a thread that comes late loses nothing by that.
                next.goes_at_ns = self.limits.reserve(next.bytes, next.goes_at_ns.max(went_at_ns));
            }
        }
        self.held.len() < before
    }

    /// Releases from where an error cannot be returned, and keeps it.
    fn release_and_submit(&mut self) -> u64 {
        let now_ns = self.limits.clock.now_ns();
        if self.release(now_ns)
            && let Err(error) = self.queue.submit()
        {
            self.submit_error = Some(error);
        }
        now_ns
    }

    /// When there will be something to do that the queue below does not tell of.
    fn due(&self, now_ns: u64) -> Due {
        let inner_is_silent = self.queue.completion_event().is_none();
        match self.held.front() {
            _ if self.submit_error.is_some() => Due::Now,
            _ if inner_is_silent && self.queue.in_flight() > 0 => Due::Now,
            // The queue below had no room: it is its completions that are waited for, if there are any to come.
            Some(held) if held.goes_at_ns <= now_ns && self.queue.in_flight() > 0 => Due::Never,
            Some(held) => Due::At(held.goes_at_ns),
            None => Due::Never,
        }
    }
}

impl layer::QueueLayer for ThrottledQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight() + self.held.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        if Queue::in_flight(self) >= self.depth() {
            return Err(QueueError::Full);
        }
        let now_ns = *self.pushing_at_ns.get_or_insert_with(|| self.limits.clock.now_ns());
        let bytes = self.bytes(request);
        let mut goes_at_ns = now_ns;
        if self.held.is_empty() {
            goes_at_ns = self.limits.reserve(bytes, now_ns);
            if (goes_at_ns <= now_ns || nothing_is_held_back()) && self.queue.push(request).is_ok() {
                return Ok(());
            }
        }
        // One for each request in flight: there is one left.
        let mut held = self.spare.pop_front().unwrap_or(HeldRequest::EMPTY);
        held.set(request, bytes, goes_at_ns);
        self.held.push_back(held);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.pushing_at_ns = None;
        let mut now_ns = 0;
        if !self.held.is_empty() {
            now_ns = self.limits.clock.now_ns();
            self.release(now_ns);
        }
        self.submit_error = None;
        let submitted = self.queue.submit();
        self.event.set(self.due(now_ns), now_ns);
        submitted
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let now_ns = if self.held.is_empty() { 0 } else { self.release_and_submit() };
        self.queue.reap(completions);
        self.event.set(self.due(now_ns), now_ns);
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        let now_ns = if self.held.is_empty() { 0 } else { self.release_and_submit() };
        if let Some(error) = self.submit_error.take() {
            return Err(error);
        }
        // What is held back ends the wait even where something below is not submitted and would not.
        let left_ns = self.held.front().and_then(|held| held.goes_at_ns.checked_sub(now_ns)).filter(|&left| left > 0);
        let left = left_ns.map(|left_ns| until_next_look(Duration::from_nanos(left_ns)));
        self.queue.wait(events, timeout.into_iter().chain(left).min())
    }
}

impl Drop for ThrottledQueue {
    fn drop(&mut self) {
        let mut completions = Vec::with_capacity(self.depth());
        while !self.held.is_empty() {
            if self.release(u64::MAX) {
                continue;
            }
            // A queue that has nothing to do and takes nothing is broken.
            let has_work = self.queue.in_flight() > 0;
            if self.queue.drain(&mut completions).is_err() || !has_work {
                return;
            }
            completions.clear();
        }
    }
}
