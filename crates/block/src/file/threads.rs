//! The engine for where io_uring is refused: a few threads that make blocking calls.

use super::backing::Backing;
use super::job::Job;
use crate::wait::wait_readable;
use crate::{Completion, MemoryMap, Queue, QueueError, Request, RequestError};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Most threads a queue has: the page cache feeds a few, a device is kept busy by a few.
const THREADS_MAX: usize = 4;

/// A queue with threads of its own. Jobs go round: free, pushed, pending, done and free again.
pub(super) struct ThreadsQueue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    depth: usize,
    free: Vec<Job>,
    pushed: Vec<Job>,
    /// Empty between calls; trades places with the done jobs.
    reaped: Vec<DoneJob>,
}

type DoneJob = (Job, Result<(), RequestError>);

struct Shared {
    backing: Arc<Backing>,
    state: Mutex<State>,
    work: Condvar,
    /// Readable whenever `State::done` holds anything: both change under the lock.
    event: OwnedFd,
}

struct State {
    pending: VecDeque<Job>,
    done: Vec<DoneJob>,
    closing: bool,
}

impl ThreadsQueue {
    pub(super) fn boxed(backing: &Arc<Backing>, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = State { pending: VecDeque::with_capacity(depth), done: Vec::with_capacity(depth), closing: false };
        let shared =
            Arc::new(Shared { backing: Arc::clone(backing), state: Mutex::new(state), work: Condvar::new(), event });
        let memory = Arc::new(memory.clone());
        Ok(Box::new(Self {
            shared,
            threads: Vec::with_capacity(THREADS_MAX),
            depth,
            free: (0..depth).map(|_| Job::new(&memory)).collect(),
            pushed: Vec::with_capacity(depth),
            reaped: Vec::with_capacity(depth),
        }))
    }

    /// Starts the threads from the thread that uses the queue, not the one that opened it: they run where that one may.
    fn start_threads(&mut self) -> io::Result<()> {
        while self.threads.len() < self.depth.min(THREADS_MAX) {
            let shared = Arc::clone(&self.shared);
            self.threads.push(Builder::new().name("blockyard-io".into()).spawn(move || shared.work())?);
        }
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each thread does: pending jobs, until there are none and the queue closes.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(mut job) = state.pending.pop_front() {
                drop(state);
                let result = job.run(&self.backing);
                state = self.lock();
                if state.done.is_empty() {
                    // An eventfd's counter is far from full when it only ever counts to one.
                    let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
                }
                state.done.push((job, result));
            } else if state.closing {
                return;
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Queue for ThreadsQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.depth - self.free.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        let mut job = self.free.pop().ok_or(QueueError::Full)?;
        job.begin(request, &self.shared.backing);
        self.pushed.push(job);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        let count = self.pushed.len();
        if count == 0 {
            return Ok(());
        }
        self.start_threads()?;
        self.shared.lock().pending.extend(self.pushed.drain(..));
        for _ in 0..count.min(self.threads.len()) {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let mut state = self.shared.lock();
        if state.done.is_empty() {
            return;
        }
        std::mem::swap(&mut state.done, &mut self.reaped);
        // The counter was raised under this lock, so there is something to read.
        let _ = rustix::io::read(&self.shared.event, &mut [0u8; 8]);
        drop(state);
        for (job, result) in self.reaped.drain(..) {
            completions.push(Completion { token: job.token, result });
            self.free.push(job);
        }
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.event.as_fd())
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        wait_readable(self.completion_event(), events, timeout).map(drop)
    }
}

impl Drop for ThreadsQueue {
    fn drop(&mut self) {
        // Without a thread there is nobody to do it, and nobody who works on it either.
        let _ = self.submit();
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has let go of its job, too.
            let _ = thread.join();
        }
    }
}
