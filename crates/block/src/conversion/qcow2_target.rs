//! A new qcow2 image as what a conversion writes.

use super::Outcome;
use super::compressed::Compressor;
use super::output::{Output, Run};
use super::target::{ConversionTarget, PieceWriter};
use crate::{MemoryMap, Operation, Qcow2Writer, Queue, Request, Segment};
use std::io;
use std::ops::Range;

/// A new image that a conversion writes, of the source's size rounded up to 512 bytes.
#[derive(Clone, Copy)]
pub struct Qcow2Target<'a> {
    /// Of the image; whoever converts lets it finish afterwards.
    pub writer: &'a Qcow2Writer,
    /// Compress each cluster that becomes smaller by it.
    pub compress: bool,
}

impl ConversionTarget for Qcow2Target<'_> {
    fn granule_bytes(&self) -> u64 {
        self.writer.cluster_bytes()
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.writer.open_queue(memory, depth)
    }

    fn writer(&self) -> io::Result<Box<dyn PieceWriter + '_>> {
        let compressor = self.compress.then(|| Compressor::new(self.writer)).transpose()?;
        Ok(Box::new(ClusterWriter { image: self.writer, compressor, runs: Vec::new(), segments: Vec::new() }))
    }

    fn settle(&self, piece: Range<u64>) -> io::Result<()> {
        self.writer.settle(piece)
    }
}

struct ClusterWriter<'a> {
    image: &'a Qcow2Writer,
    compressor: Option<Compressor>,
    /// Of a piece. Kept for their storage.
    runs: Vec<Run>,
    segments: Vec<Segment>,
}

impl PieceWriter for ClusterWriter<'_> {
    /// Zeros have no clusters.
    fn write_zeros(&mut self, _output: &mut Output<'_>, range: Range<u64>) -> Outcome {
        Ok(self.image.settle(range)?)
    }

    fn write_data(&mut self, output: &mut Output<'_>, slot: usize, piece: &Range<u64>) -> Outcome {
        let cluster_bytes = self.image.cluster_bytes();
        let length = piece.end - piece.start;
        let whole = length.next_multiple_of(cluster_bytes);
        if whole > length {
            // The disk's end: what follows in its last cluster is zeros.
            output.zero(slot, length..whole);
        }
        output.find_runs(slot, whole, &mut self.runs);
        self.runs.retain(|&(_, _, has_data)| has_data);
        if let Some(compressor) = &mut self.compressor {
            let memory_offset = output.offset_bytes(slot);
            compressor.write(self.image, output.memory(), memory_offset, piece.start, &mut self.runs)?;
        }
        let clusters: usize = self.runs.iter().map(|&(_, length, _)| (length / cluster_bytes) as usize).sum();
        if clusters > 0 {
            let offsets = self.runs.iter().flat_map(|&(offset, length, _)| {
                (0..length / cluster_bytes).map(move |index| piece.start + offset + index * cluster_bytes)
            });
            let offset_bytes = self.image.place(clusters, offsets);
            self.segments.clear();
            self.segments.extend(self.runs.iter().map(|&(offset, length, _)| output.segment(slot, offset, length)));
            let operation = Operation::Write { force_unit_access: false };
            output.push(&Request { operation, offset_bytes, segments: &self.segments, token: slot as u64 })?;
        }
        Ok(())
    }
}
