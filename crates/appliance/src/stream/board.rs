//! Where requests wait for the thread that reads or writes the stream.

use blockyard_block::EventFd;
use blockyard_block::{
    Completion, MemoryMap, Operation, Queue, QueueError, Request, RequestError, Segment, wait_readable,
};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whether a stream waits for somebody outside of the appliance: then the appliance is not to blame for the standstill.
pub(crate) trait Outside: Send + Sync {
    /// It does now.
    fn waits_outside(&self) -> bool;
    /// Nobody wants the rest: the guest gets errors from now on.
    fn give_up(&self);
}

/// The requests of a stream's one queue.
pub(super) struct Board {
    state: Mutex<State>,
    changed: Condvar,
    completed: EventFd,
    outside: AtomicBool,
}

#[derive(Default)]
struct State {
    /// `None` while no queue is open.
    memory: Option<MemoryMap>,
    waiting: Vec<Waiting>,
    completions: Vec<Completion>,
    /// What everything that waits, or will, is answered with.
    closed: Option<RequestError>,
}

struct Waiting {
    offset_bytes: u64,
    length_bytes: u64,
    segments: Vec<Segment>,
    token: u64,
}

/// The next request's place in the stream, as the thread that serves it sees it.
pub(super) struct Taken<'board> {
    pub(super) memory: &'board MemoryMap,
    pub(super) segments: &'board [Segment],
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

impl Board {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            completed: EventFd::new()?,
            outside: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a request that begins within `range`, has `serve` move its bytes, and answers it. False: the board was
    /// closed.
    pub(super) fn serve_one(&self, range: std::ops::Range<u64>, serve: impl FnOnce(&Taken<'_>) -> bool) -> bool {
        let mut state = self.lock();
        loop {
            let found = state.waiting.iter().position(|waiting| range.contains(&waiting.offset_bytes));
            if let (Some(index), Some(memory)) = (found, state.memory.clone()) {
                let Waiting { offset_bytes, length_bytes, segments, token } = state.waiting.swap_remove(index);
                // Under the lock: once a queue is gone, nobody touches its memory.
                let served = serve(&Taken { memory: &memory, segments: &segments, offset_bytes, length_bytes });
                let result = if served { Ok(()) } else { Err(RequestError::Os(Errno::IO.raw_os_error())) };
                state.completions.push(Completion { token, result });
                self.completed.ring();
                return true;
            }
            if state.closed.is_some() {
                return false;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Answers everything with `error` from now on.
    pub(super) fn close(&self, error: RequestError) {
        let mut state = self.lock();
        let error = *state.closed.get_or_insert(error);
        let State { waiting, completions, .. } = &mut *state;
        if !waiting.is_empty() {
            completions
                .extend(waiting.drain(..).map(|waiting| Completion { token: waiting.token, result: Err(error) }));
            // Only then: an event that is rung for nothing is never taken back.
            self.completed.ring();
        }
        self.changed.notify_all();
    }

    /// Does something that may take as long as somebody outside likes.
    pub(super) fn outside<T>(&self, act: impl FnOnce() -> T) -> T {
        self.outside.store(true, Ordering::Relaxed);
        let result = act();
        self.outside.store(false, Ordering::Relaxed);
        result
    }

    /// Opens the queue: there is one at a time.
    pub(super) fn open(
        self: &Arc<Self>,
        memory: &MemoryMap,
        depth: usize,
        operation: StreamOperation,
    ) -> io::Result<Box<dyn Queue>> {
        let mut state = self.lock();
        if state.memory.is_some() || depth == 0 {
            return Err(io::Error::other("a stream has one queue"));
        }
        state.memory = Some(memory.clone());
        state.completions.reserve(depth);
        Ok(Box::new(BoardQueue { board: Arc::clone(self), depth, in_flight: 0, pushed: Vec::new(), operation }))
    }
}

impl Outside for Board {
    fn waits_outside(&self) -> bool {
        self.outside.load(Ordering::Relaxed)
    }

    fn give_up(&self) {
        self.close(RequestError::Os(Errno::CANCELED.raw_os_error()));
    }
}

/// The operation that a stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamOperation {
    Read,
    Write,
}

struct BoardQueue {
    board: Arc<Board>,
    depth: usize,
    in_flight: usize,
    pushed: Vec<(Waiting, Result<(), RequestError>)>,
    operation: StreamOperation,
}

impl BoardQueue {
    /// Whether the stream can do the request some time.
    fn judge(&self, request: &Request<'_>) -> Result<(), RequestError> {
        match (request.operation, self.operation) {
            (Operation::Read, StreamOperation::Read) | (Operation::Write { .. }, StreamOperation::Write) => {}
            _ => return Err(RequestError::Unsupported),
        }
        let state = self.board.lock();
        let inside = |segment: &Segment| state.memory.as_ref().is_some_and(|memory| memory.slice(*segment).is_some());
        if request.segments.iter().all(inside) { Ok(()) } else { Err(RequestError::BadSegment) }
    }
}

impl Queue for BoardQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        if self.in_flight == self.depth {
            return Err(QueueError::Full);
        }
        let waiting = Waiting {
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes(),
            segments: request.segments.to_vec(),
            token: request.token,
        };
        self.pushed.push((waiting, self.judge(request)));
        self.in_flight += 1;
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.pushed.is_empty() {
            return Ok(());
        }
        let mut state = self.board.lock();
        for (waiting, judged) in self.pushed.drain(..) {
            match judged.and(state.closed.map_or(Ok(()), Err)) {
                Ok(()) => state.waiting.push(waiting),
                Err(error) => {
                    state.completions.push(Completion { token: waiting.token, result: Err(error) });
                    self.board.completed.ring();
                }
            }
        }
        self.board.changed.notify_all();
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.board.completed.take();
        let mut state = self.board.lock();
        self.in_flight -= state.completions.len().min(self.in_flight);
        completions.append(&mut state.completions);
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.board.completed.as_fd())
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        wait_readable(Some(self.board.completed.as_fd()), events, timeout).map(drop)
    }
}

impl Drop for BoardQueue {
    fn drop(&mut self) {
        let mut state = self.board.lock();
        state.memory = None;
        state.waiting.clear();
        state.completions.clear();
        self.board.completed.take();
    }
}
