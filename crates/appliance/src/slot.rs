//! A place for a disk in a guest that cannot be given disks while it runs.

use blockyard_block::EventFd;
use blockyard_block::{
    Completion, Disk, Extent, Geometry, MemoryMap, NullDisk, Operation, Queue, QueueError, Request, RequestError,
    Segment, wait_readable,
};
use rustix::event::epoll;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A disk that others take the place of, one after another. What it says of itself stays, so that the guest never has
/// to be told: its capacity is larger than anything that is bound to it.
pub(crate) struct SlotDisk {
    geometry: Geometry,
    bound: Mutex<Arc<dyn Disk>>,
    /// How often something was bound: what a queue compares without taking the lock.
    binding: AtomicU64,
}

impl SlotDisk {
    /// An empty slot: zeros come out of it, and what is written vanishes.
    pub(crate) fn new(capacity_bytes: u64, read_only: bool) -> io::Result<Arc<Self>> {
        let empty = NullDisk::new(capacity_bytes, 512)?;
        let geometry = Geometry { read_only, discard: false, write_zeroes: false, ..empty.geometry() };
        Ok(Arc::new(Self { geometry, bound: Mutex::new(Arc::new(empty)), binding: AtomicU64::new(0) }))
    }

    /// Puts `disk` in. What the guest has asked of the one before is still that one's.
    pub(crate) fn bind(&self, disk: Arc<dyn Disk>) {
        *self.bound.lock().unwrap_or_else(PoisonError::into_inner) = disk;
        self.binding.fetch_add(1, Ordering::Release);
    }

    /// Empties the slot.
    pub(crate) fn release(&self) {
        // As it was made in `new`.
        if let Ok(empty) = NullDisk::new(self.geometry.capacity_bytes, 512) {
            self.bind(Arc::new(empty));
        }
    }

    fn bound(&self) -> (u64, Arc<dyn Disk>) {
        let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        (self.binding.load(Ordering::Acquire), Arc::clone(&bound))
    }
}

/// A slot as a disk. It is a type of its own because its queues share it.
pub(crate) struct Slot(pub(crate) Arc<SlotDisk>);

impl Disk for Slot {
    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.0.bound().1.extents(range)
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let ready = EventFd::new()?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&events, &ready, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Box::new(SlotQueue {
            slot: Arc::clone(&self.0),
            memory: memory.clone(),
            depth,
            binding: u64::MAX,
            current: None,
            retired: Vec::new(),
            held: VecDeque::new(),
            refused: Vec::new(),
            ready,
            events,
        }))
    }
}

/// A queue of whatever is bound.
struct SlotQueue {
    slot: Arc<SlotDisk>,
    memory: MemoryMap,
    depth: usize,
    binding: u64,
    current: Option<Box<dyn Queue>>,
    /// Those of disks that were bound before and are not yet done.
    retired: Vec<Box<dyn Queue>>,
    /// What the current one has no room for.
    held: VecDeque<Held>,
    refused: Vec<Completion>,
    /// Rung for `refused`.
    ready: EventFd,
    /// Readable when one of the queues is, or `ready`.
    events: OwnedFd,
}

/// A request of our own.
struct Held {
    operation: Operation,
    offset_bytes: u64,
    segments: Vec<Segment>,
    token: u64,
}

impl SlotQueue {
    /// Opens a queue of the disk that is bound now.
    fn follow(&mut self) {
        if self.binding == self.slot.binding.load(Ordering::Acquire) {
            return;
        }
        match self.current.take() {
            Some(queue) if queue.in_flight() > 0 => self.retired.push(queue),
            Some(queue) => forget(&self.events, &*queue),
            None => {}
        }
        let (binding, disk) = self.slot.bound();
        self.binding = binding;
        let opened = disk.open_queue(&self.memory, self.depth).and_then(|queue| {
            if let Some(event) = queue.completion_event() {
                epoll::add(&self.events, event, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
            }
            Ok(queue)
        });
        // Without one, every request is refused.
        self.current = opened.ok();
    }

    fn hand_on(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        match &mut self.current {
            Some(queue) => queue.push(request),
            None => {
                let error = RequestError::Os(rustix::io::Errno::IO.raw_os_error());
                self.refused.push(Completion { token: request.token, result: Err(error) });
                self.ready.ring();
                Ok(())
            }
        }
    }

    /// Passes on what was held back, as far as there is room.
    fn hand_on_held(&mut self) {
        while let Some(held) = self.held.pop_front() {
            let Held { operation, offset_bytes, ref segments, token } = held;
            let request = Request { operation, offset_bytes, segments, token };
            if self.hand_on(&request).is_err() {
                self.held.push_front(held);
                return;
            }
        }
    }
}

/// A queue that is done is not waited for any more, though its disk may live on.
fn forget(events: &OwnedFd, queue: &dyn Queue) {
    if let Some(event) = queue.completion_event() {
        // It was added when the queue was opened.
        let _ = epoll::delete(events, event);
    }
}

impl Queue for SlotQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        let queues = self.current.iter().chain(&self.retired).map(|queue| queue.in_flight()).sum::<usize>();
        queues + self.held.len() + self.refused.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        if self.in_flight() >= self.depth {
            return Err(QueueError::Full);
        }
        self.follow();
        if !self.held.is_empty() || self.hand_on(request).is_err() {
            let Request { operation, offset_bytes, segments, token } = *request;
            self.held.push_back(Held { operation, offset_bytes, segments: segments.to_vec(), token });
        }
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.hand_on_held();
        self.current.iter_mut().chain(&mut self.retired).try_for_each(|queue| queue.submit())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.ready.take();
        completions.append(&mut self.refused);
        self.current.iter_mut().chain(&mut self.retired).for_each(|queue| queue.reap(completions));
        let events = &self.events;
        self.retired.retain(|queue| {
            let done = queue.in_flight() == 0;
            if done {
                forget(events, &**queue);
            }
            !done
        });
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.as_fd())
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        wait_readable(Some(self.events.as_fd()), events, timeout).map(drop)
    }
}
