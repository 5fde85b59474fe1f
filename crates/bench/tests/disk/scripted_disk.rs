//! A small disk in memory that remembers every request, answers out of order, and fails as it is told.

use blockyard_block::{
    Completion, Disk, Extent, ExtentKind, Geometry, MemoryMap, Operation, Queue, QueueError, Request, RequestError,
};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Completions that one `reap` gives at most.
const REAP_MAX: usize = 3;

/// What a request was, and on which queue, in the order of their opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) queue: usize,
    pub(crate) what: char,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// What goes wrong with a write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A bit of it is another one.
    Corrupt,
    /// It is answered and not done.
    Lose,
    /// Only its first half is done.
    Tear,
    /// It is done so many bytes further on.
    Misplace(u64),
    /// It fails.
    Fail,
    /// Its answer has another token.
    Stray,
}

pub(crate) struct ScriptedDisk {
    pub(crate) geometry: Geometry,
    depth_max: usize,
    data: Arc<Mutex<Vec<u8>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Most requests that were in flight at once on one queue.
    deepest: Arc<AtomicUsize>,
    /// Whether two requests in flight on one queue ever touched.
    touched: Arc<AtomicBool>,
    queues: AtomicUsize,
    /// The write that goes wrong, counted from 0, and how.
    fault: Option<(usize, Fault)>,
}

impl ScriptedDisk {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let geometry = Geometry {
            capacity_bytes,
            logical_block_bytes: 512,
            physical_block_bytes: 512,
            optimal_io_bytes: 0,
            segments_max: 1,
            transfer_bytes_max: u64::MAX,
            memory_align_bytes: 1,
            read_only: false,
            discard: true,
            write_zeroes: true,
        };
        Self {
            geometry,
            depth_max: usize::MAX,
            data: Arc::new(Mutex::new(vec![0; capacity_bytes as usize])),
            seen: Arc::default(),
            deepest: Arc::default(),
            touched: Arc::default(),
            queues: AtomicUsize::new(0),
            fault: None,
        }
    }

    pub(crate) fn with_depth(self, depth_max: usize) -> Self {
        Self { depth_max, ..self }
    }

    pub(crate) fn with_fault(self, write: usize, fault: Fault) -> Self {
        Self { fault: Some((write, fault)), ..self }
    }

    /// The requests so far, and forgets them.
    pub(crate) fn take_seen(&self) -> Vec<Seen> {
        self.queues.store(0, Ordering::Relaxed);
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    pub(crate) fn deepest(&self) -> usize {
        self.deepest.load(Ordering::Relaxed)
    }

    pub(crate) fn touched(&self) -> bool {
        self.touched.load(Ordering::Relaxed)
    }

    pub(crate) fn flip_bit(&self, offset: usize) {
        self.data.lock().unwrap()[offset] ^= 1;
    }
}

impl Disk for ScriptedDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        Ok(Extent { offset_bytes: range.start, length_bytes: range.end - range.start, kind: ExtentKind::Data })
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(ScriptedQueue {
            number: self.queues.fetch_add(1, Ordering::Relaxed),
            geometry: self.geometry,
            depth: depth.min(self.depth_max),
            memory: memory.clone(),
            data: Arc::clone(&self.data),
            seen: Arc::clone(&self.seen),
            deepest: Arc::clone(&self.deepest),
            touched: Arc::clone(&self.touched),
            fault: self.fault,
            places: Vec::new(),
            pending: Vec::new(),
        }))
    }
}

struct ScriptedQueue {
    number: usize,
    geometry: Geometry,
    depth: usize,
    memory: MemoryMap,
    data: Arc<Mutex<Vec<u8>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    deepest: Arc<AtomicUsize>,
    touched: Arc<AtomicBool>,
    fault: Option<(usize, Fault)>,
    /// Where the pending requests are, by token.
    places: Vec<(u64, Range<u64>)>,
    pending: Vec<Completion>,
}

impl ScriptedQueue {
    fn fault(&self) -> Option<Fault> {
        let writes = self.seen.lock().unwrap().iter().filter(|seen| seen.what == 'w').count();
        self.fault.filter(|&(write, _)| writes == write + 1).map(|(_, fault)| fault)
    }

    fn write(&self, request: &Request<'_>) {
        let segment = request.segments[0];
        let mut bytes = vec![0; segment.length_bytes as usize];
        self.memory.slice(segment).unwrap().copy_to(&mut bytes);
        let mut offset = request.offset_bytes as usize;
        match self.fault() {
            Some(Fault::Corrupt) => bytes[100] ^= 4,
            Some(Fault::Lose) => bytes.clear(),
            Some(Fault::Tear) => bytes.truncate(bytes.len() / 2),
            Some(Fault::Misplace(by)) => offset += by as usize,
            Some(Fault::Fail | Fault::Stray) | None => {}
        }
        self.data.lock().unwrap()[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }

    fn perform(&self, request: &Request<'_>) -> Result<(), RequestError> {
        self.geometry.check(request)?;
        match request.operation {
            Operation::Read => {
                let offset = request.offset_bytes as usize;
                let data = self.data.lock().unwrap();
                let bytes = &data[offset..offset + request.length_bytes() as usize];
                self.memory.slice(request.segments[0]).unwrap().copy_from(bytes);
            }
            Operation::Write { .. } if matches!(self.fault(), Some(Fault::Fail)) => return Err(RequestError::Os(5)),
            Operation::Write { .. } => self.write(request),
            Operation::Flush | Operation::Discard { .. } | Operation::WriteZeroes { .. } => {}
        }
        Ok(())
    }
}

impl Queue for ScriptedQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.pending.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        if self.pending.len() == self.depth {
            return Err(QueueError::Full);
        }
        let what = match request.operation {
            Operation::Read => 'r',
            Operation::Write { .. } => 'w',
            Operation::Flush => 'f',
            Operation::Discard { .. } => 'd',
            Operation::WriteZeroes { .. } => 'z',
        };
        let (offset, length) = (request.offset_bytes, request.length_bytes());
        self.seen.lock().unwrap().push(Seen { queue: self.number, what, offset, length });
        let touches = |(_, other): &(u64, Range<u64>)| offset < other.end && other.start < offset + length;
        self.touched.fetch_or(self.places.iter().any(touches), Ordering::Relaxed);
        self.places.push((request.token, offset..offset + length));
        let result = self.perform(request);
        let stray = what == 'w' && matches!(self.fault(), Some(Fault::Stray));
        self.pending.push(Completion { token: if stray { u64::MAX } else { request.token }, result });
        self.deepest.fetch_max(self.pending.len(), Ordering::Relaxed);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        // The latest first.
        let ready = self.pending.split_off(self.pending.len().saturating_sub(REAP_MAX));
        self.places.retain(|(token, _)| ready.iter().all(|completion| completion.token != *token));
        completions.extend(ready.into_iter().rev());
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait(&mut self, _events: &[BorrowedFd<'_>], _timeout: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
}
