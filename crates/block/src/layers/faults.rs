//! A disk that does wrong on purpose: for tests, and for whoever wants to see how a guest takes it.

mod parse;
mod schedule;
#[cfg(test)]
mod tests;

use super::clock::{Clock, MonotonicClock};
use super::hurry::{nothing_is_held_back, until_next_look};
use super::layer;
use super::slots::Slots;
use super::timed_event::{Due, TimedEvent};
use super::{OperationKind, random};
use crate::{Completion, Disk, MemoryMap, Queue, QueueError, Request, RequestError, Segment};
pub use parse::FaultsError;
use rustix::io::Errno;
use schedule::{Fate, Schedule};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// What a [`FaultyDisk`] does wrong, and when. The same faults with the same seed do the same wrong to the same
/// requests; where several queues are in use, that is to say to requests in the same order.
///
/// Written as `FAULT[+FAULT…][+seed:N]`, for example `read-error:0.01+latency:5ms+seed:7`:
///
/// | fault | what it does |
/// |---|---|
/// | `error:WHEN` | a request fails with EIO and is not carried out; `read-error`, `write-error`, `flush-error`, `discard-error`, `zero-error` for one operation |
/// | `latency:TIME` or `latency:TIME-TIME` | a request takes so much longer, or any time between the two; `read-latency` and so on for one operation |
/// | `torn-write:WHEN` | only one run of a write's blocks reaches the disk, and the write fails with EIO |
/// | `silent-torn-write:WHEN` | the same, and the write succeeds |
/// | `lost-write:WHEN` | the write succeeds, and nothing reaches the disk |
/// | `full:SIZE` | once so many bytes have been written, whatever writes more fails with ENOSPC |
///
/// WHEN is a probability (`0.01`), a count (`100th`: the hundredth such request only) or a range of the disk in bytes
/// (`1M-2M`: what touches it). TIME is `5ms`, `100us`, `2s`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// What chance is drawn from.
    pub seed: u64,
    /// What goes wrong. Where several apply to a request, the first that is no latency does, and latencies add up.
    pub faults: Vec<Fault>,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request fails with EIO and is not carried out.
    Error {
        /// Which operation; `None`: any.
        operation: Option<OperationKind>,
        /// Which of those requests.
        when: When,
    },
    /// The request completes later.
    Latency {
        /// Which operation; `None`: any.
        operation: Option<OperationKind>,
        /// How much later.
        latency: Latency,
    },
    /// One run of the blocks of a write, chosen by chance and shorter than all of them, reaches the disk.
    TornWrite {
        /// Whether the write fails (EIO) or succeeds.
        reported: bool,
        /// Which writes.
        when: When,
    },
    /// A write succeeds, and nothing reaches the disk.
    LostWrite {
        /// Which writes.
        when: When,
    },
    /// Writing fails with ENOSPC. Zeroing counts as writing, unless it may give storage back.
    Full {
        /// How many bytes are written before.
        after_bytes: u64,
    },
}

/// Which of the requests that a fault is for it befalls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Each with this probability.
    Chance {
        /// In billionths: at most 1,000,000,000.
        per_billion: u32,
    },
    /// The Nth only.
    Nth(NonZeroU64),
    /// Those that touch this range of the disk, in bytes.
    Range(Range<u64>),
}

/// A time, or any between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// At least this.
    pub shortest: Duration,
    /// At most this.
    pub longest: Duration,
}

const EIO: RequestError = RequestError::Os(Errno::IO.raw_os_error());
const ENOSPC: RequestError = RequestError::Os(Errno::NOSPC.raw_os_error());

/// A disk with [`Faults`].
pub struct FaultyDisk {
    disk: Arc<dyn Disk>,
    schedule: Arc<Schedule>,
    clock: Arc<dyn Clock>,
}

impl FaultyDisk {
    /// Makes `disk` fail as `faults` say.
    pub fn new(disk: Arc<dyn Disk>, faults: &Faults) -> Self {
        Self::with_clock(disk, faults, Arc::new(MonotonicClock::new()))
    }

    fn with_clock(disk: Arc<dyn Disk>, faults: &Faults, clock: Arc<dyn Clock>) -> Self {
        Self { disk, schedule: Arc::new(Schedule::new(faults)), clock }
    }
}

impl layer::DiskLayer for FaultyDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.disk.open_queue(memory, depth)?;
        let event = TimedEvent::new(queue.completion_event())?;
        let depth = queue.depth();
        Ok(Box::new(FaultyQueue {
            queue,
            disk: Arc::clone(&self.disk),
            schedule: Arc::clone(&self.schedule),
            clock: Arc::clone(&self.clock),
            slots: Slots::new(depth),
            answered: Vec::with_capacity(depth),
            delayed: Vec::with_capacity(depth),
            reaped: Vec::with_capacity(depth),
            run: Vec::new(),
            event,
        }))
    }
}

struct FaultyQueue {
    // Dropped before the event that watches it.
    queue: Box<dyn Queue>,
    disk: Arc<dyn Disk>,
    schedule: Arc<Schedule>,
    clock: Arc<dyn Clock>,
    slots: Slots<InFlight>,
    /// Slots of requests that the disk never sees, until they are submitted.
    answered: Vec<u64>,
    delayed: Vec<Delayed>,
    /// Empty between calls.
    reaped: Vec<Completion>,
    /// The segments of what is left of a torn write.
    run: Vec<Segment>,
    event: TimedEvent,
}

struct InFlight {
    token: u64,
    latency_ns: u64,
    /// What the request ends with if the disk has no error of its own.
    result: Result<(), RequestError>,
}

struct Delayed {
    due_ns: u64,
    completion: Completion,
}

impl FaultyQueue {
    /// Pushes one run of a write's blocks; false when no block is left.
    fn push_torn(&mut self, request: &Request<'_>, chance: u64, slot: u64) -> Result<bool, QueueError> {
        let block_bytes = u64::from(self.disk.geometry().logical_block_bytes);
        let blocks = request.length_bytes() / block_bytes;
        // From none of them to all but one.
        let count = random::below(chance, blocks.max(1));
        let first = random::below(random::mix(chance), blocks - count + 1);
        if count == 0 {
            return Ok(false);
        }
        cut(request.segments, first * block_bytes..(first + count) * block_bytes, &mut self.run);
        let offset_bytes = request.offset_bytes + first * block_bytes;
        self.queue.push(&Request { offset_bytes, segments: &self.run, token: slot, ..*request })?;
        Ok(true)
    }

    /// Sends a request on as the fate has it; false when the disk does not see it at all.
    fn push_judged(&mut self, request: &Request<'_>, fate: Fate, slot: u64) -> Result<bool, QueueError> {
        match fate {
            Fate::Pass => self.queue.push(&Request { token: slot, ..*request }).map(|()| true),
            Fate::Tear { chance, .. } => self.push_torn(request, chance, slot),
            Fate::Fail(_) | Fate::Lose => Ok(false),
        }
    }

    /// Takes what the queue below has done, and delays it; whether that was anything.
    fn take_reaped(&mut self) -> bool {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.queue.reap(&mut reaped);
        let came = !reaped.is_empty();
        let now_ns = self.clock.now_ns();
        for Completion { token: slot, result } in reaped.drain(..) {
            if let Some(in_flight) = self.slots.take(slot) {
                self.delay(&in_flight, result.and(in_flight.result), now_ns);
            }
        }
        self.reaped = reaped;
        came
    }

    fn delay(&mut self, in_flight: &InFlight, result: Result<(), RequestError>, now_ns: u64) {
        let completion = Completion { token: in_flight.token, result };
        self.delayed.push(Delayed { due_ns: now_ns.saturating_add(in_flight.latency_ns), completion });
    }

    /// When there will be something to do that the queue below does not tell of.
    fn due(&self) -> Due {
        if self.queue.completion_event().is_none() && self.queue.in_flight() > 0 {
            return Due::Now;
        }
        self.next_due_ns().map_or(Due::Never, Due::At)
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.delayed.iter().map(|delayed| delayed.due_ns).min()
    }
}

impl layer::QueueLayer for FaultyQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn in_flight(&self) -> usize {
        self.slots.in_use() + self.delayed.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        if Queue::in_flight(self) >= self.depth() {
            return Err(QueueError::Full);
        }
        // What the disk refuses anyway is refused there, and counts for nothing here.
        let sound = self.disk.geometry().check(request).is_ok();
        let (fate, latency_ns) = if sound { self.schedule.judge(request) } else { (Fate::Pass, 0) };
        let in_flight = InFlight { token: request.token, latency_ns, result: fate.result() };
        let slot = self.slots.insert(in_flight).ok_or(QueueError::Full)?;
        match self.push_judged(request, fate, slot) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.answered.push(slot);
                Ok(())
            }
            Err(error) => {
                self.slots.take(slot);
                Err(error)
            }
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        let now_ns = self.clock.now_ns();
        while let Some(slot) = self.answered.pop() {
            if let Some(in_flight) = self.slots.take(slot) {
                self.delay(&in_flight, in_flight.result, now_ns);
            }
        }
        let submitted = self.queue.submit();
        self.event.set(self.due(), now_ns);
        submitted
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        loop {
            let came = self.take_reaped();
            let now_ns = self.clock.now_ns();
            let is_all_due = nothing_is_held_back();
            self.delayed.retain(|delayed| {
                let is_due = delayed.due_ns <= now_ns || is_all_due;
                if is_due {
                    completions.push(delayed.completion);
                }
                !is_due
            });
            // All that came was delayed: the event below tells of more only once nothing comes.
            if !came || completions.len() > before {
                self.event.set(self.due(), now_ns);
                return;
            }
        }
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        // Also where the queue below has requests that are not submitted: they do not end the wait, a delayed one does.
        let Some(due_ns) = self.next_due_ns() else { return self.queue.wait(events, timeout) };
        match due_ns.checked_sub(self.clock.now_ns()) {
            None | Some(0) => Ok(()),
            Some(left_ns) => {
                let left = until_next_look(Duration::from_nanos(left_ns));
                self.queue.wait(events, Some(timeout.map_or(left, |timeout| timeout.min(left))))
            }
        }
    }
}

/// Bytes `range` of what `segments` say.
fn cut(segments: &[Segment], range: Range<u64>, run: &mut Vec<Segment>) {
    run.clear();
    let mut start = 0;
    for segment in segments {
        let end = start + u64::from(segment.length_bytes);
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            // Within the segment, whose length is 32 bits long.
            let length_bytes = (to - from) as u32;
            // An offset that wraps around lies outside the memory map, as the whole segment does.
            let offset_bytes = segment.offset_bytes.saturating_add(from - start);
            run.push(Segment { offset_bytes, length_bytes, ..*segment });
        }
        start = end;
    }
}
