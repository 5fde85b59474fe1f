//! Calls that name a file.

use crate::calls::OpenDisk;
use crate::description::Mapped;
use crate::errno::{Errno, answer_int};
use crate::next::next;
use crate::table::Open;
use crate::{connection, setup, stat};
use libc::{c_char, c_int, c_uint, mode_t};
use std::ffi::CStr;

next! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn __open_2(path: *const c_char, flags: c_int) -> c_int;
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int;
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn creat(path: *const c_char, mode: mode_t) -> c_int;
    fn creat64(path: *const c_char, mode: mode_t) -> c_int;
    fn stat(path: *const c_char, found: *mut libc::stat) -> c_int;
    fn stat64(path: *const c_char, found: *mut libc::stat) -> c_int;
    fn lstat(path: *const c_char, found: *mut libc::stat) -> c_int;
    fn lstat64(path: *const c_char, found: *mut libc::stat) -> c_int;
    fn fstatat(directory: c_int, path: *const c_char, found: *mut libc::stat, flags: c_int) -> c_int;
    fn fstatat64(directory: c_int, path: *const c_char, found: *mut libc::stat, flags: c_int) -> c_int;
    fn __xstat(version: c_int, path: *const c_char, found: *mut libc::stat) -> c_int;
    fn __xstat64(version: c_int, path: *const c_char, found: *mut libc::stat) -> c_int;
    fn __lxstat(version: c_int, path: *const c_char, found: *mut libc::stat) -> c_int;
    fn __lxstat64(version: c_int, path: *const c_char, found: *mut libc::stat) -> c_int;
    fn statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, found: *mut libc::statx) -> c_int;
    fn access(path: *const c_char, mode: c_int) -> c_int;
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int;
    fn eaccess(path: *const c_char, mode: c_int) -> c_int;
    fn faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
    fn unlink(path: *const c_char) -> c_int;
    fn remove(path: *const c_char) -> c_int;
    fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn rename(from: *const c_char, to: *const c_char) -> c_int;
    fn renameat(from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char) -> c_int;
    fn renameat2(
        from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint
    ) -> c_int;
    fn truncate(path: *const c_char, length: i64) -> c_int;
    fn truncate64(path: *const c_char, length: i64) -> c_int;
}

/// Functions of the program's, that are libc's where no disk is named.
macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $type:ty),*) if $path:ident => |$number:ident| $body:expr;)*) => {
        mod symbols {
            use super::*;

            $(
                /// # Safety
                /// As libc's.
                #[unsafe(no_mangle)]
                unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                    // SAFETY: the caller's.
                    match unsafe { disk_named($path) } {
                        Some($number) => answer_int($body),
                        // SAFETY: the caller's.
                        None => unsafe { super::$name($($argument),*) },
                    }
                }
            )*
        }
    };
}

calls! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) if path => |number| opened(number, flags);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) if path => |number| opened(number, flags);
    fn __open_2(path: *const c_char, flags: c_int) if path => |number| opened(number, flags);
    fn __open64_2(path: *const c_char, flags: c_int) if path => |number| opened(number, flags);
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) if path => |number| opened(number, flags);
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) if path => |number| opened(number, flags);
    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) if path => |number| opened(number, flags);
    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) if path => |number| opened(number, flags);
    fn creat(path: *const c_char, mode: mode_t) if path => |number| opened(number, CREAT);
    fn creat64(path: *const c_char, mode: mode_t) if path => |number| opened(number, CREAT);
    fn stat(path: *const c_char, found: *mut libc::stat) if path => |number| stated(number, found);
    fn stat64(path: *const c_char, found: *mut libc::stat) if path => |number| stated(number, found);
    fn lstat(path: *const c_char, found: *mut libc::stat) if path => |number| stated(number, found);
    fn lstat64(path: *const c_char, found: *mut libc::stat) if path => |number| stated(number, found);
    fn __xstat(version: c_int, path: *const c_char, found: *mut libc::stat) if path => |number| stated(number, found);
    fn __xstat64(version: c_int, path: *const c_char, found: *mut libc::stat) if path => |number| stated(number, found);
    fn __lxstat(version: c_int, path: *const c_char, found: *mut libc::stat) if path => |number| stated(number, found);
    fn __lxstat64(version: c_int, path: *const c_char, found: *mut libc::stat) if path => |number| stated(number, found);
    fn access(path: *const c_char, mode: c_int) if path => |number| accessed(number, mode);
    fn euidaccess(path: *const c_char, mode: c_int) if path => |number| accessed(number, mode);
    fn eaccess(path: *const c_char, mode: c_int) if path => |number| accessed(number, mode);
    fn faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) if path => |number| accessed(number, mode);
    fn unlink(path: *const c_char) if path => |_number| BUSY;
    fn remove(path: *const c_char) if path => |_number| BUSY;
    fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) if path => |_number| BUSY;
    fn truncate(path: *const c_char, length: i64) if path => |_number| NO_FILE;
    fn truncate64(path: *const c_char, length: i64) if path => |_number| NO_FILE;
}

/// What creat(2) opens with.
const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
/// A disk has its name for as long as the program runs.
const BUSY: Result<c_int, Errno> = Err(Errno(libc::EBUSY));
/// A disk has the length that it has.
const NO_FILE: Result<c_int, Errno> = Err(Errno(libc::EINVAL));

/// # Safety
/// `path` is null or a string.
#[inline]
unsafe fn disk_named(path: *const c_char) -> Option<usize> {
    // SAFETY: the caller's.
    if path.is_null() { None } else { setup::find(unsafe { CStr::from_ptr(path) }) }
}

/// Opens a disk, as open(2) does.
pub(super) fn opened(number: usize, flags: c_int) -> Result<c_int, Errno> {
    if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 {
        return Err(Errno(libc::EEXIST));
    }
    if flags & libc::O_DIRECTORY != 0 {
        return Err(Errno(libc::ENOTDIR));
    }
    let connection = connection::to(number)?;
    if connection.geometry.read_only && flags & libc::O_ACCMODE != libc::O_RDONLY {
        return Err(Errno(libc::EACCES));
    }
    let (mapped, descriptor) = Mapped::create(number, flags)?;
    let failed = |error| {
        crate::description::close(descriptor);
        error
    };
    let open = Open::new(mapped).map_err(|error| {
        mapped.unmap();
        failed(error)
    })?;
    open.give_to(descriptor).map_err(failed)?;
    Ok(descriptor)
}

fn stated(number: usize, found: *mut libc::stat) -> Result<c_int, Errno> {
    let connection = connection::to(number)?;
    if found.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller has room there.
    unsafe { found.write(stat::of(connection, number)) };
    Ok(0)
}

fn accessed(number: usize, mode: c_int) -> Result<c_int, Errno> {
    let read_only = connection::to(number)?.geometry.read_only;
    let refused = mode & libc::X_OK != 0 || mode & libc::W_OK != 0 && read_only;
    if refused { Err(Errno(libc::EACCES)) } else { Ok(0) }
}

/// The disk that a descriptor is open on, where a call names that (`AT_EMPTY_PATH`).
///
/// # Safety
/// `path` is null or a string.
unsafe fn described(directory: c_int, path: *const c_char, flags: c_int) -> Option<Result<OpenDisk, Errno>> {
    // SAFETY: the caller's.
    let is_empty = path.is_null() || unsafe { *path } == 0;
    let names_descriptor = flags & libc::AT_EMPTY_PATH != 0 && is_empty;
    Some(OpenDisk::of(crate::table::find(directory).filter(|_| names_descriptor)?))
}

/// The number of the disk that a call names by its path, or by a descriptor.
///
/// # Safety
/// `path` is null or a string.
unsafe fn named(directory: c_int, path: *const c_char, flags: c_int) -> Option<Result<usize, Errno>> {
    // SAFETY: the caller's.
    let by_descriptor = unsafe { described(directory, path, flags) };
    // SAFETY: the caller's.
    by_descriptor.map(|disk| Ok(disk?.number)).or_else(|| Some(Ok(unsafe { disk_named(path) }?)))
}

/// Calls that may name a descriptor.
mod at {
    use super::*;

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn fstatat(directory: c_int, path: *const c_char, found: *mut libc::stat, flags: c_int) -> c_int {
        // SAFETY: the caller's.
        match unsafe { named(directory, path, flags) } {
            Some(number) => answer_int(number.and_then(|number| stated(number, found))),
            // SAFETY: the caller's.
            None => unsafe { super::fstatat(directory, path, found, flags) },
        }
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn fstatat64(
        directory: c_int,
        path: *const c_char,
        found: *mut libc::stat,
        flags: c_int,
    ) -> c_int {
        // SAFETY: the caller's.
        match unsafe { named(directory, path, flags) } {
            Some(number) => answer_int(number.and_then(|number| stated(number, found))),
            // SAFETY: the caller's.
            None => unsafe { super::fstatat64(directory, path, found, flags) },
        }
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn statx(
        directory: c_int,
        path: *const c_char,
        flags: c_int,
        mask: c_uint,
        found: *mut libc::statx,
    ) -> c_int {
        // SAFETY: the caller's.
        let Some(number) = (unsafe { named(directory, path, flags) }) else {
            // SAFETY: the caller's.
            return unsafe { super::statx(directory, path, flags, mask, found) };
        };
        answer_int(number.and_then(|number| {
            let connection = connection::to(number)?;
            if found.is_null() {
                return Err(Errno(libc::EFAULT));
            }
            // SAFETY: the caller has room there.
            unsafe { found.write(stat::extended(connection, number)) };
            Ok(0)
        }))
    }
}

/// Calls that name two files.
mod renames {
    use super::*;

    /// # Safety
    /// Both are null or strings.
    unsafe fn is_disk(from: *const c_char, to: *const c_char) -> bool {
        // SAFETY: the caller's.
        unsafe { disk_named(from).or_else(|| disk_named(to)) }.is_some()
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
        // SAFETY: the caller's.
        match unsafe { is_disk(from, to) } {
            true => answer_int(BUSY),
            // SAFETY: the caller's.
            false => unsafe { super::rename(from, to) },
        }
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn renameat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> c_int {
        // SAFETY: the caller's.
        match unsafe { is_disk(from, to) } {
            true => answer_int(BUSY),
            // SAFETY: the caller's.
            false => unsafe { super::renameat(from_at, from, to_at, to) },
        }
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn renameat2(
        from_at: c_int,
        from: *const c_char,
        to_at: c_int,
        to: *const c_char,
        flags: c_uint,
    ) -> c_int {
        // SAFETY: the caller's.
        match unsafe { is_disk(from, to) } {
            true => answer_int(BUSY),
            // SAFETY: the caller's.
            false => unsafe { super::renameat2(from_at, from, to_at, to, flags) },
        }
    }
}
