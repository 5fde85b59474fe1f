//! An open image: what its queues and its thread share.

use super::grace::Grace;
use super::medium::{ImageFile, Medium};
use crate::{Disk, Extent, ExtentKind, Geometry};
use imago::{FormatAccess, Mapping, ShallowMapping};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// An image as imago knows it.
pub(super) type Access = FormatAccess<Medium>;

pub(super) struct Image {
    pub(super) access: Access,
    pub(super) geometry: Geometry,
    /// The image's own size; the geometry's capacity is this, rounded up to logical blocks.
    pub(super) size_bytes: u64,
    pub(super) cluster_bytes: u64,
    /// Whether clusters can be marked as zeros, which version 2 cannot.
    pub(super) has_zero_clusters: bool,
    /// Whether clusters that were discarded are freed: an external data file keeps each where it is.
    pub(super) frees_clusters: bool,
    /// What each request may go to: files and disks of the chain, by [`Medium::index`].
    pub(super) below: Vec<Below>,
    /// Indices of those that writes and so flushes go to; none for an image that is read-only or need not last.
    pub(super) flushed: Vec<usize>,
    /// The image need not outlive this process.
    pub(super) is_temporary: bool,
    pub(super) grace: Grace,
    /// Changes to the metadata are not in the file yet.
    pub(super) is_changing: AtomicBool,
    /// Metadata were written and not made stable.
    pub(super) is_unstable: AtomicBool,
}

/// A disk of the chain.
pub(super) struct Below {
    pub(super) disk: Arc<dyn Disk>,
    /// For an image's own file or its data file, how long it is.
    pub(super) file: Option<Arc<ImageFile>>,
}

/// What to do with a piece of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It lies in a disk below, at an offset.
    There { index: usize, offset_bytes: u64 },
    /// It reads as zeros.
    Zeros,
    /// The worker knows what to do.
    Elsewhere,
}

impl Image {
    /// Where the bytes from `offset` lie, and for how many at most `length` that holds. For `writing`, a place may be
    /// written to.
    pub(super) fn find(&self, offset: u64, length: u64, writing: bool) -> io::Result<(Place, u64)> {
        // Padding, up to a whole logical block, exists on the disk only.
        if offset >= self.size_bytes {
            return Ok((Place::Zeros, length));
        }
        let length = length.min(self.size_bytes - offset);
        let (mapping, found_bytes) = self.access.get_mapping(offset, length)?;
        let found_bytes = found_bytes.min(length);
        if found_bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let place = match mapping {
            Mapping::Raw { storage, offset, writable, .. } if writable || !writing => {
                self.place_in(storage.index, offset, found_bytes)
            }
            Mapping::Zero { .. } if !writing => Place::Zeros,
            _ => Place::Elsewhere,
        };
        Ok((place, found_bytes))
    }

    /// A cluster that the file's end cuts off, or that lies behind it, is for the worker.
    fn place_in(&self, index: usize, offset_bytes: u64, length_bytes: u64) -> Place {
        let file = self.below.get(index).and_then(|below| below.file.as_ref());
        let inside = file
            .is_none_or(|file| offset_bytes.checked_add(length_bytes).is_some_and(|end| end <= file.length_bytes()));
        if inside { Place::There { index, offset_bytes } } else { Place::Elsewhere }
    }

    /// Whether what was just looked up may be known to nobody after a crash of this process.
    pub(super) fn may_be_unwritten(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_changing.load(Ordering::Relaxed)
    }

    pub(super) fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.geometry.check_extent_range(&range)?;
        let whole = range.end - range.start;
        let extent = |length_bytes, kind| Ok(Extent { offset_bytes: range.start, length_bytes, kind });
        if range.start >= self.size_bytes {
            return extent(whole, ExtentKind::Hole);
        }
        let asked_bytes = whole.min(self.size_bytes - range.start);
        let (mapping, found_bytes) = self.access.get_mapping(range.start, asked_bytes)?;
        let to_the_end = found_bytes >= asked_bytes;
        // Of zeros, only whole blocks count; a block that is partly data is data.
        let block_bytes = u64::from(self.geometry.logical_block_bytes);
        let zeros_bytes = if to_the_end { whole } else { found_bytes - found_bytes % block_bytes };
        let data_bytes = found_bytes.next_multiple_of(block_bytes).min(whole);
        match mapping {
            Mapping::Zero { explicit: true, .. } if zeros_bytes > 0 => extent(zeros_bytes, ExtentKind::Zero),
            Mapping::Zero { .. } if zeros_bytes > 0 => extent(zeros_bytes, ExtentKind::Hole),
            Mapping::Raw { storage, offset, .. } if found_bytes.is_multiple_of(block_bytes) => {
                self.extent_below(storage.index, offset, range.start, data_bytes)
            }
            _ => extent(data_bytes, ExtentKind::Data),
        }
    }

    /// The first run of `range` that is or is not in this image itself; its length, and whether it is.
    pub(super) fn find_own(&self, range: Range<u64>) -> io::Result<(u64, bool)> {
        self.geometry.check_extent_range(&range)?;
        let whole = range.end - range.start;
        if range.start >= self.size_bytes {
            return Ok((whole, false));
        }
        let asked_bytes = whole.min(self.size_bytes - range.start);
        let (mapping, found_bytes) = self.access.get_shallow_mapping(range.start, asked_bytes)?;
        let is_own = match mapping {
            ShallowMapping::Indirect { .. } | ShallowMapping::Eof { .. } => false,
            ShallowMapping::Zero { explicit, .. } => explicit,
            _ => true,
        };
        Ok((found_bytes.clamp(1, asked_bytes), is_own))
    }

    /// What a data cluster holds: the file it lies in may have a hole there.
    fn extent_below(&self, index: usize, offset: u64, start: u64, length_bytes: u64) -> io::Result<Extent> {
        let data = Extent { offset_bytes: start, length_bytes, kind: ExtentKind::Data };
        let Some(below) = self.below.get(index) else { return Ok(data) };
        if below.file.is_some() {
            // Its disk has no end, so it cannot tell the end of the file from a file cut short.
            return Ok(data);
        }
        let capacity_bytes = below.disk.geometry().capacity_bytes;
        let end = offset.saturating_add(length_bytes).min(capacity_bytes);
        if offset >= end {
            return Ok(data);
        }
        let found = below.disk.extents(offset..end)?;
        Ok(Extent { offset_bytes: start, length_bytes: found.length_bytes.min(length_bytes), kind: found.kind })
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Image({})", self.access)
    }
}
