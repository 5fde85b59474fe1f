//! A disk that does nothing until it is told to, and remembers what it was asked.

use blockyard_block::EventFd;
use blockyard_block::{
    Completion, Disk, Extent, ExtentKind, Geometry, MemoryMap, Operation, Queue, QueueError, Request, RequestError,
};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) struct ScriptedDisk {
    pub(crate) geometry: Mutex<Geometry>,
    pub(crate) generation: AtomicU64,
    pub(crate) depth: usize,
    pub(crate) state: Arc<State>,
}

pub(crate) struct State {
    /// (operation, offset in bytes, length in bytes, segments) as pushed.
    pub(crate) log: Mutex<Vec<(Operation, u64, u64, usize)>>,
    /// Tokens in flight.
    held: Mutex<Vec<u64>>,
    ready: Mutex<Vec<Completion>>,
    event: EventFd,
    pub(crate) broken: AtomicU64,
    /// It takes no more than so many.
    pub(crate) takes: AtomicUsize,
}

impl ScriptedDisk {
    pub(crate) fn new(depth: usize) -> Self {
        let geometry = Geometry {
            capacity_bytes: 1 << 20,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            optimal_io_bytes: 1 << 16,
            segments_max: 64,
            transfer_bytes_max: u64::MAX,
            memory_align_bytes: 1,
            read_only: false,
            discard: true,
            write_zeroes: true,
        };
        let state = State {
            log: Mutex::default(),
            held: Mutex::default(),
            ready: Mutex::default(),
            event: EventFd::new().unwrap(),
            broken: AtomicU64::new(0),
            takes: AtomicUsize::new(usize::MAX),
        };
        Self { geometry: Mutex::new(geometry), generation: AtomicU64::new(0), depth, state: Arc::new(state) }
    }
}

impl State {
    /// Ends up to `count` of the requests in flight, the newest first.
    pub(crate) fn finish(&self, count: usize, result: Result<(), RequestError>) {
        let mut held = self.held.lock().unwrap();
        for _ in 0..count {
            let Some(token) = held.pop() else { break };
            self.ready.lock().unwrap().push(Completion { token, result });
        }
        self.event.ring();
    }
}

impl Disk for ScriptedDisk {
    fn geometry(&self) -> Geometry {
        *self.geometry.lock().unwrap()
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        Ok(Extent { offset_bytes: range.start, length_bytes: range.end - range.start, kind: ExtentKind::Data })
    }

    fn open_queue(&self, _memory: &MemoryMap, _depth: usize) -> io::Result<Box<dyn Queue>> {
        if self.depth == 0 {
            return Err(io::Error::other("no queue today"));
        }
        let event = self.state.event.as_fd().try_clone_to_owned()?;
        Ok(Box::new(ScriptedQueue { state: self.state.clone(), event, depth: self.depth, in_flight: 0 }))
    }
}

struct ScriptedQueue {
    state: Arc<State>,
    /// The disk's, by a descriptor of its own: whoever waits for several queues wants one of each.
    event: OwnedFd,
    depth: usize,
    in_flight: usize,
}

impl Queue for ScriptedQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        let taken = self.state.log.lock().unwrap().len();
        if self.in_flight == self.depth || taken == self.state.takes.load(Ordering::Relaxed) {
            return Err(QueueError::Full);
        }
        self.in_flight += 1;
        let entry = (request.operation, request.offset_bytes, request.length_bytes(), request.segments.len());
        self.state.log.lock().unwrap().push(entry);
        self.state.held.lock().unwrap().push(request.token);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.state.broken.load(Ordering::Relaxed) != 0 {
            return Err(io::Error::other("the backend broke"));
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.state.event.take();
        let mut ready = self.state.ready.lock().unwrap();
        self.in_flight -= ready.len();
        completions.append(&mut ready);
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        let own = [self.state.event.as_fd()];
        let all = own.iter().chain(events);
        let mut polled: Vec<_> = all.map(|event| PollFd::from_borrowed_fd(*event, PollFlags::IN)).collect();
        let timeout = timeout.map(|timeout| timeout.try_into().unwrap());
        poll(&mut polled, timeout.as_ref())?;
        Ok(())
    }
}

/// Ends what is in flight when the queue goes, as a real one would.
impl Drop for ScriptedQueue {
    fn drop(&mut self) {
        self.state.held.lock().unwrap().clear();
    }
}
