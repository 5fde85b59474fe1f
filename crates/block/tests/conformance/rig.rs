//! A disk, memory, and a queue between them.

use blockyard_block::{
    Completion, Disk, Engine, FileDisk, FileOptions, MemoryMap, Operation, Queue, Request, RequestError, Segment,
};
use std::fs::{self, File};
use std::path::PathBuf;
use tempfile::TempDir;
use vm_memory::{Bytes, GuestAddress};

pub(crate) const REGION_BYTES: usize = 2 << 20;

pub(crate) struct Rig {
    pub(crate) memory: MemoryMap,
    pub(crate) queue: Box<dyn Queue>,
    pub(crate) disk: FileDisk,
    pub(crate) path: PathBuf,
    _directory: TempDir,
}

pub(crate) fn options(engine: Engine) -> FileOptions {
    FileOptions { engine, ..FileOptions::default() }
}

/// Whether this process may have an io_uring, asked without the code that is tested.
pub(crate) fn has_io_uring() -> bool {
    let refused = io_uring::IoUring::new(1).err();
    if let Some(error) = &refused {
        eprintln!("io_uring is refused here ({error}): the other engines are tested alone");
    }
    refused.is_none()
}

/// Two regions, one right behind the other.
pub(crate) fn memory() -> MemoryMap {
    MemoryMap::allocate(&[(0, REGION_BYTES), (REGION_BYTES as u64, REGION_BYTES)]).unwrap()
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

pub(crate) fn request(operation: Operation, offset_bytes: u64, segments: &[Segment], token: u64) -> Request<'_> {
    Request { operation, offset_bytes, segments, token }
}

pub(crate) const WRITE: Operation = Operation::Write { force_unit_access: false };

impl Rig {
    pub(crate) fn new(engine: Engine, contents: &[u8]) -> Self {
        Self::with(contents, &options(engine), 8)
    }

    pub(crate) fn with(contents: &[u8], options: &FileOptions, depth: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        fs::write(&path, contents).unwrap();
        let disk = FileDisk::open(&path, options).unwrap();
        Self::on(disk, path, directory, depth)
    }

    pub(crate) fn from_file(file: File, options: &FileOptions) -> Self {
        let disk = FileDisk::from_file(file, options).unwrap();
        Self::on(disk, PathBuf::new(), tempfile::tempdir().unwrap(), 8)
    }

    fn on(disk: FileDisk, path: PathBuf, directory: TempDir, depth: usize) -> Self {
        let memory = memory();
        let queue = disk.open_queue(&memory, depth).unwrap();
        Self { memory, queue, disk, path, _directory: directory }
    }

    pub(crate) fn contents(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    /// The segments of `length` bytes from guest-physical `address`.
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
        self.queue.push(&request(operation, offset, segments, 77)).unwrap();
        let completions = self.drain();
        assert_eq!(completions.len(), 1);
        assert_eq!(completions[0].token, 77);
        assert_eq!(self.queue.in_flight(), 0);
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
}
