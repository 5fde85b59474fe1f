//! Making an image's disk larger or smaller.

use super::chain;
use super::create::{Preallocation, Qcow2CreateOptions};
use super::image::Image;
use crate::formats::{AllowedDirectories, ImageError};
use crate::{
    Disk, Extent, ExtentKind, FileOptions, Geometry, MemoryMap, Operation, Qcow2Disk, Segment, read, walk_extents,
};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::PoisonError;

/// Resizes the image in `file`, which is locked.
pub(super) fn resize(
    file: &File,
    path: &Path,
    size_bytes: u64,
    preallocation: Preallocation,
    allowed: &AllowedDirectories,
) -> Result<(), ImageError> {
    let header = chain::read_header(file, path)?;
    chain::refuse_snapshots(&header, path, "which have the size that it has now")?;
    if header.backing.is_some() && preallocation != Preallocation::Off {
        let problem = "has a backing file, and such an image cannot be preallocated: nothing would show through";
        return Err(ImageError::Unusable { path: path.to_owned(), problem: problem.into() });
    }
    let cluster_bytes = header.cluster_bytes() as u32;
    Qcow2CreateOptions { cluster_bytes, ..Qcow2CreateOptions::new(size_bytes) }.check()?;
    let old_bytes = header.size_bytes;
    if size_bytes > old_bytes {
        zero_behind_end(file, path, old_bytes, size_bytes, allowed)?;
    }
    set_size(file, path, size_bytes, preallocation, allowed)
}

/// Sees to it that what a disk of `size_bytes` would have behind its present end are zeros. It goes on ending there.
pub(super) fn zero_behind_end(
    file: &File,
    path: &Path,
    old_bytes: u64,
    size_bytes: u64,
    allowed: &AllowedDirectories,
) -> Result<(), ImageError> {
    let file = file.try_clone().map_err(failed(path))?;
    let disk = Qcow2Disk::on(chain::open_larger(file, path, size_bytes, allowed)?, path)?;
    zero_from(&disk, old_bytes).map_err(failed(path))
}

/// Changes where the disk ends.
pub(super) fn set_size(
    file: &File,
    path: &Path,
    size_bytes: u64,
    preallocation: Preallocation,
    allowed: &AllowedDirectories,
) -> Result<(), ImageError> {
    let file = file.try_clone().map_err(failed(path))?;
    let mut image = chain::open_in(file, path, &FileOptions::default(), allowed)?;
    change(&mut image, size_bytes, preallocation).map_err(failed(path))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> ImageError {
    |source| ImageError::System { action: "change the size of", path: path.to_owned(), source }
}

fn change(image: &mut Image, size_bytes: u64, preallocation: Preallocation) -> io::Result<()> {
    if size_bytes > image.size_bytes {
        image.access.resize_grow(size_bytes, preallocation.mode())?;
    } else {
        image.access.resize_shrink(size_bytes)?;
    }
    image.access.flush()?;
    if let Some(order) = &image.order {
        order.lock().unwrap_or_else(PoisonError::into_inner).end_reserve()?;
    }
    image.access.sync()
}

/// Sees to it that the disk is zeros from an offset on, on stable storage: the rest of a cluster may hold what a larger
/// disk held there, and an image behind this one may be longer than this one was.
fn zero_from(disk: &Qcow2Disk, offset_bytes: u64) -> io::Result<()> {
    let Geometry { capacity_bytes, logical_block_bytes, .. } = disk.geometry();
    let memory = MemoryMap::allocate(&[(0, logical_block_bytes as usize)]).map_err(io::Error::other)?;
    let mut queue = disk.open_queue(&memory, 1)?;
    let within = (offset_bytes % u64::from(logical_block_bytes)) as u32;
    let start = offset_bytes.next_multiple_of(logical_block_bytes.into());
    if within > 0 {
        let block = Segment { region: 0, length_bytes: logical_block_bytes, offset_bytes: 0 };
        let rest = Segment { length_bytes: logical_block_bytes - within, offset_bytes: within.into(), ..block };
        let block_start = offset_bytes - u64::from(within);
        read::perform(&mut *queue, Operation::Read, block_start, &[block])?;
        if memory.is_zero(rest) != Some(true) {
            memory.zero(rest);
            read::perform(&mut *queue, Operation::Write { force_unit_access: false }, block_start, &[block])?;
        }
    }
    for extent in walk_extents(disk, start..capacity_bytes) {
        let Extent { offset_bytes, length_bytes, kind } = extent?;
        if kind == ExtentKind::Data {
            let zeroes = Operation::WriteZeroes { length_bytes, may_unmap: true };
            read::perform(&mut *queue, zeroes, offset_bytes, &[])?;
        }
    }
    read::perform(&mut *queue, Operation::Flush, 0, &[])
}
