//! A disk that can be stopped, and remembers what it was asked for.

use blockyard_block::EventFd;
use blockyard_block::{
    Completion, Disk, Extent, ExtentKind, Geometry, MemoryMap, NullDisk, Operation, Queue, QueueError, Request,
};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Default)]
struct State {
    /// Of whichever queue: (queue, token, length).
    waiting: VecDeque<(Arc<Done>, u64, u64)>,
    closing: bool,
    /// Nothing is done while it is held.
    held: bool,
    at_once: bool,
    gate: Gate,
    log: Vec<(Operation, u64, u64)>,
    /// Requests that were submitted together.
    batches: Vec<usize>,
}

/// Whether the thread that asks next is stopped.
#[derive(Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Open,
    Closing,
    Closed,
}

struct Done {
    completions: Mutex<Vec<Completion>>,
    event: EventFd,
}

#[derive(Clone)]
pub(crate) struct SlowDisk {
    shared: Arc<(Mutex<State>, Condvar)>,
    _worker: Arc<Worker>,
}

struct Worker {
    shared: Arc<(Mutex<State>, Condvar)>,
    handle: Option<JoinHandle<()>>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.0.lock().unwrap().closing = true;
        self.shared.1.notify_all();
        self.handle.take().unwrap().join().unwrap();
    }
}

impl SlowDisk {
    pub(crate) fn new(ns_per_kib: u64) -> Self {
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let own = Arc::clone(&shared);
        let handle = Some(std::thread::spawn(move || work(&own, ns_per_kib)));
        Self { shared: Arc::clone(&shared), _worker: Arc::new(Worker { shared, handle }) }
    }

    pub(crate) fn hold(&self, held: bool) {
        self.shared.0.lock().unwrap().held = held;
        self.shared.1.notify_all();
    }

    /// Stops the thread that pushes the next request, until [`SlowDisk::go_on`].
    pub(crate) fn stop_in_next_push(&self) {
        self.shared.0.lock().unwrap().gate = Gate::Closing;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.0.lock().unwrap().gate == Gate::Closed
    }

    pub(crate) fn go_on(&self) {
        self.shared.0.lock().unwrap().gate = Gate::Open;
        self.shared.1.notify_all();
    }

    /// From now on requests are answered where they are submitted.
    pub(crate) fn answer_at_once(&self) {
        self.shared.0.lock().unwrap().at_once = true;
    }

    /// How many requests it was asked for at a time until now.
    pub(crate) fn batches(&self) -> Vec<usize> {
        self.shared.0.lock().unwrap().batches.clone()
    }

    /// (operation, offset, length) of what it was asked for until now.
    pub(crate) fn log(&self) -> Vec<(Operation, u64, u64)> {
        self.shared.0.lock().unwrap().log.clone()
    }
}

fn work(shared: &(Mutex<State>, Condvar), ns_per_kib: u64) {
    loop {
        let state = shared.0.lock().unwrap();
        let mut state = shared.1.wait_while(state, |s| !s.closing && (s.held || s.waiting.is_empty())).unwrap();
        let Some((done, token, length)) = state.waiting.pop_front() else { return };
        drop(state);
        std::thread::sleep(Duration::from_nanos(ns_per_kib * length / 1024));
        done.completions.lock().unwrap().push(Completion { token, result: Ok(()) });
        done.event.ring();
    }
}

impl Disk for SlowDisk {
    fn geometry(&self) -> Geometry {
        NullDisk::new(1 << 30, 512).unwrap().geometry()
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        Ok(Extent { offset_bytes: range.start, length_bytes: range.end - range.start, kind: ExtentKind::Data })
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let done = Done { completions: Mutex::default(), event: EventFd::new()? };
        Ok(Box::new(SlowQueue {
            disk: self.clone(),
            _memory: memory.clone(),
            done: Arc::new(done),
            depth,
            in_flight: 0,
            pushed: Vec::with_capacity(depth),
        }))
    }
}

struct SlowQueue {
    disk: SlowDisk,
    _memory: MemoryMap,
    done: Arc<Done>,
    depth: usize,
    in_flight: usize,
    pushed: Vec<(Arc<Done>, u64, u64)>,
}

impl Queue for SlowQueue {
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
        self.in_flight += 1;
        self.pushed.push((Arc::clone(&self.done), request.token, request.length_bytes()));
        let mut state = self.disk.shared.0.lock().unwrap();
        state.log.push((request.operation, request.offset_bytes, request.length_bytes()));
        if state.gate == Gate::Closing {
            state.gate = Gate::Closed;
            drop(self.disk.shared.1.wait_while(state, |state| state.gate != Gate::Open).unwrap());
        }
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        if !self.pushed.is_empty() {
            let mut state = self.disk.shared.0.lock().unwrap();
            state.batches.push(self.pushed.len());
            if state.at_once {
                let answered = self.pushed.drain(..).map(|(_, token, _)| Completion { token, result: Ok(()) });
                self.done.completions.lock().unwrap().extend(answered);
            } else {
                state.waiting.extend(self.pushed.drain(..));
                self.disk.shared.1.notify_all();
            }
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let mut done = self.done.completions.lock().unwrap();
        self.done.event.take();
        self.in_flight -= done.len();
        completions.append(&mut done);
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.done.event.as_fd())
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        assert!(events.is_empty());
        crate::client::readable(&self.done.event, timeout.unwrap_or(crate::client::TIMEOUT));
        Ok(())
    }
}

impl Drop for SlowQueue {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        let _ = self.drain(&mut completions);
    }
}
