//! The io_uring engine: each job is one submission at a time, or several that do not wait for one another.

mod cached_writes;
mod entry;
mod registered;
mod rings;

use super::backing::Backing;
use super::job::{CALLS_MAX, Job};
use crate::limits::SHARED_BYTES_MIN;
use crate::wait::wait_readable;
use crate::{Completion, MemoryMap, Queue, QueueError, Request};
use cached_writes::CachedWrites;
use entry::entry;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, SubmissionQueue, squeue};
use registered::Registered;
pub(super) use rings::RingUser;
pub use rings::{RING_REGISTRATIONS, RingQuota, RingsAhead};
use rustix::io::Errno;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often and how long to wait for the kernel to have resources again (EAGAIN, EBUSY) before that is an error.
const SUBMIT_RETRIES_MAX: u32 = 100;
const SUBMIT_RETRY_PAUSE: Duration = Duration::from_millis(1);

/// IORING_ENTER_GETEVENTS, linux/io_uring.h.
const ENTER_GETEVENTS: u32 = 1;

/// With many requests in flight, `wait` waits for a part of them, so that they are reaped in one go; but not for longer
/// than this, so that a slow one holds up no fast one.
const WAIT_FOR_MORE_US: u32 = 30;
const WAIT_FOR_MAX: usize = 16;

/// A queue on an io_uring. A slot's index is its submission's user data. The ring's own descriptor is the completion
/// event: it polls readable while there are completions, so nobody has to reset it.
pub(super) struct UringQueue {
    ring: ManuallyDrop<IoUring>,
    quota: Option<Arc<RingQuota>>,
    registered: Registered,
    backing: Arc<Backing>,
    jobs: Box<[Job]>,
    free: Vec<u16>,
    /// Submissions without a completion that was seen.
    outstanding: usize,
    cached_writes: CachedWrites,
    /// A long transfer that this thread makes, once those that were pushed with it are handed over: two CPUs copy
    /// sooner than one. Measured through a session with four reads of 1 MiB in flight, on two CPUs, 1.5 times as many.
    own: Option<u16>,
    /// Jobs that go on were not submitted: nobody else knows that they wait.
    stalled: bool,
    /// The ring failed: whoever watches its descriptor may do so until that is closed.
    broken: bool,
}

impl UringQueue {
    pub(super) fn boxed(backing: &Arc<Backing>, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let (ring, quota) = rings::take((depth + CALLS_MAX) as u32)?;
        let depth = depth.min(ring.params().sq_entries() as usize);
        let memory = Arc::new(memory.clone());
        // SAFETY: the jobs keep the memory mapped, and are dropped after the ring.
        let registered = unsafe { Registered::with(&ring.submitter(), backing, &memory) };
        let jobs = (0..depth).map(|_| Job::new(&memory)).collect();
        let cached_writes = CachedWrites::to(&backing.file);
        // The last is taken first: slot 0, whose memory is then the warmest.
        let free = (0..depth as u16).rev().collect();
        let ring = ManuallyDrop::new(ring);
        Ok(Box::new(Self {
            ring,
            quota,
            registered,
            backing: Arc::clone(backing),
            jobs,
            free,
            outstanding: 0,
            cached_writes,
            own: None,
            stalled: false,
            broken: false,
        }))
    }

    /// Submissions that the kernel works on: their jobs' memory is its until they complete.
    fn in_kernel(&mut self) -> usize {
        self.outstanding - self.ring.submission().len()
    }

    /// Lets the kernel finish completions that wait for this thread to come by. A caller that polls never would.
    fn run_pending_work(&mut self) {
        if self.ring.completion().is_empty() && self.ring.submission().taskrun() {
            // SAFETY: nothing is submitted, and no argument points anywhere. Whatever goes wrong here, the next wait
            // meets, too.
            let _ = unsafe { self.ring.submitter().enter::<()>(0, 0, ENTER_GETEVENTS, None) };
        }
    }

    /// Waits for completions alone, in the call that also gathers them.
    fn wait_in_ring(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        // A timeout that a timespec cannot hold is longer than anybody waits.
        let timeout = timeout.filter(|timeout| i64::try_from(timeout.as_secs()).is_ok()).map(Timespec::from);
        let mut arguments = SubmitArgs::new();
        if let Some(timeout) = &timeout {
            arguments = arguments.timespec(timeout);
        }
        let mut wanted = 1;
        if self.ring.params().is_feature_min_timeout() {
            wanted = (self.in_kernel() / 4).clamp(1, WAIT_FOR_MAX);
            arguments = arguments.min_wait_usec(if wanted > 1 { WAIT_FOR_MORE_US } else { 0 });
        }
        match self.ring.submitter().submit_with_args(wanted, &arguments) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Makes the long transfer in `slot`, or has the kernel make it last.
    fn make_own(&mut self, slot: u16) -> io::Result<()> {
        let depth = self.jobs.len();
        let index = usize::from(slot);
        // First, so that the others are written meanwhile.
        if self.jobs[index].is_cached_write() && self.hand_over().is_ok() {
            write_ahead(&mut self.jobs[index], &mut self.cached_writes, &self.backing, true);
        }
        let mut submissions = self.ring.submission();
        let most = entries_max(&submissions, self.outstanding, depth);
        let job = &mut self.jobs[index];
        match enqueue(&mut submissions, slot, job, &self.registered, most, Maker::Submitter) {
            Ok(count) => {
                self.outstanding += count;
                Ok(())
            }
            // There is room, once what failed before is handed over.
            Err(_) => {
                self.own = Some(slot);
                Err(Errno::AGAIN.into())
            }
        }
    }

    /// Gives the kernel what is in the submission queue.
    fn hand_over(&mut self) -> io::Result<()> {
        let mut retries = 0;
        while !self.ring.submission().is_empty() {
            match self.ring.submit().map_err(|error| Errno::from_io_error(&error)) {
                Ok(1..) | Err(Some(Errno::INTR)) => {}
                Ok(_) | Err(Some(Errno::AGAIN | Errno::BUSY)) if retries < SUBMIT_RETRIES_MAX => {
                    retries += 1;
                    std::thread::sleep(SUBMIT_RETRY_PAUSE);
                }
                failed => {
                    self.broken = true;
                    return Err(failed.err().flatten().unwrap_or(Errno::AGAIN).into());
                }
            }
        }
        Ok(())
    }
}

/// Makes a job's write here and now, if that is sooner than the ring: what is left for the ring is to say so, in its
/// turn. `free`: whether there is nothing that this thread could do meanwhile.
fn write_ahead(job: &mut Job, writes: &mut CachedWrites, backing: &Backing, free: bool) {
    if !job.is_cached_write() {
        return;
    }
    let started = Instant::now();
    if writes.may_make(job.offset_bytes(), job.left_bytes(), free, started) {
        job.run_ahead(backing);
        writes.made(started, Instant::now());
    }
}

/// Who makes the first of a job's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    /// This thread while it submits them, if they need not wait; else the kernel has them done.
    Submitter,
    /// A thread of the kernel's, while this one goes on.
    Kernel,
}

/// Puts the job's next calls into the submission queue, at most `most`, for which there is room. How many, and an error
/// only when it is none.
fn enqueue(
    submissions: &mut SubmissionQueue<'_>,
    slot: u16,
    job: &mut Job,
    registered: &Registered,
    most: usize,
    maker: Maker,
) -> Result<usize, squeue::PushError> {
    job.ask(most);
    let flags = if maker == Maker::Kernel { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
    let mut count = 0;
    for call in job.calls() {
        let entry = entry(call, registered).user_data(u64::from(slot)).flags(flags);
        // SAFETY: the entry's pointers are into the job, which is neither advanced nor begun anew before the
        // completions of all its entries were reaped, and not dropped before that either (see Drop); the job keeps its
        // memory mapped, and the backing its files open.
        unsafe { submissions.push(&entry) }?;
        count += 1;
    }
    Ok(count)
}

/// How many entries one of `depth` jobs may have, of which each has room for one at any time; `outstanding` are there
/// already.
fn entries_max(submissions: &SubmissionQueue<'_>, outstanding: usize, depth: usize) -> usize {
    // io_uring_setup(2): completions have twice the room that submissions have.
    let completions = (2 * submissions.capacity()).saturating_sub(outstanding);
    let room = (submissions.capacity() - submissions.len()).min(completions);
    room.saturating_sub(depth) + 1
}

impl Queue for UringQueue {
    fn depth(&self) -> usize {
        self.jobs.len()
    }

    fn in_flight(&self) -> usize {
        self.jobs.len() - self.free.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        let depth = self.jobs.len();
        let alone = self.in_flight() == 0;
        let mut submissions = self.ring.submission();
        let slot = *self.free.last().ok_or(QueueError::Full)?;
        let job = &mut self.jobs[usize::from(slot)];
        job.begin(request, &self.backing);
        let mut maker = Maker::Submitter;
        let shares = self.backing.shares_transfers;
        if shares && request.length_bytes() >= SHARED_BYTES_MIN && job.is_cached_transfer() {
            if self.own.is_none() {
                self.own = Some(slot);
                self.free.pop();
                return Ok(());
            }
            maker = Maker::Kernel;
        } else {
            write_ahead(job, &mut self.cached_writes, &self.backing, alone || !shares);
        }
        let most = entries_max(&submissions, self.outstanding, depth);
        let enqueued = enqueue(&mut submissions, slot, job, &self.registered, most, maker);
        self.outstanding += enqueued.map_err(|_| QueueError::Full)?;
        self.free.pop();
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        if let Some(slot) = self.own.take() {
            self.make_own(slot)?;
        }
        self.hand_over()
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.run_pending_work();
        let depth = self.jobs.len();
        let (_, mut submissions, ready) = self.ring.split();
        let mut unfinished = false;
        for entry in ready {
            self.outstanding -= 1;
            let slot = entry.user_data() as u16;
            let job = &mut self.jobs[usize::from(slot)];
            let Some(result) = job.answered(entry.result()) else { continue };
            let ended = job.advance(result, &self.backing).or_else(|| {
                let most = entries_max(&submissions, self.outstanding, depth);
                match enqueue(&mut submissions, slot, job, &self.registered, most, Maker::Submitter) {
                    Ok(count) => {
                        self.outstanding += count;
                        unfinished = true;
                        None
                    }
                    Err(_) => Some(job.run(&self.backing)),
                }
            });
            if let Some(result) = ended {
                completions.push(Completion { token: job.token, result });
                self.free.push(slot);
            }
        }
        drop(submissions);
        if unfinished {
            self.stalled = self.submit().is_err();
        }
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        if !self.ring.completion().is_empty() {
            return Ok(());
        }
        if self.stalled {
            self.submit()?;
            self.stalled = false;
        }
        let waits = timeout != Some(Duration::ZERO) && self.in_kernel() > 0;
        if events.is_empty() && waits && self.ring.params().is_feature_ext_arg() {
            return self.wait_in_ring(timeout);
        }
        wait_readable(self.completion_event(), events, timeout).map(drop)
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        let mut completions = Vec::with_capacity(self.depth());
        let _ = self.submit();
        while self.in_kernel() > 0 {
            if self.wait(&[], None).is_err() {
                std::thread::sleep(SUBMIT_RETRY_PAUSE);
            }
            self.reap(&mut completions);
            completions.clear();
        }
        // The kernel takes a ring down some time after it was closed. Locks and exclusive openings end with the file
        // now.
        let submitter = self.ring.submitter();
        let is_free =
            [submitter.unregister_files(), submitter.unregister_buffers()].into_iter().all(|freed| match freed {
                Ok(()) => true,
                // Nothing was registered.
                Err(error) => Errno::from_io_error(&error) == Some(Errno::NXIO),
            });
        // SAFETY: this is the end of the queue, and nothing uses its ring afterwards.
        let ring = unsafe { ManuallyDrop::take(&mut self.ring) };
        if is_free && !self.broken {
            rings::give_back((ring, self.quota.take()));
        }
    }
}
