//! Writes parts of blocks, for all queues of a disk: one at a time where they touch the same blocks.

mod job;

use super::in_flight::WritesInFlight;
use super::limits::Limits;
use super::mailbox::{Ended, Mailbox};
use crate::{Completion, Disk, MemoryMap, Operation, Queue, RequestError, Segment};
pub(super) use job::Change;
use job::{Job, Step};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Jobs at once, and how much one of them writes. More wait with their queues.
const JOBS: u16 = 16;
const IMAGE_BYTES: u64 = 64 << 10;

/// Jobs' memory starts on pages, aligned for any device.
const STRIDE_UNIT_BYTES: u64 = 4096;

/// See [`super`].
pub(super) struct Merger {
    limits: Limits,
    /// Jobs there are: known to writers of whole blocks before any of them reads a block.
    jobs: AtomicUsize,
    core: Mutex<Core>,
    /// Readable when driving would get on; `None` when driving always gets to the end.
    event: Option<OwnedFd>,
}

/// What whoever drives has to have for himself.
struct Core {
    limits: Limits,
    queue: Box<dyn Queue>,
    memory: MemoryMap,
    jobs: Box<[Job]>,
    free: Vec<u16>,
    /// Jobs in the order that they came.
    order: Vec<u16>,
    /// All queues' writes.
    writes: Vec<Arc<WritesInFlight>>,
    /// Queues that found no job free.
    waiting: Vec<Arc<Mailbox>>,
    completions: Vec<Completion>,
}

impl Merger {
    pub(super) fn new(disk: &dyn Disk, limits: &Limits) -> io::Result<Self> {
        let image_bytes = limits.buffer_bytes(IMAGE_BYTES);
        let job_bytes = (image_bytes + 2 * limits.block_bytes).next_multiple_of(STRIDE_UNIT_BYTES);
        let memory = MemoryMap::allocate(&[(0, (job_bytes * u64::from(JOBS)) as usize)]).map_err(io::Error::other)?;
        let queue = disk.open_queue(&memory, usize::from(JOBS))?;
        let event = queue.completion_event().map(|event| event.try_clone_to_owned()).transpose()?;
        let jobs = (0..u64::from(JOBS)).map(|n| Job::new(n * job_bytes, image_bytes)).collect();
        let core = Core {
            limits: *limits,
            completions: Vec::with_capacity(queue.depth()),
            queue,
            memory,
            jobs,
            free: (0..JOBS).rev().collect(),
            order: Vec::with_capacity(usize::from(JOBS)),
            writes: Vec::new(),
            waiting: Vec::new(),
        };
        Ok(Self { limits: *limits, jobs: AtomicUsize::new(0), core: Mutex::new(core), event })
    }

    /// A merge that panicked has left its job as it was: it never ends, but no other is harmed.
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn event(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn enter(&self, writes: &Arc<WritesInFlight>) {
        let mut core = self.lock();
        core.writes.push(Arc::clone(writes));
        // Room for every queue, so that none makes some when it has to wait.
        let queues = core.writes.len();
        core.waiting.reserve(queues);
    }

    pub(super) fn leave(&self, writes: &Arc<WritesInFlight>, mailbox: &Arc<Mailbox>) {
        let mut core = self.lock();
        core.writes.retain(|other| !Arc::ptr_eq(other, writes));
        core.waiting.retain(|other| !Arc::ptr_eq(other, mailbox));
    }

    /// Whether a write of whole blocks, published before, meets a merge, and has to be made one.
    pub(super) fn is_in_the_way(&self, range: &Range<u64>) -> bool {
        self.jobs.load(Ordering::SeqCst) > 0 && self.lock().overlaps(range)
    }

    /// The longest change from `range.start` on that one job can make.
    pub(super) fn piece(&self, range: &Range<u64>, operation: Operation) -> Range<u64> {
        let Limits { block_bytes, .. } = self.limits;
        let image_bytes = self.limits.buffer_bytes(IMAGE_BYTES);
        let first = self.limits.floor(range.start);
        let zeroes = matches!(operation, Operation::WriteZeroes { .. });
        let most = match zeroes {
            // Whole blocks, all of them at once, or the rest of one.
            true if self.limits.is_whole(range.start) && range.end - range.start >= block_bytes => {
                self.limits.floor(range.end)
            }
            true => first + block_bytes,
            false => first + image_bytes,
        };
        range.start..range.end.min(most)
    }

    /// Makes a job of a change, whose bytes `fill` puts where it is told to. False when there is no job free: `mailbox`
    /// is rung when one is.
    ///
    /// # Errors
    /// When `fill` finds no bytes.
    pub(super) fn begin(
        &self,
        change: Change,
        mailbox: &Arc<Mailbox>,
        fill: impl FnOnce(&MemoryMap, Segment) -> bool,
    ) -> Result<bool, RequestError> {
        let mut core = self.lock();
        let Some(&index) = core.free.last() else {
            if !core.waiting.iter().any(|other| Arc::ptr_eq(other, mailbox)) {
                core.waiting.push(Arc::clone(mailbox));
            }
            return Ok(false);
        };
        let Core { limits, memory, jobs, .. } = &mut *core;
        let job = &mut jobs[usize::from(index)];
        if !job.begin(change, Arc::clone(mailbox), limits, memory, fill) {
            return Err(RequestError::BadSegment);
        }
        core.free.pop();
        core.order.push(index);
        self.jobs.fetch_add(1, Ordering::SeqCst);
        Ok(true)
    }

    /// Gets on with the jobs as far as possible without waiting.
    pub(super) fn drive(&self) -> io::Result<()> {
        let mut core = self.lock();
        loop {
            core.push();
            core.queue.submit()?;
            let Core { queue, completions, .. } = &mut *core;
            queue.reap(completions);
            if core.completions.is_empty() {
                return Ok(());
            }
            for n in 0..core.completions.len() {
                let Completion { token, result } = core.completions[n];
                if core.advance(token as u16, result) {
                    self.jobs.fetch_sub(1, Ordering::SeqCst);
                }
            }
            core.completions.clear();
        }
    }
}

impl Core {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.order.iter().any(|&index| self.jobs[usize::from(index)].overlaps(range))
    }

    /// Pushes the next step of every job that has one and does not wait for an earlier job.
    fn push(&mut self) {
        for n in 0..self.order.len() {
            let index = self.order[n];
            let job = &self.jobs[usize::from(index)];
            if job.in_flight {
                continue;
            }
            if job.step == Step::Queued {
                let earlier = &self.order[..n];
                if earlier.iter().any(|&other| self.jobs[usize::from(other)].overlaps(&job.blocks)) {
                    continue;
                }
                self.start(index);
            }
            let Core { queue, jobs, limits, .. } = self;
            let job = &mut jobs[usize::from(index)];
            let segment = job.segment(limits);
            if queue.push(&job.request(&segment, limits, u64::from(index))).is_err() {
                return;
            }
            job.in_flight = true;
        }
    }

    /// The job's turn: nothing that is published from now on overlaps it without seeing it.
    fn start(&mut self, index: u16) {
        let job = &mut self.jobs[usize::from(index)];
        // Dekker: the count of jobs was raised before this.
        fence(Ordering::SeqCst);
        for writes in &self.writes {
            writes.mark(&job.blocks);
        }
        job.step = job.first_step(&self.limits);
    }

    /// Takes a step's result. True when that was the job's last.
    fn advance(&mut self, index: u16, result: Result<(), RequestError>) -> bool {
        let Core { jobs, limits, memory, .. } = self;
        let job = &mut jobs[usize::from(index)];
        job.in_flight = false;
        if result.is_ok() && !matches!(job.step, Step::Write | Step::Zero) {
            job.merge(memory, limits);
            return false;
        }
        job.step = Step::Queued;
        let slot = job.change.slot;
        if let Some(mailbox) = job.mailbox.take() {
            mailbox.post(Ended { slot, result });
        }
        self.order.retain(|&other| other != index);
        self.free.push(index);
        self.waiting.drain(..).for_each(|mailbox| mailbox.ring());
        true
    }
}
