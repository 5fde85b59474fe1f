//! One thread of a conversion.

use super::output::Output;
use super::plan::Piece;
use super::target::PieceWriter;
use super::{Conversion, ConversionError, Outcome};
use crate::reading_again::ReadingAgain;
use crate::{Completion, MemoryMap, Operation, Queue, Request, RequestError};
use std::io;
use std::ops::Range;

/// Takes pieces until there are no more, or the conversion is over.
pub(super) fn work(conversion: &Conversion<'_>) -> Outcome {
    let mut worker = Worker::new(conversion)?;
    let outcome = worker.run();
    // Whatever happened: the memory is in use until all has come back.
    worker.source.drain(&mut Vec::new())?;
    worker.output.drain()?;
    outcome
}

struct Worker<'c> {
    conversion: &'c Conversion<'c>,
    source: Box<dyn Queue>,
    output: Output<'c>,
    writer: Box<dyn PieceWriter + 'c>,
    read: Vec<Completion>,
    has_more: bool,
}

impl<'c> Worker<'c> {
    fn new(conversion: &'c Conversion<'c>) -> io::Result<Self> {
        let depth = conversion.options.depth.max(1);
        let memory = usize::try_from(conversion.piece_bytes)
            .ok()
            .and_then(|bytes| bytes.checked_mul(depth))
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let memory = MemoryMap::allocate(&[(0, memory)]).map_err(io::Error::other)?;
        Ok(Self {
            conversion,
            source: conversion.source.open_queue(&memory, depth)?,
            output: Output::new(conversion, memory, depth)?,
            writer: conversion.target.writer()?,
            read: Vec::with_capacity(depth),
            has_more: true,
        })
    }

    fn run(&mut self) -> Outcome {
        loop {
            // The source may carry fewer requests than there are slots, which the target may still be writing.
            while let Some(slot) = self.output.free_slot()
                && self.source.in_flight() < self.source.depth()
            {
                if !self.take_piece(slot)? {
                    break;
                }
            }
            self.source.submit()?;
            let read = self.reap_source()?;
            self.output.submit()?;
            let written = self.output.reap()?;
            if self.output.is_idle() && !self.has_more {
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
                Some(Piece::Zeros(range)) => {
                    let length_bytes = range.end - range.start;
                    if let Some(in_order) = &self.conversion.in_order {
                        in_order.give(&self.output, &range, None, length_bytes);
                    }
                    self.writer.write_zeros(&mut self.output, range)?;
                    self.conversion.work.skip(length_bytes);
                }
                Some(Piece::Data(range)) => {
                    let segment = self.output.segment(slot, 0, range.end - range.start);
                    let request = Request {
                        operation: Operation::Read,
                        offset_bytes: range.start,
                        segments: &[segment],
                        token: slot as u64,
                    };
                    self.source.push(&request).map_err(io::Error::other)?;
                    self.output.occupy(slot, range);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn reap_source(&mut self) -> Result<bool, ConversionError> {
        let mut completions = std::mem::take(&mut self.read);
        self.source.reap(&mut completions);
        let any = !completions.is_empty();
        for completion in completions.drain(..) {
            let slot = completion.token as usize;
            let planned = self.output.piece(slot);
            if let Err(error) = completion.result {
                self.read_again(slot, &planned, error)?;
            }
            // A disk whose end is found while it is read may have ended before.
            let piece = self.output.end_before(slot, self.conversion.source.geometry().capacity_bytes);
            if let Some(in_order) = &self.conversion.in_order {
                in_order.give(&self.output, &planned, Some(slot), piece.end - piece.start);
            }
            self.writer.write_data(&mut self.output, slot, &piece)?;
            self.output.all_pushed(slot)?;
        }
        self.read = completions;
        Ok(any)
    }

    /// A piece could not be read as a whole: it is in memory as far as it can be, where that is enough.
    fn read_again(&self, slot: usize, piece: &Range<u64>, error: RequestError) -> Outcome {
        let failed = |offset_bytes, source| Err(ConversionError::Read { offset_bytes, source });
        let conversion = self.conversion;
        if !conversion.reads_again {
            return failed(piece.start, error);
        }
        let mut again = ReadingAgain::new(conversion.source, self.output.memory())?;
        let memory = self.output.segment(slot, 0, piece.end - piece.start);
        if let Some(lost) = conversion.lost {
            let zero = |part| self.output.zero(slot, part);
            again.save(piece, memory, &zero, lost, &|| conversion.work.is_over());
            return Ok(());
        }
        // What fails once fails, even if it can be read then.
        let (offset_bytes, error) = again.first_failure(piece, memory).unwrap_or((piece.start, error));
        failed(offset_bytes, error)
    }

    /// Waits for either disk.
    fn wait(&mut self) -> io::Result<()> {
        if self.source.in_flight() == 0 {
            return self.output.wait();
        }
        self.source.wait(self.output.completion_event().as_slice(), None)
    }
}
