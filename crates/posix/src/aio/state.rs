//! A disk's requests that are under way: jobs, and their pieces in the memory that whoever serves the disk maps.

use super::{Group, JOBS_MAX, Kind, Wanted};
use crate::connection::{Connection, PIECE_BYTES};
use crate::control_block::ControlBlock;
use crate::errno::Errno;
use crate::setup::requests_max;
use crate::transfer::{self, Buffers, Ends, Part, segment};
use crate::users::UnderWay;
use crate::writers::Change;
use blockyard_block::{Completion, MemoryMap, Operation, Queue, Request, Segment};
use libc::c_int;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Jobs of all descriptors, at most.
const ALL_JOBS_MAX: usize = 1 << 16;
/// Pieces that the disk has, of which a long job is several. More wait here until there is room.
const SLOTS: usize = 1024;
/// Bytes of one.
const SLOT_BYTES: usize = 128 << 10;
const _: () = assert!(SLOT_BYTES <= PIECE_BYTES);

/// A control block's request, until it is done.
struct Job {
    block: ControlBlock,
    kind: Kind,
    descriptor: c_int,
    /// Pieces that the disk has, or that are to be given to it.
    left: usize,
    bytes: usize,
    /// Where it begins on the disk, and how many of its bytes have been given to that.
    from: u64,
    given: usize,
    error: Option<Errno>,
    /// Until it is done.
    _change: Option<Change>,
    _under_way: UnderWay,
    /// Jobs are counted.
    number: u64,
    group: Option<Arc<Group>>,
}

/// A piece of a job, in the memory that the disk's server maps.
#[derive(Clone, Copy)]
struct Slot {
    job: u16,
    /// Where its bytes are in the program's buffer, and how many.
    at: usize,
    bytes: usize,
}

pub(super) struct State {
    memory: MemoryMap,
    pub(super) queue: Box<dyn Queue>,
    slots: Vec<Slot>,
    pub(super) free_slots: Vec<u16>,
    jobs: Vec<Option<Job>>,
    free_jobs: Vec<u16>,
    /// How many each descriptor has.
    of_descriptors: Vec<u16>,
    /// Those of which not all has been given to the disk, in their order.
    waiting: VecDeque<u16>,
    /// Those that wait for what was asked for before them, in their order.
    flushes: Vec<u16>,
    completions: Vec<Completion>,
    /// Of the next job.
    number: u64,
    /// Jobs after which somebody is told.
    pub(super) told: usize,
}

impl State {
    pub(super) fn new(connection: &Connection) -> io::Result<Self> {
        let memory = MemoryMap::allocate(&[(0, SLOTS * SLOT_BYTES)]).map_err(io::Error::other)?;
        let queue = connection.open_queue(&memory, SLOTS)?;
        let all = || (0..SLOTS as u16).rev().collect::<Vec<_>>();
        Ok(Self {
            memory,
            completions: Vec::with_capacity(queue.depth()),
            queue,
            slots: vec![Slot { job: 0, at: 0, bytes: 0 }; SLOTS],
            free_slots: all(),
            jobs: (0..JOBS_MAX).map(|_| None).collect(),
            free_jobs: (0..JOBS_MAX as u16).rev().collect(),
            of_descriptors: Vec::new(),
            waiting: VecDeque::with_capacity(JOBS_MAX),
            flushes: Vec::with_capacity(JOBS_MAX),
            number: 0,
            told: 0,
        })
    }

    /// Whether a job of a descriptor's is not done.
    pub(super) fn has_of(&self, descriptor: c_int) -> bool {
        self.jobs.iter().flatten().any(|job| job.descriptor == descriptor)
    }

    /// Jobs that are not done.
    pub(super) fn under_way(&self) -> usize {
        self.jobs.len() - self.free_jobs.len()
    }

    /// Whether a descriptor may have one more.
    pub(super) fn has_room_for(&self, descriptor: c_int) -> bool {
        let of_it = usize::try_from(descriptor).ok().and_then(|descriptor| self.of_descriptors.get(descriptor));
        of_it.is_none_or(|&count| usize::from(count) < requests_max())
    }

    /// The number of a new job of a descriptor's, if that may have one more.
    fn take_job(&mut self, descriptor: c_int) -> Option<u16> {
        let index = usize::try_from(descriptor).ok().filter(|_| self.has_room_for(descriptor))?;
        let job = match self.free_jobs.pop() {
            None if self.jobs.len() < ALL_JOBS_MAX => {
                self.jobs.push(None);
                (self.jobs.len() - 1) as u16
            }
            free => free?,
        };
        if self.of_descriptors.len() <= index {
            self.of_descriptors.resize(index + 1, 0);
        }
        self.of_descriptors[index] += 1;
        Some(job)
    }

    /// Begins a request: whether it is under way, or done at once.
    pub(super) fn begin(
        &mut self,
        connection: &Connection,
        wanted: Wanted,
        group: Option<&Arc<Group>>,
    ) -> Result<bool, Errno> {
        let Wanted { block, kind, descriptor, under_way: _under_way } = wanted;
        let geometry = &connection.geometry;
        let (place, length) = match kind {
            Kind::Flush => (Ok(0), 0),
            Kind::Write { appends: true, .. } => (Ok(geometry.capacity_bytes), block.length()),
            Kind::Read | Kind::Write { .. } => (transfer::start(block.offset(), block.length()), block.length()),
        };
        let from = match place {
            Ok(from) => from,
            Err(error) => {
                block.end(Err(error));
                return Ok(false);
            }
        };
        let room = usize::try_from(geometry.capacity_bytes.saturating_sub(from)).unwrap_or(usize::MAX);
        let bytes = length.min(room);
        let unit = geometry.logical_block_bytes as usize;
        let is_whole = from.is_multiple_of(unit as u64) && bytes.is_multiple_of(unit);
        let count = bytes.div_ceil(SLOT_BYTES);
        if kind != Kind::Flush && (bytes == 0 || !is_whole) {
            block.end(at_once(connection, block, kind, from));
            return Ok(false);
        }
        // What was written before by write(2) comes first.
        if kind != Kind::Flush {
            connection.behind.wait_for(connection, from..from + bytes as u64);
        } else if let Err(error) = connection.behind.settle(connection) {
            block.end(Err(error));
            return Ok(false);
        }
        let job = self.take_job(descriptor).ok_or(Errno(libc::EAGAIN))?;
        block.begin();
        let number = self.number;
        self.number += 1;
        let group = group.cloned();
        let left = count.max(1);
        self.told += usize::from(group.is_some() || block.notice().is_wanted());
        let change = matches!(kind, Kind::Write { .. }).then(|| connection.writers.begin());
        let (error, given) = (None, 0);
        self.jobs[usize::from(job)] = Some(Job {
            block,
            kind,
            descriptor,
            left,
            bytes,
            from,
            given,
            error,
            _change: change,
            _under_way,
            number,
            group,
        });
        if kind == Kind::Flush {
            self.flushes.push(job);
        } else {
            self.waiting.push_back(job);
            self.give(connection);
        }
        Ok(true)
    }

    /// Gives the disk as much of what waits as there is room for.
    fn give(&mut self, connection: &Connection) {
        while let Some(&number) = self.waiting.front() {
            while let Some(job) = self.jobs[usize::from(number)].as_mut().filter(|job| job.given < job.bytes) {
                if self.free_slots.is_empty() {
                    return;
                }
                let (at, from) = (job.given, job.from + job.given as u64);
                let bytes = SLOT_BYTES.min(job.bytes - at);
                job.given += bytes;
                self.push(connection, number, Slot { job: number, at, bytes }, from);
            }
            self.waiting.pop_front();
        }
    }

    /// Gives the disk what may go on now.
    pub(super) fn go_on(&mut self, connection: &Connection) {
        self.begin_flushes(connection);
        self.give(connection);
    }

    /// Gives the disk a piece of a job's.
    fn push(&mut self, connection: &Connection, job: u16, slot: Slot, offset_bytes: u64) {
        let Some(index) = self.free_slots.pop() else { return };
        self.slots[usize::from(index)] = slot;
        let Some(Job { kind, block, .. }) = &self.jobs[usize::from(job)] else { return };
        let part = part(index, slot.bytes);
        let operation = match *kind {
            Kind::Read => Operation::Read,
            Kind::Flush => Operation::Flush,
            Kind::Write { stable, .. } => {
                if let Err(error) = part.take(&self.memory, block.buffer().wrapping_add(slot.at)) {
                    self.free_slots.push(index);
                    return self.end_of_piece(job, Err(error));
                }
                Operation::Write { force_unit_access: stable }
            }
        };
        let segment = segment(part.offset, part.length);
        let segments: &[Segment] = if operation == Operation::Flush { &[] } else { &[segment] };
        let request = Request { operation, offset_bytes, segments, token: index.into() };
        while self.queue.push(&request).is_err() {
            // A session carries fewer than was asked for.
            let _ = self.queue.submit();
            let _ = self.queue.wait(&[], Some(Duration::from_millis(1)));
            self.reap(connection);
        }
    }

    /// A piece of a job's is done. With the last of them, the job is.
    fn end_of_piece(&mut self, number: u16, result: Result<(), Errno>) {
        let Some(job) = &mut self.jobs[usize::from(number)] else { return };
        job.error = job.error.or(result.err());
        job.left -= 1;
        if job.left == 0
            && let Some(job) = self.jobs[usize::from(number)].take()
        {
            self.free_jobs.push(number);
            if let Some(count) = self.of_descriptors.get_mut(job.descriptor as usize) {
                *count -= 1;
            }
            self.told -= usize::from(job.end());
        }
    }

    /// Takes back what the disk has done, and gives it what waits.
    pub(super) fn take_back(&mut self, connection: &Connection) {
        if self.reap(connection) {
            self.go_on(connection);
            let _ = self.queue.submit();
        }
    }

    /// Takes back what the disk has done. Whether that was anything.
    fn reap(&mut self, connection: &Connection) -> bool {
        let mut completions = std::mem::take(&mut self.completions);
        self.queue.reap(&mut completions);
        let has_any = !completions.is_empty();
        for completion in completions.drain(..) {
            let index = completion.token as u16;
            let Slot { job: number, at, bytes } = self.slots[usize::from(index)];
            self.free_slots.push(index);
            let Some(job) = &self.jobs[usize::from(number)] else { continue };
            if let (Kind::Write { .. }, Err(error)) = (job.kind, completion.result) {
                connection.told(error);
            }
            let mut result = completion.result.map_err(Errno::from);
            if result.is_ok() && job.kind == Kind::Read {
                result = part(index, bytes).give(&self.memory, job.block.buffer().wrapping_add(at));
            }
            self.end_of_piece(number, result);
        }
        self.completions = completions;
        has_any
    }

    /// Gives the disk those flushes that nothing is under way before.
    fn begin_flushes(&mut self, connection: &Connection) {
        while let Some(&flush) = self.flushes.first() {
            let number = self.jobs[usize::from(flush)].as_ref().map_or(0, |job| job.number);
            if self.free_slots.is_empty() || self.jobs.iter().flatten().any(|job| job.number < number) {
                return;
            }
            self.flushes.remove(0);
            self.push(connection, flush, Slot { job: flush, at: 0, bytes: 0 }, 0);
        }
    }
}

impl Job {
    /// Tells the program that it is done. Whether it wanted to be told.
    fn end(self) -> bool {
        let is_told = self.block.end(self.error.map_or(Ok(self.bytes), Err));
        if let Some(group) = &self.group {
            group.one_less();
        }
        is_told || self.group.is_some()
    }
}

/// Where a slot's bytes are.
fn part(index: u16, bytes: usize) -> Part {
    Part { offset: usize::from(index) * SLOT_BYTES, length: bytes }
}

/// What is not whole blocks is done here and now.
fn at_once(connection: &Connection, block: ControlBlock, kind: Kind, from: u64) -> Result<usize, Errno> {
    let buffer = [libc::iovec { iov_base: block.buffer().cast(), iov_len: block.length() }];
    let buffers = Buffers::new(&buffer)?;
    match kind {
        Kind::Read => transfer::read(connection, from, &buffers, true),
        Kind::Write { stable, .. } => {
            transfer::write(connection, from, &buffers, if stable { Ends::Stable } else { Ends::Written })
        }
        Kind::Flush => Ok(0),
    }
}
