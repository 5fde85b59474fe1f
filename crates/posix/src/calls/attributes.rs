//! Calls that would change what a directory says of a name, or ask that of it: the kernel knows nothing of a disk's
//! name, or knows another file by it, which is not what the program means.

use crate::calls::names::{disk_at, disk_in, disk_named};
use crate::errno::{Errno, answer, answer_int};
use crate::next::calls;
use crate::{setup, table};
use libc::{c_char, c_int, c_long, c_void, dev_t, gid_t, mode_t, size_t, ssize_t, timespec, timeval, uid_t, utimbuf};
use std::ptr::null_mut;

calls! {
    fn [mkdir, mkfifo](path: *const c_char, mode: mode_t) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| answer_int(IS_THERE))
    }
    fn [mkdirat, mkfifoat](directory: c_int, path: *const c_char, mode: mode_t) -> c_int |own| {
        disk_in(directory, path).map_or_else(own, |_| answer_int(IS_THERE))
    }
    fn [mknod](path: *const c_char, mode: mode_t, device: dev_t) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| answer_int(IS_THERE))
    }
    fn [mknodat](directory: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int |own| {
        disk_in(directory, path).map_or_else(own, |_| answer_int(IS_THERE))
    }
    fn [symlink](content: *const c_char, path: *const c_char) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| answer_int(IS_THERE))
    }
    fn [symlinkat](content: *const c_char, directory: c_int, path: *const c_char) -> c_int |own| {
        disk_in(directory, path).map_or_else(own, |_| answer_int(IS_THERE))
    }
    fn [link](from: *const c_char, to: *const c_char) -> c_int |own| {
        let linked = disk_named(to).map(|_| IS_THERE).or_else(|| disk_named(from).map(|_| REFUSED));
        linked.map_or_else(own, answer_int)
    }
    fn [linkat](
        from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_int
    ) -> c_int |own| {
        let from = || disk_at(from_at, from, flags).map(|_| REFUSED);
        disk_in(to_at, to).map(|_| IS_THERE).or_else(from).map_or_else(own, answer_int)
    }
    fn [rmdir, chdir](path: *const c_char) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| answer_int(NO_DIRECTORY))
    }
    fn [chmod, lchmod](path: *const c_char, mode: mode_t) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| answer_int(REFUSED))
    }
    fn [fchmodat](directory: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int |own| {
        disk_at(directory, path, flags).map_or_else(own, |_| answer_int(REFUSED))
    }
    fn [fchmod](descriptor: c_int, mode: mode_t) -> c_int |own| {
        if table::has(descriptor) { answer_int(REFUSED) } else { own() }
    }
    fn [chown, lchown](path: *const c_char, user: uid_t, group: gid_t) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| answer_int(REFUSED))
    }
    fn [fchownat](directory: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int |own| {
        disk_at(directory, path, flags).map_or_else(own, |_| answer_int(REFUSED))
    }
    fn [fchown](descriptor: c_int, user: uid_t, group: gid_t) -> c_int |own| {
        if table::has(descriptor) { answer_int(REFUSED) } else { own() }
    }
    fn [utime](path: *const c_char, times: *const utimbuf) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| 0)
    }
    fn [utimes, lutimes](path: *const c_char, times: *const timeval) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| 0)
    }
    fn [futimesat](directory: c_int, path: *const c_char, times: *const timeval) -> c_int |own| {
        disk_in(directory, path).map_or_else(own, |_| 0)
    }
    fn [utimensat](directory: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int |own| {
        // Without a path it is about the descriptor, whatever the flags say.
        let flags = if path.is_null() { libc::AT_EMPTY_PATH } else { flags };
        disk_at(directory, path, flags).map_or_else(own, |_| 0)
    }
    fn [futimes](descriptor: c_int, times: *const timeval) -> c_int |own| {
        if table::has(descriptor) { 0 } else { own() }
    }
    fn [futimens](descriptor: c_int, times: *const timespec) -> c_int |own| {
        if table::has(descriptor) { 0 } else { own() }
    }
    fn [setxattr, lsetxattr](
        path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int
    ) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| answer_int(NO_ATTRIBUTES))
    }
    fn [fsetxattr](
        descriptor: c_int, name: *const c_char, value: *const c_void, size: size_t, flags: c_int
    ) -> c_int |own| {
        if table::has(descriptor) { answer_int(NO_ATTRIBUTES) } else { own() }
    }
    fn [removexattr, lremovexattr](path: *const c_char, name: *const c_char) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| answer_int(NO_ATTRIBUTES))
    }
    fn [fremovexattr](descriptor: c_int, name: *const c_char) -> c_int |own| {
        if table::has(descriptor) { answer_int(NO_ATTRIBUTES) } else { own() }
    }
    fn [getxattr, lgetxattr](
        path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t
    ) -> ssize_t |own| {
        disk_named(path).map_or_else(own, |_| answer::<c_long>(Err(Errno(libc::EOPNOTSUPP))) as isize)
    }
    fn [fgetxattr](descriptor: c_int, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t |own| {
        if table::has(descriptor) { answer::<c_long>(Err(Errno(libc::EOPNOTSUPP))) as isize } else { own() }
    }
    fn [listxattr, llistxattr](path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t |own| {
        disk_named(path).map_or_else(own, |_| 0)
    }
    fn [flistxattr](descriptor: c_int, list: *mut c_char, size: size_t) -> ssize_t |own| {
        if table::has(descriptor) { 0 } else { own() }
    }
    fn [readlink](path: *const c_char, content: *mut c_char, size: size_t) -> ssize_t |own| {
        disk_named(path).map_or_else(own, |_| answer::<c_long>(Err(Errno(libc::EINVAL))) as isize)
    }
    fn [readlinkat](directory: c_int, path: *const c_char, content: *mut c_char, size: size_t) -> ssize_t |own| {
        disk_in(directory, path).map_or_else(own, |_| answer::<c_long>(Err(Errno(libc::EINVAL))) as isize)
    }
    fn [__readlink_chk](path: *const c_char, content: *mut c_char, size: size_t, room: size_t) -> ssize_t |own| {
        disk_named(path).map_or_else(own, |_| answer::<c_long>(Err(Errno(libc::EINVAL))) as isize)
    }
    fn [__readlinkat_chk](
        directory: c_int, path: *const c_char, content: *mut c_char, size: size_t, room: size_t
    ) -> ssize_t |own| {
        disk_in(directory, path).map_or_else(own, |_| answer::<c_long>(Err(Errno(libc::EINVAL))) as isize)
    }
    fn [realpath](path: *const c_char, resolved: *mut c_char) -> *mut c_char |own| {
        disk_named(path).map_or_else(own, |number| named(number, resolved))
    }
    fn [__realpath_chk](path: *const c_char, resolved: *mut c_char, size: size_t) -> *mut c_char |own| {
        // With less room than any path may need, glibc's own ends the program.
        let has_room = size >= libc::PATH_MAX as usize;
        disk_named(path).filter(|_| has_room).map_or_else(own, |number| named(number, resolved))
    }
    fn [canonicalize_file_name](path: *const c_char) -> *mut c_char |own| {
        disk_named(path).map_or_else(own, |number| named(number, null_mut()))
    }
}

/// A disk has its name for as long as the program runs.
const IS_THERE: Result<c_int, Errno> = Err(Errno(libc::EEXIST));
/// Whose it is, and who may use it, is whoever attached it.
const REFUSED: Result<c_int, Errno> = Err(Errno(libc::EPERM));
const NO_DIRECTORY: Result<c_int, Errno> = Err(Errno(libc::ENOTDIR));
const NO_ATTRIBUTES: Result<c_int, Errno> = Err(Errno(libc::EOPNOTSUPP));

/// A disk's name, as realpath(3) gives it: no link leads to it.
fn named(number: usize, resolved: *mut c_char) -> *mut c_char {
    let given = || {
        let name = &setup::disk(number).ok_or(Errno(libc::ENOENT))?.name;
        let is_path = name.first() == Some(&b'/') && name.len() < libc::PATH_MAX as usize;
        if !is_path {
            // A name that is none of the file system's has no other.
            return Err(Errno(libc::ENOENT));
        }
        // SAFETY: libc's own memory, which the program gives back.
        let place = if resolved.is_null() { unsafe { libc::malloc(name.len() + 1) }.cast() } else { resolved };
        if place.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        // SAFETY: there is room for PATH_MAX bytes where the program says so, and for the name in what was made here.
        unsafe {
            place.copy_from_nonoverlapping(name.as_ptr().cast(), name.len());
            place.add(name.len()).write(0);
        }
        Ok(place)
    };
    given().unwrap_or_else(|error: Errno| {
        error.set();
        null_mut()
    })
}
