//! The memory of one thread of a conversion, and its way to the target.

use super::{Conversion, ConversionError, Outcome};
use crate::{Completion, MemoryMap, Queue, QueueError, Request, Segment};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Requests to the target: a piece in which data and zeros take turns needs many.
const TARGET_DEPTH: usize = 128;

/// In the tokens of requests that have no slot, beside where on the disk they begin.
const WITHOUT_SLOT: u64 = 1 << 63;

/// A run of data or zeros: its offset in its piece, its length, whether there are data.
pub(super) type Run = (u64, u64, bool);

/// Memory for one piece, and what is under way with it.
#[derive(Clone, Debug, Default)]
struct Slot {
    piece: Range<u64>,
    /// Requests to the target that are in flight.
    writes: usize,
    /// It is being read, or not all of its requests to the target are pushed.
    is_reading: bool,
}

impl Slot {
    fn is_free(&self) -> bool {
        !self.is_reading && self.writes == 0
    }
}

/// Slots for pieces, and the queue on which they are written.
pub(super) struct Output<'c> {
    conversion: &'c Conversion<'c>,
    memory: MemoryMap,
    queue: Box<dyn Queue>,
    slots: Vec<Slot>,
    slot_bytes: u64,
    /// What is looked at as a whole, and the least length of a run of zeros.
    zero_unit_bytes: u64,
    zero_run_bytes: Option<u64>,
    written: Vec<Completion>,
}

impl<'c> Output<'c> {
    /// With a slot for each piece that may be under way, in `memory`.
    pub(super) fn new(conversion: &'c Conversion<'c>, memory: MemoryMap, depth: usize) -> io::Result<Self> {
        let target = &*conversion.target;
        let zero_unit_bytes = target.zero_unit_bytes();
        Ok(Self {
            conversion,
            queue: target.open_queue(&memory, TARGET_DEPTH)?,
            memory,
            slots: vec![Slot::default(); depth],
            slot_bytes: conversion.piece_bytes,
            zero_unit_bytes,
            zero_run_bytes: conversion.options.zero_run_bytes.map(|bytes| u64::from(bytes).max(zero_unit_bytes)),
            written: Vec::with_capacity(TARGET_DEPTH),
        })
    }

    /// A slot for another piece, if there is one.
    pub(super) fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(Slot::is_free)
    }

    /// Nothing is being read or written.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.iter().all(Slot::is_free) && self.queue.in_flight() == 0
    }

    /// A piece is being read into a slot.
    pub(super) fn occupy(&mut self, slot: usize, piece: Range<u64>) {
        self.slots[slot] = Slot { piece, writes: 0, is_reading: true };
    }

    /// What a slot is occupied by.
    pub(super) fn piece(&self, slot: usize) -> Range<u64> {
        self.slots[slot].piece.clone()
    }

    /// The same, of which nothing lies at or behind `end` on the disk.
    pub(super) fn end_before(&mut self, slot: usize, end: u64) -> Range<u64> {
        let piece = &mut self.slots[slot].piece;
        piece.end = end.clamp(piece.start, piece.end);
        piece.clone()
    }

    /// Whether a piece is being read that lies before `start` on the disk.
    pub(super) fn reads_before(&self, start: u64) -> bool {
        self.slots.iter().any(|slot| slot.is_reading && slot.piece.start < start)
    }

    /// Whether something has failed, so that nothing need be waited for.
    pub(super) fn is_over(&self) -> bool {
        self.conversion.work.is_over()
    }

    /// All requests for a slot's piece have been pushed.
    pub(super) fn all_pushed(&mut self, slot: usize) -> Outcome {
        self.slots[slot].is_reading = false;
        if self.slots[slot].is_free() {
            self.done(slot)?;
        }
        Ok(())
    }

    /// A part of a slot's memory.
    pub(super) fn segment(&self, slot: usize, offset_bytes: u64, length_bytes: u64) -> Segment {
        // No slot is longer than a piece, which fits.
        let length_bytes = length_bytes as u32;
        Segment { region: 0, length_bytes, offset_bytes: self.offset_bytes(slot) + offset_bytes }
    }

    /// Where a slot begins in memory.
    pub(super) fn offset_bytes(&self, slot: usize) -> u64 {
        slot as u64 * self.slot_bytes
    }

    pub(super) fn memory(&self) -> &MemoryMap {
        &self.memory
    }

    /// Makes a part of a slot's memory zeros.
    pub(super) fn zero(&self, slot: usize, part: Range<u64>) {
        self.memory.zero(self.segment(slot, part.start, part.end - part.start));
    }

    /// Finds what is data in the first bytes of a slot.
    pub(super) fn find_runs(&self, slot: usize, length: u64, runs: &mut Vec<Run>) {
        runs.clear();
        let Some(run_bytes) = self.zero_run_bytes else {
            runs.push((0, length, true));
            return;
        };
        let mut at = 0;
        while at < length {
            let count = self.zero_unit_bytes.min(length - at);
            let has_data = self.memory.is_zero(self.segment(slot, at, count)) != Some(true);
            if has_data {
                absorb_short_zeros(runs, run_bytes);
            }
            match runs.last_mut() {
                Some((_, run, was_data)) if *was_data == has_data => *run += count,
                _ => runs.push((at, count, has_data)),
            }
            at += count;
        }
        // Zeros at the end may go on in the next piece: they count.
    }

    /// The token of a request for a slot's piece, or of one without a slot that begins at `offset_bytes` of the disk.
    pub(super) fn token(slot: Option<usize>, offset_bytes: u64) -> u64 {
        slot.map_or(WITHOUT_SLOT | offset_bytes, |slot| slot as u64)
    }

    /// Pushes a request with such a token; when the queue is full, waits until it is not.
    pub(super) fn push(&mut self, request: &Request<'_>) -> Outcome {
        while let Err(QueueError::Full) = self.queue.push(request) {
            self.queue.submit()?;
            if !self.reap()? {
                self.queue.wait(&[], None)?;
            }
        }
        if let Some(slot) = self.slots.get_mut(request.token as usize) {
            slot.writes += 1;
        }
        Ok(())
    }

    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.queue.submit()
    }

    /// Sees to what has been written; whether anything has.
    pub(super) fn reap(&mut self) -> Result<bool, ConversionError> {
        let mut completions = std::mem::take(&mut self.written);
        self.queue.reap(&mut completions);
        let any = !completions.is_empty();
        for completion in completions.drain(..) {
            let slot = self.slots.get_mut(completion.token as usize);
            let offset_bytes = slot.as_ref().map_or(completion.token & !WITHOUT_SLOT, |slot| slot.piece.start);
            completion.result.map_err(|source| ConversionError::Write { offset_bytes, source })?;
            let Some(slot) = slot else { continue };
            slot.writes -= 1;
            if slot.is_free() {
                self.done(completion.token as usize)?;
            }
        }
        self.written = completions;
        Ok(any)
    }

    /// Of a piece, all is written.
    fn done(&mut self, slot: usize) -> Outcome {
        let piece = std::mem::take(&mut self.slots[slot].piece);
        let length_bytes = piece.end - piece.start;
        self.conversion.target.settle(piece)?;
        self.conversion.work.advance(length_bytes);
        Ok(())
    }

    /// Waits for the target.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        self.queue.wait(&[], None)
    }

    /// What to wait for beside something else, if anything is under way.
    pub(super) fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.queue.completion_event().filter(|_| self.queue.in_flight() > 0)
    }

    /// Waits until nothing is in flight.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        self.queue.drain(&mut Vec::new())
    }
}

/// Makes zeros at the end of `runs` data, if they are too few and lie between data.
fn absorb_short_zeros(runs: &mut Vec<Run>, run_bytes: u64) {
    if let [.., (_, before, true), (_, zeros, false)] = runs.as_mut_slice()
        && *zeros < run_bytes
    {
        *before += *zeros;
        runs.pop();
    }
}
