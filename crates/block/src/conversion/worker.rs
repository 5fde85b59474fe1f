//! One thread of a conversion.

use super::compressed::Compressor;
use super::plan::Piece;
use super::{Conversion, ConversionError, ConversionTarget, ZERO_RUN_BYTES_MIN};
use crate::{Completion, MemoryMap, Operation, Queue, QueueError, Request, Segment};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

type Outcome = Result<(), ConversionError>;

/// Requests to the target: a piece in which data and zeros take turns needs many.
const TARGET_DEPTH: usize = 128;

/// Takes pieces until there are no more, or the conversion is over.
pub(super) fn work(conversion: &Conversion<'_>) -> Outcome {
    let mut worker = Worker::new(conversion)?;
    let outcome = worker.run();
    // Whatever happened: the memory is in use until all has come back.
    let mut completions = Vec::new();
    worker.source.drain(&mut completions)?;
    worker.target.drain(&mut completions)?;
    outcome
}

/// Memory for one piece, and what is under way with it.
#[derive(Clone, Debug, Default)]
struct Slot {
    piece: Range<u64>,
    /// Requests to the target that are in flight.
    writes: usize,
    is_reading: bool,
}

impl Slot {
    fn is_free(&self) -> bool {
        !self.is_reading && self.writes == 0
    }
}

struct Worker<'c> {
    conversion: &'c Conversion<'c>,
    memory: MemoryMap,
    source: Box<dyn Queue>,
    target: Box<dyn Queue>,
    slots: Vec<Slot>,
    /// Bytes of a slot, and least length of a run of zeros.
    slot_bytes: u64,
    zero_run_bytes: Option<u64>,
    compressor: Option<Compressor>,
    /// Of either queue.
    read: Vec<Completion>,
    written: Vec<Completion>,
    has_more: bool,
    /// Runs of a piece: (offset in its slot, length, whether there are data). Kept for its storage, as is what follows.
    runs: Vec<(u64, u64, bool)>,
    segments: Vec<Segment>,
}

impl<'c> Worker<'c> {
    fn new(conversion: &'c Conversion<'c>) -> io::Result<Self> {
        let depth = conversion.options.depth.max(1);
        let slot_bytes = conversion.piece_bytes;
        let memory = usize::try_from(slot_bytes)
            .ok()
            .and_then(|bytes| bytes.checked_mul(depth))
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let memory = MemoryMap::allocate(&[(0, memory)]).map_err(io::Error::other)?;
        let source = conversion.source.open_queue(&memory, depth)?;
        let (target, compressor, granule_bytes) = match conversion.target {
            ConversionTarget::Disk { disk, .. } => {
                (disk.open_queue(&memory, TARGET_DEPTH)?, None, disk.geometry().logical_block_bytes.into())
            }
            ConversionTarget::Qcow2 { writer, compress } => {
                let compressor = compress.then(|| Compressor::new(writer.cluster_bytes() as usize));
                (writer.open_queue(&memory, TARGET_DEPTH)?, compressor, writer.cluster_bytes())
            }
        };
        let zero_run_bytes = conversion.options.zero_run_bytes.map(|bytes| u64::from(bytes).max(granule_bytes));
        Ok(Self {
            conversion,
            memory,
            source,
            target,
            slots: vec![Slot::default(); depth],
            slot_bytes,
            zero_run_bytes,
            compressor,
            read: Vec::with_capacity(depth),
            written: Vec::with_capacity(TARGET_DEPTH),
            has_more: true,
            runs: Vec::new(),
            segments: Vec::new(),
        })
    }

    fn run(&mut self) -> Outcome {
        loop {
            // The source may carry fewer requests than there are slots, which the target may still be writing.
            while let Some(slot) = self.slots.iter().position(Slot::is_free)
                && self.source.in_flight() < self.source.depth()
            {
                if !self.take_piece(slot)? {
                    break;
                }
            }
            self.source.submit()?;
            let read = self.reap_source()?;
            self.target.submit()?;
            let written = self.reap_target()?;
            if self.slots.iter().all(Slot::is_free) && self.target.in_flight() == 0 && !self.has_more {
                return Ok(());
            }
            if self.conversion.work.is_over() {
                return Ok(());
            }
            if !read && !written {
                self.wait()?;
            }
        }
    }

    /// Gives the slot the next piece of data; false when there are no more. Zeros on the way are seen to.
    fn take_piece(&mut self, slot: usize) -> Result<bool, ConversionError> {
        while self.has_more && !self.conversion.work.is_over() {
            match self.conversion.plan.next()? {
                None => self.has_more = false,
                Some(Piece::Zeros(range)) => self.zeros_of_source(range)?,
                Some(Piece::Data(range)) => {
                    let segment = self.segment(slot, 0, range.end - range.start);
                    let request = Request {
                        operation: Operation::Read,
                        offset_bytes: range.start,
                        segments: &[segment],
                        token: slot as u64,
                    };
                    self.source.push(&request).map_err(io::Error::other)?;
                    self.slots[slot] = Slot { piece: range, writes: 0, is_reading: true };
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn segment(&self, slot: usize, offset_bytes: u64, length_bytes: u64) -> Segment {
        // No slot is longer than a piece, which fits.
        let length_bytes = length_bytes as u32;
        Segment { region: 0, length_bytes, offset_bytes: slot as u64 * self.slot_bytes + offset_bytes }
    }

    fn zeros_of_source(&mut self, range: Range<u64>) -> Outcome {
        let length_bytes = range.end - range.start;
        match self.conversion.target {
            ConversionTarget::Disk { is_zero: true, .. } => {}
            ConversionTarget::Disk { .. } => self.write_zeroes(range, None)?,
            ConversionTarget::Qcow2 { writer, .. } => writer.settle(range)?,
        }
        self.conversion.work.skip(length_bytes);
        Ok(())
    }

    /// Zeros a range of the target's disk, in requests that any disk takes.
    fn write_zeroes(&mut self, range: Range<u64>, slot: Option<usize>) -> Outcome {
        const ZEROES_BYTES_MAX: u64 = 1 << 30;
        let mut at = range.start;
        while at < range.end {
            let length_bytes = (range.end - at).min(ZEROES_BYTES_MAX);
            let operation = Operation::WriteZeroes { length_bytes, may_unmap: true };
            self.push_to_target(&Request { operation, offset_bytes: at, segments: &[], token: token_of(slot) })?;
            at += length_bytes;
        }
        Ok(())
    }

    /// Pushes a request; when the queue is full, waits until it is not.
    fn push_to_target(&mut self, request: &Request<'_>) -> Outcome {
        while let Err(QueueError::Full) = self.target.push(request) {
            self.target.submit()?;
            if !self.reap_target()? {
                self.target.wait(&[], None)?;
            }
        }
        if let Some(slot) = self.slots.get_mut(request.token as usize) {
            slot.writes += 1;
        }
        Ok(())
    }

    fn reap_source(&mut self) -> Result<bool, ConversionError> {
        let mut completions = std::mem::take(&mut self.read);
        self.source.reap(&mut completions);
        let any = !completions.is_empty();
        for completion in completions.drain(..) {
            let slot = completion.token as usize;
            let offset_bytes = self.slots[slot].piece.start;
            completion.result.map_err(|source| ConversionError::Read { offset_bytes, source })?;
            self.write_piece(slot)?;
        }
        self.read = completions;
        Ok(any)
    }

    fn reap_target(&mut self) -> Result<bool, ConversionError> {
        let mut completions = std::mem::take(&mut self.written);
        self.target.reap(&mut completions);
        let any = !completions.is_empty();
        for completion in completions.drain(..) {
            let slot = self.slots.get_mut(completion.token as usize);
            let offset_bytes = slot.as_ref().map_or(0, |slot| slot.piece.start);
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
        if let ConversionTarget::Qcow2 { writer, .. } = self.conversion.target {
            writer.settle(piece)?;
        }
        self.conversion.work.advance(length_bytes);
        Ok(())
    }

    /// Writes a piece that has been read.
    fn write_piece(&mut self, slot: usize) -> Outcome {
        // One more than there are, so that the slot is not free before all are pushed.
        self.slots[slot].is_reading = true;
        let piece = self.slots[slot].piece.clone();
        match self.conversion.target {
            ConversionTarget::Disk { is_zero, unmap, .. } => {
                self.find_runs(slot, piece.end - piece.start);
                let runs = std::mem::take(&mut self.runs);
                for &(offset, length, has_data) in &runs {
                    let start = piece.start + offset;
                    if has_data {
                        let segments = &[self.segment(slot, offset, length)];
                        let operation = Operation::Write { force_unit_access: false };
                        self.push_to_target(&Request { operation, offset_bytes: start, segments, token: slot as u64 })?;
                    } else if unmap || !is_zero {
                        self.write_zeroes(start..start + length, Some(slot))?;
                    }
                }
                self.runs = runs;
            }
            ConversionTarget::Qcow2 { .. } => self.write_clusters(slot, &piece)?,
        }
        self.slots[slot].is_reading = false;
        if self.slots[slot].is_free() {
            self.done(slot)?;
        }
        Ok(())
    }

    /// Finds what is data in the first bytes of a slot.
    fn find_runs(&mut self, slot: usize, length: u64) {
        self.runs.clear();
        let Some(run_bytes) = self.zero_run_bytes else {
            self.runs.push((0, length, true));
            return;
        };
        let unit_bytes = match self.conversion.target {
            ConversionTarget::Disk { disk, .. } => {
                u64::from(disk.geometry().logical_block_bytes.max(ZERO_RUN_BYTES_MIN))
            }
            ConversionTarget::Qcow2 { writer, .. } => writer.cluster_bytes(),
        };
        let mut at = 0;
        while at < length {
            let count = unit_bytes.min(length - at);
            let has_data = self.memory.is_zero(self.segment(slot, at, count)) != Some(true);
            if has_data {
                absorb_short_zeros(&mut self.runs, run_bytes);
            }
            match self.runs.last_mut() {
                Some((_, run, was_data)) if *was_data == has_data => *run += count,
                _ => self.runs.push((at, count, has_data)),
            }
            at += count;
        }
        // Zeros at the end may go on in the next piece: they count.
    }

    fn write_clusters(&mut self, slot: usize, piece: &Range<u64>) -> Outcome {
        let ConversionTarget::Qcow2 { writer, .. } = self.conversion.target else { return Ok(()) };
        let cluster_bytes = writer.cluster_bytes();
        let length = piece.end - piece.start;
        let whole = length.next_multiple_of(cluster_bytes);
        if whole > length {
            // The disk's end: what follows in its last cluster is zeros.
            self.memory.zero(self.segment(slot, length, whole - length));
        }
        self.find_runs(slot, whole);
        let mut runs = std::mem::take(&mut self.runs);
        runs.retain(|&(_, _, has_data)| has_data);
        if let Some(compressor) = &mut self.compressor {
            compressor.write(writer, &self.memory, slot as u64 * self.slot_bytes, piece.start, &mut runs)?;
        }
        let clusters: usize = runs.iter().map(|&(_, length, _)| (length / cluster_bytes) as usize).sum();
        if clusters > 0 {
            let offsets = runs.iter().flat_map(|&(offset, length, _)| {
                (0..length / cluster_bytes).map(move |index| piece.start + offset + index * cluster_bytes)
            });
            let start = writer.place(clusters, offsets);
            let mut segments = std::mem::take(&mut self.segments);
            segments.clear();
            segments.extend(runs.iter().map(|&(offset, length, _)| self.segment(slot, offset, length)));
            let operation = Operation::Write { force_unit_access: false };
            let request = Request { operation, offset_bytes: start, segments: &segments, token: slot as u64 };
            self.push_to_target(&request)?;
            self.segments = segments;
        }
        self.runs = runs;
        Ok(())
    }

    /// Waits for either disk.
    fn wait(&mut self) -> io::Result<()> {
        if self.source.in_flight() == 0 {
            return self.target.wait(&[], None);
        }
        let target = self.target.completion_event();
        let events: &[BorrowedFd<'_>] = match &target {
            Some(event) if self.target.in_flight() > 0 => std::slice::from_ref(event),
            _ => &[],
        };
        self.source.wait(events, None)
    }
}

fn token_of(slot: Option<usize>) -> u64 {
    slot.map_or(u64::MAX, |slot| slot as u64)
}

/// Makes zeros at the end of `runs` data, if they are too few and lie between data.
fn absorb_short_zeros(runs: &mut Vec<(u64, u64, bool)>, run_bytes: u64) {
    if let [.., (_, before, true), (_, zeros, false)] = runs.as_mut_slice()
        && *zeros < run_bytes
    {
        *before += *zeros;
        runs.pop();
    }
}
