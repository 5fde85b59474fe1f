//! What the layers' tests share: a disk that writes down what it is asked, and a queue with memory to use it by.

use crate::layers::layer;
use crate::{
    Completion, Disk, Engine, Extent, FileDisk, FileOptions, Geometry, MemoryMap, NullDisk, Operation, Queue,
    QueueError, Request, RequestError, Segment,
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use vm_memory::{Bytes, GuestAddress};

pub(crate) const MEMORY_BYTES: usize = 1 << 20;

pub(crate) const WRITE: Operation = Operation::Write { force_unit_access: false };

/// What a disk was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) operation: Operation,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
    pub(crate) segments: Vec<Segment>,
}

/// A null disk that remembers every request pushed, and shares its memory of them. It refuses what a disk refuses.
#[derive(Clone)]
pub(crate) struct AskedDisk {
    pub(crate) geometry: Arc<Mutex<Geometry>>,
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
    null: NullDisk,
}

impl AskedDisk {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let null = NullDisk::new(capacity_bytes, 512).unwrap();
        Self { geometry: Arc::new(Mutex::new(null.geometry())), asked: Arc::default(), null }
    }

    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl layer::DiskLayer for AskedDisk {
    fn below(&self) -> &dyn Disk {
        &self.null
    }

    fn geometry(&self) -> Geometry {
        *self.geometry.lock().unwrap()
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        Disk::geometry(self).check_extent_range(&range)?;
        self.null.extents(range)
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.null.open_queue(memory, depth)?;
        Ok(Box::new(AskedQueue { queue, asked: Arc::clone(&self.asked) }))
    }
}

struct AskedQueue {
    queue: Box<dyn Queue>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl layer::QueueLayer for AskedQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        self.queue.push(request)?;
        self.asked.lock().unwrap().push(Asked {
            operation: request.operation,
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes(),
            segments: request.segments.to_vec(),
        });
        Ok(())
    }
}

/// A file in memory on the engine that carries several requests at once everywhere, with a completion event.
pub(crate) fn threads_disk(capacity_bytes: u64) -> Arc<dyn Disk> {
    let file = File::from(memfd_create("layers", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(capacity_bytes).unwrap();
    let options = FileOptions { engine: Engine::Threads, ..FileOptions::default() };
    Arc::new(FileDisk::from_file(file, &options).unwrap())
}

/// A queue of a disk, and memory.
pub(crate) struct Rig {
    pub(crate) memory: MemoryMap,
    pub(crate) queue: Box<dyn Queue>,
}

impl Rig {
    pub(crate) fn new(disk: &dyn Disk, depth: usize) -> Self {
        let memory = MemoryMap::allocate(&[(0, MEMORY_BYTES)]).unwrap();
        let queue = disk.open_queue(&memory, depth).unwrap();
        Self { memory, queue }
    }

    pub(crate) fn poke(&self, address: u64, bytes: &[u8]) {
        self.memory.guest_memory().write_slice(bytes, GuestAddress(address)).unwrap();
    }

    pub(crate) fn peek(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.guest_memory().read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }

    pub(crate) fn push(
        &mut self,
        operation: Operation,
        offset_bytes: u64,
        segments: &[Segment],
        token: u64,
    ) -> Result<(), QueueError> {
        self.queue.push(&Request { operation, offset_bytes, segments, token })
    }

    pub(crate) fn submit_and_reap(&mut self) -> Vec<Completion> {
        self.queue.submit().unwrap();
        self.reap()
    }

    pub(crate) fn reap(&mut self) -> Vec<Completion> {
        let mut completions = Vec::new();
        self.queue.reap(&mut completions);
        completions
    }

    pub(crate) fn drain(&mut self) -> Vec<Completion> {
        let mut completions = Vec::new();
        self.queue.drain(&mut completions).unwrap();
        assert_eq!(self.queue.in_flight(), 0);
        completions
    }

    pub(crate) fn perform(
        &mut self,
        operation: Operation,
        offset_bytes: u64,
        segments: &[Segment],
    ) -> Result<(), RequestError> {
        self.push(operation, offset_bytes, segments, 77).unwrap();
        let completions = self.drain();
        assert_eq!(completions.iter().map(|completion| completion.token).collect::<Vec<_>>(), [77]);
        completions[0].result
    }

    pub(crate) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), RequestError> {
        self.poke(0, bytes);
        self.perform(WRITE, offset_bytes, &[segment(0, bytes.len())])
    }

    pub(crate) fn read(&mut self, offset_bytes: u64, length: usize) -> Result<Vec<u8>, RequestError> {
        self.poke(0, &vec![0xee; length]);
        self.perform(Operation::Read, offset_bytes, &[segment(0, length)])?;
        Ok(self.peek(0, length))
    }
}

pub(crate) fn segment(offset_bytes: u64, length: usize) -> Segment {
    Segment { region: 0, length_bytes: length as u32, offset_bytes }
}

/// Tokens in order.
pub(crate) fn tokens(completions: &[Completion]) -> Vec<u64> {
    let mut tokens: Vec<_> = completions.iter().map(|completion| completion.token).collect();
    tokens.sort_unstable();
    tokens
}

/// Whether a queue's completion event polls readable by itself within ten seconds.
pub(crate) fn becomes_readable(queue: &dyn Queue) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let event = queue.completion_event().unwrap();
    let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}
