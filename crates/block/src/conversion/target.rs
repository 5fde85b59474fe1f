//! What a conversion asks of that which it writes.

use super::Outcome;
use super::output::Output;
use crate::{MemoryMap, Queue};
use std::io;
use std::ops::Range;

/// Where a conversion writes, for all of its threads.
pub(super) trait ConversionTarget: Sync {
    /// What is written as a whole. Shorter holes of the source count as data.
    fn granule_bytes(&self) -> u64;

    /// What is looked at as a whole where zeros are looked for in data.
    fn zero_unit_bytes(&self) -> u64 {
        self.granule_bytes()
    }

    /// A thread's way to it.
    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>>;

    /// What a thread writes with. Called once a thread.
    ///
    /// # Errors
    /// When there is no memory for it.
    fn writer(&self) -> io::Result<Box<dyn PieceWriter + '_>>;

    /// All of a piece is written.
    fn settle(&self, piece: Range<u64>) -> io::Result<()>;
}

/// How one thread writes. Called once a piece.
pub(super) trait PieceWriter {
    /// Writes a piece that reads as zeros in the source, however long.
    fn write_zeros(&mut self, output: &mut Output<'_>, range: Range<u64>) -> Outcome;

    /// Writes a piece that was read into a slot.
    fn write_data(&mut self, output: &mut Output<'_>, slot: usize, piece: &Range<u64>) -> Outcome;
}
