//! The data of single files, between the image and the transfer disks.

use crate::failures::{Failures, failure};
use crate::file_changes::inside;
use crate::glob;
use crate::mounts::path_of;
use crate::stream::{AlignedBuffer, ReadAhead, SinkStream, SourceStream, TransferDisks};
use blockyard_archive::{ACCESS_LIST, AccessControlList, remove_lists};
use blockyard_protocol::appliance::{Attribute, Discard, Failure, Fetch, Range, Read as ReadRequest, Store};
use rustix::fs::{
    FallocateFlags, OFlags, SeekFrom, Timespec, Timestamps, XattrFlags, fallocate, fsetxattr, fstatfs, futimens, seek,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::sync::Arc;

/// Bytes that are read or written at once: several requests, which a disk works on side by side.
const PIECE_BYTES: usize = 4 << 20;
/// Zeros of so many bytes, and a multiple of that, are a hole where a file has holes.
const SEARCHED_BYTES: usize = 64 << 10;
/// What direct writes are multiples of: every block size that Linux mounts here.
const BLOCK_BYTES: usize = 4096;
/// Permissions of a file that is not yet what it will be.
const PRIVATE_MODE: u32 = 0o600;
/// A file system without extended attributes (statfs(2)).
const MSDOS_SUPER_MAGIC: u64 = 0x4d44;

/// Writes the bytes of files to `sink`, one after another.
pub(crate) fn read(request: &ReadRequest, sink: &mut SinkStream, failures: &mut Failures) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    let mut paths = Vec::new();
    glob::each(&request.paths, failures, |path, _| paths.push(path));
    for path in &paths {
        let mut file = match open(path) {
            Ok(file) => file,
            Err(error) => {
                failures.note(path, "cannot open", Err(error));
                continue;
            }
        };
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                // The host does not take more: nothing else can be done.
                Ok(bytes) => sink.write_all(&buffer[..bytes])?,
                Err(error) => {
                    failures.note(path, "cannot read", Err(error));
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Opens a regular file for reading: nothing that could make us wait.
fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let kind = file.metadata()?.file_type();
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => Ok(file),
        (_, true) => Err(Errno::ISDIR.into()),
        _ => Err(io::Error::other("it is not a regular file")),
    }
}

/// Writes a file out of the source disk; how many bytes.
pub(crate) fn store(request: &Store, disks: &TransferDisks) -> Result<u64, Failure> {
    let name = (!request.name.is_empty()).then(|| OsStr::from_bytes(&request.name));
    let path = inside(path_of(&request.path), name);
    let bad = |what: &str| {
        let (path, what) = (path.clone(), what.to_owned());
        move |error: io::Error| failure(&path, &what, &error)
    };
    let is_there = fs::metadata(&path).is_ok();
    let keeps = is_there && (request.append || request.keep);
    // A fifo would make us wait for somebody to read it.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(!request.append)
        .append(request.append)
        .mode(PRIVATE_MODE)
        .custom_flags(flags)
        .open(&path);
    let file = file.map_err(bad("cannot create"))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(bad("cannot write")(io::Error::other("it is not a regular file")));
    }
    if is_there && !keeps {
        // Others may have had rights on the file that was there.
        file.set_permissions(Permissions::from_mode(PRIVATE_MODE)).map_err(bad("cannot set the attributes of"))?;
    }
    let bytes = if request.stream {
        store_stream(&file, disks)
    } else {
        store_raw(request, &path, &file, disks).map(|()| request.size)
    };
    if bytes.is_err() && !is_there && fs::symlink_metadata(&path).is_ok_and(|made| made.is_file()) {
        // Nobody wants a part of it.
        let _ = fs::remove_file(&path);
    }
    let bytes = bytes.map_err(bad("cannot write"))?;
    if keeps {
        return Ok(bytes);
    }
    set_attributes(request, &file).map_err(bad("cannot set the attributes of"))?;
    Ok(bytes)
}

fn store_stream(mut file: &File, disks: &TransferDisks) -> io::Result<u64> {
    let mut stream = SourceStream::open(&disks.source)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(stream.total),
            bytes => file.write_all(&buffer[..bytes])?,
        }
    }
}

/// Copies the ranges with data, past the page cache of both sides.
fn store_raw(request: &Store, path: &Path, file: &File, disks: &TransferDisks) -> io::Result<()> {
    let everything = [Range { offset: 0, length: request.size }];
    let ranges = if request.data.is_empty() { &everything[..] } else { &request.data[..] };
    let direct = direct(path, File::options().write(true));
    for range in ranges.iter().filter(|range| range.length > 0) {
        // The blocks in one piece; where the file system cannot, they come as they are written.
        if fallocate(file, FallocateFlags::empty(), range.offset, range.length) == Err(Errno::NOSPC) {
            return Err(Errno::NOSPC.into());
        }
        let pieces = read_disk(Arc::clone(&disks.source), range)?;
        while let Some(piece) = pieces.next()? {
            let blocks = &piece.buffer[..piece.bytes.next_multiple_of(BLOCK_BYTES)];
            past_the_cache(direct.as_ref(), file, |file| file.write_all_at(blocks, piece.offset))?;
            pieces.recycle(piece.buffer);
        }
    }
    file.set_len(request.size)
}

/// The file once more, past the page cache, where its file system does that.
fn direct(path: &Path, options: &mut OpenOptions) -> Option<File> {
    options.custom_flags(OFlags::DIRECT.bits() as i32).open(path).ok()
}

/// Does something with a file past the page cache, if that can be done: some file systems, Minix among them, open such
/// a file, and refuse what is done with it.
fn past_the_cache<T>(direct: Option<&File>, file: &File, mut act: impl FnMut(&File) -> io::Result<T>) -> io::Result<T> {
    match direct.map(&mut act) {
        Some(Err(error)) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => act(file),
        Some(done) => done,
        None => act(file),
    }
}

/// Reads a range of a disk in whole blocks; what is behind its end are zeros.
fn read_disk(disk: Arc<File>, range: &Range) -> io::Result<ReadAhead> {
    let (mut offset, end) = (range.offset, range.offset.saturating_add(range.length));
    ReadAhead::start(PIECE_BYTES, move |buffer| {
        let bytes = (end - offset).min(PIECE_BYTES as u64) as usize;
        if bytes == 0 {
            return Ok(None);
        }
        let sectors = bytes.next_multiple_of(512);
        disk.read_exact_at(&mut buffer[..sectors], offset)?;
        buffer[bytes..bytes.next_multiple_of(BLOCK_BYTES)].fill(0);
        offset += bytes as u64;
        Ok(Some((offset - bytes as u64, bytes)))
    })
}

/// Reads the source disk for nothing; how many bytes.
pub(crate) fn discard(request: &Discard, disks: &TransferDisks) -> Result<u64, Failure> {
    let read = || {
        let pieces = read_disk(Arc::clone(&disks.source), &Range { offset: 0, length: request.size })?;
        while let Some(piece) = pieces.next()? {
            pieces.recycle(piece.buffer);
        }
        Ok(request.size)
    };
    read().map_err(|error| failure(Path::new(""), "cannot read what the host sends", &error))
}

/// In the order that leaves nothing changed by what comes after it: a new owner takes capabilities and set-ID bits
/// away, and an access control list is also a mode. Where the file cannot have its list, nobody gets more than that
/// gives him.
fn set_attributes(request: &Store, file: &File) -> io::Result<()> {
    fchown(file, Some(request.user_id), Some(request.group_id))?;
    remove_lists(file)?;
    let list = request.attributes.iter().find(|attribute| attribute.name == ACCESS_LIST.as_bytes());
    let list = list.and_then(|attribute| AccessControlList::of_attribute(&attribute.value).ok());
    let mode = list.map_or(request.mode, |list| list.mode_without(request.mode));
    file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
    let extended = set_extended_attributes(&request.attributes, file);
    let time = Timespec { tv_sec: request.modified, tv_nsec: request.modified_ns.into() };
    futimens(file, &Timestamps { last_access: time, last_modification: time })?;
    extended
}

fn set_extended_attributes(attributes: &[Attribute], file: &File) -> io::Result<()> {
    for Attribute { name, value } in attributes {
        match fsetxattr(file, &name[..], value, XattrFlags::empty()) {
            // There it has none, as it has no owner.
            Err(Errno::OPNOTSUPP) if fstatfs(file).is_ok_and(|found| found.f_type as u64 == MSDOS_SUPER_MAGIC) => {
                return Ok(());
            }
            set => set?,
        }
    }
    Ok(())
}

/// Writes a file's data to the same places of the sink disk; how many bytes.
pub(crate) fn fetch(request: &Fetch, disks: &TransferDisks) -> Result<u64, Failure> {
    let path = path_of(&request.path);
    let bad = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| failure(path, &what, &error)
    };
    let file = open(path).map_err(bad("cannot open"))?;
    let metadata = file.metadata().map_err(bad("cannot access"))?;
    let size = metadata.len();
    if size != request.size {
        return Err(bad("cannot read")(io::Error::other("its size has changed")));
    }
    let has_holes = metadata.blocks().saturating_mul(512) < size;
    let reader = Arc::new((direct(path, File::options().read(true)), file));
    // Some file systems have holes and do not say where.
    let step = if has_holes { SEARCHED_BYTES } else { PIECE_BYTES };
    let mut copied = 0;
    let mut at = 0;
    while let Some(range) = next_data(&reader.1, at, size).map_err(bad("cannot read"))? {
        at = range.offset + range.length;
        let pieces = read_file(Arc::clone(&reader), &range).map_err(bad("cannot read"))?;
        while let Some(piece) = pieces.next().map_err(bad("cannot read"))? {
            let whole = piece.bytes.next_multiple_of(512);
            for (data, offset) in piece.buffer[..whole].chunks(step).zip((piece.offset..).step_by(step)) {
                if has_holes && data.iter().all(|&byte| byte == 0) {
                    continue;
                }
                disks.sink.write_all_at(data, offset).map_err(bad("cannot send"))?;
                copied += data.len() as u64;
            }
            pieces.recycle(piece.buffer);
        }
    }
    Ok(copied)
}

/// The next range with data at or behind `at`, in whole blocks unless it ends with the file.
pub(crate) fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<Range>> {
    let block = BLOCK_BYTES as u64;
    if at >= size {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start / block * block,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that does not know: all is data.
        Err(_) => return Ok(Some(Range { offset: at, length: size - at })),
    };
    let end = seek(file, SeekFrom::Hole(start.max(at))).unwrap_or(size);
    let end = end.checked_next_multiple_of(block).unwrap_or(size).min(size);
    Ok(Some(Range { offset: start, length: end.saturating_sub(start) }).filter(|range| range.length > 0))
}

fn read_file(file: Arc<(Option<File>, File)>, range: &Range) -> io::Result<ReadAhead> {
    let (mut offset, end) = (range.offset, range.offset + range.length);
    ReadAhead::start(PIECE_BYTES, move |buffer: &mut AlignedBuffer| {
        let bytes = (end - offset).min(PIECE_BYTES as u64) as usize;
        if bytes == 0 {
            return Ok(None);
        }
        let mut filled = 0;
        while filled < bytes {
            let upto = (bytes - filled).next_multiple_of(BLOCK_BYTES).min(PIECE_BYTES - filled);
            let (direct, file) = &*file;
            let place = &mut buffer[filled..filled + upto];
            let read = |file: &File| file.read_at(place, offset + filled as u64);
            match past_the_cache(direct.as_ref(), file, read)? {
                0 => return Err(io::Error::other("it ends before its size")),
                read => filled = (filled + read).min(bytes),
            }
        }
        buffer[bytes..bytes.next_multiple_of(512)].fill(0);
        offset += bytes as u64;
        Ok(Some((offset - bytes as u64, bytes)))
    })
}
