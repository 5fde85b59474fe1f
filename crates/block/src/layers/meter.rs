//! How much a disk does, how deep its queues are and how long its requests take.

mod histogram;
mod snapshot;
#[cfg(test)]
mod tests;

use super::OperationKind;
use super::clock::{Clock, MonotonicClock};
use super::layer;
use super::slots::Slots;
use crate::{Completion, Disk, MemoryMap, Queue, QueueError, Request};
pub use histogram::LatencyHistogram;
pub use snapshot::{LatencySnapshot, MeterSnapshot, OperationSnapshot};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A disk whose requests are counted and timed by a [`Meter`].
///
/// A request's latency is the time from the submit that it was part of to the reap that brought it back: the clock is
/// read once for a batch of either, so requests of one batch share their times. What happens between pushing and
/// submitting is the requester's own time and does not count.
pub struct MeteredDisk {
    disk: Arc<dyn Disk>,
    meter: Arc<Meter>,
}

impl MeteredDisk {
    /// Measures `disk` with a meter of its own.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self::with_meter(disk, Arc::default())
    }

    /// Measures `disk` with `meter`, which may measure others too.
    pub fn with_meter(disk: Arc<dyn Disk>, meter: Arc<Meter>) -> Self {
        Self { disk, meter }
    }

    /// What measures it.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

impl layer::DiskLayer for MeteredDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.disk.open_queue(memory, depth)?;
        let depth = queue.depth();
        Ok(Box::new(MeteredQueue {
            queue,
            counters: self.meter.register(),
            meter: Arc::clone(&self.meter),
            slots: Slots::new(depth),
            pushed: Vec::with_capacity(depth),
            depth_time: 0,
        }))
    }
}

/// The counts and times of one or more [`MeteredDisk`]s. Any thread may take a [`Meter::snapshot`] at any time; the
/// queues neither lock nor wait for it.
pub struct Meter {
    clock: Arc<dyn Clock>,
    /// Requests submitted and not yet reaped.
    depth: AtomicU64,
    depth_max: AtomicU64,
    /// Of the queues that are open, and of those that were: a new queue goes on counting where a closed one stopped.
    queues: Mutex<Vec<Arc<QueueCounters>>>,
}

impl Default for Meter {
    fn default() -> Self {
        Self::with_clock(Arc::new(MonotonicClock::new()))
    }
}

impl Meter {
    fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, depth: AtomicU64::new(0), depth_max: AtomicU64::new(0), queues: Mutex::default() }
    }

    /// What was counted up to now.
    pub fn snapshot(&self) -> MeterSnapshot {
        let mut snapshot = MeterSnapshot::empty(self.clock.now_ns());
        for counters in self.queues().iter() {
            counters.add_to(&mut snapshot);
        }
        snapshot.depth = self.depth.load(Ordering::Relaxed);
        snapshot.depth_max = self.depth_max.load(Ordering::Relaxed);
        snapshot
    }

    fn queues(&self) -> MutexGuard<'_, Vec<Arc<QueueCounters>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self) -> Arc<QueueCounters> {
        let mut queues = self.queues();
        let closed = queues.iter().find(|counters| !counters.open.swap(true, Ordering::Acquire));
        if let Some(counters) = closed {
            return Arc::clone(counters);
        }
        let counters = Arc::new(QueueCounters::default());
        counters.open.store(true, Ordering::Relaxed);
        queues.push(Arc::clone(&counters));
        counters
    }

    /// Once a batch, not once a request: the queues of a disk share these two.
    fn change_depth(&self, count: i64) {
        let depth = self.depth.fetch_add(count as u64, Ordering::Relaxed).wrapping_add(count as u64);
        if count > 0 && depth > self.depth_max.load(Ordering::Relaxed) {
            self.depth_max.fetch_max(depth, Ordering::Relaxed);
        }
    }
}

/// What one queue counts. Only the thread that has the queue writes here.
#[derive(Default)]
struct QueueCounters {
    open: AtomicBool,
    operations: [OperationCounters; OperationKind::ALL.len()],
    /// Requests submitted and not yet reaped.
    submitted: AtomicU64,
    /// When that last changed.
    changed_at_ns: AtomicU64,
    /// Sum up to then of requests in flight times the time they were, in units of [`DEPTH_TIME_UNIT_NS`].
    depth_time: AtomicU64,
}

/// About a microsecond: so 64 bits hold five centuries at depth 1024.
const DEPTH_TIME_UNIT_NS: u64 = 1 << DEPTH_TIME_SHIFT;
const DEPTH_TIME_SHIFT: u32 = 10;

#[derive(Default)]
struct OperationCounters {
    errors: AtomicU64,
    bytes: AtomicU64,
    latency: LatencyHistogram,
}

impl QueueCounters {
    fn add_to(&self, snapshot: &mut MeterSnapshot) {
        for (counters, operation) in self.operations.iter().zip(&mut snapshot.operations) {
            operation.errors += counters.errors.load(Ordering::Relaxed);
            operation.bytes += counters.bytes.load(Ordering::Relaxed);
            counters.latency.add_to(&mut operation.latency);
        }
        // Acquired: the other two are as new as this, so no time is counted twice.
        let depth_time = self.depth_time.load(Ordering::Acquire);
        let since_ns = snapshot.taken_at_ns.saturating_sub(self.changed_at_ns.load(Ordering::Relaxed));
        let running = u128::from(self.submitted.load(Ordering::Relaxed)) * u128::from(since_ns);
        snapshot.depth_time += depth_time + (running >> DEPTH_TIME_SHIFT) as u64;
    }
}

/// Adds to a counter that this thread alone writes to: cheaper than an atomic addition.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

struct MeteredQueue {
    queue: Box<dyn Queue>,
    meter: Arc<Meter>,
    counters: Arc<QueueCounters>,
    slots: Slots<Timed>,
    /// Slots that were pushed and wait for `submit`.
    pushed: Vec<u64>,
    /// What the counter of that name grew by, in nanoseconds.
    depth_time: u128,
}

/// A request in flight.
struct Timed {
    token: u64,
    kind: OperationKind,
    length_bytes: u64,
    submitted_at_ns: u64,
}

impl MeteredQueue {
    /// Accounts for the depth since it last changed, and changes it by `count` requests.
    fn change_depth(&mut self, count: i64, now_ns: u64) {
        let counters = &self.counters;
        let submitted = counters.submitted.load(Ordering::Relaxed);
        let since_ns = now_ns.saturating_sub(counters.changed_at_ns.load(Ordering::Relaxed));
        let before = self.depth_time >> DEPTH_TIME_SHIFT;
        self.depth_time += u128::from(submitted) * u128::from(since_ns);
        let grown = ((self.depth_time >> DEPTH_TIME_SHIFT) - before) as u64;
        counters.submitted.store(submitted.saturating_add_signed(count), Ordering::Relaxed);
        counters.changed_at_ns.store(now_ns, Ordering::Relaxed);
        let depth_time = counters.depth_time.load(Ordering::Relaxed);
        counters.depth_time.store(depth_time + grown, Ordering::Release);
        self.meter.change_depth(count);
    }

    fn count(&self, request: &Timed, completion: &Completion, now_ns: u64) {
        let counters = &self.counters.operations[request.kind.index()];
        match completion.result {
            Ok(()) => add(&counters.bytes, request.length_bytes),
            Err(_) => add(&counters.errors, 1),
        }
        counters.latency.record(now_ns.saturating_sub(request.submitted_at_ns));
    }
}

impl layer::QueueLayer for MeteredQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        let timed = Timed {
            token: request.token,
            kind: request.operation.into(),
            length_bytes: request.length_bytes(),
            submitted_at_ns: 0,
        };
        let slot = self.slots.insert(timed).ok_or(QueueError::Full)?;
        if let Err(error) = self.queue.push(&Request { token: slot, ..*request }) {
            self.slots.take(slot);
            return Err(error);
        }
        self.pushed.push(slot);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        if !self.pushed.is_empty() {
            let now_ns = self.meter.clock.now_ns();
            for &slot in &self.pushed {
                if let Some(timed) = self.slots.get_mut(slot) {
                    timed.submitted_at_ns = now_ns;
                }
            }
            self.change_depth(self.pushed.len() as i64, now_ns);
            self.pushed.clear();
        }
        self.queue.submit()
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.queue.reap(completions);
        if completions.len() == before {
            return;
        }
        let now_ns = self.meter.clock.now_ns();
        let submitted = self.counters.submitted.load(Ordering::Relaxed);
        let count = submitted.min((completions.len() - before) as u64);
        self.change_depth(-(count as i64), now_ns);
        for completion in &mut completions[before..] {
            let Some(timed) = self.slots.take(completion.token) else { continue };
            self.count(&timed, completion, now_ns);
            completion.token = timed.token;
        }
    }
}

impl Drop for MeteredQueue {
    fn drop(&mut self) {
        // Dropping the queue below drains it; what comes back there is nobody's to count.
        let submitted = self.counters.submitted.load(Ordering::Relaxed);
        self.change_depth(-(submitted as i64), self.meter.clock.now_ns());
        self.counters.open.store(false, Ordering::Release);
    }
}
