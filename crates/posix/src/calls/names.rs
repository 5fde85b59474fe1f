//! Calls that name a file.

use crate::calls::{data, descriptor_names, disk};
use crate::description::{self, Mapped};
use crate::errno::{Errno, answer_int};
use crate::guarded::{get, put};
use crate::next::calls;
use crate::signals::{Busy, cancellation_point};
use crate::table::Open;
use crate::{connection, locks, setup, stat};
use libc::{c_char, c_int, c_uint, mode_t};

calls! {
    fn [open, open64](path: *const c_char, flags: c_int, mode: mode_t) -> c_int |own| {
        disk_followed(libc::AT_FDCWD, path).map_or_else(own, |number| answer_int(opened(number, flags)))
    }
    fn [__open_2, __open64_2](path: *const c_char, flags: c_int) -> c_int |own| {
        disk_followed(libc::AT_FDCWD, path).map_or_else(own, |number| answer_int(opened(number, flags)))
    }
    fn [openat, openat64](directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int |own| {
        disk_followed(directory, path).map_or_else(own, |number| answer_int(opened(number, flags)))
    }
    fn [__openat_2, __openat64_2](directory: c_int, path: *const c_char, flags: c_int) -> c_int |own| {
        disk_followed(directory, path).map_or_else(own, |number| answer_int(opened(number, flags)))
    }
    fn [openat2](directory: c_int, path: *const c_char, how: *const u64, size: usize) -> c_int |_own| {
        let opened = |number| get(how).and_then(|flags| opened(number, flags as c_int));
        // SAFETY: the program's arguments. Not every libc has it.
        let own = || unsafe { libc::syscall(libc::SYS_openat2, directory, path, how, size) } as c_int;
        disk_followed(directory, path).map_or_else(own, |number| answer_int(opened(number)))
    }
    fn [creat, creat64](path: *const c_char, mode: mode_t) -> c_int |own| {
        disk_followed(libc::AT_FDCWD, path).map_or_else(own, |number| answer_int(opened(number, CREAT)))
    }
    fn [stat, stat64](path: *const c_char, found: *mut libc::stat) -> c_int |own| {
        disk_followed(libc::AT_FDCWD, path).map_or_else(own, |number| answer_int(stated(number, found)))
    }
    fn [lstat, lstat64](path: *const c_char, found: *mut libc::stat) -> c_int |own| {
        disk_named(path).map_or_else(own, |number| answer_int(stated(number, found)))
    }
    fn [__xstat, __xstat64, __lxstat, __lxstat64](
        version: c_int, path: *const c_char, found: *mut libc::stat
    ) -> c_int |own| {
        disk_named(path).map_or_else(own, |number| answer_int(stated(number, found)))
    }
    fn [fstatat, fstatat64](
        directory: c_int, path: *const c_char, found: *mut libc::stat, flags: c_int
    ) -> c_int |own| {
        let stated = |number: Result<usize, Errno>| number.and_then(|number| stated(number, found));
        disk_at(directory, path, flags).map_or_else(own, |number| answer_int(stated(number)))
    }
    fn [__fxstatat, __fxstatat64](
        version: c_int, directory: c_int, path: *const c_char, found: *mut libc::stat, flags: c_int
    ) -> c_int |own| {
        let stated = |number: Result<usize, Errno>| number.and_then(|number| stated(number, found));
        disk_at(directory, path, flags).map_or_else(own, |number| answer_int(stated(number)))
    }
    fn [statx](
        directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, found: *mut libc::statx
    ) -> c_int |own| {
        let stated = |number: usize| put(found, stat::extended(connection::to(number)?, number));
        disk_at(directory, path, flags).map_or_else(own, |number| answer_int(number.and_then(stated)))
    }
    fn [access, euidaccess, eaccess](path: *const c_char, mode: c_int) -> c_int |own| {
        disk_followed(libc::AT_FDCWD, path).map_or_else(own, |number| answer_int(accessed(number, mode)))
    }
    fn [faccessat](directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int |own| {
        disk_followed(directory, path).map_or_else(own, |number| answer_int(accessed(number, mode)))
    }
    fn [unlink, remove](path: *const c_char) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| answer_int(BUSY))
    }
    fn [unlinkat](directory: c_int, path: *const c_char, flags: c_int) -> c_int |own| {
        let answer = if flags & libc::AT_REMOVEDIR != 0 { NO_DIRECTORY } else { BUSY };
        disk_in(directory, path).map_or_else(own, |_| answer_int(answer))
    }
    fn [rename](from: *const c_char, to: *const c_char) -> c_int |own| {
        disk_named(from).or_else(|| disk_named(to)).map_or_else(own, |_| answer_int(BUSY))
    }
    fn [renameat](from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> c_int |own| {
        disk_in(from_at, from).or_else(|| disk_in(to_at, to)).map_or_else(own, |_| answer_int(BUSY))
    }
    fn [renameat2](
        from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_uint
    ) -> c_int |own| {
        disk_in(from_at, from).or_else(|| disk_in(to_at, to)).map_or_else(own, |_| answer_int(BUSY))
    }
    fn [truncate, truncate64](path: *const c_char, length: i64) -> c_int |own| {
        let kept = |number: usize| connection::to(number).and_then(|connection| data::keep_length(connection, length));
        disk_named(path).map_or_else(own, |number| answer_int(kept(number)))
    }
}

/// What creat(2) opens with.
const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
/// A disk has its name for as long as the program runs.
const BUSY: Result<c_int, Errno> = Err(Errno(libc::EBUSY));
const NO_DIRECTORY: Result<c_int, Errno> = Err(Errno(libc::ENOTDIR));

/// The number of the disk that a path names.
#[inline(always)]
pub(super) fn disk_named(path: *const c_char) -> Option<usize> {
    disk_in(libc::AT_FDCWD, path)
}

/// The same of a path that may be one in a directory.
#[inline(always)]
pub(super) fn disk_in(directory: c_int, path: *const c_char) -> Option<usize> {
    if setup::may_name_disk(path) { setup::find(directory, path) } else { None }
}

/// The same of a path that may lead there by a descriptor, too (`/dev/stdin`).
#[inline(always)]
pub(super) fn disk_followed(directory: c_int, path: *const c_char) -> Option<usize> {
    let found = || setup::find(directory, path).or_else(|| descriptor_names::disk_of(path));
    if setup::may_name_disk(path) { found() } else { None }
}

/// The same, where a call may name a descriptor (`AT_EMPTY_PATH`), or a link itself (`AT_SYMLINK_NOFOLLOW`).
pub(super) fn disk_at(directory: c_int, path: *const c_char, flags: c_int) -> Option<Result<usize, Errno>> {
    let is_empty = || path.is_null() || get(path) == Ok(0);
    if flags & libc::AT_EMPTY_PATH != 0 && is_empty() {
        return Some(disk(directory)?.map(|disk| disk.number));
    }
    let find = if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { disk_followed } else { disk_in };
    find(directory, path).map(Ok)
}

/// Opens a disk, as open(2) does.
pub(super) fn opened(number: usize, flags: c_int) -> Result<c_int, Errno> {
    if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 {
        return Err(Errno(libc::EEXIST));
    }
    if flags & libc::O_DIRECTORY != 0 {
        return Err(Errno(libc::ENOTDIR));
    }
    cancellation_point();
    let _busy = Busy::enter();
    let connection = connection::to(number)?;
    if connection.geometry.read_only && flags & libc::O_ACCMODE != libc::O_RDONLY {
        return Err(Errno(libc::EACCES));
    }
    connection.prepare();
    let (mapped, descriptor) = Mapped::create(number, connection.geometry.capacity_bytes, flags)?;
    let failed = |error| {
        description::close(descriptor);
        error
    };
    let open = Open::new(mapped).map_err(|error| {
        mapped.unmap();
        failed(error)
    })?;
    open.give_to(descriptor).map_err(failed)?;
    locks::open_for(connection, mapped.get());
    Ok(descriptor)
}

fn stated(number: usize, found: *mut libc::stat) -> Result<c_int, Errno> {
    put(found, stat::of(connection::to(number)?, number))
}

fn accessed(number: usize, mode: c_int) -> Result<c_int, Errno> {
    let read_only = connection::to(number)?.geometry.read_only;
    let refused = mode & libc::X_OK != 0 || mode & libc::W_OK != 0 && read_only;
    if refused { Err(Errno(libc::EACCES)) } else { Ok(0) }
}
