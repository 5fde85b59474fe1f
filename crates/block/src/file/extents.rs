//! Which ranges of a file hold data.

use super::backing::Backing;
use crate::{Extent, ExtentKind};
use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;
use std::io;
use std::ops::Range;

impl Backing {
    /// The first extent of `range`, as [`crate::Disk::extents`] asks for it. Extents end on logical blocks: a hole
    /// shorter than that counts as data.
    ///
    /// Safe from many threads: `SEEK_DATA` and `SEEK_HOLE` answer from their argument, not from the file's position,
    /// and nothing else here uses the position that they leave behind.
    pub(super) fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.geometry.check_extent_range(&range)?;
        let extent = |end: u64, kind| Extent { offset_bytes: range.start, length_bytes: end - range.start, kind };
        if range.start >= self.length_bytes() {
            return Ok(extent(range.end, ExtentKind::Hole));
        }
        if self.is_block_device {
            return Ok(extent(range.end, ExtentKind::Data));
        }
        let Some(data_start) = self.next_data(&range)? else {
            return Ok(extent(range.end, ExtentKind::Hole));
        };
        let block_bytes = u64::from(self.geometry.logical_block_bytes);
        let hole_end = (data_start - data_start % block_bytes).min(range.end);
        if hole_end > range.start {
            return Ok(extent(hole_end, ExtentKind::Hole));
        }
        let data_end = self.next_hole(data_start.max(range.start))?.next_multiple_of(block_bytes);
        Ok(extent(data_end.min(range.end), ExtentKind::Data))
    }

    /// Where the first data at or after the start of a range start; `None` when there are none.
    fn next_data(&self, range: &Range<u64>) -> io::Result<Option<u64>> {
        let offset = range.start;
        match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data_start) => Ok(Some(data_start.max(offset))),
            // Past the last data, or past the end of a file that became shorter: what was cut off is no hole.
            Err(Errno::NXIO) => self.check_reaches(range.end).map(|()| None),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Some(offset)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Where the data that `offset` lies in end.
    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        match seek(&self.file, SeekFrom::Hole(offset)) {
            // Never before `offset`, or a walk over the extents would not end.
            Ok(hole_start) => Ok(hole_start.max(offset + 1).min(self.length_bytes())),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(self.length_bytes()),
            Err(Errno::NXIO) => Err(truncated()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn check_reaches(&self, end: u64) -> io::Result<()> {
        let length_bytes = u64::try_from(fstat(&self.file)?.st_size).unwrap_or(0);
        if length_bytes < end.min(self.length_bytes()) { Err(truncated()) } else { Ok(()) }
    }
}

fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, crate::RequestError::Truncated)
}
