//! A disk to which writes that follow each other go as one: what is pushed between two submits.

#[cfg(test)]
mod tests;

use super::layer;
use super::slots::Slots;
use crate::{Completion, Disk, MemoryMap, Operation, Queue, QueueError, Request, Segment};
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of what was several writes.
const BYTES_MAX: u64 = 256 << 10;
const WRITE: Operation = Operation::Write { force_unit_access: false };

/// A disk whose queues make one write of those that follow each other, on the disk, in the order in which they are
/// pushed, and each in one segment. They are pushed on at the next submit, or before whatever does not follow; so none
/// waits for others. Where one that was made of several fails, each is tried by itself, and has its own end.
///
/// Nothing is copied, and nothing is allocated once a queue is open.
pub struct GatheringDisk {
    disk: Arc<dyn Disk>,
}

impl GatheringDisk {
    /// Gathers what is written to `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }
}

impl layer::DiskLayer for GatheringDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.disk.open_queue(memory, depth)?;
        let geometry = self.disk.geometry();
        let depth = queue.depth();
        Ok(Box::new(GatheringQueue {
            queue,
            bytes_max: geometry.transfer_bytes_max.min(BYTES_MAX),
            segments_max: (geometry.segments_max as usize).min(depth),
            members: Slots::new(depth),
            gathered: None,
            segments: Vec::with_capacity(depth),
            reaped: Vec::with_capacity(depth),
            submit_error: None,
        }))
    }
}

/// A request that has not ended. The disk below has it by its number, or that of the first of those it is one with.
struct Member {
    token: u64,
    /// What it is by itself, if it may be one of several.
    offset_bytes: u64,
    segment: Option<Segment>,
    /// Which comes next of those that are one.
    next: Option<u64>,
}

/// Those that are to be one, which the disk below does not have yet.
#[derive(Clone, Copy)]
struct Gathered {
    first: u64,
    last: u64,
    offset_bytes: u64,
    end_bytes: u64,
}

struct GatheringQueue {
    queue: Box<dyn Queue>,
    bytes_max: u64,
    segments_max: usize,
    members: Slots<Member>,
    gathered: Option<Gathered>,
    /// Where those lie in memory.
    segments: Vec<Segment>,
    /// Room for what comes back from below.
    reaped: Vec<Completion>,
    /// What went wrong when requests were tried again from `reap`, which cannot say so.
    submit_error: Option<io::Error>,
}

impl GatheringQueue {
    /// Where a write lies that may be one of several: its bytes lie in a row.
    fn only_segment(&self, request: &Request<'_>) -> Option<Segment> {
        let &[segment] = request.segments else { return None };
        let length_bytes = u64::from(segment.length_bytes);
        let end = request.offset_bytes.checked_add(length_bytes);
        (request.operation == WRITE && length_bytes > 0 && length_bytes < self.bytes_max && end.is_some())
            .then_some(segment)
    }

    /// Adds a write to those that are gathered. Whether it follows them, and there is room.
    fn add(&mut self, number: u64, offset_bytes: u64, segment: Segment) -> bool {
        let Some(gathered) = &mut self.gathered else { return false };
        let end_bytes = gathered.end_bytes + u64::from(segment.length_bytes);
        if gathered.end_bytes != offset_bytes || end_bytes - gathered.offset_bytes > self.bytes_max {
            return false;
        }
        let goes_on = |last: &&mut Segment| {
            let end = last.offset_bytes.checked_add(last.length_bytes.into());
            last.region == segment.region && end == Some(segment.offset_bytes)
        };
        let is_full = self.segments.len() == self.segments_max;
        match self.segments.last_mut().filter(goes_on) {
            // Within `bytes_max`.
            Some(last) => last.length_bytes += segment.length_bytes,
            None if is_full => return false,
            None => self.segments.push(segment),
        }
        self.members.get_mut(gathered.last).into_iter().for_each(|last| last.next = Some(number));
        (gathered.last, gathered.end_bytes) = (number, end_bytes);
        true
    }

    /// Pushes what is gathered on.
    fn pass_on(&mut self) -> Result<(), QueueError> {
        let Some(Gathered { first, offset_bytes, .. }) = self.gathered else { return Ok(()) };
        self.queue.push(&Request { operation: WRITE, offset_bytes, segments: &self.segments, token: first })?;
        self.gathered = None;
        self.segments.clear();
        Ok(())
    }

    /// What became of what the disk below had. Whether some of it is tried again.
    fn end(&mut self, completion: Completion, completions: &mut Vec<Completion>) -> bool {
        let has_failed = completion.result.is_err();
        let mut is_pushed = false;
        let mut next = Some(completion.token);
        while let Some(number) = next {
            let Some(member) = self.members.get_mut(number) else { break };
            let is_one_of_several = number != completion.token || member.next.is_some();
            next = member.next.take();
            let (offset_bytes, segment) =
                (member.offset_bytes, member.segment.filter(|_| has_failed && is_one_of_several));
            if let Some(segment) = segment {
                let by_itself = Request { operation: WRITE, offset_bytes, segments: &[segment], token: number };
                // There is room: what it was a part of is back.
                if self.queue.push(&by_itself).is_ok() {
                    is_pushed = true;
                    continue;
                }
            }
            let ended = self.members.take(number).map(|Member { token, .. }| Completion { token, ..completion });
            completions.extend(ended);
        }
        is_pushed
    }

    /// Pushes a request on, or keeps it for those that follow it, under this number.
    fn push_as(&mut self, number: u64, request: &Request<'_>, segment: Option<Segment>) -> Result<(), QueueError> {
        let Some(segment) = segment else {
            self.pass_on()?;
            return self.queue.push(&Request { token: number, ..*request });
        };
        let offset_bytes = request.offset_bytes;
        if !self.add(number, offset_bytes, segment) {
            self.pass_on()?;
            let end_bytes = offset_bytes + u64::from(segment.length_bytes);
            self.gathered = Some(Gathered { first: number, last: number, offset_bytes, end_bytes });
            self.segments.push(segment);
        }
        Ok(())
    }
}

impl layer::QueueLayer for GatheringQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn in_flight(&self) -> usize {
        self.members.in_use()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        let segment = self.only_segment(request);
        let member = Member { token: request.token, offset_bytes: request.offset_bytes, segment, next: None };
        let number = self.members.insert(member).ok_or(QueueError::Full)?;
        let pushed = self.push_as(number, request, segment);
        if pushed.is_err() {
            self.members.take(number);
        }
        pushed
    }

    fn submit(&mut self) -> io::Result<()> {
        self.submit_error = None;
        // Where there is no room below, it goes after what comes back.
        let _ = self.pass_on();
        self.queue.submit()
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let mut reaped = mem::take(&mut self.reaped);
        loop {
            self.queue.reap(&mut reaped);
            if reaped.is_empty() {
                break;
            }
            let mut is_retried = false;
            for completion in reaped.drain(..) {
                is_retried |= self.end(completion, completions);
            }
            if is_retried && let Err(error) = self.queue.submit() {
                self.submit_error = Some(error);
                break;
            }
        }
        self.reaped = reaped;
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        match self.submit_error.take() {
            Some(error) => Err(error),
            None => self.queue.wait(events, timeout),
        }
    }
}

impl Drop for GatheringQueue {
    fn drop(&mut self) {
        let mut completions = Vec::with_capacity(self.depth());
        // A disk that is broken has done what it could.
        let _ = self.drain(&mut completions);
    }
}
