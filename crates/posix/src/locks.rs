//! Locks between the processes that have a disk.
//!
//! The kernel keeps them, on two files that whoever serves the disk has put beside its socket: what the program wants
//! to lock of the disk is locked there. For record locks, which end with the process, each process has one of them open
//! once, and still has it in a program that it executes, once it has locked something. The other is opened for each
//! open file description, for its own locks (`F_OFD_SETLK`, flock(2)), and children have it as they have the
//! description. They are two, as closing any descriptor of a file gives the process's record locks up.

use crate::connection::{self, Connection};
use crate::description::{Description, Mapped};
use crate::errno::Errno;
use crate::names::{NAMES_MAX, Named, beside};
use crate::own;
use crate::setup::{self, Inside};
use libc::{c_int, c_short, flock};
use rustix::fs::{Mode, OFlags, open, readlink};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI32, Ordering};

/// What they are called, behind the socket's name.
pub(crate) const ENDING: &str = ".lock";
pub(crate) const OF_DESCRIPTIONS: &str = ".flock";

/// The file of each disk's record locks: its descriptor, from 1 on, which the program before this one may have left.
/// It is open once and never closed, as closing any of them gives the process's locks up.
static FILES: [AtomicI32; NAMES_MAX] = [const { AtomicI32::new(0) }; NAMES_MAX];

const NONE: Errno = Errno(libc::ENOLCK);

/// What is to be done with a disk's locks.
pub(crate) struct Wanted {
    file: c_int,
    command: c_int,
    lock: flock,
}

impl Wanted {
    /// What `command` says of `lock`, whose places count from where the description stands where they do that.
    pub(crate) fn new(
        connection: &Connection,
        description: Mapped,
        command: c_int,
        mut lock: flock,
    ) -> Result<Self, Errno> {
        let file = match command {
            libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW => connection.locks.as_ref().ok_or(NONE)?.as_raw_fd(),
            _ => of_description(description)?,
        };
        let from = match c_int::from(lock.l_whence) {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => description.get().place(),
            libc::SEEK_END => connection.geometry.capacity_bytes,
            _ => return Err(Errno(libc::EINVAL)),
        };
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = lock.l_start.checked_add(from as i64).ok_or(Errno(libc::EOVERFLOW))?;
        Ok(Self { file, command, lock })
    }

    /// Does it, and may wait: so the caller has nothing that keeps signals back. What the kernel says of the lock.
    pub(crate) fn carry_out(mut self) -> Result<flock, Errno> {
        set(self.file, self.command, &mut self.lock)?;
        Ok(self.lock)
    }
}

/// From now on, programs that are executed keep this process's record locks of a disk, as POSIX has it.
pub(crate) fn pass_on(connection: &Connection) {
    if !connection.has_locked.swap(true, Ordering::Relaxed)
        && let Some(file) = connection.locks.as_deref()
    {
        // It cannot fail.
        let _ = fcntl_setfd(file, FdFlags::empty());
    }
}

/// The disk whose record locks are kept on the file that a descriptor is open on.
pub(crate) fn disk_of(descriptor: c_int) -> Option<usize> {
    let link = readlink(format!("/proc/thread-self/fd/{descriptor}"), Vec::new()).ok()?;
    let is_it =
        |named: &Named| beside(&named.disk, ENDING).is_some_and(|path| path.as_os_str().as_bytes() == link.as_bytes());
    setup::disks().position(is_it)
}

/// Takes in a descriptor of a disk's record locks, which the program before this one had.
pub(crate) fn adopt(disk: usize, descriptor: c_int) {
    if let Some(place) = FILES.get(disk) {
        place.store(descriptor + 1, Ordering::Release);
        own::adopt(descriptor);
    }
}

/// The file of a disk's record locks, if whoever serves the disk has made one. Where the process has had none yet, its
/// descriptor is one that [`own::make`] has to make.
pub(crate) fn file(disk: usize) -> Option<ManuallyDrop<File>> {
    let place = FILES.get(disk)?;
    if place.load(Ordering::Acquire) == 0 {
        let opened = open_file(&setup::disk(disk)?.disk)?.into_raw_fd();
        // Another thread may have been sooner: this one stays open, too.
        let _ = place.compare_exchange(0, opened + 1, Ordering::AcqRel, Ordering::Acquire);
    }
    let descriptor = place.load(Ordering::Acquire) - 1;
    // SAFETY: it stays open for as long as it is there.
    (descriptor >= 0).then(|| ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) }))
}

/// The same of a disk that no name leads to, of which this process has no locks.
pub(crate) fn open_file(disk: &str) -> Option<File> {
    beside(disk, ENDING).and_then(|path| File::options().read(true).write(true).open(path).ok())
}

/// Whether programs that are executed keep a file of record locks: then this process, or the program before, has some.
pub(crate) fn are_passed_on(file: &File) -> bool {
    fcntl_getfd(file).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}

/// In a child: its parent's locks are not its own.
pub(crate) fn forget_files() {
    FILES.iter().for_each(|place| place.store(0, Ordering::Release));
}

/// As flock(2), on the file of a description's own locks; may wait likewise.
pub(crate) fn lock_all(file: c_int, operation: c_int) -> Result<c_int, Errno> {
    // SAFETY: two numbers.
    if unsafe { libc::syscall(libc::SYS_flock, file, operation) } < 0 { Err(Errno::last()) } else { Ok(0) }
}

/// The file of a description's own locks.
pub(crate) fn of_description(description: Mapped) -> Result<c_int, Errno> {
    description.locks().filter(|&descriptor| own::has_locks(descriptor)).ok_or(NONE)
}

/// Opens the file of a new description's locks, if whoever serves the disk has made one.
pub(crate) fn open_for(connection: &Connection, description: &Description) {
    let _inside = Inside::enter();
    let path = connection.description_locks.as_ref();
    let file = path.and_then(|path| open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok());
    // Without one, it has no locks.
    if let Some(kept) = file.and_then(|file| own::keep_locks(&file, description.is_inherited())) {
        description.set_locks(kept);
    }
}

/// As closing any descriptor of a file does: the process has no record locks of the disk any more.
pub(crate) fn release(disk: usize) {
    // Without a connection, the program before this one may have left some.
    let has_none = |connection: &Connection| !connection.has_locked.load(Ordering::Relaxed);
    if connection::there(disk).is_some_and(has_none) {
        return;
    }
    let file = FILES.get(disk).map_or(-1, |place| place.load(Ordering::Acquire) - 1);
    if file >= 0 {
        let _ = set(file, libc::F_SETLK, &mut range(libc::F_UNLCK, 0..0));
    }
}

/// So much of a file; to its end, if that is nothing.
pub(crate) fn range(kind: c_int, bytes: Range<u64>) -> flock {
    // SAFETY: all of it is numbers.
    let mut range: flock = unsafe { std::mem::zeroed() };
    (range.l_type, range.l_whence) = (kind as c_short, libc::SEEK_SET as c_short);
    // A disk is no longer than a file may be.
    (range.l_start, range.l_len) = (bytes.start as i64, (bytes.end - bytes.start) as i64);
    range
}

/// As fcntl(2), of locks: what the kernel says is in `lock` then.
pub(crate) fn set(file: c_int, command: c_int, lock: &mut flock) -> Result<(), Errno> {
    // SAFETY: the structure is what the command takes.
    match unsafe { libc::syscall(libc::SYS_fcntl, file, command, &raw mut *lock) } {
        0.. => Ok(()),
        _ => Err(Errno::last()),
    }
}
