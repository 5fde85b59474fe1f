//! Room for a change in the image that it will be written to, before it happens.

use crate::layers::OverlayDisk;
use crate::read::perform;
use crate::{Disk, ExtentKind, MemoryMap, Operation, walk_extents};
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

/// What is reserved at once: what a file system has reserved of a piece that it has no room for is given back.
const PIECE_BYTES: u64 = 16 << 20;
/// Tables of an image that grows: a part of what it grows by, and some.
const TABLES_PART: u64 = 1000;
const TABLES_BYTES: u64 = 1 << 20;

/// Sees to it that the image, whose disk is `base`, has room for what the delta holds: reserves it where the disk's
/// bytes are the file's own, and otherwise looks at the file system.
///
/// # Errors
/// [`io::ErrorKind::StorageFull`] and its like when there is none; then nothing is reserved.
pub(super) fn reserve(delta: &OverlayDisk, base: &dyn Disk, image: &File) -> io::Result<()> {
    let data = data(delta)?;
    let geometry = base.geometry();
    // Of an image that happens to be as long, a part of its file is reserved for nothing.
    let is_raw =
        image.metadata()?.len().next_multiple_of(geometry.logical_block_bytes.into()) == geometry.capacity_bytes;
    if is_raw && reserve_holes(&data, base, image)? {
        return Ok(());
    }
    let bytes = data.iter().map(|range| range.end - range.start).sum::<u64>();
    let needed = bytes.saturating_add(bytes / TABLES_PART).saturating_add(if bytes > 0 { TABLES_BYTES } else { 0 });
    let system = fstatvfs(image)?;
    let free = if geteuid().is_root() { system.f_bfree } else { system.f_bavail };
    if free.saturating_mul(system.f_frsize) < needed { Err(Errno::NOSPC.into()) } else { Ok(()) }
}

/// What the delta has that is not zeros.
fn data(delta: &OverlayDisk) -> io::Result<Vec<Range<u64>>> {
    let capacity_bytes = delta.geometry().capacity_bytes;
    let (mut data, mut at) = (Vec::new(), 0);
    while at < capacity_bytes {
        let (length_bytes, is_own) = delta.find_own(at..capacity_bytes)?;
        for extent in walk_extents(delta, at..at + length_bytes).take_while(|_| is_own) {
            let extent = extent?;
            if extent.kind == ExtentKind::Data {
                data.push(extent.offset_bytes..extent.offset_bytes + extent.length_bytes);
            }
        }
        at += length_bytes;
    }
    Ok(data)
}

/// Reserves what is to be written where the file has no data; false when its file system cannot.
fn reserve_holes(data: &[Range<u64>], base: &dyn Disk, image: &File) -> io::Result<bool> {
    let mut grown = Vec::new();
    for range in data {
        for extent in walk_extents(base, range.clone()) {
            let extent = extent?;
            let end = extent.offset_bytes + extent.length_bytes;
            let holes = if extent.kind == ExtentKind::Data { end } else { extent.offset_bytes };
            for at in (holes..end).step_by(PIECE_BYTES as usize) {
                let length_bytes = (end - at).min(PIECE_BYTES);
                let before = image.metadata()?.blocks();
                let reserved = fallocate(image, FallocateFlags::KEEP_SIZE, at, length_bytes);
                if image.metadata()?.blocks() > before {
                    grown.push(at..at + length_bytes);
                }
                match reserved {
                    Ok(()) => {}
                    Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
                    Err(errno) => {
                        give_back(&grown, base)?;
                        return Err(errno.into());
                    }
                }
            }
        }
    }
    Ok(true)
}

/// They were holes, and are zeros.
fn give_back(reserved: &[Range<u64>], base: &dyn Disk) -> io::Result<()> {
    // No request points into it, but a map has at least one region.
    let memory = MemoryMap::allocate(&[(0, 4096)]).map_err(io::Error::other)?;
    let mut queue = base.open_queue(&memory, 1)?;
    reserved.iter().try_for_each(|range| {
        let zeros = Operation::WriteZeroes { length_bytes: range.end - range.start, may_unmap: true };
        perform(&mut *queue, zeros, range.start, &[])
    })
}
