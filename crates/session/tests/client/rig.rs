//! A disk, memory, and a queue between them.

use crate::server::{QemuStorageDaemon, Running};
use blockyard_block::{Completion, Disk, MemoryMap, Operation, Queue, Request, RequestError, Segment};
use blockyard_session::client::{SessionDisk, SessionOptions};
use std::path::PathBuf;
use std::{fs, io};
use tempfile::TempDir;
use vm_memory::{Bytes, GuestAddress};

pub(crate) const REGION_BYTES: usize = 8 << 20;
pub(crate) const WRITE: Operation = Operation::Write { force_unit_access: false };

/// Two regions, one right behind the other.
pub(crate) fn memory() -> MemoryMap {
    MemoryMap::allocate(&[(0, REGION_BYTES), (REGION_BYTES as u64, REGION_BYTES)]).unwrap()
}

/// A sequence of numbers that is always the same.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..length).map(|_| random.next() as u8).collect()
}

/// A queue and its memory.
pub(crate) struct Client {
    pub(crate) memory: MemoryMap,
    pub(crate) queue: Box<dyn Queue>,
}

impl Client {
    pub(crate) fn new(disk: &SessionDisk, depth: usize) -> Self {
        Self::try_new(disk, depth).unwrap()
    }

    pub(crate) fn try_new(disk: &SessionDisk, depth: usize) -> io::Result<Self> {
        let memory = memory();
        let queue = disk.open_queue(&memory, depth)?;
        Ok(Self { memory, queue })
    }

    pub(crate) fn segments(&self, address: u64, length: usize) -> Vec<Segment> {
        let mut segments = Vec::new();
        assert!(self.memory.find(address, length as u32, &mut segments));
        segments
    }

    pub(crate) fn poke(&self, address: u64, bytes: &[u8]) {
        self.memory.guest_memory().write_slice(bytes, GuestAddress(address)).unwrap();
    }

    pub(crate) fn peek(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.guest_memory().read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }

    pub(crate) fn push(&mut self, operation: Operation, offset_bytes: u64, segments: &[Segment], token: u64) {
        self.queue.push(&Request { operation, offset_bytes, segments, token }).unwrap();
    }

    pub(crate) fn drain(&mut self) -> Vec<Completion> {
        let mut completions = Vec::new();
        self.queue.drain(&mut completions).unwrap();
        completions
    }

    pub(crate) fn perform(
        &mut self,
        operation: Operation,
        offset: u64,
        segments: &[Segment],
    ) -> Result<(), RequestError> {
        self.push(operation, offset, segments, 77);
        let completions = self.drain();
        assert_eq!(completions.len(), 1);
        assert_eq!((completions[0].token, self.queue.in_flight()), (77, 0));
        completions[0].result
    }

    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.poke(0, &vec![0xee; length]);
        let segments = self.segments(0, length);
        self.perform(Operation::Read, offset, &segments).unwrap();
        self.peek(0, length)
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.poke(0, bytes);
        let segments = self.segments(0, bytes.len());
        self.perform(WRITE, offset, &segments).unwrap();
    }
}

/// qemu-storage-daemon, an image, and a session with it.
pub(crate) struct Rig {
    pub(crate) disk: SessionDisk,
    pub(crate) image: PathBuf,
    pub(crate) server: Running,
    pub(crate) directory: TempDir,
}

impl Rig {
    pub(crate) fn new(contents: &[u8], queues: u16, options: &SessionOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("disk.img");
        fs::write(&image, contents).unwrap();
        let server = Running::start(&QemuStorageDaemon, &image, &directory.path().join("disk.sock"), queues);
        let disk = server.connect(options);
        Self { disk, image, server, directory }
    }

    pub(crate) fn contents(&self) -> Vec<u8> {
        fs::read(&self.image).unwrap()
    }
}

/// Memory that the server maps, and none of it, and a virtqueue that may be shared.
pub(crate) fn all_ways() -> [SessionOptions; 3] {
    let mapped = SessionOptions::default();
    let copied = SessionOptions { io_buffer_bytes: Some(128 << 10), ..mapped.clone() };
    let shared = SessionOptions { is_passed_on: true, ..mapped.clone() };
    [mapped, copied, shared]
}
