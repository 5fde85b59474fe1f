//! The queue of an aligned disk.

mod pieces;

use super::bounce::BouncePool;
use super::in_flight::WritesInFlight;
use super::limits::Limits;
use super::mailbox::{Ended, Mailbox};
use super::merge::{Change, Merger};
use super::pending::{Direction, Pending};
use super::wakeup::Wakeup;
use crate::layers::layer;
use crate::wait::wait_readable;
use crate::{Completion, Disk, MemoryMap, Operation, Queue, QueueError, Request, RequestError, Segment};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// See [`super`]. A piece's token is its request's slot, and above that the number of its bounce buffer, counted from
/// one.
pub(super) struct AlignedQueue {
    disk: Arc<dyn Disk>,
    limits: Limits,
    inner: Box<dyn Queue>,
    /// The memory of the queue above, and a region of bounce buffers.
    memory: MemoryMap,
    /// How many of the regions are the queue's above.
    regions: u32,
    bounce: BouncePool,
    slots: Box<[Pending]>,
    free: Vec<u16>,
    /// Slots of which pieces are still to be pushed.
    waiting: VecDeque<u16>,
    /// Absent from a disk that is only read.
    merger: Option<Arc<Merger>>,
    writes: Arc<WritesInFlight>,
    /// Slots of which the merger does not have all yet.
    merging: VecDeque<u16>,
    /// Slots that the merger has a part in.
    merging_count: usize,
    mailbox: Arc<Mailbox>,
    posted: Vec<Ended>,
    /// What ended without the inner queue, and how much of that was submitted.
    ended: Vec<Completion>,
    shown: usize,
    /// `None` when everything ends inside `submit`, because it does so in the inner queue.
    wakeup: Option<Wakeup>,
    /// Pieces were pushed that could not be submitted.
    stalled: bool,
    reaped: Vec<Completion>,
    piece: Vec<Segment>,
}

impl AlignedQueue {
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        limits: Limits,
        merger: Option<Arc<Merger>>,
        memory: &MemoryMap,
        depth: usize,
    ) -> io::Result<Self> {
        let regions = memory.regions().count() as u32;
        let (bounce, memory) = BouncePool::beside(memory, &limits).map_err(io::Error::other)?;
        let inner = disk.open_queue(&memory, depth)?;
        let depth = inner.depth();
        let mailbox = Arc::new(Mailbox::new(depth)?);
        let wakeup = match inner.completion_event() {
            Some(event) => Some(Wakeup::of(&[event, mailbox.event()])?),
            None => None,
        };
        if let (Some(wakeup), Some(event)) = (&wakeup, merger.as_ref().and_then(|merger| merger.event())) {
            wakeup.add_unheeded(event)?;
        }
        let writes = Arc::new(WritesInFlight::new(depth));
        if let Some(merger) = &merger {
            merger.enter(&writes);
        }
        Ok(Self {
            disk: Arc::clone(disk),
            limits,
            inner,
            memory,
            regions,
            bounce,
            slots: (0..depth).map(|_| Pending::new()).collect(),
            free: (0..depth as u16).rev().collect(),
            waiting: VecDeque::with_capacity(depth),
            merger,
            writes,
            merging: VecDeque::with_capacity(depth),
            merging_count: 0,
            mailbox,
            posted: Vec::with_capacity(depth),
            ended: Vec::with_capacity(depth),
            shown: 0,
            wakeup,
            stalled: false,
            reaped: Vec::with_capacity(depth),
            piece: Vec::new(),
        })
    }

    /// Takes a request that cannot be passed on as it is.
    fn begin_unsuitable(&mut self, slot: u16, request: &Request<'_>) -> Result<(), RequestError> {
        self.disk.geometry().check(request)?;
        let is_inside = |segment: &Segment| segment.region < self.regions && self.memory.slice(*segment).is_some();
        if !request.segments.iter().all(is_inside) {
            return Err(RequestError::BadSegment);
        }
        let length_bytes = request.length_bytes();
        let end = request.offset_bytes + length_bytes;
        match request.operation {
            _ if length_bytes == 0 => self.end(slot, request.token, Ok(())),
            Operation::Discard { .. } => {
                let start = self.limits.ceiling(request.offset_bytes);
                match self.limits.floor(end).checked_sub(start) {
                    None | Some(0) => self.end(slot, request.token, Ok(())),
                    Some(length_bytes) => {
                        let operation = Operation::Discard { length_bytes };
                        self.slots[usize::from(slot)].begin(&Request { operation, offset_bytes: start, ..*request });
                        self.waiting.push_back(slot);
                    }
                }
            }
            operation => {
                self.slots[usize::from(slot)].begin(request);
                let whole = self.limits.is_whole(request.offset_bytes | end);
                if operation == Operation::Read || (whole && self.publish(slot)) {
                    self.waiting.push_back(slot);
                } else if !self.merge(slot) {
                    return Err(RequestError::ReadOnly);
                }
            }
        }
        Ok(())
    }

    /// Ends a request that the inner queue knows nothing of.
    fn end(&mut self, slot: u16, token: u64, result: Result<(), RequestError>) {
        self.ended.push(Completion { token, result });
        self.free.push(slot);
    }

    /// Makes a change of whole blocks known to the merger. False, and nothing done, when the merger has to do it.
    fn publish(&mut self, slot: u16) -> bool {
        let Some(merger) = &self.merger else { return true };
        let pending = &mut self.slots[usize::from(slot)];
        self.writes.publish(slot, &pending.range);
        if merger.is_in_the_way(&pending.range) {
            self.writes.withdraw(slot);
            return false;
        }
        pending.published = true;
        true
    }

    /// Has the merger carry out all of a request. False when there is none.
    fn merge(&mut self, slot: u16) -> bool {
        if self.merger.is_none() {
            return false;
        }
        let pending = &mut self.slots[usize::from(slot)];
        pending.begin_again();
        pending.merging = true;
        self.merging.push_back(slot);
        self.merging_count += 1;
        if self.merging_count == 1 {
            self.heed_merger(true);
        }
        true
    }

    fn heed_merger(&self, heeded: bool) {
        if let (Some(wakeup), Some(event)) = (&self.wakeup, self.merger.as_ref().and_then(|merger| merger.event())) {
            wakeup.heed(event, heeded);
        }
    }

    /// Gives the merger what it has room for, and gets on with what it has.
    fn run_merges(&mut self) -> io::Result<()> {
        if self.merging_count == 0 {
            return Ok(());
        }
        let Some(merger) = self.merger.clone() else { return Ok(()) };
        while let Some(&slot) = self.merging.front() {
            if !self.give_to(&merger, slot) {
                break;
            }
            self.merging.pop_front();
        }
        merger.drive()
    }

    /// False when something of the request is left for later.
    fn give_to(&mut self, merger: &Merger, slot: u16) -> bool {
        let pending = &mut self.slots[usize::from(slot)];
        while !pending.is_sent() {
            let position = pending.position();
            let part = merger.piece(&(position..pending.range.end), pending.operation);
            let length_bytes = part.end - part.start;
            let change = Change { slot, operation: pending.operation, part };
            let begun = merger.begin(change, &self.mailbox, |memory, segment| {
                pending.copy(position, &self.memory, Direction::Into(memory, segment))
            });
            match begun {
                Ok(true) => pending.send(length_bytes),
                Ok(false) => return false,
                // Cannot be: its segments were found to lie in memory. Ends like any other piece.
                Err(error) => {
                    pending.send_rest();
                    self.mailbox.post(Ended { slot, result: Err(error) });
                }
            }
        }
        true
    }

    fn take(&mut self, slot: u16, result: Result<(), RequestError>) -> Option<Completion> {
        self.slots[usize::from(slot)].receive(result).then(|| self.finish(slot)).flatten()
    }

    /// All of a request's pieces are back. `None` when it has to be done again.
    fn finish(&mut self, slot: u16) -> Option<Completion> {
        let pending = &mut self.slots[usize::from(slot)];
        let (token, result) = (pending.token, pending.result);
        if result.is_err() {
            self.waiting.retain(|&other| other != slot);
            self.merging.retain(|&other| other != slot);
        }
        if pending.published {
            pending.published = false;
            if self.writes.withdraw(slot) && result.is_ok() && self.merge(slot) {
                return None;
            }
        } else if pending.merging {
            pending.merging = false;
            self.merging_count -= 1;
            if self.merging_count == 0 {
                self.heed_merger(false);
            }
        }
        self.free.push(slot);
        Some(Completion { token, result })
    }

    /// Appends what ended in the inner queue and in the merger.
    fn gather(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        loop {
            self.inner.reap(&mut self.reaped);
            let came = !self.reaped.is_empty();
            for n in 0..self.reaped.len() {
                completions.extend(self.take_piece(self.reaped[n]));
            }
            self.reaped.clear();
            // Pieces alone: the inner event tells of more only once nothing comes.
            if !came || completions.len() > before {
                break;
            }
        }
        self.gather_merged(completions);
    }

    fn gather_merged(&mut self, completions: &mut Vec<Completion>) {
        loop {
            // What goes wrong here does so again in `submit` or `wait`, which say it.
            self.stalled |= self.run_merges().is_err();
            // Whoever rang may have made room for more.
            if !self.mailbox.collect(&mut self.posted) {
                return;
            }
            for n in 0..self.posted.len() {
                let Ended { slot, result } = self.posted[n];
                completions.extend(self.take(slot, result));
            }
            self.posted.clear();
        }
    }

    /// Shows what ended since the last reap: without a reap that finds nothing, the inner event need not become
    /// readable.
    fn show_gathered(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        let before = ended.len();
        self.gather(&mut ended);
        self.shown = ended.len() - before;
        // In front of what was not submitted.
        ended.rotate_right(self.shown);
        self.ended = ended;
        self.get_on();
    }

    /// Pushes what has been waiting, now that something may have made room.
    fn get_on(&mut self) {
        if !self.waiting.is_empty() {
            self.push_waiting();
            self.stalled |= self.inner.submit().is_err();
        }
        if self.stalled {
            // Whoever wakes up submits, and hears of it.
            self.mailbox.ring();
        }
    }

    /// Carries everything out, where the inner queue does so in `submit`.
    fn run_to_end(&mut self) -> io::Result<()> {
        let mut ended = std::mem::take(&mut self.ended);
        while self.free.len() < self.slots.len() {
            self.gather(&mut ended);
            let ran = self.run_merges().and_then(|()| {
                self.push_waiting();
                self.inner.submit()
            });
            if ran.is_err() {
                self.ended = ended;
                return ran;
            }
        }
        self.ended = ended;
        Ok(())
    }
}

impl layer::QueueLayer for AlignedQueue {
    fn below(&self) -> &dyn Queue {
        &*self.inner
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.inner
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.ended.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        if Queue::in_flight(self) >= self.slots.len() {
            return Err(QueueError::Full);
        }
        let slot = self.free.pop().ok_or(QueueError::Full)?;
        if !self.limits.suit(request, self.regions) {
            if let Err(error) = self.begin_unsuitable(slot, request) {
                self.end(slot, request.token, Err(error));
            }
            return Ok(());
        }
        self.slots[usize::from(slot)].begin(request);
        let changes = matches!(request.operation, Operation::Write { .. } | Operation::WriteZeroes { .. });
        if changes && !self.publish(slot) {
            self.merge(slot);
            return Ok(());
        }
        if self.waiting.is_empty() && self.inner.push(&Request { token: u64::from(slot), ..*request }).is_ok() {
            self.slots[usize::from(slot)].send_rest();
        } else {
            self.waiting.push_back(slot);
        }
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.run_merges()?;
        self.push_waiting();
        self.inner.submit()?;
        self.stalled = false;
        if self.wakeup.is_none() {
            self.run_to_end()?;
        }
        self.shown = self.ended.len();
        if self.shown > 0 && self.wakeup.is_some() {
            self.mailbox.ring();
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.gather(completions);
        completions.extend(self.ended.drain(..self.shown));
        self.shown = 0;
        self.get_on();
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.wakeup.as_ref().map(Wakeup::event)
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        if self.shown > 0 {
            return Ok(());
        }
        if self.stalled {
            self.run_merges()?;
            self.inner.submit()?;
            self.stalled = false;
        }
        if self.merging_count == 0 || self.wakeup.is_none() {
            return self.inner.wait(events, timeout);
        }
        self.show_gathered();
        match &self.wakeup {
            Some(wakeup) if self.shown == 0 => wait_readable(Some(wakeup.event()), events, timeout).map(drop),
            _ => Ok(()),
        }
    }
}

impl Drop for AlignedQueue {
    fn drop(&mut self) {
        // Nobody is left to tell how it went. A broken inner queue drains itself when it is dropped.
        let _ = self.drain(&mut Vec::with_capacity(self.depth()));
        if let Some(merger) = &self.merger {
            merger.leave(&self.writes, &self.mailbox);
        }
    }
}
