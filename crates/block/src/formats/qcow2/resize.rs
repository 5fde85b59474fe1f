//! Making an image's disk larger or smaller.

use super::chain;
use super::create::{Preallocation, Qcow2CreateOptions};
use super::image::Image;
use crate::formats::{AllowedDirectories, ImageError};
use crate::{Disk, Extent, ExtentKind, FileOptions, Operation, Qcow2Disk, read, walk_extents};
use std::io;
use std::path::Path;
use std::sync::PoisonError;

pub(super) fn resize(
    path: &Path,
    size_bytes: u64,
    preallocation: Preallocation,
    allowed: &AllowedDirectories,
) -> Result<(), ImageError> {
    let failed = |source| ImageError::System { action: "change the size of", path: path.to_owned(), source };
    let header = chain::read_header(&chain::open_file(path, true)?, path)?;
    if header.snapshots > 0 {
        let problem = "has snapshots, which have the size that it has now: remove them first (`qemu-img snapshot -d`)";
        return Err(ImageError::Unusable { path: path.to_owned(), problem: problem.into() });
    }
    if header.backing.is_some() && preallocation != Preallocation::Off {
        let problem = "has a backing file, and such an image cannot be preallocated: nothing would show through";
        return Err(ImageError::Unusable { path: path.to_owned(), problem: problem.into() });
    }
    let cluster_bytes = header.cluster_bytes() as u32;
    Qcow2CreateOptions { cluster_bytes, ..Qcow2CreateOptions::new(size_bytes) }.check()?;
    let old_bytes = header.size_bytes;
    let mut image = chain::open(path, &FileOptions::default(), allowed)?;
    change(&mut image, old_bytes, size_bytes, preallocation).map_err(failed)?;
    drop(image);
    if header.backing.is_some() && size_bytes > old_bytes {
        let disk = Qcow2Disk::open(path, &FileOptions::default(), allowed)?;
        hide_what_is_behind(&disk, old_bytes, size_bytes).map_err(failed)?;
    }
    Ok(())
}

fn change(image: &mut Image, old_bytes: u64, size_bytes: u64, preallocation: Preallocation) -> io::Result<()> {
    if size_bytes > old_bytes {
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

/// An image behind this one may be longer than this one was.
fn hide_what_is_behind(disk: &Qcow2Disk, old_bytes: u64, size_bytes: u64) -> io::Result<()> {
    let memory = crate::MemoryMap::allocate(&[(0, 4096)]).map_err(io::Error::other)?;
    let mut queue = disk.open_queue(&memory, 1)?;
    for extent in walk_extents(disk, old_bytes..size_bytes) {
        let Extent { offset_bytes, length_bytes, kind } = extent?;
        if kind == ExtentKind::Data {
            let zeroes = Operation::WriteZeroes { length_bytes, may_unmap: true };
            read::perform(&mut *queue, zeroes, offset_bytes, &[])?;
        }
    }
    read::perform(&mut *queue, Operation::Flush, 0, &[])
}
