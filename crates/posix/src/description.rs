//! What a descriptor is open on: an open file description, as open(2) has it. Processes that have inherited it share
//! its place in the file.
//!
//! It is a page of memory that all of them map. Its file has no name; the program's descriptor is open on it without
//! being able to read it (`O_PATH`), and whoever inherits that descriptor finds the page through /proc.

use crate::errno::Errno;
use crate::{own, setup};
use libc::c_int;
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create, open, readlink,
};
use rustix::io::{DupFlags, dup3};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const NAME: &str = "blockyard-disk";
/// What /proc calls such a file.
const LINK: &[u8] = b"/memfd:blockyard-disk (deleted)";
const MAGIC: u64 = u64::from_le_bytes(*b"by-disk1");
const PAGE_BYTES: usize = 4096;
/// The last place that a call can say.
const PLACE_MAX: u64 = i64::MAX as u64;
/// It is as long as it is.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The page.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Description {
    magic: AtomicU64,
    /// The disk's number among the names.
    disk: AtomicU32,
    /// As fcntl(2) has them (`F_GETFL`).
    flags: AtomicU32,
    /// Where the next byte is read or written.
    place: AtomicU64,
    /// The descriptor of the file of its locks, from 1 on, where it has some.
    locks: AtomicU32,
    /// Whether programs that are executed have it.
    is_inherited: AtomicU32,
    /// That of the disk.
    identity: AtomicU64,
}

/// A description in this process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped(*mut Description);

/// Of an address, says that the descriptor was passed to this process: of what the other has besides, it has nothing.
const IS_PASSED: usize = 1;

impl Mapped {
    /// A new one of a disk of so many bytes, and the descriptor that is open on it.
    pub(crate) fn create(disk: usize, capacity_bytes: u64, flags: c_int) -> Result<(Self, c_int), Errno> {
        // It has the lowest number that is free, and nothing can be read of it at any time.
        let path_only = OFlags::PATH | OFlags::CLOEXEC;
        let mut place = open("/", path_only, Mode::empty())?;
        let file = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // What the kernel tells of a descriptor, whoever asks it past this library, is a file's length: as far as the
        // user's limit lets a file have it, which would end the program (SIGXFSZ).
        let longest = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if longest < PAGE_BYTES as u64 {
            return Err(Errno(libc::EFBIG));
        }
        ftruncate(&file, capacity_bytes.min(longest).max(PAGE_BYTES as u64))?;
        // Whoever has it, as another user, too, cannot take the page away from the others.
        fcntl_add_seals(&file, SEALS)?;
        let mapped = Self::map(&file)?;
        let description = mapped.get();
        description.disk.store(disk as u32, Ordering::Relaxed);
        description.flags.store((flags & !libc::O_CLOEXEC) as u32, Ordering::Relaxed);
        let identity = setup::disk(disk).map_or(0, |named| named.identity);
        description.identity.store(identity, Ordering::Relaxed);
        description.is_inherited.store((flags & libc::O_CLOEXEC == 0).into(), Ordering::Relaxed);
        description.magic.store(MAGIC, Ordering::Release);
        let closes = if flags & libc::O_CLOEXEC == 0 { DupFlags::empty() } else { DupFlags::CLOEXEC };
        let path = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
        let opened = open(&*path, path_only, Mode::empty()).and_then(|blind| dup3(&blind, &mut place, closes));
        match opened {
            Ok(()) => Ok((mapped, place.into_raw_fd())),
            Err(error) => {
                mapped.unmap();
                Err(error.into())
            }
        }
    }

    /// The one that a descriptor of this process is open on, if that is one.
    pub(crate) fn of(descriptor: c_int) -> Option<Self> {
        if !Self::is_on(descriptor) {
            return None;
        }
        let path = format!("/proc/thread-self/fd/{descriptor}");
        let file = open(&*path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        fcntl_get_seals(&file).ok().filter(|seals| seals.contains(SEALS))?;
        let mapped = Self::map(&file).ok()?;
        let description = mapped.get();
        let identity = description.identity.load(Ordering::Relaxed);
        let is_one = description.magic.load(Ordering::Acquire) == MAGIC
            && setup::disk(description.disk()).is_some_and(|named| named.identity == identity);
        if !is_one {
            // Nothing of it is this process's.
            mapped.as_passed().unmap();
            return None;
        }
        Some(mapped)
    }

    /// Whether a descriptor of this process is open on what is called as one.
    pub(crate) fn is_on(descriptor: c_int) -> bool {
        let path = format!("/proc/thread-self/fd/{descriptor}");
        readlink(&*path, Vec::new()).is_ok_and(|link| link.as_bytes() == LINK)
    }

    /// The same, as a program has it that was executed.
    pub(crate) fn inherited(descriptor: c_int) -> Option<Self> {
        let mapped = Self::of(descriptor)?;
        mapped.locks().into_iter().for_each(own::adopt_locks);
        Some(mapped)
    }

    /// The same, as a process has it that another one has passed it to: without its locks.
    pub(crate) fn passed(descriptor: c_int) -> Option<Self> {
        Some(Self::of(descriptor)?.as_passed())
    }

    fn as_passed(self) -> Self {
        Self(self.0.map_addr(|address| address | IS_PASSED))
    }

    fn page(self) -> *mut Description {
        self.0.map_addr(|address| address & !IS_PASSED)
    }

    /// The file of its locks in this process, if it has one.
    pub(crate) fn locks(self) -> Option<c_int> {
        if self.0.addr() & IS_PASSED == 0 { self.get().locks() } else { None }
    }

    fn map(file: &OwnedFd) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where there is none.
        let address = unsafe { mmap(null_mut(), PAGE_BYTES, protection, MapFlags::SHARED, file, 0) };
        Ok(Self(address?.cast()))
    }

    /// What nobody looks at any more is mapped no longer, and its locks are not kept.
    pub(crate) fn unmap(self) {
        self.locks().into_iter().for_each(own::let_go_of_locks);
        // SAFETY: it was mapped here, and nobody has it any more. It cannot fail for a whole mapping.
        let _ = unsafe { munmap(self.page().cast(), PAGE_BYTES) };
    }

    pub(crate) fn get(&self) -> &Description {
        // SAFETY: it is mapped for as long as somebody has it, and all of it is atomic.
        unsafe { &*self.page() }
    }

    pub(crate) fn from_address(address: u64) -> Self {
        Self(address as *mut Description)
    }

    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }
}

impl Description {
    pub(crate) fn disk(&self) -> usize {
        self.disk.load(Ordering::Relaxed) as usize
    }

    /// Where the next byte is read or written: as far as a file may be long, whatever another process has put there.
    pub(crate) fn place(&self) -> u64 {
        self.place.load(Ordering::Acquire).min(PLACE_MAX)
    }

    pub(crate) fn set_place(&self, place: u64) {
        self.place.store(place, Ordering::Release);
    }

    /// Goes on from the place to where `until` says of it. Where it was.
    pub(crate) fn advance(&self, until: impl Fn(u64) -> u64) -> u64 {
        let next = |place: u64| Some(until(place.min(PLACE_MAX)));
        self.place.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or_else(|place| place).min(PLACE_MAX)
    }

    /// Goes to another place, unless somebody has gone on from this one meanwhile.
    pub(crate) fn go_back(&self, from: u64, to: u64) {
        let _ = self.place.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(crate) fn flags(&self) -> c_int {
        self.flags.load(Ordering::Relaxed) as c_int
    }

    /// The file of its locks, in processes that have it from whoever opened it.
    fn locks(&self) -> Option<c_int> {
        (self.locks.load(Ordering::Acquire) as c_int).checked_sub(1).filter(|descriptor| *descriptor >= 0)
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.is_inherited.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set_locks(&self, descriptor: c_int) {
        self.locks.store(descriptor as u32 + 1, Ordering::Release);
    }

    /// Sets those flags that fcntl(2) may change (`F_SETFL`).
    pub(crate) fn set_flags(&self, flags: c_int) {
        const CHANGEABLE: c_int = libc::O_APPEND | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME | libc::O_NONBLOCK;
        let new = self.flags() & !CHANGEABLE | flags & CHANGEABLE;
        self.flags.store(new as u32, Ordering::Relaxed);
    }

    pub(crate) fn may_read(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_WRONLY
    }

    pub(crate) fn may_write(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_RDONLY
    }
}

/// Closes a descriptor.
pub(crate) fn close(descriptor: c_int) {
    // SAFETY: it is this library's own.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
}
