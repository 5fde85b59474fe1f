//! Calls that read and write.

use crate::calls::{OpenDisk, disk};
use crate::connection::Connection;
use crate::errno::{Errno, answer, answer_int};
use crate::guarded::{get, put};
use crate::next::calls;
use crate::setup;
use crate::table;
use crate::transfer::{self, Buffers, Ends};
use blockyard_block::Operation;
use libc::{c_int, c_long, c_uint, c_void, iovec};
use std::ptr::null_mut;
use std::slice;

/// More than one buffer of a call (IOV_MAX).
const BUFFERS_MAX: usize = 1024;

/// Where a call reads or writes.
#[derive(Clone, Copy)]
enum Place {
    /// Where the descriptor stands, which goes on.
    Standing,
    At(i64),
}

/// The place of preadv2(2) and pwritev2(2), for which -1 is where the descriptor stands.
fn place_or_standing(offset: i64) -> Place {
    if offset == -1 { Place::Standing } else { Place::At(offset) }
}

fn one(buffer: *const c_void, length: usize) -> iovec {
    iovec { iov_base: buffer.cast_mut(), iov_len: length }
}

/// The buffers of readv(2) and its like.
fn many<'a>(buffers: *const iovec, count: c_int) -> Result<&'a [iovec], Errno> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= BUFFERS_MAX => {
            (0..count).try_for_each(|index| get(buffers.wrapping_add(index)).map(drop))?;
            // SAFETY: they are there.
            Ok(unsafe { slice::from_raw_parts(buffers, count) })
        }
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// What a call on a descriptor answers: that of a disk, or libc's `own`. Where another thread has just put a disk in
/// its place (dup2(2)), the kernel finds it open on nothing; and by now, it may be no disk's again.
fn on<T: PartialEq + From<i8>>(
    descriptor: c_int,
    own: impl Fn() -> T,
    of_disk: impl Fn(Result<OpenDisk, Errno>) -> T,
) -> T {
    loop {
        let given = table::given();
        if let Some(disk) = disk(descriptor) {
            return of_disk(disk);
        }
        let answer = own();
        if answer != T::from(-1) || Errno::last() != Errno(libc::EBADF) || table::given() == given {
            return answer;
        }
    }
}

/// Carries a transfer out where it is to be. A standing place goes on by what was transferred: first, so that whoever
/// shares it takes the bytes behind.
fn transferred(
    disk: &OpenDisk,
    place: Place,
    length: usize,
    transfer: impl FnOnce(u64) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let standing = match place {
        Place::At(offset) => return transfer(transfer::start(offset, length)?),
        Place::Standing => disk.mapped.get(),
    };
    let end = disk.capacity();
    let until = |from: u64| from.saturating_add(length as u64).min(end.max(from));
    let from = standing.advance(until);
    let done = transfer(from);
    let reached = from + *done.as_ref().unwrap_or(&0) as u64;
    if reached < until(from) {
        standing.go_back(until(from), reached);
    }
    done
}

fn read_into(disk: Result<OpenDisk, Errno>, buffers: Result<&[iovec], Errno>, place: Place) -> isize {
    let read = || {
        let disk = disk?.for_reading()?;
        let buffers = Buffers::new(buffers?)?;
        let is_direct = disk.mapped.get().flags() & libc::O_DIRECT != 0;
        let read = |from| transfer::read(disk.connection, from, &buffers, is_direct);
        transferred(&disk, place, buffers.total_bytes(), read)
    };
    answer(read()) as isize
}

fn write_from(disk: Result<OpenDisk, Errno>, buffers: Result<&[iovec], Errno>, place: Place, flags: c_int) -> isize {
    let write = || {
        let disk = disk?.for_writing(libc::EBADF)?;
        let buffers = Buffers::new(buffers?)?;
        let ends = if flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0 { Ends::Stable } else { disk.ends() };
        let write = |from| transfer::write(disk.connection, from, &buffers, ends);
        if disk.appends() {
            return write(disk.capacity());
        }
        transferred(&disk, place, buffers.total_bytes(), write)
    };
    answer(write()) as isize
}

/// What looks like a file may be given the length that it has.
fn truncated(disk: OpenDisk, length: i64) -> Result<c_int, Errno> {
    keep_length(disk.for_writing(libc::EINVAL)?.connection, length)
}

/// A disk has the length that it has, which what looks like a file may be given.
pub(super) fn keep_length(connection: &Connection, length: i64) -> Result<c_int, Errno> {
    let is_so_long = u64::try_from(length) == Ok(connection.geometry.capacity_bytes);
    if is_so_long && setup::disks_look_like_files() { Ok(0) } else { Err(Errno(libc::EINVAL)) }
}

calls! {
    fn [read](descriptor: c_int, buffer: *mut c_void, length: usize) -> isize |own| {
        on(descriptor, own, |disk| read_into(disk, Ok(&[one(buffer, length)]), Place::Standing))
    }
    fn [__read_chk](descriptor: c_int, buffer: *mut c_void, length: usize, room: usize) -> isize |own| {
        on(descriptor, own, |disk| read_into(disk, checked(&[one(buffer, length)], room), Place::Standing))
    }
    fn [write](descriptor: c_int, buffer: *const c_void, length: usize) -> isize |own| {
        on(descriptor, own, |disk| write_from(disk, Ok(&[one(buffer, length)]), Place::Standing, 0))
    }
    fn [pread, pread64](descriptor: c_int, buffer: *mut c_void, length: usize, offset: i64) -> isize |own| {
        on(descriptor, own, |disk| read_into(disk, Ok(&[one(buffer, length)]), Place::At(offset)))
    }
    fn [__pread_chk, __pread64_chk](
        descriptor: c_int, buffer: *mut c_void, length: usize, offset: i64, room: usize
    ) -> isize |own| {
        let buffer = [one(buffer, length)];
        on(descriptor, own, |disk| read_into(disk, checked(&buffer, room), Place::At(offset)))
    }
    fn [pwrite, pwrite64](descriptor: c_int, buffer: *const c_void, length: usize, offset: i64) -> isize |own| {
        on(descriptor, own, |disk| write_from(disk, Ok(&[one(buffer, length)]), Place::At(offset), 0))
    }
    fn [readv](descriptor: c_int, buffers: *const iovec, count: c_int) -> isize |own| {
        on(descriptor, own, |disk| read_into(disk, many(buffers, count), Place::Standing))
    }
    fn [writev](descriptor: c_int, buffers: *const iovec, count: c_int) -> isize |own| {
        on(descriptor, own, |disk| write_from(disk, many(buffers, count), Place::Standing, 0))
    }
    fn [preadv, preadv64](descriptor: c_int, buffers: *const iovec, count: c_int, offset: i64) -> isize |own| {
        on(descriptor, own, |disk| read_into(disk, many(buffers, count), Place::At(offset)))
    }
    fn [pwritev, pwritev64](descriptor: c_int, buffers: *const iovec, count: c_int, offset: i64) -> isize |own| {
        on(descriptor, own, |disk| write_from(disk, many(buffers, count), Place::At(offset), 0))
    }
    fn [preadv2, preadv64v2](
        descriptor: c_int, buffers: *const iovec, count: c_int, offset: i64, flags: c_int
    ) -> isize |own| {
        let buffers = suited(buffers, count, flags);
        on(descriptor, own, |disk| read_into(disk, buffers, place_or_standing(offset)))
    }
    fn [pwritev2, pwritev64v2](
        descriptor: c_int, buffers: *const iovec, count: c_int, offset: i64, flags: c_int
    ) -> isize |own| {
        let buffers = suited(buffers, count, flags);
        on(descriptor, own, |disk| write_from(disk, buffers, place_or_standing(offset), flags))
    }
    fn [lseek, lseek64](descriptor: c_int, offset: i64, whence: c_int) -> i64 |own| {
        on(descriptor, own, |disk| answer(disk.and_then(|disk| sought(&disk, offset, whence))))
    }
    fn [fsync, fdatasync, syncfs](descriptor: c_int) -> c_int |own| {
        on(descriptor, own, |disk| answer_int(disk.and_then(|disk| flush(&disk))))
    }
    fn [sync_file_range](descriptor: c_int, offset: i64, length: i64, flags: c_uint) -> c_int |own| {
        let is_known = flags & !SYNC_FLAGS == 0 && offset >= 0 && length >= 0 && offset.checked_add(length).is_some();
        let flushed = |disk: OpenDisk| if is_known { flush(&disk) } else { Err(Errno(libc::EINVAL)) };
        on(descriptor, own, |disk| answer_int(disk.and_then(flushed)))
    }
    fn [readahead](descriptor: c_int, offset: i64, length: usize) -> isize |own| {
        // What a program reads on, it has before it asks; anything else would be thrown away.
        on(descriptor, own, |disk| answer(disk.and_then(OpenDisk::for_reading).map(|_| 0)) as isize)
    }
    fn [splice](
        from: c_int, from_place: *mut i64, to: c_int, to_place: *mut i64, length: usize, flags: c_uint
    ) -> isize |own| {
        // As of a file that has no such way: programs read and write then.
        if is_about_disk(from, to) { answer::<c_long>(Err(Errno(libc::EINVAL))) as isize } else { own() }
    }
    fn [ftruncate, ftruncate64](descriptor: c_int, length: i64) -> c_int |own| {
        on(descriptor, own, |disk| answer_int(disk.and_then(|disk| truncated(disk, length))))
    }
    fn [fallocate, fallocate64](descriptor: c_int, mode: c_int, offset: i64, length: i64) -> c_int |own| {
        let allocated = |disk: Result<OpenDisk, Errno>| disk.and_then(|disk| allocate(disk, mode, offset, length));
        on(descriptor, own, |disk| answer_int(allocated(disk)))
    }
    fn [posix_fallocate, posix_fallocate64](descriptor: c_int, offset: i64, length: i64) -> c_int |own| {
        let has_room = |disk: Result<OpenDisk, Errno>| disk.and_then(|disk| has_storage(disk, offset, length));
        on(descriptor, own, |disk| has_room(disk).map_or_else(|error| error.0, |()| 0))
    }
    fn [posix_fadvise, posix_fadvise64](descriptor: c_int, offset: i64, length: i64, advice: c_int) -> c_int |own| {
        let is_known = (libc::POSIX_FADV_NORMAL..=libc::POSIX_FADV_NOREUSE).contains(&advice) && length >= 0;
        let known = if is_known { 0 } else { libc::EINVAL };
        on(descriptor, own, |disk| disk.map_or_else(|error| error.0, |_| known))
    }
    fn [copy_file_range](
        from: c_int, from_place: *mut i64, to: c_int, to_place: *mut i64, length: usize, flags: c_uint
    ) -> isize |own| {
        match is_about_disk(from, to) {
            true if flags != 0 => answer::<c_long>(Err(Errno(libc::EINVAL))) as isize,
            true => answer_copied(copy(from, from_place, to, to_place, length)),
            false => own(),
        }
    }
    fn [sendfile, sendfile64](to: c_int, from: c_int, offset: *mut i64, length: usize) -> isize |own| {
        match is_about_disk(from, to) {
            true => answer_copied(copy(from, offset, to, null_mut(), length)),
            false => own(),
        }
    }
}

/// Of sync_file_range(2).
const SYNC_FLAGS: c_uint =
    libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// A buffer, of which a compiler knows that it has room for so much (`_FORTIFY_SOURCE`).
fn checked(buffers: &[iovec], room: usize) -> Result<&[iovec], Errno> {
    if buffers.iter().any(|buffer| buffer.iov_len > room) {
        std::process::abort();
    }
    Ok(buffers)
}

/// The same of preadv2(2), if the flags are such as mean something to a disk, or nothing.
fn suited<'a>(buffers: *const iovec, count: c_int, flags: c_int) -> Result<&'a [iovec], Errno> {
    const KNOWN: c_int = libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_HIPRI;
    if flags & !KNOWN == 0 { many(buffers, count) } else { Err(Errno(libc::EOPNOTSUPP)) }
}

fn sought(disk: &OpenDisk, offset: i64, whence: c_int) -> Result<i64, Errno> {
    let (description, end) = (disk.mapped.get(), disk.capacity());
    let from = match whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => description.place(),
        libc::SEEK_END => end,
        libc::SEEK_DATA | libc::SEEK_HOLE if !(0..end as i64).contains(&offset) => return Err(Errno(libc::ENXIO)),
        libc::SEEK_DATA => 0,
        // All of a disk is data.
        libc::SEEK_HOLE => end.wrapping_sub(offset as u64),
        _ => return Err(Errno(libc::EINVAL)),
    };
    // A device has nothing behind its end.
    let last = if setup::disks_look_like_files() { i64::MAX } else { end as i64 };
    if (whence, offset) == (libc::SEEK_CUR, 0) {
        return Ok(from as i64);
    }
    let to = (from as i64).checked_add(offset).filter(|to| (0..=last).contains(to)).ok_or(Errno(libc::EINVAL))?;
    description.set_place(to as u64);
    Ok(to)
}

/// Has all that was written be stable.
pub(super) fn flush(disk: &OpenDisk) -> Result<c_int, Errno> {
    transfer::perform(disk.connection, Operation::Flush, 0).map(|()| 0)
}

/// As fallocate(2): on a device of whole blocks, and over the end only where the size is kept, which is what it is.
fn allocate(disk: OpenDisk, mode: c_int, offset: i64, length: i64) -> Result<c_int, Errno> {
    let (capacity, looks_like_file) = (disk.capacity(), setup::disks_look_like_files());
    let block = u64::from(disk.connection.geometry.logical_block_bytes);
    let (Ok(offset), Ok(length @ 1..)) = (u64::try_from(offset), u64::try_from(length)) else {
        return Err(Errno(libc::EINVAL));
    };
    let (what, keeps_size) = (mode & !libc::FALLOC_FL_KEEP_SIZE, mode & libc::FALLOC_FL_KEEP_SIZE != 0);
    let (punches, zeroes) = (what == libc::FALLOC_FL_PUNCH_HOLE && keeps_size, what == libc::FALLOC_FL_ZERO_RANGE);
    if what != 0 && !punches && !zeroes {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let disk = disk.for_writing(libc::EBADF)?;
    let kept = length.min(capacity.saturating_sub(offset));
    match (looks_like_file, kept) {
        (true, 0) => return Err(Errno(libc::ENOSPC)),
        (false, 0) => return Err(Errno(libc::EINVAL)),
        (false, _) if kept < length && !keeps_size || (offset | kept) % block != 0 => return Err(Errno(libc::EINVAL)),
        _ => {}
    }
    if what == 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    transfer::write_zeroes(disk.connection, offset, kept, punches)?;
    Ok(0)
}

/// A disk has room for all that it can hold.
fn has_storage(disk: OpenDisk, offset: i64, length: i64) -> Result<(), Errno> {
    let disk = disk.for_writing(libc::EBADF)?;
    let end = offset.checked_add(length).filter(|_| offset >= 0 && length > 0).ok_or(Errno(libc::EINVAL))?;
    if end as u64 <= disk.capacity() { Ok(()) } else { Err(Errno(libc::ENOSPC)) }
}

/// What calls that copy from one descriptor to another copy at once, through memory; whoever wants more asks again.
const COPIED_BYTES_MAX: usize = 1 << 20;

fn is_about_disk(from: c_int, to: c_int) -> bool {
    table::has(from) || table::has(to)
}

/// What a call that copies answers, which has set the error where it was one of those that it calls.
fn answer_copied(copied: Result<isize, Errno>) -> isize {
    copied.unwrap_or_else(|error| answer::<c_long>(Err(error)) as isize)
}

/// From where each stands, or its place, which goes on instead.
fn copy(from: c_int, from_place: *mut i64, to: c_int, to_place: *mut i64, length: usize) -> Result<isize, Errno> {
    let at = |place: *mut i64| if place.is_null() { Ok(None) } else { get(place).map(Some) };
    let (from_at, to_at) = (at(from_place)?, at(to_place)?);
    let mut bytes = vec![0_u8; length.min(COPIED_BYTES_MAX)];
    let address = bytes.as_mut_ptr().cast::<c_void>();
    // SAFETY: memory of our own.
    let read = unsafe {
        match from_at {
            Some(place) => libc::pread64(from, address, bytes.len(), place),
            None => libc::read(from, address, bytes.len()),
        }
    };
    if read <= 0 {
        return Ok(read);
    }
    // SAFETY: as above.
    let written = unsafe {
        match to_at {
            Some(place) => libc::pwrite64(to, address, read as usize, place),
            None => libc::write(to, address, read as usize),
        }
    };
    let error = Errno::last();
    // What was read and not written is read again.
    if from_at.is_none() && written < read {
        // SAFETY: numbers.
        unsafe { libc::lseek64(from, written.max(0) as i64 - read as i64, libc::SEEK_CUR) };
    }
    if written < 0 {
        return Err(error);
    }
    for (place, at) in [(from_place, from_at), (to_place, to_at)] {
        at.map(|at| put(place, at + written as i64)).transpose()?;
    }
    Ok(written)
}
