//! Calls that would have the kernel go to a disk's name: to look at its file system, to walk, mount or watch it.

use crate::calls::disk;
use crate::calls::names::{disk_at, disk_in, disk_named};
use crate::connection::{self, Connection};
use crate::errno::{Errno, answer_int};
use crate::guarded::put;
use crate::next::{calls, own};
use crate::stat;
use libc::{c_char, c_int, c_long, c_uint, c_ulong, c_void, key_t};
use std::ptr::null_mut;

/// A directory's entries, and who chooses and orders them (dirent.h).
type Entries = *mut *mut *mut libc::dirent;
type Chooses = Option<unsafe extern "C" fn(*const libc::dirent) -> c_int>;
type Orders = Option<unsafe extern "C" fn(*mut *const libc::dirent, *mut *const libc::dirent) -> c_int>;
/// Who is told of a file (ftw.h).
type Told = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int) -> c_int;
type ToldMore = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut Base) -> c_int;

/// `struct FTW`: where the last part of a name begins, and how deep it lies.
#[repr(C)]
struct Base {
    base: c_int,
    level: c_int,
}

/// FTW_F: any file but a directory or a link.
const FILE: c_int = 0;

calls! {
    fn [statfs, statfs64](path: *const c_char, found: *mut libc::statfs) -> c_int |own| {
        disk_named(path).map_or_else(own, |number| told(connection::to(number), found, stat::file_system))
    }
    fn [fstatfs, fstatfs64](descriptor: c_int, found: *mut libc::statfs) -> c_int |own| {
        disk(descriptor).map_or_else(own, |disk| told(disk.map(|disk| disk.connection), found, stat::file_system))
    }
    fn [statvfs, statvfs64](path: *const c_char, found: *mut libc::statvfs) -> c_int |own| {
        disk_named(path).map_or_else(own, |number| told(connection::to(number), found, stat::posix_file_system))
    }
    fn [fstatvfs, fstatvfs64](descriptor: c_int, found: *mut libc::statvfs) -> c_int |own| {
        disk(descriptor).map_or_else(own, |disk| told(disk.map(|disk| disk.connection), found, stat::posix_file_system))
    }
    fn [pathconf](path: *const c_char, what: c_int) -> c_long |own| {
        disk_named(path).map_or_else(own, |_| match what {
            libc::_PC_ASYNC_IO => 1,
            // What holds of a device holds of this one.
            _ => {
                let path = c"/dev/null".as_ptr();
                own!(pathconf(path: *const c_char, what: c_int) -> c_long)
            }
        })
    }
    fn [ftok](path: *const c_char, project: c_int) -> key_t |own| {
        let key = |number: usize| (project & 0xff) << 24 | (stat::inode(number) & 0xffff) as key_t;
        disk_named(path).map_or_else(own, key)
    }
    fn [opendir](path: *const c_char) -> *mut libc::DIR |own| {
        disk_named(path).map_or_else(own, |_| {
            Errno(libc::ENOTDIR).set();
            null_mut()
        })
    }
    fn [scandir, scandir64](path: *const c_char, entries: Entries, chooses: Chooses, orders: Orders) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| refused(libc::ENOTDIR))
    }
    fn [scandirat, scandirat64](
        directory: c_int, path: *const c_char, entries: Entries, chooses: Chooses, orders: Orders
    ) -> c_int |own| {
        disk_in(directory, path).map_or_else(own, |_| refused(libc::ENOTDIR))
    }
    fn [ftw, ftw64](path: *const c_char, tell: Told, descriptors: c_int) -> c_int |own| {
        // SAFETY: the program's function.
        let walked = |number| walked(number, |found| unsafe { tell(path, found, FILE) });
        disk_named(path).map_or_else(own, walked)
    }
    fn [nftw, nftw64](path: *const c_char, tell: ToldMore, descriptors: c_int, flags: c_int) -> c_int |own| {
        disk_named(path).map_or_else(own, |number| {
            // SAFETY: it is a disk's name.
            let name = unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes();
            let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
            let mut place = Base { base: base as c_int, level: 0 };
            // SAFETY: the program's function.
            walked(number, |found| unsafe { tell(path, found, FILE, &mut place) })
        })
    }
    fn [name_to_handle_at](
        directory: c_int, path: *const c_char, handle: *mut c_void, mount: *mut c_int, flags: c_int
    ) -> c_int |own| {
        disk_at(directory, path, flags).map_or_else(own, |_| refused(libc::EOPNOTSUPP))
    }
    fn [inotify_add_watch](descriptor: c_int, path: *const c_char, mask: u32) -> c_int |own| {
        // Programs look again and again, where there is no more room for watches.
        disk_named(path).map_or_else(own, |_| refused(libc::ENOSPC))
    }
    fn [fanotify_mark](
        descriptor: c_int, flags: c_uint, mask: u64, directory: c_int, path: *const c_char
    ) -> c_int |own| {
        disk_in(directory, path).map_or_else(own, |_| refused(libc::ENODEV))
    }
    fn [chroot](path: *const c_char) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| refused(libc::ENOTDIR))
    }
    fn [mount](
        source: *const c_char, target: *const c_char, kind: *const c_char, flags: c_ulong, data: *const c_void
    ) -> c_int |own| {
        let target = || disk_named(target).map(|_| libc::ENOTDIR);
        disk_named(source).map(|_| libc::ENOTBLK).or_else(target).map_or_else(own, refused)
    }
    fn [umount](target: *const c_char) -> c_int |own| {
        disk_named(target).map_or_else(own, |_| refused(libc::EINVAL))
    }
    fn [umount2](target: *const c_char, flags: c_int) -> c_int |own| {
        disk_named(target).map_or_else(own, |_| refused(libc::EINVAL))
    }
    fn [swapon](path: *const c_char, flags: c_int) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| refused(libc::EINVAL))
    }
    fn [swapoff](path: *const c_char) -> c_int |own| {
        disk_named(path).map_or_else(own, |_| refused(libc::EINVAL))
    }
}

fn refused(errno: c_int) -> c_int {
    answer_int::<c_int>(Err(Errno(errno)))
}

/// Gives the program what there is to say of a disk.
fn told<T: Copy>(disk: Result<&Connection, Errno>, found: *mut T, of: impl FnOnce(&Connection) -> T) -> c_int {
    answer_int(disk.and_then(|connection| put(found, of(connection))))
}

/// Tells of a disk as of a file where a walk ends.
fn walked(number: usize, tell: impl FnOnce(&libc::stat) -> c_int) -> c_int {
    match connection::to(number) {
        Ok(connection) => tell(&stat::of(connection, number)),
        Err(error) => answer_int::<c_int>(Err(error)),
    }
}
