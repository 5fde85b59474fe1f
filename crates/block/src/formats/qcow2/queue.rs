//! Requests to a qcow2 image.

use super::grace::{Member, Ticket};
use super::image::{Image, Place};
use super::worker::{Job, Task, Worker, errno_of};
use crate::formats::scatter::{Cutter, Scatter};
use crate::{Completion, MemoryMap, Operation, QUEUE_DEPTH_MAX, Queue, QueueError, Request, RequestError, Segment};
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) struct Qcow2Queue {
    // Dropped first: until the queues below have been drained, this queue counts.
    scatter: Scatter,
    member: Member,
    worker: Arc<Worker>,
    memory: Arc<MemoryMap>,
    /// By slot: requests that use what they looked up.
    tickets: Box<[Option<Ticket>]>,
    /// The segments of the piece that is being sent.
    piece: Vec<Segment>,
}

/// A run of a request's bytes.
#[derive(Clone, Copy)]
struct Run {
    place: Place,
    start_bytes: u64,
    length_bytes: u64,
}

impl Qcow2Queue {
    pub(super) fn boxed(worker: &Arc<Worker>, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        if depth == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a queue carries at least one request"));
        }
        let depth = depth.min(QUEUE_DEPTH_MAX);
        let image = worker.image();
        let queues = image.below.iter().map(|below| below.disk.open_queue(memory, depth));
        let scatter = Scatter::new(queues.collect::<io::Result<_>>()?, depth)?;
        Ok(Box::new(Self {
            tickets: vec![None; scatter.depth()].into(),
            scatter,
            member: image.grace.join(),
            worker: Arc::clone(worker),
            memory: Arc::new(memory.clone()),
            piece: Vec::new(),
        }))
    }

    fn start(&mut self, slot: u16, request: &Request<'_>) -> Result<(), RequestError> {
        let worker = Arc::clone(&self.worker);
        let image = worker.image();
        image.geometry.check(request)?;
        match request.operation {
            Operation::Read => self.transfer(slot, request, image),
            Operation::Write { force_unit_access: true } if image.is_temporary => {
                let operation = Operation::Write { force_unit_access: false };
                self.transfer(slot, &Request { operation, ..*request }, image)
            }
            // Where the data lie must be stable too.
            Operation::Write { force_unit_access: true } if image.is_unstable.load(Ordering::Acquire) => {
                let is_stable = true;
                let (offset_bytes, segments) = (request.offset_bytes, request.segments.to_vec());
                self.lend(slot, Task::Write { offset_bytes, segments, is_stable });
                Ok(())
            }
            Operation::Write { .. } => self.transfer(slot, request, image),
            Operation::Flush => {
                image.flushed.iter().for_each(|&index| self.scatter.send(slot, index, Operation::Flush, 0, &[]));
                Ok(())
            }
            Operation::Discard { length_bytes } => {
                self.lend(slot, Task::Discard { offset_bytes: request.offset_bytes, length_bytes });
                Ok(())
            }
            Operation::WriteZeroes { length_bytes, may_unmap } => {
                self.lend(slot, Task::WriteZeroes { offset_bytes: request.offset_bytes, length_bytes, may_unmap });
                Ok(())
            }
        }
    }

    /// A read or a write: sends each run of it to where it lies.
    fn transfer(&mut self, slot: u16, request: &Request<'_>, image: &Image) -> Result<(), RequestError> {
        if !image.geometry.read_only {
            self.tickets[usize::from(slot)] = Some(self.member.enter(&image.grace));
        }
        let writing = request.operation != Operation::Read;
        let (mut at, end) = (request.offset_bytes, request.offset_bytes + request.length_bytes());
        let mut cutter = Cutter::new(request.segments);
        let mut open: Option<Run> = None;
        while at < end {
            let (place, length_bytes) = image.find(at, end - at, writing).map_err(|error| errno_of(&error))?;
            let run = Run { place, start_bytes: at, length_bytes };
            open = match open {
                None => Some(run),
                Some(before) if before.continues_in(&run) => {
                    Some(Run { length_bytes: before.length_bytes + length_bytes, ..before })
                }
                Some(before) => {
                    self.send(slot, before, request, &mut cutter)?;
                    Some(run)
                }
            };
            at += length_bytes;
        }
        if let Some(run) = open {
            self.send(slot, run, request, &mut cutter)?;
        }
        // Written in place, but that it lies there may not be in the file: then the worker says when it is.
        let is_stable = request.operation == Operation::Write { force_unit_access: true };
        if writing && (image.may_be_unwritten() || is_stable && image.is_unstable.load(Ordering::Acquire)) {
            self.lend(slot, Task::Settle { is_stable });
        }
        Ok(())
    }

    fn send(
        &mut self,
        slot: u16,
        run: Run,
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
                self.scatter.send(slot, index, operation, offset_bytes, segments);
                Ok(())
            }
            (Place::Zeros, Operation::Read) => self.fill_with_zeros(segments),
            // Padding: what is written to it is dropped.
            (Place::Zeros, _) => Ok(()),
            (Place::Elsewhere, operation) => {
                let (offset_bytes, segments) = (run.start_bytes, segments.to_vec());
                let is_stable = operation == Operation::Write { force_unit_access: true };
                self.lend(
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

    fn lend(&mut self, slot: u16, task: Task) {
        let mailbox = self.scatter.lend(slot);
        self.worker.take(Job { task, slot, memory: Arc::clone(&self.memory), mailbox });
    }
}

impl Run {
    fn continues_in(&self, next: &Self) -> bool {
        match (self.place, next.place) {
            (Place::There { index, offset_bytes }, Place::There { index: next_index, offset_bytes: next_offset }) => {
                index == next_index && offset_bytes.checked_add(self.length_bytes) == Some(next_offset)
            }
            (one, other) => one == other,
        }
    }
}

impl Queue for Qcow2Queue {
    fn depth(&self) -> usize {
        self.scatter.depth()
    }

    fn in_flight(&self) -> usize {
        self.scatter.in_flight()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        let slot = self.scatter.begin(request.token)?;
        if let Err(error) = self.start(slot, request) {
            self.scatter.fail(slot, error);
        }
        self.scatter.end(slot);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.scatter.submit()
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let (tickets, member) = (&mut self.tickets, &self.member);
        self.scatter.reap(completions, |slot| {
            if let Some(ticket) = tickets[usize::from(slot)].take() {
                member.leave(ticket);
            }
        });
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.scatter.completion_event()
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        self.scatter.wait(events, timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Qcow2CreateOptions, Qcow2Disk};
    use super::*;
    use crate::{AllowedDirectories, Disk, FileOptions};

    #[test]
    fn a_write_in_place_waits_until_that_place_is_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        Qcow2Disk::create(&path, &Qcow2CreateOptions::new(1 << 20)).unwrap();
        let disk = Qcow2Disk::open(&path, &FileOptions::default(), &AllowedDirectories::none()).unwrap();
        let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
        let mut queue = disk.open_queue(&memory, 1).unwrap();
        let segments = [Segment { region: 0, length_bytes: 4096, offset_bytes: 0 }];
        let image = disk.worker.image();
        for (is_changing, force_unit_access) in [(false, false), (true, false), (false, true)] {
            // As if the cluster had just been allocated for another request, by a worker that does not get on.
            image.is_changing.store(is_changing, Ordering::SeqCst);
            let operation = Operation::Write { force_unit_access };
            queue.push(&Request { operation, offset_bytes: 0, segments: &segments, token: 0 }).unwrap();
            let mut completions = Vec::new();
            queue.drain(&mut completions).unwrap();
            assert_eq!(completions[0].result, Ok(()));
            assert!(!image.is_changing.load(Ordering::SeqCst));
        }
        assert!(!image.is_unstable.load(Ordering::SeqCst), "the last write was to be stable");
    }
}
