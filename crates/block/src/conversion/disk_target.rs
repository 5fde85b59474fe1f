//! A disk as what a conversion writes.

use super::output::{Output, Run};
use super::target::{ConversionTarget, PieceWriter};
use super::{Outcome, ZERO_RUN_BYTES_MIN};
use crate::{Disk, MemoryMap, Operation, Queue, Request};
use std::io;
use std::ops::Range;

/// A disk that a conversion writes, at least as large as the source.
#[derive(Clone, Copy)]
pub struct DiskTarget<'a> {
    /// What is written; whoever converts flushes it.
    pub disk: &'a dyn Disk,
    /// It reads as zeros everywhere.
    pub is_zero: bool,
    /// Storage of zeros that are found in data is given back, which only matters where it has some.
    pub unmap: bool,
}

impl ConversionTarget for DiskTarget<'_> {
    fn granule_bytes(&self) -> u64 {
        self.disk.geometry().logical_block_bytes.into()
    }

    fn zero_unit_bytes(&self) -> u64 {
        self.granule_bytes().max(ZERO_RUN_BYTES_MIN.into())
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.disk.open_queue(memory, depth)
    }

    fn writer(&self) -> io::Result<Box<dyn PieceWriter + '_>> {
        Ok(Box::new(DiskWriter { is_zero: self.is_zero, unmap: self.unmap, runs: Vec::new() }))
    }

    fn settle(&self, _piece: Range<u64>) -> io::Result<()> {
        Ok(())
    }
}

struct DiskWriter {
    is_zero: bool,
    unmap: bool,
    /// Of a piece. Kept for its storage.
    runs: Vec<Run>,
}

impl PieceWriter for DiskWriter {
    fn write_zeros(&mut self, output: &mut Output<'_>, range: Range<u64>) -> Outcome {
        if self.is_zero { Ok(()) } else { write_zeroes(output, range, None) }
    }

    fn write_data(&mut self, output: &mut Output<'_>, slot: usize, piece: &Range<u64>) -> Outcome {
        output.find_runs(slot, piece.end - piece.start, &mut self.runs);
        for &(offset, length, has_data) in &self.runs {
            let start = piece.start + offset;
            if has_data {
                let segments = &[output.segment(slot, offset, length)];
                let operation = Operation::Write { force_unit_access: false };
                output.push(&Request { operation, offset_bytes: start, segments, token: slot as u64 })?;
            } else if self.unmap || !self.is_zero {
                write_zeroes(output, start..start + length, Some(slot))?;
            }
        }
        Ok(())
    }
}

/// Zeros a range of the disk, in requests that any disk takes.
fn write_zeroes(output: &mut Output<'_>, range: Range<u64>, slot: Option<usize>) -> Outcome {
    const ZEROES_BYTES_MAX: u64 = 1 << 30;
    let mut at = range.start;
    while at < range.end {
        let length_bytes = (range.end - at).min(ZEROES_BYTES_MAX);
        let operation = Operation::WriteZeroes { length_bytes, may_unmap: true };
        let token = Output::token(slot, at);
        output.push(&Request { operation, offset_bytes: at, segments: &[], token })?;
        at += length_bytes;
    }
    Ok(())
}
