//! Record locks of fcntl(2), between the processes that have a disk.
//!
//! The kernel keeps them, on a file that whoever serves the disk has put beside its socket: a process has that file
//! open once, and locks there what the program wants to lock of the disk. So they end with the process, and a child has
//! none.

use crate::connection::Connection;
use crate::errno::Errno;
use libc::{c_int, flock};
use std::os::fd::AsRawFd;

/// What such a file is called, behind the socket's name.
pub(crate) const ENDING: &str = ".lock";

const NONE: Errno = Errno(libc::ENOLCK);

/// Does with a disk's locks what `command` says of `lock`, whose places count from `place` on where they do that.
pub(crate) fn control(connection: &Connection, place: u64, command: c_int, lock: *mut flock) -> Result<c_int, Errno> {
    let file = connection.locks.as_ref().ok_or(NONE)?;
    // SAFETY: the program's, as of fcntl(2).
    let Some(wanted) = (unsafe { lock.as_mut() }) else { return Err(Errno(libc::EFAULT)) };
    let from = match c_int::from(wanted.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => place,
        libc::SEEK_END => connection.geometry.capacity_bytes,
        _ => return Err(Errno(libc::EINVAL)),
    };
    let mut absolute = *wanted;
    absolute.l_whence = libc::SEEK_SET as i16;
    absolute.l_start = wanted.l_start.checked_add(from as i64).ok_or(Errno(libc::EOVERFLOW))?;
    // SAFETY: the structure is what the command takes.
    if unsafe { libc::syscall(libc::SYS_fcntl, file.as_raw_fd(), command, &raw mut absolute) } < 0 {
        return Err(Errno::last());
    }
    if command == libc::F_GETLK {
        *wanted = absolute;
    }
    Ok(0)
}

/// As closing any descriptor of a file does: the process has no locks of the disk any more.
pub(crate) fn release(connection: &Connection) {
    let Some(file) = &connection.locks else { return };
    // SAFETY: all of it is numbers.
    let mut all: flock = unsafe { std::mem::zeroed() };
    all.l_type = libc::F_UNLCK as i16;
    // SAFETY: the structure is what the command takes.
    unsafe { libc::syscall(libc::SYS_fcntl, file.as_raw_fd(), libc::F_SETLK, &raw mut all) };
}
