//! An aligned disk, memory, and a queue between them.

use blockyard_block::layers::{AlignOptions, AlignedDisk};
use blockyard_block::{Completion, Disk, MemoryMap, Operation, Queue, Request, RequestError, Segment};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const WRITE: Operation = Operation::Write { force_unit_access: false };
pub(crate) const MEMORY_BYTES: usize = 4 << 20;

pub(crate) struct Rig {
    pub(crate) disk: Arc<AlignedDisk>,
    pub(crate) memory: MemoryMap,
    pub(crate) queue: Box<dyn Queue>,
}

impl Rig {
    pub(crate) fn new(inner: Arc<dyn Disk>, depth: usize) -> Self {
        Self::on(Arc::new(AlignedDisk::new(inner, &AlignOptions::default()).unwrap()), depth)
    }

    pub(crate) fn on(disk: Arc<AlignedDisk>, depth: usize) -> Self {
        let memory = MemoryMap::allocate(&[(0, MEMORY_BYTES)]).unwrap();
        let queue = disk.open_queue(&memory, depth).unwrap();
        Self { disk, memory, queue }
    }

    pub(crate) fn poke(&self, offset_bytes: u64, bytes: &[u8]) {
        let segment = Segment { region: 0, length_bytes: bytes.len() as u32, offset_bytes };
        self.memory.slice(segment).unwrap().copy_from(bytes);
    }

    pub(crate) fn peek(&self, offset_bytes: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let segment = Segment { region: 0, length_bytes: length as u32, offset_bytes };
        self.memory.slice(segment).unwrap().copy_to(&mut bytes[..]);
        bytes
    }

    pub(crate) fn push(&mut self, operation: Operation, offset_bytes: u64, segments: &[Segment], token: u64) {
        let has_memory = matches!(operation, Operation::Read | Operation::Write { .. });
        let segments = if has_memory { segments } else { &[] };
        self.queue.push(&Request { operation, offset_bytes, segments, token }).unwrap();
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

    /// Waits for everything, but not for ever.
    pub(crate) fn drain(&mut self) -> Vec<Completion> {
        let mut completions = Vec::new();
        let start = Instant::now();
        self.queue.submit().unwrap();
        self.queue.reap(&mut completions);
        while self.queue.in_flight() > 0 {
            assert!(start.elapsed() < Duration::from_secs(5), "{} requests hang", self.queue.in_flight());
            self.queue.wait(&[], Some(Duration::from_secs(5))).unwrap();
            self.queue.reap(&mut completions);
        }
        completions
    }
}

/// Memory cut into segments of pseudo-random lengths, `length` bytes all together, from `offset_bytes` on.
pub(crate) fn cut(mut offset_bytes: u64, length: usize, pieces: u8) -> Vec<Segment> {
    let pieces = u64::from(pieces % 5) + 1;
    let mut left = length as u64;
    let mut segments = Vec::new();
    for n in 0..pieces {
        let length = if n + 1 == pieces { left } else { (left * (n + 1) / (pieces + 1)) | 1 }.min(left);
        segments.push(Segment { region: 0, length_bytes: length as u32, offset_bytes });
        offset_bytes += length;
        left -= length;
    }
    segments
}
