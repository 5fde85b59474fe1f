//! Calls on descriptors themselves.

use crate::calls::{OpenDisk, data, disk, duplicated};
use crate::errno::{Errno, answer_int};
use crate::next::next;
use crate::{connection, locks, own, setup, stat, table, transfer};
use blockyard_block::Operation;
use libc::{c_int, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

next! {
    fn close(descriptor: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn dup(descriptor: c_int) -> c_int;
    fn dup2(descriptor: c_int, new: c_int) -> c_int;
    fn dup3(descriptor: c_int, new: c_int, flags: c_int) -> c_int;
    fn fcntl(descriptor: c_int, command: c_int, argument: usize) -> c_int;
    fn fcntl64(descriptor: c_int, command: c_int, argument: usize) -> c_int;
    fn flock(descriptor: c_int, operation: c_int) -> c_int;
    fn lockf(descriptor: c_int, command: c_int, length: i64) -> c_int;
    fn ioctl(descriptor: c_int, request: c_ulong, argument: usize) -> c_int;
    fn fstat(descriptor: c_int, found: *mut libc::stat) -> c_int;
    fn fstat64(descriptor: c_int, found: *mut libc::stat) -> c_int;
    fn __fxstat(version: c_int, descriptor: c_int, found: *mut libc::stat) -> c_int;
    fn __fxstat64(version: c_int, descriptor: c_int, found: *mut libc::stat) -> c_int;
    fn mmap(address: *mut c_void, length: usize, protection: c_int, flags: c_int, descriptor: c_int, offset: i64) -> *mut c_void;
    fn mmap64(address: *mut c_void, length: usize, protection: c_int, flags: c_int, descriptor: c_int, offset: i64) -> *mut c_void;
}

mod symbols {
    use super::*;

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn close(descriptor: c_int) -> c_int {
        if own::is_own(descriptor) && !setup::is_inside() {
            return answer_int::<c_int>(Err(Errno(libc::EBADF)));
        }
        release_locks(descriptor);
        // First, as the number may be another's as soon as it is closed.
        table::remove(descriptor);
        // SAFETY: the caller's.
        unsafe { super::close(descriptor) }
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
            table::remove_range(first, last);
        }
        // SAFETY: the caller's.
        own::around(first, last, |first, last| unsafe { super::close_range(first, last, flags) })
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn closefrom(first: c_int) {
        table::remove_range(first.max(0) as c_uint, c_uint::MAX);
        let first = first.max(0) as c_uint;
        // SAFETY: the caller's.
        own::around(first, c_uint::MAX, |first, last| unsafe { super::close_range(first, last, 0) });
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn dup(descriptor: c_int) -> c_int {
        // SAFETY: the caller's.
        duplicated(descriptor, unsafe { super::dup(descriptor) })
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn dup2(descriptor: c_int, new: c_int) -> c_int {
        // SAFETY: the caller's.
        duplicated_to(descriptor, new, || unsafe { super::dup2(descriptor, new) })
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn dup3(descriptor: c_int, new: c_int, flags: c_int) -> c_int {
        // SAFETY: the caller's.
        duplicated_to(descriptor, new, || unsafe { super::dup3(descriptor, new, flags) })
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn fcntl(descriptor: c_int, command: c_int, argument: usize) -> c_int {
        match controlled(descriptor, command, argument) {
            Some(answer) => answer,
            // SAFETY: the caller's.
            None => after(descriptor, command, unsafe { super::fcntl(descriptor, command, argument) }),
        }
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn fcntl64(descriptor: c_int, command: c_int, argument: usize) -> c_int {
        match controlled(descriptor, command, argument) {
            Some(answer) => answer,
            // SAFETY: the caller's.
            None => after(descriptor, command, unsafe { super::fcntl64(descriptor, command, argument) }),
        }
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn flock(descriptor: c_int, operation: c_int) -> c_int {
        let disk = disk!(descriptor, super::flock(descriptor, operation));
        answer_int(disk.and(NO_LOCKS))
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn lockf(descriptor: c_int, command: c_int, length: i64) -> c_int {
        let disk = disk!(descriptor, super::lockf(descriptor, command, length));
        answer_int(disk.and_then(|disk| section_locked(&disk, command, length)))
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: usize) -> c_int {
        let disk = disk!(descriptor, super::ioctl(descriptor, request, argument));
        answer_int(disk.and_then(|disk| asked(disk, request, argument)))
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn fstat(descriptor: c_int, found: *mut libc::stat) -> c_int {
        stated(disk!(descriptor, super::fstat(descriptor, found)), found)
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn fstat64(descriptor: c_int, found: *mut libc::stat) -> c_int {
        stated(disk!(descriptor, super::fstat64(descriptor, found)), found)
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __fxstat(version: c_int, descriptor: c_int, found: *mut libc::stat) -> c_int {
        stated(disk!(descriptor, super::__fxstat(version, descriptor, found)), found)
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __fxstat64(version: c_int, descriptor: c_int, found: *mut libc::stat) -> c_int {
        stated(disk!(descriptor, super::__fxstat64(version, descriptor, found)), found)
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn mmap(
        address: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        descriptor: c_int,
        offset: i64,
    ) -> *mut c_void {
        match is_mapped(flags, descriptor) {
            true => no_mapping(),
            // SAFETY: the caller's.
            false => unsafe { super::mmap(address, length, protection, flags, descriptor, offset) },
        }
    }

    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn mmap64(
        address: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        descriptor: c_int,
        offset: i64,
    ) -> *mut c_void {
        match is_mapped(flags, descriptor) {
            true => no_mapping(),
            // SAFETY: the caller's.
            false => unsafe { super::mmap64(address, length, protection, flags, descriptor, offset) },
        }
    }

    /// A child that shares its parent's memory would change what its parent's descriptors are: it has memory of its
    /// own, as vfork(2) allows.
    ///
    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn vfork() -> libc::pid_t {
        // SAFETY: the caller's.
        unsafe { libc::fork() }
    }
}

/// As [`duplicated`], to a number that the program has chosen.
fn duplicated_to(from: c_int, to: c_int, duplicate: impl FnOnce() -> c_int) -> c_int {
    if own::is_own(to) { answer_int::<c_int>(Err(own::TAKEN)) } else { duplicated(from, duplicate()) }
}

/// Locks of an open file description: processes that share it would have to share them.
const NO_LOCKS: Result<c_int, Errno> = Err(Errno(libc::ENOLCK));

/// Whoever closes a descriptor of a file has no record locks of it any more.
fn release_locks(descriptor: c_int) {
    let Some(open) = table::find(descriptor) else { return };
    if let Some(connection) = connection::there(open.mapped().get().disk())
        && connection.has_locked.load(Ordering::Relaxed)
    {
        locks::release(connection);
    }
}

/// Locks or unlocks records.
fn locked(disk: &OpenDisk, command: c_int, lock: *mut libc::flock) -> Result<c_int, Errno> {
    let description = disk.mapped.get();
    // SAFETY: the program's, as of fcntl(2).
    let kind = unsafe { lock.as_ref() }.map(|lock| c_int::from(lock.l_type));
    let may = match kind {
        _ if command == libc::F_GETLK => true,
        Some(libc::F_RDLCK) => description.may_read(),
        Some(libc::F_WRLCK) => description.may_write(),
        _ => true,
    };
    if !may {
        return Err(Errno(libc::EBADF));
    }
    disk.connection.has_locked.store(true, Ordering::Relaxed);
    locks::control(disk.connection, description.place.load(Ordering::Acquire), command, lock)
}

/// As lockf(3), from where the descriptor stands.
fn section_locked(disk: &OpenDisk, command: c_int, length: i64) -> Result<c_int, Errno> {
    // SAFETY: all of it is numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_whence, lock.l_len, lock.l_type) = (libc::SEEK_CUR as i16, length, libc::F_WRLCK as i16);
    match command {
        libc::F_LOCK => locked(disk, libc::F_SETLKW, &mut lock),
        libc::F_TLOCK => locked(disk, libc::F_SETLK, &mut lock),
        libc::F_ULOCK => {
            lock.l_type = libc::F_UNLCK as i16;
            locked(disk, libc::F_SETLK, &mut lock)
        }
        libc::F_TEST => {
            locked(disk, libc::F_GETLK, &mut lock)?;
            // SAFETY: it cannot fail.
            let is_free = c_int::from(lock.l_type) == libc::F_UNLCK || lock.l_pid == unsafe { libc::getpid() };
            if is_free { Ok(0) } else { Err(Errno(libc::EACCES)) }
        }
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// What fcntl(2) says of a disk, where that is not what the kernel says.
fn controlled(descriptor: c_int, command: c_int, argument: usize) -> Option<c_int> {
    let is_ours = matches!(
        command,
        libc::F_GETFL
            | libc::F_SETFL
            | libc::F_GETLK
            | libc::F_SETLK
            | libc::F_SETLKW
            | libc::F_OFD_GETLK
            | libc::F_OFD_SETLK
            | libc::F_OFD_SETLKW
    );
    let open = table::find(descriptor).filter(|_| is_ours)?;
    let description = open.mapped();
    let description = description.get();
    Some(match command {
        libc::F_GETFL => description.flags(),
        libc::F_SETFL => {
            description.set_flags(argument as c_int);
            0
        }
        libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => answer_int(NO_LOCKS),
        _ => answer_int(OpenDisk::of(open).and_then(|disk| locked(&disk, command, argument as *mut libc::flock))),
    })
}

/// Once fcntl(2) has made another descriptor, it is open on the same.
fn after(descriptor: c_int, command: c_int, result: c_int) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { duplicated(descriptor, result) } else { result }
}

fn stated(disk: Result<OpenDisk, Errno>, found: *mut libc::stat) -> c_int {
    answer_int(disk.and_then(|disk| {
        if found.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the caller has room there.
        unsafe { found.write(stat::of(disk.connection, disk.number)) };
        Ok(0)
    }))
}

fn is_mapped(flags: c_int, descriptor: c_int) -> bool {
    flags & libc::MAP_ANONYMOUS == 0 && table::find(descriptor).is_some()
}

/// A disk is nowhere in memory.
fn no_mapping() -> *mut c_void {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        eprintln!("blockyard: a program wants a disk in its memory (mmap), which is not possible");
    }
    Errno(libc::ENODEV).set();
    libc::MAP_FAILED
}

/// Requests of block devices (linux/fs.h).
mod request {
    use libc::c_ulong;

    pub(super) const BLKROGET: c_ulong = 0x125e;
    pub(super) const BLKGETSIZE: c_ulong = 0x1260;
    pub(super) const BLKFLSBUF: c_ulong = 0x1261;
    pub(super) const BLKSSZGET: c_ulong = 0x1268;
    pub(super) const BLKBSZGET: c_ulong = 0x8008_1270;
    pub(super) const BLKGETSIZE64: c_ulong = 0x8008_1272;
    pub(super) const BLKDISCARD: c_ulong = 0x1277;
    pub(super) const BLKIOMIN: c_ulong = 0x1278;
    pub(super) const BLKIOOPT: c_ulong = 0x1279;
    pub(super) const BLKALIGNOFF: c_ulong = 0x127a;
    pub(super) const BLKPBSZGET: c_ulong = 0x127b;
    pub(super) const BLKDISCARDZEROES: c_ulong = 0x127c;
    pub(super) const BLKROTATIONAL: c_ulong = 0x127e;
    pub(super) const BLKZEROOUT: c_ulong = 0x127f;
}

fn asked(disk: OpenDisk, what: c_ulong, argument: usize) -> Result<c_int, Errno> {
    use request::*;

    let what = what & c_ulong::from(u32::MAX);
    let geometry = &disk.connection.geometry;
    let (capacity, logical, physical) =
        (geometry.capacity_bytes, geometry.logical_block_bytes, geometry.physical_block_bytes);
    match what {
        _ if crate::setup::disks_look_like_files() => return Err(Errno(libc::ENOTTY)),
        BLKFLSBUF => return data::flush(&disk),
        BLKDISCARD | BLKZEROOUT => return cleared(disk, what, argument),
        BLKALIGNOFF | BLKDISCARDZEROES => put(argument, 0_u32),
        BLKROTATIONAL => put(argument, 0_u16),
        BLKROGET => put(argument, u32::from(geometry.read_only)),
        BLKGETSIZE => put(argument, capacity / 512),
        BLKGETSIZE64 => put(argument, capacity),
        BLKSSZGET | BLKBSZGET => put(argument, logical),
        BLKPBSZGET | BLKIOMIN => put(argument, physical),
        BLKIOOPT => put(argument, geometry.optimal_io_bytes),
        _ => return Err(Errno(libc::ENOTTY)),
    }?;
    Ok(0)
}

fn put<T>(argument: usize, value: T) -> Result<(), Errno> {
    if argument == 0 {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller has room for such a number there.
    unsafe { (argument as *mut T).write_unaligned(value) };
    Ok(())
}

/// Zeroes a range or gives its storage back.
fn cleared(disk: OpenDisk, what: c_ulong, argument: usize) -> Result<c_int, Errno> {
    let disk = disk.for_writing(libc::EBADF)?;
    if argument == 0 {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller has two numbers there.
    let [offset, length] = unsafe { (argument as *const [u64; 2]).read_unaligned() };
    let block = u64::from(disk.connection.geometry.logical_block_bytes);
    let end = offset.checked_add(length).filter(|end| *end <= disk.capacity()).ok_or(Errno(libc::EINVAL))?;
    if (offset | end) % block != 0 {
        return Err(Errno(libc::EINVAL));
    }
    match what {
        request::BLKZEROOUT => transfer::write_zeroes(disk.connection, offset, length, false)?,
        _ if !disk.connection.geometry.discard => return Err(Errno(libc::EOPNOTSUPP)),
        _ => transfer::perform(disk.connection, Operation::Discard { length_bytes: length }, offset)?,
    }
    Ok(0)
}
