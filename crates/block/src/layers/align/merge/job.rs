//! One change of the merger's.

use super::super::limits::Limits;
use super::super::mailbox::Mailbox;
use crate::{MemoryMap, Operation, Request, Segment};
use std::ops::Range;
use std::sync::Arc;

/// What a queue wants done.
#[derive(Clone, Debug)]
pub(in super::super) struct Change {
    /// The queue's slot, to tell it by.
    pub(in super::super) slot: u16,
    /// A write or zeroes.
    pub(in super::super) operation: Operation,
    /// Bytes of the disk.
    pub(in super::super) part: Range<u64>,
}

/// What a job does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Waits for its turn.
    Queued,
    /// Reads all of its blocks, of which there are two at most.
    ReadBoth,
    ReadFirst,
    ReadLast,
    Write,
    /// Has the disk zero whole blocks.
    Zero,
}

/// A job and its memory: the image of the blocks as they will be, and room to read two of them as they are.
pub(super) struct Job {
    offset_bytes: u64,
    image_bytes: u64,
    pub(super) change: Change,
    pub(super) mailbox: Option<Arc<Mailbox>>,
    pub(super) blocks: Range<u64>,
    pub(super) step: Step,
    pub(super) in_flight: bool,
}

impl Job {
    pub(super) fn new(offset_bytes: u64, image_bytes: u64) -> Self {
        let change = Change { slot: 0, operation: Operation::Flush, part: 0..0 };
        Self { offset_bytes, image_bytes, change, mailbox: None, blocks: 0..0, step: Step::Queued, in_flight: false }
    }

    /// Takes a change and its bytes; false when `fill` has none.
    pub(super) fn begin(
        &mut self,
        change: Change,
        mailbox: Arc<Mailbox>,
        limits: &Limits,
        memory: &MemoryMap,
        fill: impl FnOnce(&MemoryMap, Segment) -> bool,
    ) -> bool {
        self.blocks = limits.blocks(&change.part);
        self.change = change;
        let filled = match self.change.operation {
            Operation::WriteZeroes { .. } => self.is_whole() || memory.zero(self.in_image(&self.change.part)),
            _ => fill(memory, self.in_image(&self.change.part)),
        };
        self.mailbox = filled.then_some(mailbox);
        self.step = Step::Queued;
        self.in_flight = false;
        filled
    }

    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.blocks.start < range.end && range.start < self.blocks.end
    }

    fn is_whole(&self) -> bool {
        self.change.part == self.blocks
    }

    pub(super) fn first_step(&self, limits: &Limits) -> Step {
        match self.change.operation {
            Operation::WriteZeroes { .. } if self.is_whole() => Step::Zero,
            _ if self.is_whole() => Step::Write,
            _ if self.blocks.end - self.blocks.start <= 2 * limits.block_bytes => Step::ReadBoth,
            _ if self.change.part.start > self.blocks.start => Step::ReadFirst,
            _ => Step::ReadLast,
        }
    }

    /// The blocks that the step is about, and where they are in memory.
    fn extent(&self, limits: &Limits) -> (Range<u64>, u64) {
        let Range { start, end } = self.blocks;
        let beside_image = self.offset_bytes + self.image_bytes;
        match self.step {
            Step::ReadBoth => (start..end, beside_image),
            Step::ReadFirst => (start..start + limits.block_bytes, beside_image),
            Step::ReadLast => (end - limits.block_bytes..end, beside_image),
            Step::Queued | Step::Write | Step::Zero => (start..end, self.offset_bytes),
        }
    }

    /// The memory of the step's request.
    pub(super) fn segment(&self, limits: &Limits) -> Segment {
        let (blocks, offset_bytes) = self.extent(limits);
        // No more than an image; zeroes have no use for it.
        Segment { region: 0, length_bytes: (blocks.end - blocks.start) as u32, offset_bytes }
    }

    /// The step as a request.
    pub(super) fn request<'a>(&self, segment: &'a Segment, limits: &Limits, token: u64) -> Request<'a> {
        let (blocks, _) = self.extent(limits);
        let segments = if self.step == Step::Zero { &[] } else { std::slice::from_ref(segment) };
        let operation = match (self.step, self.change.operation) {
            (Step::Zero, Operation::WriteZeroes { may_unmap, .. }) => {
                Operation::WriteZeroes { length_bytes: blocks.end - blocks.start, may_unmap }
            }
            (Step::Write, Operation::Write { force_unit_access }) => Operation::Write { force_unit_access },
            (Step::Write, _) => Operation::Write { force_unit_access: false },
            _ => Operation::Read,
        };
        Request { operation, offset_bytes: blocks.start, segments, token }
    }

    /// Puts what was read into the image, around what is to be changed, and goes on.
    pub(super) fn merge(&mut self, memory: &MemoryMap, limits: &Limits) {
        let (read, offset_bytes) = self.extent(limits);
        let part = &self.change.part;
        let margins =
            [read.start..part.start.clamp(read.start, read.end), part.end.clamp(read.start, read.end)..read.end];
        for margin in margins {
            let to = self.in_image(&margin);
            let from = Segment { offset_bytes: offset_bytes + (margin.start - read.start), ..to };
            // Both are in the job's own memory, or empty.
            if let (Some(from), Some(to)) = (memory.slice(from), memory.slice(to)) {
                from.copy_to_volatile_slice(to);
            }
        }
        let has_tail = part.end < self.blocks.end;
        self.step = if self.step == Step::ReadFirst && has_tail { Step::ReadLast } else { Step::Write };
    }

    /// Where bytes of the disk are in the image.
    fn in_image(&self, bytes: &Range<u64>) -> Segment {
        Segment {
            region: 0,
            length_bytes: (bytes.end - bytes.start) as u32,
            offset_bytes: self.offset_bytes + (bytes.start - self.blocks.start),
        }
    }
}
