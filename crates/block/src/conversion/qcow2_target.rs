//! A new qcow2 image as what a conversion writes.

use super::behind::Behind;
use super::compressed::Compressor;
use super::output::{Output, Run};
use super::target::{ConversionTarget, PieceWriter};
use super::{Outcome, ZERO_RUN_BYTES_MIN};
use crate::{Disk, MemoryMap, Operation, Qcow2Writer, Queue, Request, Segment};
use std::io;
use std::ops::Range;

/// A new image that a conversion writes, of the source's size rounded up to 512 bytes.
#[derive(Clone, Copy)]
pub struct Qcow2Target<'a> {
    /// Of the image; whoever converts lets it finish afterwards.
    pub writer: &'a Qcow2Writer,
    /// Compress each cluster that becomes smaller by it.
    pub compress: bool,
    /// The disk of its backing file, if it has one: only what differs from that is written.
    pub behind: Option<&'a dyn Disk>,
}

impl ConversionTarget for Qcow2Target<'_> {
    fn granule_bytes(&self) -> u64 {
        self.writer.cluster_bytes()
    }

    /// A part of a cluster has no data of its own, as long as none of the cluster is compressed.
    fn zero_unit_bytes(&self) -> u64 {
        match self.writer.part_bytes() {
            part_bytes if !self.compress && part_bytes < self.granule_bytes() => {
                part_bytes.max(ZERO_RUN_BYTES_MIN.into())
            }
            _ => self.granule_bytes(),
        }
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.writer.open_queue(memory, depth)
    }

    fn writer(&self) -> io::Result<Box<dyn PieceWriter + '_>> {
        let compressor = self.compress.then(|| Compressor::new(self.writer)).transpose()?;
        let behind = self.behind.map(|disk| Behind::new(disk, self.writer)).transpose()?;
        let (runs, clusters, segments) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Box::new(ClusterWriter { image: self.writer, compressor, behind, runs, clusters, segments }))
    }

    fn settle(&self, piece: Range<u64>) -> io::Result<()> {
        self.writer.settle(piece)
    }
}

struct ClusterWriter<'a> {
    image: &'a Qcow2Writer,
    compressor: Option<Compressor>,
    behind: Option<Behind<'a>>,
    /// Of a piece. Kept for their storage.
    runs: Vec<Run>,
    /// Of the disk: where each begins that has data, and which of its parts have.
    clusters: Vec<(u64, u32)>,
    segments: Vec<Segment>,
}

impl ClusterWriter<'_> {
    /// Finds the clusters that the runs of a piece that begins there touch.
    fn find_clusters(&mut self, piece_start: u64) {
        self.clusters.clear();
        let cluster_bytes = self.image.cluster_bytes();
        for &(offset, length, _) in &self.runs {
            let (mut at, run_end) = (piece_start + offset, piece_start + offset + length);
            while at < run_end {
                let cluster = at - at % cluster_bytes;
                let end = run_end.min(cluster + cluster_bytes);
                let parts = self.image.parts_touched(at - cluster..end - cluster);
                match self.clusters.last_mut() {
                    Some((last, data)) if *last == cluster => *data |= parts,
                    _ => self.clusters.push((cluster, parts)),
                }
                at = end;
            }
        }
    }
}

impl PieceWriter for ClusterWriter<'_> {
    /// Zeros have no clusters, but where something else would show through.
    fn write_zeros(&mut self, output: &mut Output<'_>, range: Range<u64>) -> Outcome {
        if let Some(behind) = &mut self.behind {
            behind.hide(self.image, output, range.clone())?;
        }
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
        if let Some(behind) = &mut self.behind {
            behind.leave_differences(self.image, output, slot, piece, &mut self.runs)?;
        }
        self.runs.retain(|&(_, _, has_data)| has_data);
        if let Some(compressor) = &mut self.compressor {
            let memory_offset = output.offset_bytes(slot);
            compressor.write(self.image, output.memory(), memory_offset, piece.start, &mut self.runs)?;
        }
        self.find_clusters(piece.start);
        if self.clusters.is_empty() {
            return Ok(());
        }
        let placed = self.image.place(self.clusters.len(), self.clusters.iter().copied());
        // What lies one after the other in the file is one request.
        self.segments.clear();
        let (mut start, mut end, mut index) = (placed, placed, 0);
        for &(offset, length, _) in &self.runs {
            let disk_offset = piece.start + offset;
            let before = self.clusters.iter().skip(index);
            index += before.take_while(|(cluster, _)| cluster + cluster_bytes <= disk_offset).count();
            let at = placed + index as u64 * cluster_bytes + disk_offset % cluster_bytes;
            if at != end {
                push(output, start, &mut self.segments, slot)?;
                start = at;
            }
            self.segments.push(output.segment(slot, offset, length));
            end = at + length;
        }
        push(output, start, &mut self.segments, slot)
    }
}

/// Writes segments, if there are any, which then are none.
fn push(output: &mut Output<'_>, offset_bytes: u64, segments: &mut Vec<Segment>, slot: usize) -> Outcome {
    if !segments.is_empty() {
        let operation = Operation::Write { force_unit_access: false };
        output.push(&Request { operation, offset_bytes, segments, token: slot as u64 })?;
        segments.clear();
    }
    Ok(())
}
