//! What the tests of disks share: a queue with memory to use it by, a disk that is as hard to deal with as a disk may
//! be, and a model that says what random requests must do.

#![allow(dead_code, reason = "each test executable uses a part of it")]

pub(crate) mod demanding_disk;
pub(crate) mod model;
pub(crate) mod random;

use blockyard_block::{Completion, Disk, MemoryMap, Operation, Queue, Request, RequestError, Segment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

pub(crate) const WRITE: Operation = Operation::Write { force_unit_access: false };
pub(crate) const MEMORY_BYTES: usize = 4 << 20;

/// No request takes longer, not on a machine that is busy with other things either.
const PATIENCE: Duration = Duration::from_secs(60);

/// A queue, and memory.
pub(crate) struct Rig {
    pub(crate) memory: MemoryMap,
    pub(crate) queue: Box<dyn Queue>,
    /// Dropped last: the queue needs nothing of it, but what it closes is what the tests then look at.
    pub(crate) disk: Arc<dyn Disk>,
    /// Waits as a thread with many queues does: on the completion event, and never by [`Queue::wait`].
    pub(crate) by_event: bool,
}

pub(crate) fn request(operation: Operation, offset_bytes: u64, segments: &[Segment], token: u64) -> Request<'_> {
    Request { operation, offset_bytes, segments, token }
}

impl Rig {
    pub(crate) fn on(disk: Arc<dyn Disk>, depth: usize) -> Self {
        Self::with_memory(disk, MemoryMap::allocate(&[(0, MEMORY_BYTES)]).unwrap(), depth)
    }

    pub(crate) fn with_memory(disk: Arc<dyn Disk>, memory: MemoryMap, depth: usize) -> Self {
        let queue = disk.open_queue(&memory, depth).unwrap();
        Self { memory, queue, disk, by_event: false }
    }

    pub(crate) fn by_event(disk: Arc<dyn Disk>, depth: usize) -> Self {
        Self { by_event: true, ..Self::on(disk, depth) }
    }

    pub(crate) fn poke(&self, address: u64, bytes: &[u8]) {
        self.memory.guest_memory().write_slice(bytes, GuestAddress(address)).unwrap();
    }

    pub(crate) fn peek(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.guest_memory().read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }

    /// The segments of `length` bytes from guest-physical `address`.
    pub(crate) fn segments(&self, address: u64, length: usize) -> Vec<Segment> {
        let mut segments = Vec::new();
        assert!(self.memory.find(address, length as u32, &mut segments));
        segments
    }

    /// The same in up to five segments of odd lengths.
    pub(crate) fn cut(&self, mut address: u64, length: usize, pieces: u8) -> Vec<Segment> {
        let pieces = usize::from(pieces % 5) + 1;
        let mut left = length;
        let mut segments = Vec::new();
        for n in 0..pieces {
            let length = if n + 1 == pieces { left } else { (left * (n + 1) / (pieces + 1)) | 1 }.min(left);
            match length {
                0 => segments.push(Segment { region: 0, length_bytes: 0, offset_bytes: 0 }),
                _ => segments.extend(self.segments(address, length)),
            }
            address += length as u64;
            left -= length;
        }
        segments
    }

    pub(crate) fn push(&mut self, operation: Operation, offset_bytes: u64, segments: &[Segment], token: u64) {
        let has_memory = matches!(operation, Operation::Read | Operation::Write { .. });
        let segments = if has_memory { segments } else { &[] };
        self.queue.push(&request(operation, offset_bytes, segments, token)).unwrap();
    }

    pub(crate) fn perform(
        &mut self,
        operation: Operation,
        offset: u64,
        segments: &[Segment],
    ) -> Result<(), RequestError> {
        self.push(operation, offset, segments, 77);
        let completions = self.drain();
        assert_eq!((completions.len(), completions[0].token, self.queue.in_flight()), (1, 77, 0));
        completions[0].result
    }

    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, RequestError> {
        self.poke(0, &vec![0xee; length]);
        let segments = self.segments(0, length);
        self.perform(Operation::Read, offset, &segments)?;
        Ok(self.peek(0, length))
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), RequestError> {
        self.write_as(WRITE, offset, bytes)
    }

    pub(crate) fn write_as(&mut self, operation: Operation, offset: u64, bytes: &[u8]) -> Result<(), RequestError> {
        self.poke(0, bytes);
        let segments = self.segments(0, bytes.len());
        self.perform(operation, offset, &segments)
    }

    /// Waits for everything, but not for ever.
    pub(crate) fn drain(&mut self) -> Vec<Completion> {
        self.drain_to(0)
    }

    /// Waits until no more than `left` requests are in flight.
    pub(crate) fn drain_to(&mut self, left: usize) -> Vec<Completion> {
        let mut completions = Vec::new();
        let start = Instant::now();
        loop {
            self.queue.submit().unwrap();
            let before = completions.len();
            self.queue.reap(&mut completions);
            if self.queue.in_flight() <= left {
                return completions;
            }
            assert!(start.elapsed() < PATIENCE, "{} requests hang", self.queue.in_flight());
            match completions.len() > before {
                // The event need not tell of more before a reap brings nothing.
                true => {}
                false if self.by_event => self.sleep(),
                false => self.queue.wait(&[], Some(PATIENCE)).unwrap(),
            }
        }
    }

    fn sleep(&self) {
        let in_flight = self.queue.in_flight();
        let Some(event) = self.queue.completion_event() else {
            panic!("{in_flight} requests are not done after a submit, by a queue without an event");
        };
        let timeout = Timespec::try_from(PATIENCE).unwrap();
        let ready = poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(ready, 1, "{in_flight} requests hang: the event tells nothing");
    }
}
