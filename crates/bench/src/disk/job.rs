//! One thread's requests: the loop that everything here is about.
//!
//! A turn of the loop fills the free buffers, reads the clock, pushes and submits them all, reaps what is ready, reads
//! the clock again and looks at what came. So the clock is read twice a turn, however many requests that is, and
//! nothing is allocated or locked once the loop runs.

use super::ledger::{Findings, Ledger};
use super::pattern::{self, Expectation, Stamp};
use super::steps::{Action, Choice, Order, Step, Steps};
use super::tally::Tally;
use crate::random::Random;
use anyhow::{Context, Result, bail};
use blockyard_block::{Completion, CountingAllocator, Disk, MemoryMap, Operation, Queue, Request, Segment};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a job that waits looks whether it should stop.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes that a job has done: alone in its cache lines, so that counting disturbs no other job.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct DoneBytes(AtomicU64);

impl DoneBytes {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// A thread's requests, its way to the disk, and its buffers.
pub(super) struct Job {
    queue: Box<dyn Queue>,
    memory: MemoryMap,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Slots that are filled and not pushed yet.
    prepared: Vec<u32>,
    completions: Vec<Completion>,
    /// Where the data belong that are copied or checked.
    private: Box<[u8]>,
    copy: bool,
    steps: Steps,
    /// A step whose place is in use: it waits until that is free.
    held_back: Option<Step>,
    pub(super) verification: Option<Verification>,
    pub(super) tally: Tally,
    pub(super) done_bytes: Arc<DoneBytes>,
}

/// A request's place: its buffer, and what it is doing.
#[derive(Clone, Copy)]
struct Slot {
    buffer: Segment,
    step: Step,
    started: Instant,
    in_flight: bool,
    /// What a read should find; `None` if it is not checked.
    expected: Option<Expectation>,
}

/// What a verifying job knows.
pub(super) struct Verification {
    seed: u64,
    run: u64,
    /// Whether this run only reads, what an earlier one wrote.
    reads_only: bool,
    /// Whether to read what this run has written, and nothing else.
    only_written: bool,
    ledger: Ledger,
    pub(super) findings: Findings,
}

impl Verification {
    pub(super) fn new(seed: u64, run: u64, steps: &Steps) -> Self {
        Self {
            seed,
            run,
            reads_only: matches!(steps.choice, Choice::Always(Action::Read)),
            only_written: false,
            ledger: Ledger::new(&steps.own),
            findings: Findings::default(),
        }
    }

    /// What a read of the unit should find.
    fn begin_read(&mut self, unit: u64) -> Option<Expectation> {
        let written = match self.ledger.begin_read(unit) {
            0 if self.reads_only => None,
            // What lay there before this run is nobody's business.
            0 => return None,
            generation => Some((self.run, u64::from(generation))),
        };
        Some(Expectation { seed: self.seed, written })
    }

    /// What a write of the unit writes.
    fn begin_write(&mut self, unit: u64, offset_bytes: u64) -> Stamp {
        let generation = u64::from(self.ledger.begin_write(unit));
        Stamp { offset_bytes, seed: self.seed, run: self.run, generation }
    }
}

/// A job's buffers: so many, of so many bytes each, from an offset in the memory map's first region.
#[derive(Clone, Copy)]
pub(super) struct Buffers {
    pub(super) first_offset_bytes: u64,
    pub(super) count: usize,
    pub(super) each_bytes: u64,
}

impl Job {
    /// Opens a queue and fills the buffers, so that no page of them is touched for the first time while the clock runs.
    pub(super) fn open(
        disk: &dyn Disk,
        memory: &MemoryMap,
        buffers: Buffers,
        steps: Steps,
        copy: bool,
        verification: Option<Verification>,
    ) -> Result<Self> {
        let queue = disk.open_queue(memory, buffers.count).context("cannot open a queue to the disk")?;
        let count = buffers.count.min(queue.depth());
        let idle = Step { action: Action::Flush, offset_bytes: 0, length_bytes: 0 };
        let slot = |index: usize| Slot {
            buffer: Segment {
                region: 0,
                length_bytes: buffers.each_bytes as u32,
                offset_bytes: buffers.first_offset_bytes + index as u64 * buffers.each_bytes,
            },
            step: idle,
            started: Instant::now(),
            in_flight: false,
            expected: None,
        };
        let mut job = Self {
            queue,
            memory: memory.clone(),
            slots: (0..count).map(slot).collect(),
            free: (0..count as u32).rev().collect(),
            prepared: Vec::with_capacity(count),
            completions: Vec::with_capacity(count),
            private: vec![0; buffers.each_bytes as usize].into(),
            copy,
            steps,
            held_back: None,
            verification,
            tally: Tally::default(),
            done_bytes: Arc::default(),
        };
        // Not zeros: a disk may have a short cut for those.
        let mut random = Random::new(buffers.first_offset_bytes, 0);
        for index in 0..count {
            random.fill(&mut job.private);
            job.copy_in(job.slots[index].buffer)?;
        }
        Ok(job)
    }

    /// Requests that it keeps in flight.
    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Makes all requests, until there are no more, `runtime` is over, or somebody wants it to stop.
    pub(super) fn run(&mut self, stop: &AtomicBool, runtime: Option<Duration>) -> Result<()> {
        let started = Instant::now();
        self.tally.begin(started);
        let deadline = runtime.and_then(|runtime| started.checked_add(runtime));
        let mut warm_allocations = None;
        let mut more = true;
        let mut done_bytes = 0;
        self.done_bytes.set(done_bytes);
        while more || self.queue.in_flight() > 0 {
            if more {
                more = self.prepare();
            }
            self.submit()?;
            let now = self.reap()?;
            done_bytes += self.settle(now)?;
            self.done_bytes.set(done_bytes);
            more &= !stop.load(Ordering::Relaxed) && deadline.is_none_or(|deadline| now < deadline);
            // From here on every buffer and every slot of the queue has been used once.
            if warm_allocations.is_none() && self.tally.completed >= self.slots.len() as u64 {
                warm_allocations = CountingAllocator::of_this_thread();
            }
        }
        let counts = warm_allocations.zip(CountingAllocator::of_this_thread());
        self.tally.allocations = counts.map(|(before, after)| after - before);
        Ok(())
    }

    /// Makes what was written stable and reads all of it back, once.
    pub(super) fn read_back(&mut self, stop: &AtomicBool) -> Result<()> {
        let Some(verification) = &mut self.verification else { return Ok(()) };
        if verification.reads_only {
            return Ok(());
        }
        verification.only_written = true;
        // Time was up before its place was free.
        self.held_back = None;
        self.flush()?;
        self.steps = Steps {
            order: Order::Sequential,
            choice: Choice::Always(Action::Read),
            left: self.steps.own.end - self.steps.own.start,
            made: 0,
            flush_every: None,
            ..self.steps.clone()
        };
        let measured = std::mem::take(&mut self.tally);
        let outcome = self.run(stop, None);
        self.tally = measured;
        outcome
    }

    fn flush(&mut self) -> Result<()> {
        let request = Request { operation: Operation::Flush, offset_bytes: 0, segments: &[], token: 0 };
        self.queue.push(&request)?;
        self.completions.clear();
        self.queue.drain(&mut self.completions).context("the disk's queue is broken")?;
        let result = self.completions.pop().map_or(Ok(()), |completion| completion.result);
        result.context("cannot flush the disk")
    }

    /// Fills free slots with the next steps; false when there are no more of these.
    fn prepare(&mut self) -> bool {
        while let Some(&slot) = self.free.last() {
            let Some(step) = self.next_step() else { return false };
            if !self.fill(slot as usize, step) {
                self.held_back = Some(step);
                return true;
            }
            self.free.pop();
            self.prepared.push(slot);
        }
        true
    }

    fn next_step(&mut self) -> Option<Step> {
        if let Some(step) = self.held_back.take() {
            return Some(step);
        }
        let Self { steps, verification, .. } = self;
        match verification {
            Some(verification) if verification.only_written => {
                let units = steps.units.clone();
                steps.find(|step| verification.ledger.is_written(units.at(step.offset_bytes)))
            }
            _ => steps.next(),
        }
    }

    /// Gets a slot ready for a step; false when the step's place on the disk is in use.
    fn fill(&mut self, slot: usize, step: Step) -> bool {
        let mut expected = None;
        let mut stamp = None;
        if let Some(verification) = &mut self.verification
            && step.action != Action::Flush
        {
            let unit = self.steps.units.at(step.offset_bytes);
            if verification.ledger.is_busy(unit) {
                return false;
            }
            match step.action {
                Action::Read => expected = verification.begin_read(unit),
                _ => stamp = Some(verification.begin_write(unit, step.offset_bytes)),
            }
        }
        let place = &mut self.slots[slot];
        (place.step, place.expected) = (step, expected);
        let data = place.data();
        if let Some(stamp) = &stamp {
            pattern::fill(&mut self.private[..data.length_bytes as usize], stamp);
        }
        if step.action == Action::Write && (self.copy || stamp.is_some()) {
            // It lies in the map: opening the job wrote to it.
            let _ = self.copy_in(data);
        }
        true
    }

    fn submit(&mut self) -> Result<()> {
        let now = Instant::now();
        self.tally.submits += u64::from(!self.prepared.is_empty());
        for slot in self.prepared.drain(..) {
            let place = &mut self.slots[slot as usize];
            (place.started, place.in_flight) = (now, true);
            let data = place.data();
            let Step { action, offset_bytes, length_bytes } = place.step;
            let (operation, segments) = match action {
                Action::Read => (Operation::Read, slice::from_ref(&data)),
                Action::Write => (Operation::Write { force_unit_access: false }, slice::from_ref(&data)),
                Action::Flush => (Operation::Flush, [].as_slice()),
                Action::Discard => (Operation::Discard { length_bytes }, [].as_slice()),
                Action::WriteZeroes => (Operation::WriteZeroes { length_bytes, may_unmap: false }, [].as_slice()),
            };
            let request = Request { operation, offset_bytes, segments, token: u64::from(slot) };
            self.queue.push(&request).context("the disk's queue takes fewer requests than it said")?;
        }
        self.queue.submit().context("the disk's queue is broken")
    }

    /// Takes what is ready, or waits for something to be; tells when that was.
    fn reap(&mut self) -> Result<Instant> {
        self.queue.reap(&mut self.completions);
        if self.completions.is_empty() && self.queue.in_flight() > 0 {
            self.tally.waits += 1;
            self.queue.wait(&[], Some(STOP_INTERVAL)).context("cannot wait for the disk")?;
            self.queue.reap(&mut self.completions);
        }
        Ok(Instant::now())
    }

    /// Looks at what has completed and frees its slots; tells how many bytes that is.
    fn settle(&mut self, now: Instant) -> Result<u64> {
        let mut bytes = 0;
        for index in 0..self.completions.len() {
            let Completion { token, result } = self.completions[index];
            let place = usize::try_from(token).ok().and_then(|slot| self.slots.get_mut(slot));
            let Some(place) = place.filter(|place| place.in_flight) else {
                bail!("the disk answered a request that nobody made (token {token})");
            };
            place.in_flight = false;
            let place = *place;
            let Step { action, offset_bytes, length_bytes } = place.step;
            if let Err(error) = result {
                bail!("{} of {length_bytes} bytes at offset {offset_bytes} failed: {error}", action.name());
            }
            self.tally.count(&place.step, now.saturating_duration_since(place.started));
            if action == Action::Read && (self.copy || place.expected.is_some()) {
                self.take_data(&place)?;
            }
            if let Some(verification) = &mut self.verification
                && action != Action::Flush
            {
                verification.ledger.end(self.steps.units.at(offset_bytes));
            }
            self.free.push(token as u32);
            bytes += length_bytes;
        }
        if !self.completions.is_empty() {
            self.tally.ended = Some(now);
        }
        self.completions.clear();
        Ok(bytes)
    }

    /// Copies what was read to where it belongs, and checks it if it is to be checked.
    fn take_data(&mut self, place: &Slot) -> Result<()> {
        let data = place.data();
        let shared = self.memory.slice(data).context("a buffer is not in its memory map")?;
        let private = &mut self.private[..data.length_bytes as usize];
        shared.copy_to(private);
        if let (Some(expected), Some(verification)) = (&place.expected, &mut self.verification) {
            let findings = &mut verification.findings;
            findings.checked_bytes += u64::from(data.length_bytes);
            pattern::check(private, place.step.offset_bytes, expected, |mismatch| findings.add_mismatch(mismatch));
        }
        Ok(())
    }

    fn copy_in(&self, data: Segment) -> Result<()> {
        let shared = self.memory.slice(data).context("a buffer is not in its memory map")?;
        shared.copy_from(&self.private[..data.length_bytes as usize]);
        Ok(())
    }
}

impl Slot {
    /// The part of the buffer that the step needs: nothing has more than `REQUEST_BYTES_MAX`.
    fn data(&self) -> Segment {
        let length_bytes = self.step.length_bytes.min(u64::from(self.buffer.length_bytes)) as u32;
        Segment { length_bytes, ..self.buffer }
    }
}
