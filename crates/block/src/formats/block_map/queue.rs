//! Requests to an image.

use super::changes::Zeroing;
use super::image::Place;
use super::worker::{Job, Task, Worker};
use crate::formats::readers::ReadJob;
use crate::formats::runs::{Contiguous, Run, Runs};
use crate::formats::scatter::{Cutter, Scatter, ScatterQueue, Split, ring_depth};
use crate::limits::checked_depth;
use crate::{MemoryMap, Operation, Queue, Request, RequestError, Segment};
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What was looked up may be put away before the request is there to see it, but hardly this often; then the worker
/// carries it out.
const WAITS_MAX: u32 = 4;

/// How requests to an image come apart.
pub(super) struct BlockMapSplit {
    worker: Arc<Worker>,
    memory: Arc<MemoryMap>,
    /// The files below that are written to.
    written: Vec<usize>,
    /// By slot: what is left of a request when it waits for where it lies.
    parked: Box<[Option<Parked>]>,
    /// The segments of the piece that is being sent.
    piece: Vec<Segment>,
}

/// The end of a request.
struct Parked {
    operation: Operation,
    offset_bytes: u64,
    segments: Vec<Segment>,
    /// How often in a row it waited without getting on.
    waits: u32,
}

impl BlockMapSplit {
    pub(super) fn boxed(worker: &Arc<Worker>, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let depth = checked_depth(depth)?;
        let below = worker.image().below();
        let ring_depth = ring_depth(depth, below.len());
        let queues = below.iter().map(|disk| disk.open_queue(memory, ring_depth));
        let scatter = Scatter::new(queues.collect::<io::Result<_>>()?, depth)?;
        let mut written: Vec<_> = worker.image().written().collect();
        written.sort_unstable();
        written.dedup();
        let split = Self {
            parked: (0..scatter.depth()).map(|_| None).collect(),
            written,
            worker: Arc::clone(worker),
            memory: Arc::new(memory.clone()),
            piece: Vec::new(),
        };
        Ok(Box::new(ScatterQueue::new(scatter, split)))
    }

    /// Sends each run of a request to where it lies, up to one that has to be looked up.
    fn transfer(
        &mut self,
        scatter: &mut Scatter,
        slot: u16,
        request: &Request<'_>,
        waits: u32,
    ) -> Result<(), RequestError> {
        let worker = Arc::clone(&self.worker);
        let image = worker.image();
        let (mut at, end) = (request.offset_bytes, request.offset_bytes + request.length_bytes());
        let mut cutter = Cutter::new(request.segments);
        let (mut runs, mut is_begun) = (Runs::new(), true);
        while at < end {
            let (place, length_bytes) = match request.operation {
                Operation::Read => image.find(at, end - at),
                Operation::Discard { .. } | Operation::WriteZeroes { .. } => image.find_to_zero(at, end - at),
                Operation::Write { .. } | Operation::Flush => image.find_to_write(at, end - at),
            };
            if matches!(place, Place::Unknown | Place::Unbegun) {
                is_begun = place != Place::Unbegun;
                break;
            }
            let run = Run { place, start_bytes: at, length_bytes };
            if let Some(before) = runs.add(run) {
                self.send(scatter, slot, before, request, &mut cutter)?;
            }
            at += length_bytes;
        }
        if let Some(run) = runs.end() {
            self.send(scatter, slot, run, request, &mut cutter)?;
        }
        // Written in place, but that it lies there may not be stable: then the worker says when it is.
        let is_stable = request.operation == Operation::Write { force_unit_access: true };
        if is_stable && image.is_unstable.load(Ordering::Acquire) {
            self.lend(scatter, slot, Task::Settle);
        }
        if at == end {
            return Ok(());
        }
        let mut segments = Vec::new();
        cutter.cut(end - at, &mut segments);
        let waits = if at == request.offset_bytes { waits + 1 } else { 1 };
        let operation = resized(request.operation, end - at);
        let task = if is_begun && waits > WAITS_MAX {
            carried_out(operation, at, segments)
        } else {
            if let Some(parked) = self.parked.get_mut(usize::from(slot)) {
                *parked = Some(Parked { operation, offset_bytes: at, segments, waits });
            }
            if is_begun { Task::LookUp { range: at..end } } else { Task::Begin }
        };
        self.lend(scatter, slot, task);
        Ok(())
    }

    fn zero(&self, scatter: &mut Scatter, slot: u16, offset_bytes: u64, length_bytes: u64, how: Zeroing) {
        self.lend(scatter, slot, Task::Zero { offset_bytes, length_bytes, how });
    }

    fn lend(&self, scatter: &mut Scatter, slot: u16, task: Task) {
        let (memory, returns) = (Arc::clone(&self.memory), scatter.lend(slot));
        self.worker.take(Job { task, slot, memory, returns });
    }

    fn send(
        &mut self,
        scatter: &mut Scatter,
        slot: u16,
        run: Run<Place>,
        request: &Request<'_>,
        cutter: &mut Cutter<'_>,
    ) -> Result<(), RequestError> {
        let mut piece = mem::take(&mut self.piece);
        let whole = run.length_bytes == request.length_bytes();
        if !whole {
            cutter.cut(run.length_bytes, &mut piece);
        }
        let segments = if whole { request.segments } else { &piece };
        let sent = match run.place {
            Place::There { index, offset_bytes } => {
                let operation = resized(request.operation, run.length_bytes);
                scatter.send(slot, index, operation, offset_bytes, segments);
                Ok(())
            }
            Place::Logged { .. } => {
                let task = Task::Read { offset_bytes: run.start_bytes, segments: segments.to_vec() };
                self.lend(scatter, slot, task);
                Ok(())
            }
            Place::Compressed { block, skip_bytes } => {
                let (segments, memory) = (segments.to_vec(), Arc::clone(&self.memory));
                let returns = scatter.lend(slot);
                self.worker.unpack(ReadJob { block, skip_bytes, segments, slot, memory, returns });
                Ok(())
            }
            Place::Elsewhere => {
                let task = carried_out(request.operation, run.start_bytes, segments.to_vec());
                self.lend(scatter, slot, task);
                Ok(())
            }
            Place::Zeros if request.segments.is_empty() => Ok(()),
            // Padding, which has no place in an image.
            Place::Zeros if request.operation != Operation::Read => {
                let is_padding = segments.iter().all(|&segment| self.memory.is_padding(segment) == Some(true));
                if is_padding { Ok(()) } else { Err(RequestError::Os(libc::ENOSPC)) }
            }
            Place::Zeros if segments.iter().all(|&segment| self.memory.zero(segment)) => Ok(()),
            Place::Zeros => Err(RequestError::BadSegment),
            Place::Forbidden => {
                self.worker.tell_of(run.start_bytes..run.start_bytes + run.length_bytes);
                Err(RequestError::Os(libc::EACCES))
            }
            Place::ReadOnly => Err(RequestError::ReadOnly),
            Place::Nowhere | Place::Unknown | Place::Unbegun => {
                self.worker.tell_of(run.start_bytes..run.start_bytes + run.length_bytes);
                Err(RequestError::Os(libc::EIO))
            }
        };
        self.piece = piece;
        sent
    }
}

impl Contiguous for Place {
    fn continues_in(self, length_bytes: u64, next: Self) -> bool {
        match (self, next) {
            (Place::There { index, offset_bytes }, Place::There { index: next_index, offset_bytes: next_offset }) => {
                index == next_index && offset_bytes.checked_add(length_bytes) == Some(next_offset)
            }
            (Place::Zeros, Place::Zeros) | (Place::Elsewhere, Place::Elsewhere) => true,
            _ => false,
        }
    }
}

/// The operation on a part of its range.
fn resized(operation: Operation, length_bytes: u64) -> Operation {
    match operation {
        Operation::Discard { .. } => Operation::Discard { length_bytes },
        Operation::WriteZeroes { may_unmap, .. } => Operation::WriteZeroes { length_bytes, may_unmap },
        other => other,
    }
}

/// A read or a write for the worker.
fn carried_out(operation: Operation, offset_bytes: u64, segments: Vec<Segment>) -> Task {
    match operation {
        Operation::Read => Task::Read { offset_bytes, segments },
        _ => {
            let is_stable = operation == Operation::Write { force_unit_access: true };
            Task::Write { offset_bytes, segments, is_stable }
        }
    }
}

impl Split for BlockMapSplit {
    fn start(&mut self, scatter: &mut Scatter, slot: u16, request: &Request<'_>) -> Result<(), RequestError> {
        self.worker.image().geometry().check(request)?;
        match request.operation {
            Operation::Read => self.transfer(scatter, slot, request, 0),
            // Where the data lie must be stable too.
            Operation::Write { force_unit_access: true } if self.worker.image().is_unstable.load(Ordering::Acquire) => {
                self.lend(
                    scatter,
                    slot,
                    carried_out(request.operation, request.offset_bytes, request.segments.to_vec()),
                );
                Ok(())
            }
            Operation::Write { .. } => self.transfer(scatter, slot, request, 0),
            Operation::Discard { .. } | Operation::WriteZeroes { .. } if self.worker.image().is_flat() => {
                self.transfer(scatter, slot, request, 0)
            }
            // Where nothing is written, there is nothing to make stable.
            Operation::Flush => {
                self.written.iter().for_each(|&index| scatter.send(slot, index, Operation::Flush, 0, &[]));
                Ok(())
            }
            Operation::Discard { length_bytes } => {
                self.zero(scatter, slot, request.offset_bytes, length_bytes, Zeroing::Discard);
                Ok(())
            }
            Operation::WriteZeroes { length_bytes, may_unmap } => {
                let how = if may_unmap { Zeroing::Unmap } else { Zeroing::Keep };
                self.zero(scatter, slot, request.offset_bytes, length_bytes, how);
                Ok(())
            }
        }
    }

    /// Its place has been looked up.
    fn resumed(&mut self, scatter: &mut Scatter, slot: u16) -> Result<(), RequestError> {
        let Some(parked) = self.parked.get_mut(usize::from(slot)).and_then(Option::take) else { return Ok(()) };
        let Parked { operation, offset_bytes, segments, waits } = parked;
        let request = Request { operation, offset_bytes, segments: &segments, token: 0 };
        self.transfer(scatter, slot, &request, waits)
    }
}
