//! What is read again in parts, as a piece of the source could not be read as a whole: to say where that is, or to save
//! the rest of it.

use crate::read::perform;
use crate::{Disk, MemoryMap, Operation, Queue, RequestError, Segment};
use std::io;
use std::ops::Range;

/// What is read at once first, before it comes to logical blocks.
pub(crate) const PART_BYTES: u64 = 64 << 10;

/// Hears which bytes of the source were lost, and why. Those of one thread come in order.
pub(crate) type Lost<'a> = dyn Fn(Range<u64>, RequestError) + Sync + 'a;

/// A queue on the memory of whoever reads.
pub(crate) struct ReadingAgain {
    queue: Box<dyn Queue>,
    block_bytes: u64,
}

impl ReadingAgain {
    pub(crate) fn new(source: &dyn Disk, memory: &MemoryMap) -> io::Result<Self> {
        let block_bytes = u64::from(source.geometry().logical_block_bytes);
        Ok(Self { queue: source.open_queue(memory, 1)?, block_bytes })
    }

    /// Where the first block of a piece lies that cannot be read, and why; `None`: now all of it can. `memory`: where
    /// the piece goes.
    pub(crate) fn first_failure(&mut self, piece: &Range<u64>, memory: Segment) -> Option<(u64, RequestError)> {
        for part in parts(piece, PART_BYTES) {
            if self.read(piece, &part, memory).is_err() {
                for block in parts(&part, self.block_bytes) {
                    if let Err(error) = self.read(piece, &block, memory) {
                        return Some((block.start, error));
                    }
                }
            }
        }
        None
    }

    /// Reads what can be read of a piece; what cannot becomes zeros by `zero`, which is told where in the piece, and
    /// `lost` hears of it. `is_over`: whether to stop.
    pub(crate) fn save(
        &mut self,
        piece: &Range<u64>,
        memory: Segment,
        zero: &dyn Fn(Range<u64>),
        lost: &Lost<'_>,
        is_over: &dyn Fn() -> bool,
    ) {
        for part in parts(piece, PART_BYTES) {
            if self.read(piece, &part, memory).is_ok() {
                continue;
            }
            for block in parts(&part, self.block_bytes) {
                if is_over() {
                    return;
                }
                if let Err(error) = self.read(piece, &block, memory) {
                    zero(block.start - piece.start..block.end - piece.start);
                    lost(block, error);
                }
            }
        }
    }

    fn read(&mut self, piece: &Range<u64>, part: &Range<u64>, memory: Segment) -> Result<(), RequestError> {
        // A piece fits into a segment.
        let length_bytes = (part.end - part.start) as u32;
        let segment =
            Segment { offset_bytes: memory.offset_bytes + (part.start - piece.start), length_bytes, ..memory };
        perform(&mut *self.queue, Operation::Read, part.start, &[segment]).map_err(|error| error_of(&error))
    }
}

fn error_of(error: &io::Error) -> RequestError {
    let own = error.get_ref().and_then(|source| source.downcast_ref::<RequestError>()).copied();
    own.unwrap_or_else(|| RequestError::Os(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// A range in parts that end on multiples of `unit_bytes`.
fn parts(range: &Range<u64>, unit_bytes: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let Range { mut start, end } = *range;
    std::iter::from_fn(move || {
        let part = start..(start - start % unit_bytes).saturating_add(unit_bytes).min(end);
        start = part.end;
        (!part.is_empty()).then_some(part)
    })
}
