//! A new streamOptimized VMDK as what a conversion writes: every thread compresses, and grains lie in the disk's order.

use super::Outcome;
use super::output::{Output, Run};
use super::target::{ConversionTarget, PieceWriter};
use crate::formats::PackedGrains;
use crate::{MemoryMap, Queue, VmdkStreamWriter};
use libdeflater::{CompressionLvl, Compressor};
use std::io;
use std::ops::Range;
use vm_memory::Bytes;

const GRAIN_BYTES: usize = VmdkStreamWriter::GRAIN_BYTES as usize;

/// At this level all that was tried became smaller than with zlib, in less time.
const LEVEL: i32 = 6;

/// Room for whatever comes out of a grain.
const PACKED_MAX_BYTES: usize = GRAIN_BYTES + GRAIN_BYTES / 8;

/// A new image that a conversion writes, of the source's size rounded up to 512 bytes. Whoever converts lets it finish
/// afterwards.
impl ConversionTarget for &VmdkStreamWriter {
    fn granule_bytes(&self) -> u64 {
        VmdkStreamWriter::GRAIN_BYTES
    }

    /// For nothing: the order in which grains lie is the writer's to see to.
    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        VmdkStreamWriter::open_queue(self, memory, depth)
    }

    fn writer(&self) -> io::Result<Box<dyn PieceWriter + '_>> {
        Ok(Box::new(GrainWriter {
            image: self,
            compressor: Compressor::new(CompressionLvl::new(LEVEL).map_err(|_| io::ErrorKind::InvalidInput)?),
            grain: vec![0; GRAIN_BYTES],
            packed: vec![0; PACKED_MAX_BYTES],
            runs: Vec::new(),
        }))
    }

    fn settle(&self, _piece: Range<u64>) -> io::Result<()> {
        Ok(())
    }
}

struct GrainWriter<'a> {
    image: &'a VmdkStreamWriter,
    compressor: Compressor,
    /// Of a piece. Kept for their storage.
    grain: Vec<u8>,
    packed: Vec<u8>,
    runs: Vec<Run>,
}

impl PieceWriter for GrainWriter<'_> {
    fn write_zeros(&mut self, _output: &mut Output<'_>, range: Range<u64>) -> Outcome {
        Ok(self.image.enter(range, PackedGrains::default())?)
    }

    fn write_data(&mut self, output: &mut Output<'_>, slot: usize, piece: &Range<u64>) -> Outcome {
        let length = piece.end - piece.start;
        let whole = length.next_multiple_of(VmdkStreamWriter::GRAIN_BYTES);
        if whole > length {
            // The disk's end: what follows in its last grain is zeros.
            output.zero(slot, length..whole);
        }
        output.find_runs(slot, whole, &mut self.runs);
        let mut grains = PackedGrains::default();
        for &(offset, length, _) in self.runs.iter().filter(|(_, _, has_data)| *has_data) {
            for at in (offset..offset + length).step_by(GRAIN_BYTES) {
                let segment = output.segment(slot, at, VmdkStreamWriter::GRAIN_BYTES);
                let slice = output.memory().slice(segment);
                let slice = slice.ok_or_else(|| io::Error::other("a piece is larger than its memory"))?;
                slice.read_slice(&mut self.grain, 0).map_err(io::Error::other)?;
                let length = self.compressor.zlib_compress(&self.grain, &mut self.packed);
                let length = length.map_err(|_| io::Error::other("a grain that is compressed is too large"))?;
                let packed = self.packed.get(..length).unwrap_or_default();
                grains.push(piece.start + at, packed);
            }
        }
        self.image.enter(piece.clone(), grains)?;
        // What is before its turn takes memory, so the others are waited for; but what comes first may be this thread's
        // own to read.
        while !output.reads_before(piece.start) && !output.is_over() && !self.image.wait_for(piece.end) {}
        Ok(())
    }
}
