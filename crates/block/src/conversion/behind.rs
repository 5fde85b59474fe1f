//! What is behind a new image: of the disk, only what differs from it is written.

use super::output::{Output, Run};
use super::{Outcome, PIECE_BYTES};
use crate::read::perform;
use crate::{Disk, Extent, ExtentKind, MemoryMap, Operation, Qcow2Writer, Queue, Segment, walk_extents};
use std::io;
use std::ops::Range;

/// One thread's way to it.
pub(super) struct Behind<'a> {
    disk: &'a dyn Disk,
    queue: Box<dyn Queue>,
    /// For a piece.
    memory: MemoryMap,
    piece_bytes: u64,
    cluster_bytes: u64,
}

impl<'a> Behind<'a> {
    pub(super) fn new(disk: &'a dyn Disk, image: &Qcow2Writer) -> io::Result<Self> {
        let cluster_bytes = image.cluster_bytes();
        let piece_bytes = PIECE_BYTES.max(cluster_bytes);
        let memory = MemoryMap::allocate(&[(0, piece_bytes as usize)]).map_err(io::Error::other)?;
        Ok(Self { disk, queue: disk.open_queue(&memory, 1)?, memory, piece_bytes, cluster_bytes })
    }

    /// Of the runs of a piece, leaves the clusters that hold something else than what is behind them. Where they are
    /// zeros, the image says so.
    pub(super) fn leave_differences(
        &mut self,
        image: &Qcow2Writer,
        output: &Output<'_>,
        slot: usize,
        piece: &Range<u64>,
        runs: &mut Vec<Run>,
    ) -> Outcome {
        self.read(piece.clone())?;
        let (mut differences, mut zeros): (Vec<Run>, _) = (Vec::new(), Vec::new());
        for (at, has_data) in clusters(runs, self.cluster_bytes) {
            let behind = self.segment(at, self.cluster_bytes);
            if !has_data {
                if self.memory.is_zero(behind) != Some(true) {
                    zeros.push(piece.start + at);
                }
                continue;
            }
            let own = output.segment(slot, at, self.cluster_bytes);
            if output.memory().is_equal_in(own, &self.memory, behind) == Some(true) {
                continue;
            }
            match differences.last_mut() {
                Some((start, length, _)) if *start + *length == at => *length += self.cluster_bytes,
                _ => differences.push((at, self.cluster_bytes, true)),
            }
        }
        image.hide(zeros);
        *runs = differences;
        Ok(())
    }

    /// Zeros over data of what is behind: the image says so, of each cluster in which there are any.
    pub(super) fn hide(&mut self, image: &Qcow2Writer, output: &Output<'_>, range: Range<u64>) -> Outcome {
        let end = range.end.min(self.disk.geometry().capacity_bytes);
        for extent in walk_extents(self.disk, range.start.min(end)..end) {
            let Extent { offset_bytes, length_bytes, kind } = extent?;
            let (mut start, end) = (offset_bytes - offset_bytes % self.cluster_bytes, offset_bytes + length_bytes);
            while kind == ExtentKind::Data && start < end && !output.is_over() {
                let piece_end = (start + self.piece_bytes).min(end.next_multiple_of(self.cluster_bytes));
                self.read(start..piece_end)?;
                let all = [(0, piece_end - start, false)];
                let is_data =
                    |&(at, _): &(u64, bool)| self.memory.is_zero(self.segment(at, self.cluster_bytes)) != Some(true);
                let hidden = clusters(&all, self.cluster_bytes).filter(is_data).map(|(at, _)| start + at).collect();
                image.hide(hidden);
                start = piece_end;
            }
        }
        Ok(())
    }

    /// Reads a piece, and zeros behind the disk's end and the piece's.
    fn read(&mut self, piece: Range<u64>) -> io::Result<()> {
        let there = self.disk.geometry().capacity_bytes.clamp(piece.start, piece.end) - piece.start;
        self.memory.zero(self.segment(there, self.piece_bytes - there));
        if there == 0 {
            return Ok(());
        }
        let segment = self.segment(0, there);
        perform(&mut *self.queue, Operation::Read, piece.start, &[segment])
    }

    fn segment(&self, offset_bytes: u64, length_bytes: u64) -> Segment {
        // No longer than a piece, which fits.
        Segment { region: 0, length_bytes: length_bytes as u32, offset_bytes }
    }
}

/// Each cluster of some runs: where it begins, and whether it has data.
fn clusters(runs: &[Run], cluster_bytes: u64) -> impl Iterator<Item = (u64, bool)> {
    runs.iter().flat_map(move |&(offset, length, has_data)| {
        (offset..offset + length).step_by(cluster_bytes as usize).map(move |at| (at, has_data))
    })
}
