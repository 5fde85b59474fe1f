//! A new image in another hypervisor's format as what a conversion writes.

use super::output::{Output, Run};
use super::target::{ConversionTarget, PieceWriter};
use super::{Outcome, ZERO_RUN_BYTES_MIN};
use crate::{BlockMapWriter, MemoryMap, Operation, Queue, Request};
use std::io;
use std::ops::Range;

/// A new image that a conversion writes, of the source's size rounded up to 512 bytes. Whoever converts lets it finish
/// afterwards.
impl ConversionTarget for &BlockMapWriter {
    /// What is not written of a block is zeros.
    fn granule_bytes(&self) -> u64 {
        ZERO_RUN_BYTES_MIN.into()
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        BlockMapWriter::open_queue(self, memory, depth)
    }

    fn writer(&self) -> io::Result<Box<dyn PieceWriter + '_>> {
        Ok(Box::new(BlockWriter { image: self, runs: Vec::new() }))
    }

    fn settle(&self, _piece: Range<u64>) -> io::Result<()> {
        Ok(())
    }
}

struct BlockWriter<'a> {
    image: &'a BlockMapWriter,
    /// Of a piece. Kept for its storage.
    runs: Vec<Run>,
}

impl PieceWriter for BlockWriter<'_> {
    /// Zeros have no blocks.
    fn write_zeros(&mut self, _output: &mut Output<'_>, _range: Range<u64>) -> Outcome {
        Ok(())
    }

    fn write_data(&mut self, output: &mut Output<'_>, slot: usize, piece: &Range<u64>) -> Outcome {
        let block_bytes = self.image.block_bytes();
        output.find_runs(slot, piece.end - piece.start, &mut self.runs);
        for &(offset, length, _) in self.runs.iter().filter(|(_, _, has_data)| *has_data) {
            let mut part = offset;
            while part < offset + length {
                let at = piece.start + part;
                let count = (block_bytes - at % block_bytes).min(offset + length - part);
                let offset_bytes = self.image.place(at)?;
                self.image.reserve(offset_bytes, count);
                let segments = &[output.segment(slot, part, count)];
                let operation = Operation::Write { force_unit_access: false };
                output.push(&Request { operation, offset_bytes, segments, token: slot as u64 })?;
                part += count;
            }
        }
        Ok(())
    }
}
