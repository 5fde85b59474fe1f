//! Writing what an image holds to the disk that it is based on.

use crate::read::perform;
use crate::{Disk, ExtentKind, MemoryMap, Operation, Queue, Segment, walk_extents};
use std::io;
use std::ops::Range;

/// Why nothing more was folded.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// It was not to go on.
    #[error("it was stopped")]
    Stopped,
    /// The image that is folded has failed.
    #[error(transparent)]
    Top(io::Error),
    /// The one that it is folded into has failed.
    #[error(transparent)]
    Base(io::Error),
}

impl From<FoldError> for io::Error {
    fn from(error: FoldError) -> Self {
        match error {
            FoldError::Stopped => io::ErrorKind::Interrupted.into(),
            FoldError::Top(error) | FoldError::Base(error) => error,
        }
    }
}

/// What is copied at once.
const BUFFER_BYTES: u32 = 1 << 20;

/// Writes to `base` those runs of `top` that `own` says are not the base's own, and flushes it; zeros as zeros. What
/// `top` shows is the same at any time, so this can be done again from the start. `goes_on` hears where on the disk it
/// is and how many bytes of data it has written, and says whether to go on. Returns the bytes that were written.
///
/// # Errors
/// When either fails, when the base is read-only or smaller, and when it is not to go on.
pub(crate) fn fold(
    top: &dyn Disk,
    mut own: impl FnMut(Range<u64>) -> io::Result<(u64, bool)>,
    base: &dyn Disk,
    goes_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<u64, FoldError> {
    let capacity_bytes = top.geometry().capacity_bytes;
    let base_geometry = base.geometry();
    if base_geometry.read_only || base_geometry.capacity_bytes < capacity_bytes {
        let problem = "the base is read-only or smaller than the delta";
        return Err(FoldError::Base(io::Error::new(io::ErrorKind::InvalidInput, problem)));
    }
    let mut folding = Folding::new(top, base, goes_on)?;
    let (mut at, mut written_bytes) = (0, 0);
    while at < capacity_bytes {
        let (length_bytes, is_own) = own(at..capacity_bytes).map_err(FoldError::Top)?;
        if is_own {
            folding.copy(at..at + length_bytes)?;
            written_bytes += length_bytes;
        }
        at += length_bytes;
    }
    perform(&mut *folding.to, Operation::Flush, 0, &[]).map_err(FoldError::Base)?;
    Ok(written_bytes)
}

struct Folding<'a> {
    top: &'a dyn Disk,
    from: Box<dyn Queue>,
    to: Box<dyn Queue>,
    block_bytes: u64,
    data_bytes: u64,
    goes_on: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl<'a> Folding<'a> {
    fn new(
        top: &'a dyn Disk,
        base: &dyn Disk,
        goes_on: &'a mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Self, FoldError> {
        let memory = MemoryMap::allocate(&[(0, BUFFER_BYTES as usize)]);
        let memory = memory.map_err(|error| FoldError::Top(io::Error::other(error)))?;
        let block_bytes = u64::from(top.geometry().logical_block_bytes.max(base.geometry().logical_block_bytes));
        Ok(Self {
            top,
            from: top.open_queue(&memory, 1).map_err(FoldError::Top)?,
            to: base.open_queue(&memory, 1).map_err(FoldError::Base)?,
            block_bytes,
            data_bytes: 0,
            goes_on,
        })
    }

    /// Copies a range, widened to whole blocks: what the top shows around it is what the base has.
    fn copy(&mut self, range: Range<u64>) -> Result<(), FoldError> {
        let capacity_bytes = self.top.geometry().capacity_bytes;
        let start = range.start - range.start % self.block_bytes;
        let end = range.end.next_multiple_of(self.block_bytes).min(capacity_bytes);
        let top = self.top;
        for extent in walk_extents(top, start..end) {
            let extent = extent.map_err(FoldError::Top)?;
            let extent_end = extent.offset_bytes + extent.length_bytes;
            let is_whole = extent.offset_bytes.is_multiple_of(self.block_bytes)
                && (extent_end.is_multiple_of(self.block_bytes) || extent_end == capacity_bytes);
            match extent.kind {
                ExtentKind::Zero | ExtentKind::Hole if is_whole => self.zero(extent.offset_bytes..extent_end)?,
                _ => self.copy_data(extent.offset_bytes..extent_end)?,
            }
        }
        Ok(())
    }

    fn zero(&mut self, range: Range<u64>) -> Result<(), FoldError> {
        self.note(range.start)?;
        let length_bytes = range.end - range.start;
        let zeros = Operation::WriteZeroes { length_bytes, may_unmap: true };
        perform(&mut *self.to, zeros, range.start, &[]).map_err(FoldError::Base)
    }

    fn copy_data(&mut self, range: Range<u64>) -> Result<(), FoldError> {
        let mut at = range.start - range.start % self.block_bytes;
        let end = range.end.next_multiple_of(self.block_bytes);
        while at < end {
            self.note(at)?;
            // At most the buffer's length, so it fits.
            let length_bytes = (end - at).min(u64::from(BUFFER_BYTES)) as u32;
            let segment = Segment { region: 0, length_bytes, offset_bytes: 0 };
            perform(&mut *self.from, Operation::Read, at, &[segment]).map_err(FoldError::Top)?;
            let write = Operation::Write { force_unit_access: false };
            perform(&mut *self.to, write, at, &[segment]).map_err(FoldError::Base)?;
            at += u64::from(length_bytes);
            self.data_bytes += u64::from(length_bytes);
        }
        Ok(())
    }

    fn note(&mut self, at: u64) -> Result<(), FoldError> {
        if (self.goes_on)(at, self.data_bytes) { Ok(()) } else { Err(FoldError::Stopped) }
    }
}
