//! Making an image's disk larger or smaller.

use super::bitmaps::{self, Bitmap};
use super::chain;
use super::create::Qcow2CreateOptions;
use super::encryption;
use super::entries::{Entry, Mapping, Place};
use super::header::Header;
use super::metadata::Metadata;
use super::own_file;
use super::snapshots;
use crate::formats::preallocation::{Preallocation, check, reserve};
use crate::formats::writable_file::WritableFile;
use crate::formats::{AllowedDirectories, ImageError};
use crate::{
    Disk, Extent, ExtentKind, FileOptions, Geometry, MemoryMap, Operation, Qcow2Disk, Remedy, Segment, read,
    walk_extents,
};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Resizes the image in `file`, which is locked. `goes_on` is asked all the time, and ends it.
pub(super) fn resize(
    file: &File,
    path: &Path,
    size_bytes: u64,
    preallocation: Preallocation,
    allowed: &AllowedDirectories,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), ImageError> {
    let header = own_file::header_to_change(file, path)?;
    refuse_unsized_snapshots(file, path, &header)?;
    for bitmap in bitmaps_of(file, path, &header)? {
        let is_kept = if size_bytes > 0 { Ok(()) } else { Err("cannot be one of a disk without a byte") };
        is_kept.and_then(|()| bitmap.usable(header.size_bytes, header.cluster_bytes())).map_err(|problem| {
            let name = String::from_utf8_lossy(&bitmap.name);
            let problem = format!("has the bitmap {name:?}, which {problem} (image bitmap --remove)");
            ImageError::Unusable { path: path.to_owned(), problem }
        })?;
    }
    if header.encryption != encryption::NONE && header.version < 3 && preallocation != Preallocation::Off {
        let problem = "is encrypted and of version 2 (compat=0.10), and such an image cannot be preallocated";
        return Err(ImageError::Unusable { path: path.to_owned(), problem: problem.into() });
    }
    let cluster_bytes = header.cluster_bytes() as u32;
    Qcow2CreateOptions { cluster_bytes, ..Qcow2CreateOptions::new(size_bytes) }.check()?;
    let old_bytes = header.size_bytes;
    if size_bytes > old_bytes {
        zero_behind_end(file, path, old_bytes, size_bytes, allowed, goes_on)?;
    }
    set_size(file, path, size_bytes, preallocation, allowed, goes_on)
}

/// A snapshot of a disk that changes its size has to say which it has.
fn refuse_unsized_snapshots(file: &File, path: &Path, header: &Header) -> Result<(), ImageError> {
    let image_file = own_file::image_file(file).map_err(failed(path))?;
    let found = snapshots::found(&image_file, header).map_err(failed(path))?;
    let problem = match found.iter().all(|snapshot| snapshot.own_size_bytes.is_some()) {
        true if found.is_empty() || header.version >= 3 => return Ok(()),
        true => {
            "has snapshots and is of version 2, where they need not say which size they have: make it one of version 3 \
             first (image amend -o compat=1.1)"
        }
        false => "has snapshots that do not say which size they have: remove them first (image snapshot -d)",
    };
    Err(ImageError::Unusable { path: path.to_owned(), problem: problem.into() })
}

fn bitmaps_of(file: &File, path: &Path, header: &Header) -> Result<Vec<Bitmap>, ImageError> {
    let file = own_file::image_file(file).map_err(failed(path))?;
    let found = bitmaps::bitmaps(&file, header).map_err(failed(path))?;
    Ok(found.into_iter().map(|(bitmap, _)| bitmap).collect())
}

/// Sees to it that what a disk of `size_bytes` would have behind its present end are zeros. It goes on ending there.
fn zero_behind_end(
    file: &File,
    path: &Path,
    old_bytes: u64,
    size_bytes: u64,
    allowed: &AllowedDirectories,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), ImageError> {
    let file = file.try_clone().map_err(failed(path))?;
    let disk = Qcow2Disk::on(chain::open_larger(file, path, size_bytes, allowed)?, path)?;
    zero_from(&disk, old_bytes, goes_on).map_err(failed(path))
}

/// Changes where the disk ends.
fn set_size(
    file: &File,
    path: &Path,
    size_bytes: u64,
    preallocation: Preallocation,
    allowed: &AllowedDirectories,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), ImageError> {
    let image_file = file.try_clone().map_err(failed(path))?;
    let opened = chain::open_in(image_file, path, &FileOptions::default(), allowed)?;
    let metadata = opened.into_metadata(path)?;
    let header = own_file::read_header(file, path)?;
    let has_now = |size_bytes| own_file::read_header(file, path).is_ok_and(|now| now.size_bytes == size_bytes);
    let is_as_it_was = || has_now(header.size_bytes);
    change(metadata, &header, size_bytes, preallocation, &is_as_it_was, goes_on).map_err(|error| {
        if size_bytes == header.size_bytes || !has_now(size_bytes) {
            return failed(path)(error);
        }
        let problem = format!(
            "has its new size, {size_bytes} bytes, but what is to be done then failed ({error}), and storage may be lost \
             that {} finds",
            Remedy::RepairImage
        );
        ImageError::Unusable { path: path.to_owned(), problem }
    })
}

fn failed(path: &Path) -> impl Fn(io::Error) -> ImageError {
    |source| ImageError::System { action: "change the size of", path: path.to_owned(), source }
}

fn change(
    mut metadata: Metadata,
    header: &Header,
    size_bytes: u64,
    preallocation: Preallocation,
    is_as_it_was: &dyn Fn() -> bool,
    goes_on: &dyn Fn() -> bool,
) -> io::Result<()> {
    let old_bytes = header.size_bytes;
    // A data file ends with the disk. A raw one holds each byte of it, too.
    let has_data_file = header.data_file.is_some();
    let preallocation = match preallocation {
        Preallocation::Off if has_data_file && header.is_data_file_raw => Preallocation::Metadata,
        wanted => wanted,
    };
    if size_bytes > old_bytes {
        let data_bytes = metadata.data().length_bytes();
        let grown = grow(&mut metadata, header, size_bytes, preallocation, goes_on);
        let grown = grown.and_then(|()| write_size(&mut metadata, header, size_bytes));
        grown.inspect_err(|_| {
            // Where the header has the new size, the disk wants what it was given. What cannot be taken back is leaked.
            let takes_back = is_as_it_was();
            let cut = if takes_back { cut_off(&mut metadata, old_bytes, size_bytes) } else { Ok(()) };
            let settled = settle(&mut metadata);
            // Longer, it is whole; shorter, what may still have places there is damaged.
            let ends_there = preallocation == Preallocation::Off || cut.and(settled).is_ok();
            let is_cut = takes_back && has_data_file && ends_there;
            let _ = if is_cut { metadata.data().truncate(data_bytes) } else { Ok(()) };
        })?;
        return settle(&mut metadata);
    }
    // Cut off anywhere, what lies behind the end is allocated at worst.
    let shrunk = write_size(&mut metadata, header, size_bytes);
    let shrunk = shrunk.and_then(|()| cut_off(&mut metadata, size_bytes, old_bytes));
    // What was reserved is given back whatever became of it.
    let settled = settle(&mut metadata);
    shrunk.and(settled)?;
    if has_data_file && size_bytes < old_bytes {
        metadata.data().truncate(size_bytes)?;
        metadata.data().sync()?;
    }
    Ok(())
}

/// Sees to it that the disk can end further on, and gives a place to what is new of it.
fn grow(
    metadata: &mut Metadata,
    header: &Header,
    size_bytes: u64,
    preallocation: Preallocation,
    goes_on: &dyn Fn() -> bool,
) -> io::Result<()> {
    if header.data_file.is_some() {
        metadata.data().reach(size_bytes)?;
    }
    metadata.reach(size_bytes)?;
    if preallocation != Preallocation::Off {
        preallocate(metadata, header.size_bytes..size_bytes, preallocation, header.backing.is_some(), goes_on)?;
    }
    Ok(())
}

/// Frees what is used no more, and makes all stable.
fn settle(metadata: &mut Metadata) -> io::Result<()> {
    metadata.write_entries()?;
    let gone = metadata.take_gone();
    metadata.free(&gone)?;
    metadata.close()?;
    metadata.sync()
}

/// Says where the disk ends, and with it, how long bitmaps of it are.
fn write_size(metadata: &mut Metadata, header: &Header, size_bytes: u64) -> io::Result<()> {
    if header.bitmaps.is_none_or(|bitmaps| bitmaps.bitmaps == 0) {
        return metadata.write_size(size_bytes);
    }
    let bitmaps = metadata.resize_bitmaps(header, size_bytes)?;
    metadata.put_bitmaps(header, bitmaps, Some(size_bytes))
}

/// Gives a place to all clusters of a range that have none; of that in which it begins, what may show a backing file
/// stays as it is.
fn preallocate(
    metadata: &mut Metadata,
    range: Range<u64>,
    preallocation: Preallocation,
    may_show_backing: bool,
    goes_on: &dyn Fn() -> bool,
) -> io::Result<()> {
    let layout = metadata.layout();
    let end = range.end.div_ceil(layout.cluster_bytes());
    let mut cluster = range.start >> layout.cluster_bits;
    if !range.start.is_multiple_of(layout.cluster_bytes()) {
        reserve_rest(metadata, cluster, &range, preallocation)?;
        cluster += u64::from(may_show_backing);
    }
    while cluster < end {
        check(goes_on)?;
        if !matches!(metadata.entry(cluster)?, Entry::Plain(Mapping { place: None, .. })) {
            cluster += 1;
            continue;
        }
        let (start, count) = metadata.allocate(cluster, 1)?;
        let length_bytes = count << layout.cluster_bits;
        // A data file ends with the disk.
        let end_bytes = (start + length_bytes).min(if layout.has_data_file { range.end } else { u64::MAX });
        let reserved = reserve_new(metadata, start..end_bytes, preallocation);
        let place = Some(Place { offset_bytes: start, is_own: true });
        // Zeros in the file are none on an encrypted disk.
        let (data, zeros) = match metadata.data().cipher().is_none() {
            true => (layout.all_parts(), 0),
            false => (0, layout.all_parts()),
        };
        let set = reserved.and_then(|()| metadata.set(cluster, Mapping { place, data, zeros }));
        set.inspect_err(|_| metadata.release(start, length_bytes))?;
        cluster += count;
    }
    Ok(())
}

/// Reserves storage for the rest of a cluster that has a place, and in which a range begins. It reads as zeros already.
fn reserve_rest(metadata: &mut Metadata, cluster: u64, range: &Range<u64>, wanted: Preallocation) -> io::Result<()> {
    let layout = metadata.layout();
    let is_wanted = matches!(wanted, Preallocation::Falloc | Preallocation::Full);
    match metadata.entry(cluster)? {
        Entry::Plain(Mapping { place: Some(Place { offset_bytes, is_own: true }), .. }) if is_wanted => {
            let start = cluster << layout.cluster_bits;
            let end = start + layout.cluster_bytes();
            // A data file ends with the disk.
            let end = if layout.has_data_file { end.min(range.end) } else { end };
            // Zeros that are written are none on an encrypted disk.
            reserve(
                &metadata.data().file,
                offset_bytes + (range.start - start),
                end - range.start,
                Preallocation::Falloc,
                &|| true,
            )
        }
        _ => Ok(()),
    }
}

/// Sees to it that clusters that were just allocated read as zeros, and have storage.
fn reserve_new(metadata: &mut Metadata, range: Range<u64>, preallocation: Preallocation) -> io::Result<()> {
    let length_bytes = range.end - range.start;
    // Of an encrypted one the table says that they are zeros.
    if metadata.data().cipher().is_none() && !metadata.is_fresh(range.start) {
        make_zeros(metadata.data(), range.start, length_bytes)?;
        metadata.need_contents();
    }
    reserve(&metadata.data().file, range.start, length_bytes, preallocation, &|| true)?;
    metadata.data().reach(range.end)
}

/// Without storage, where that can be: an attempt that was stopped may have left the places of a whole disk free.
fn make_zeros(file: &WritableFile, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
    let is_done = file.is_hole(offset_bytes, length_bytes) || file.punch_hole(offset_bytes, length_bytes).is_ok();
    if is_done { Ok(()) } else { file.write(&vec![0; length_bytes as usize], offset_bytes) }
}

/// Takes what lies behind the new end out of the tables.
fn cut_off(metadata: &mut Metadata, size_bytes: u64, old_bytes: u64) -> io::Result<()> {
    let layout = metadata.layout();
    let first = size_bytes.div_ceil(layout.cluster_bytes());
    let first_table = first.div_ceil(1 << layout.table_bits());
    let end = old_bytes.div_ceil(layout.cluster_bytes()).min(first_table << layout.table_bits());
    let mut cluster = metadata.next_with_table(first, end)?;
    while cluster < end {
        let entry = metadata.entry(cluster)?;
        if entry != Entry::Plain(Mapping::NOTHING) {
            metadata.set(cluster, Mapping::NOTHING)?;
            metadata.release_entry(entry);
        }
        cluster += 1;
    }
    metadata.write_entries()?;
    metadata.cut_off_tables(first_table)
}

/// What is made zeros before somebody is asked whether to go on.
const ZEROED_BYTES: usize = 1 << 30;

/// Sees to it that the disk is zeros from an offset on, on stable storage: the rest of a cluster may hold what a larger
/// disk held there, and an image behind this one may be longer than this one was.
fn zero_from(disk: &Qcow2Disk, offset_bytes: u64, goes_on: &dyn Fn() -> bool) -> io::Result<()> {
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
            for at in (0..length_bytes).step_by(ZEROED_BYTES) {
                check(goes_on)?;
                let length_bytes = (length_bytes - at).min(ZEROED_BYTES as u64);
                let zeroes = Operation::WriteZeroes { length_bytes, may_unmap: true };
                read::perform(&mut *queue, zeroes, offset_bytes + at, &[])?;
            }
        }
    }
    read::perform(&mut *queue, Operation::Flush, 0, &[])
}
