//! Requests to a qcow2 image.

use super::grace::{Member, Ticket};
use super::image::{Image, Place};
use super::worker::{Job, Task, Worker};
use crate::formats::readers::ReadJob;
use crate::formats::runs::{Contiguous, Run, Runs};
use crate::formats::scatter::{Cutter, Scatter, ScatterQueue, Split};
use crate::limits::checked_depth;
use crate::{MemoryMap, Operation, Queue, Request, RequestError, Segment};
use std::io;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How requests to an image come apart.
pub(super) struct Qcow2Split {
    member: Member,
    worker: Arc<Worker>,
    memory: Arc<MemoryMap>,
    /// By slot: requests that use what they looked up.
    tickets: Box<[Option<Ticket>]>,
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
    waited: Waited,
}

/// What a request waited for without getting on.
#[derive(Clone, Copy, Default)]
struct Waited {
    /// How often in a row.
    times: u32,
    /// The last time for a place to be written to: if there is none now, it is not given ahead.
    for_place: bool,
    /// A part of it may be on its way.
    has_sent: bool,
}

/// What was looked up may be put away before the request is there to see it, but hardly this often; then the worker
/// carries it out.
const WAITS_MAX: u32 = 4;

impl Qcow2Split {
    pub(super) fn boxed(worker: &Arc<Worker>, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let depth = checked_depth(depth)?;
        let image = worker.image();
        let queues = image.below.iter().map(|below| below.disk.open_queue(memory, depth));
        let scatter = Scatter::new(queues.collect::<io::Result<_>>()?, depth)?;
        let split = Self {
            tickets: vec![None; scatter.depth()].into(),
            parked: (0..scatter.depth()).map(|_| None).collect(),
            member: image.grace.join(),
            worker: Arc::clone(worker),
            memory: Arc::new(memory.clone()),
            piece: Vec::new(),
        };
        Ok(Box::new(ScatterQueue::new(scatter, split)))
    }

    /// A read or a write: sends each run of it to where it lies, up to one that has to be looked up.
    fn transfer(
        &mut self,
        scatter: &mut Scatter,
        slot: u16,
        request: &Request<'_>,
        image: &Image,
        waited: Waited,
    ) -> Result<(), RequestError> {
        // It keeps its ticket while it waits with a part of it on its way.
        if !image.geometry.read_only && self.tickets[usize::from(slot)].is_none() {
            self.tickets[usize::from(slot)] = Some(self.member.enter(&image.grace));
        }
        let writing = request.operation != Operation::Read;
        let (mut at, end) = (request.offset_bytes, request.offset_bytes + request.length_bytes());
        let mut cutter = Cutter::new(request.segments);
        let mut runs = Runs::new();
        let mut for_place = false;
        while at < end {
            let (place, length_bytes) = image.find(at, end - at, writing);
            let was_refused = waited.for_place && at == request.offset_bytes;
            for_place = place == Place::Elsewhere && writing && !was_refused && image.shows_nothing_behind(at);
            if place == Place::Unknown || for_place {
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
            self.lend(scatter, slot, Task::Settle { is_stable });
        }
        if at < end {
            let times = if at == request.offset_bytes { waited.times + 1 } else { 1 };
            let has_sent = waited.has_sent || at > request.offset_bytes;
            self.park(scatter, slot, request, at..end, &mut cutter, Waited { times, for_place, has_sent })?;
        }
        Ok(())
    }

    /// Lets the rest of a request wait until the worker has looked up where it lies, or given it a place.
    fn park(
        &mut self,
        scatter: &mut Scatter,
        slot: u16,
        request: &Request<'_>,
        rest: Range<u64>,
        cutter: &mut Cutter<'_>,
        waited: Waited,
    ) -> Result<(), RequestError> {
        let run = Run { place: Place::Elsewhere, start_bytes: rest.start, length_bytes: rest.end - rest.start };
        if waited.times > WAITS_MAX {
            return self.send(scatter, slot, run, request, cutter);
        }
        let mut segments = Vec::new();
        cutter.cut(run.length_bytes, &mut segments);
        let parked = Parked { operation: request.operation, offset_bytes: rest.start, segments, waited };
        self.parked[usize::from(slot)] = Some(parked);
        if !waited.has_sent {
            // What is to be freed need not wait for it, which may be for that.
            self.ended(slot);
        }
        let task = if waited.for_place { Task::PlaceAhead { range: rest } } else { Task::LookUp { range: rest } };
        self.lend(scatter, slot, task);
        Ok(())
    }

    fn send(
        &mut self,
        scatter: &mut Scatter,
        slot: u16,
        run: Run<Place>,
        request: &Request<'_>,
        cutter: &mut Cutter<'_>,
    ) -> Result<(), RequestError> {
        let whole = run.start_bytes == request.offset_bytes && run.length_bytes == request.length_bytes();
        let mut piece = mem::take(&mut self.piece);
        if !whole {
            cutter.cut(run.length_bytes, &mut piece);
        }
        let segments = if whole { request.segments } else { &piece };
        let sent = match (run.place, request.operation) {
            (Place::There { index, offset_bytes }, operation) => {
                scatter.send(slot, index, operation, offset_bytes, segments);
                Ok(())
            }
            (Place::Zeros, Operation::Read) => self.fill_with_zeros(segments),
            // Padding, which has no place in an image.
            (Place::Zeros, _) if segments.iter().all(|&segment| self.memory.is_padding(segment) == Some(true)) => {
                Ok(())
            }
            (Place::Zeros, _) => Err(RequestError::Os(libc::ENOSPC)),
            (Place::Compressed { cluster, skip_bytes }, Operation::Read) => {
                let (slot, segments, memory) = (slot, segments.to_vec(), Arc::clone(&self.memory));
                let returns = scatter.lend(slot);
                self.worker.read(ReadJob { block: cluster, skip_bytes, segments, slot, memory, returns });
                Ok(())
            }
            (Place::Elsewhere | Place::Unknown | Place::Compressed { .. }, operation) => {
                let (offset_bytes, segments) = (run.start_bytes, segments.to_vec());
                let is_stable = operation == Operation::Write { force_unit_access: true };
                self.lend(
                    scatter,
                    slot,
                    match operation {
                        Operation::Read => Task::Read { offset_bytes, segments },
                        _ => Task::Write { offset_bytes, segments, is_stable },
                    },
                );
                Ok(())
            }
        };
        self.piece = piece;
        sent
    }

    fn fill_with_zeros(&self, segments: &[Segment]) -> Result<(), RequestError> {
        let filled = segments.iter().all(|&segment| self.memory.zero(segment));
        filled.then_some(()).ok_or(RequestError::BadSegment)
    }

    fn lend(&mut self, scatter: &mut Scatter, slot: u16, task: Task) {
        let returns = scatter.lend(slot);
        self.worker.take(Job { task, slot, memory: Arc::clone(&self.memory), returns });
    }
}

/// How many bytes of the disk a request is about to change.
fn changed_bytes(request: &Request<'_>) -> u64 {
    match request.operation {
        Operation::Read | Operation::Flush => 0,
        Operation::Write { .. } => request.length_bytes(),
        Operation::Discard { length_bytes } | Operation::WriteZeroes { length_bytes, .. } => length_bytes,
    }
}

impl Contiguous for Place {
    fn continues_in(self, length_bytes: u64, next: Self) -> bool {
        match (self, next) {
            (Place::There { index, offset_bytes }, Place::There { index: next_index, offset_bytes: next_offset }) => {
                index == next_index && offset_bytes.checked_add(length_bytes) == Some(next_offset)
            }
            (Place::Compressed { .. }, _) => false,
            (one, other) => one == other,
        }
    }
}

impl Split for Qcow2Split {
    fn start(&mut self, scatter: &mut Scatter, slot: u16, request: &Request<'_>) -> Result<(), RequestError> {
        let worker = Arc::clone(&self.worker);
        let image = worker.image();
        image.geometry.check(request)?;
        if let Some(dirty) = &image.dirty_bits {
            dirty.mark(request.offset_bytes, changed_bytes(request));
        }
        match request.operation {
            Operation::Read => self.transfer(scatter, slot, request, image, Waited::default()),
            Operation::Write { force_unit_access: true } if image.is_temporary => {
                let operation = Operation::Write { force_unit_access: false };
                self.transfer(scatter, slot, &Request { operation, ..*request }, image, Waited::default())
            }
            // Where the data lie must be stable too.
            Operation::Write { force_unit_access: true } if image.is_unstable.load(Ordering::Acquire) => {
                let is_stable = true;
                let (offset_bytes, segments) = (request.offset_bytes, request.segments.to_vec());
                self.lend(scatter, slot, Task::Write { offset_bytes, segments, is_stable });
                Ok(())
            }
            Operation::Write { .. } => self.transfer(scatter, slot, request, image, Waited::default()),
            Operation::Flush => {
                image.flushed.iter().for_each(|&index| scatter.send(slot, index, Operation::Flush, 0, &[]));
                Ok(())
            }
            Operation::Discard { length_bytes } => {
                self.lend(scatter, slot, Task::Discard { offset_bytes: request.offset_bytes, length_bytes });
                Ok(())
            }
            Operation::WriteZeroes { length_bytes, may_unmap } => {
                self.lend(
                    scatter,
                    slot,
                    Task::WriteZeroes { offset_bytes: request.offset_bytes, length_bytes, may_unmap },
                );
                Ok(())
            }
        }
    }

    /// Its place has been looked up.
    fn resumed(&mut self, scatter: &mut Scatter, slot: u16) -> Result<(), RequestError> {
        let Some(parked) = self.parked[usize::from(slot)].take() else { return Ok(()) };
        let Parked { operation, offset_bytes, segments, waited } = parked;
        let request = Request { operation, offset_bytes, segments: &segments, token: 0 };
        let worker = Arc::clone(&self.worker);
        self.transfer(scatter, slot, &request, worker.image(), waited)
    }

    fn ended(&mut self, slot: u16) {
        if let Some(ticket) = self.tickets[usize::from(slot)].take() {
            self.member.leave(ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Qcow2Backing, Qcow2CreateOptions, Qcow2Disk};
    use super::*;
    use crate::{AllowedDirectories, Completion, Disk, FileOptions};
    use std::path::Path;
    use std::time::{Duration, Instant};

    const WRITE: Operation = Operation::Write { force_unit_access: false };
    const SEGMENTS: [Segment; 1] = [Segment { region: 0, length_bytes: 4096, offset_bytes: 0 }];

    fn open(path: &Path) -> Qcow2Disk {
        Qcow2Disk::open(path, &FileOptions::default(), &AllowedDirectories::none()).unwrap()
    }

    fn push(queue: &mut dyn Queue, operation: Operation, offset_bytes: u64) {
        let request = Request { operation, offset_bytes, segments: &SEGMENTS, token: offset_bytes };
        queue.push(&request).unwrap();
    }

    fn drained(queue: &mut dyn Queue) -> Vec<Completion> {
        let mut completions = Vec::new();
        queue.drain(&mut completions).unwrap();
        assert!(completions.iter().all(|completion| completion.result == Ok(())), "{completions:?}");
        completions
    }

    #[test]
    fn a_write_that_is_to_be_stable_makes_its_place_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        Qcow2Disk::create(&path, &Qcow2CreateOptions::new(1 << 20)).unwrap();
        let disk = open(&path);
        let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
        let mut queue = disk.open_queue(&memory, 1).unwrap();
        for (force_unit_access, is_unstable) in [(false, true), (false, true), (true, false), (true, false)] {
            push(&mut *queue, Operation::Write { force_unit_access }, 0);
            drained(&mut *queue);
            assert_eq!(disk.worker.image().is_unstable.load(Ordering::SeqCst), is_unstable);
        }
    }

    /// An image with clusters of 512 bytes, whose L2 tables cover 32 KiB each.
    fn image_with_many_tables(path: &Path) {
        let options = Qcow2CreateOptions { cluster_bytes: 512, ..Qcow2CreateOptions::new(1 << 20) };
        Qcow2Disk::create(path, &options).unwrap();
        let disk = open(path);
        let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
        let mut queue = disk.open_queue(&memory, 16).unwrap();
        for offset in (0..1 << 20).step_by(32 << 10) {
            push(&mut *queue, WRITE, offset);
            drained(&mut *queue);
        }
    }

    fn table_of(path: &Path, index: usize) -> u64 {
        let bytes = std::fs::read(path).unwrap();
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        number(number(40) as usize + index * 8) & 0x00ff_ffff_ffff_fe00
    }

    #[test]
    fn requests_go_on_while_others_wait_for_a_table() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        image_with_many_tables(&path);
        let slow = table_of(&path, 20);
        let slow_offset = 20 * (32 << 10);
        for operation in [Operation::Read, WRITE] {
            let disk = open(&path);
            let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
            let mut queue = disk.open_queue(&memory, 16).unwrap();
            // Known from now on.
            push(&mut *queue, Operation::Read, 0);
            drained(&mut *queue);
            let file = disk.worker.image().below[0].file.as_ref().unwrap();
            file.file.gate.close(slow..slow + 512);
            push(&mut *queue, operation, slow_offset);
            let mut completions = Vec::new();
            for _ in 0..1000 {
                push(&mut *queue, operation, 0);
                while queue.in_flight() > 1 {
                    queue.submit().unwrap();
                    queue.wait(&[], Some(Duration::from_secs(10))).unwrap();
                    queue.reap(&mut completions);
                }
            }
            assert_eq!(completions.len(), 1000);
            assert!(completions.iter().all(|completion| *completion == Completion { token: 0, result: Ok(()) }));
            file.file.gate.open();
            assert_eq!(drained(&mut *queue), [Completion { token: slow_offset, result: Ok(()) }]);
        }
    }

    /// Its pieces fill the queues of both files, and what one makes room for must not wait for the other.
    #[test]
    fn a_request_of_many_pieces_gets_through_a_queue_for_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        std::fs::write(directory.path().join("base"), vec![1; 1 << 20]).unwrap();
        let backing = Some(Qcow2Backing { name: "base".into(), format: "raw".into() });
        let options = Qcow2CreateOptions { cluster_bytes: 4096, backing, ..Qcow2CreateOptions::new(1 << 20) };
        Qcow2Disk::create(&path, &options).unwrap();
        let allowed = AllowedDirectories::new(&[directory.path()]).unwrap();
        let disk = Qcow2Disk::open(&path, &FileOptions::default(), &allowed).unwrap();
        let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
        let mut queue = disk.open_queue(&memory, 1).unwrap();
        for offset in (0..1 << 20).step_by(8192) {
            push(&mut *queue, WRITE, offset);
            drained(&mut *queue);
        }
        let segments = [Segment { region: 0, length_bytes: 1 << 20, offset_bytes: 0 }];
        for _ in 0..200 {
            let request = Request { operation: Operation::Read, offset_bytes: 0, segments: &segments, token: 0 };
            queue.push(&request).unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut completions = Vec::new();
            while completions.is_empty() {
                assert!(Instant::now() < deadline, "pieces wait that nobody sends");
                queue.submit().unwrap();
                queue.wait(&[], Some(Duration::from_secs(20))).unwrap();
                queue.reap(&mut completions);
            }
            assert_eq!(completions, [Completion { token: 0, result: Ok(()) }]);
        }
    }

    #[test]
    fn a_queue_that_is_dropped_carries_out_what_waits_for_a_table() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        image_with_many_tables(&path);
        let disk = open(&path);
        let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
        memory.slice(SEGMENTS[0]).unwrap().copy_from(&[7_u8; 4096]);
        let mut queue = disk.open_queue(&memory, 16).unwrap();
        push(&mut *queue, WRITE, 96 << 10);
        drop(queue);
        memory.zero(SEGMENTS[0]);
        let mut queue = disk.open_queue(&memory, 16).unwrap();
        push(&mut *queue, Operation::Read, 96 << 10);
        drained(&mut *queue);
        let mut bytes = [0_u8; 4096];
        memory.slice(SEGMENTS[0]).unwrap().copy_to(&mut bytes);
        assert_eq!(bytes, [7; 4096]);
    }
}
