//! Descriptors of this library's own: sockets, events and memory of its connections, and the files of locks.
//!
//! Programs count on numbers: what is opened next has the lowest that is free, a shell moves 3 to where it likes, a
//! daemon closes all that it did not open. So the library's own are high ones, and are not the program's to close.
//! Those of connections are gone in a child; those of locks it shares with its parent, as it does what they are locks
//! of.

use crate::connection::without_signals;
use crate::fork::alone;
use crate::names::Named;
use crate::setup::Inside;
use crate::{description, leader, locks, partial_writes, setup};
use libc::c_int;
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, RawDir, fstat, memfd_create, open, readlink, readlinkat_raw};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Resource, getrlimit};
use std::ffi::CStr;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Where they begin, if a process may have as many.
const FIRST: u64 = 768;
/// What a connection may have, with all of its queues.
const OF_CONNECTION: u64 = 96;
/// Higher ones are not looked for.
const END: usize = 1 << 16;

/// Descriptors.
struct Set {
    /// A bit for each.
    bits: [AtomicU64; END / 64],
    count: AtomicU64,
}

static OF_CONNECTIONS: Set = Set::new();
/// Low ones, while a connection is made: whoever wants one of them waits until they are free.
static FILLERS: Set = Set::new();
static OF_LOCKS: Set = Set::new();
/// The program's, which it has got while a connection was made: they have high numbers, too.
static OF_PROGRAM: Set = Set::new();
/// Whether a connection, or a part of one, is being made.
static IS_MAKING: AtomicBool = AtomicBool::new(false);
/// What there was before that, and whether it is known.
static BEFORE: Set = Set::new();
static HAS_BEFORE: AtomicBool = AtomicBool::new(false);
/// In a child: files of locks that it keeps.
static KEPT: Set = Set::new();
/// What those low ones are called, which nobody else's are.
const FILLER: &str = "blockyard-filler";
const FILLER_LINK: &[u8] = b"/memfd:blockyard-filler ";
/// Of a link in /proc, the part that is looked at.
const LINK_BYTES: usize = 4096;
/// Of a directory, what is read at once.
const ENTRIES_BYTES: usize = 2048;
/// Of a thread that makes something.
const STACK_BYTES: usize = 1 << 20;
/// How long to look again whether another thread has made one.
const PAUSE: Duration = Duration::from_millis(1);

impl Set {
    const fn new() -> Self {
        Self { bits: [const { AtomicU64::new(0) }; END / 64], count: AtomicU64::new(0) }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    #[inline]
    fn has(&self, descriptor: c_int) -> bool {
        let Ok(descriptor) = usize::try_from(descriptor) else { return false };
        let bits = || Some(self.bits.get(descriptor / 64)?.load(Ordering::SeqCst) & 1 << (descriptor % 64));
        !self.is_empty() && bits().is_some_and(|bits| bits != 0)
    }

    /// Whatever the count is: in a child, it may be behind.
    fn forget_all(&self) {
        self.take_all(|_| ());
    }

    /// Calls `each` with each, and has none of them any more.
    fn take_all(&self, mut each: impl FnMut(c_int)) {
        self.count.store(0, Ordering::SeqCst);
        for (index, word) in self.bits.iter().enumerate() {
            // A page that was never written is not there.
            let mut bits = word.load(Ordering::SeqCst);
            if bits != 0 {
                word.store(0, Ordering::SeqCst);
            }
            while bits != 0 {
                each((index * 64) as c_int + bits.trailing_zeros() as c_int);
                bits &= bits - 1;
            }
        }
    }

    /// Whether there was room for it.
    fn insert(&self, descriptor: c_int) -> bool {
        let Some(bits) = self.bits.get(descriptor as usize / 64) else { return false };
        let before = bits.fetch_or(1 << (descriptor % 64), Ordering::SeqCst);
        self.count.fetch_add((before >> (descriptor % 64) & 1) ^ 1, Ordering::SeqCst);
        true
    }

    /// Whether it was there.
    fn remove(&self, descriptor: c_int) -> bool {
        if !self.has(descriptor) {
            return false;
        }
        let before = self.bits[descriptor as usize / 64].fetch_and(!(1 << (descriptor % 64)), Ordering::SeqCst);
        let was_there = before >> (descriptor % 64) & 1;
        self.count.fetch_sub(was_there, Ordering::SeqCst);
        was_there == 1
    }
}

/// Whether a descriptor is one. One that is about to be free is waited for.
#[inline]
pub(crate) fn is_own(descriptor: c_int) -> bool {
    while FILLERS.has(descriptor) && !setup::is_inside() {
        thread::sleep(PAUSE);
    }
    is_kept(descriptor)
}

#[inline]
fn is_kept(descriptor: c_int) -> bool {
    OF_CONNECTIONS.has(descriptor) || OF_LOCKS.has(descriptor)
}

/// Where they begin in this process.
pub(crate) fn first() -> c_int {
    let first = |limit: u64| FIRST.min(limit.saturating_sub(OF_CONNECTION).max(limit / 2));
    getrlimit(Resource::Nofile).current.map_or(FIRST, first) as c_int
}

/// Keeps a file of locks: the number that it has from now on. `None` where there is none.
pub(crate) fn keep_locks(file: &OwnedFd, is_inherited: bool) -> Option<c_int> {
    let file = fcntl_dupfd_cloexec(file, first()).ok()?;
    if is_inherited {
        fcntl_setfd(&file, FdFlags::empty()).ok()?;
    }
    let descriptor = file.as_raw_fd();
    OF_LOCKS.insert(descriptor).then(|| file.into_raw_fd())
}

/// From now on, programs that are executed have a file of locks, if this process has it.
pub(crate) fn pass_locks_on(descriptor: c_int) {
    if OF_LOCKS.has(descriptor) {
        // SAFETY: it stays open for as long as it is one.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        // It cannot fail.
        let _ = fcntl_setfd(descriptor, FdFlags::empty());
    }
}

/// Takes in one that the program before this one has kept, if it is one.
pub(crate) fn adopt_locks(descriptor: c_int) {
    if is_of_locks(descriptor) && !OF_LOCKS.has(descriptor) {
        OF_LOCKS.insert(descriptor);
    }
}

/// Takes in one that the program before this one has kept as a connection's.
pub(crate) fn adopt(descriptor: c_int) {
    OF_CONNECTIONS.insert(descriptor);
}

/// Closes a file of locks that the program before this one has kept of what this one has no descriptor of.
pub(crate) fn close_stray_locks(descriptor: c_int) {
    if is_of_locks(descriptor) && !OF_LOCKS.has(descriptor) {
        description::close(descriptor);
    }
}

/// Whether a descriptor is open on a file of locks, of one of the disks that there are.
fn is_of_locks(descriptor: c_int) -> bool {
    let Ok(link) = readlink(format!("/proc/thread-self/fd/{descriptor}"), Vec::new()) else { return false };
    let mut paths = setup::disks().filter_map(Named::description_locks);
    paths.any(|path| path.as_os_str().as_bytes() == link.as_bytes())
}

/// Whether this process has that file of locks.
pub(crate) fn has_locks(descriptor: c_int) -> bool {
    OF_LOCKS.has(descriptor)
}

/// Closes a file of locks, if this process has it.
pub(crate) fn let_go_of_locks(descriptor: c_int) {
    if OF_LOCKS.remove(descriptor) {
        description::close(descriptor);
    }
}

/// Runs `run`, whose descriptors are high ones, where there is room for what it calls: a thread of the program's, or a
/// handler of its signals, may have 16 KiB of stack and less.
pub(crate) fn make<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    leader::guard();
    let (mut run, mut made) = (Some(run), None);
    let mut make = || made = run.take().map(|run| make_here(run));
    thread::scope(|scope| {
        let make = || {
            let _inside = Inside::enter();
            make();
        };
        let thread = thread::Builder::new().name("blockyard-session".to_owned()).stack_size(STACK_BYTES);
        // Where there can be no thread, this one's stack has to do.
        let _ = without_signals(|| thread.spawn_scoped(scope, make).map(drop));
    });
    made.or_else(|| run.take().map(make_here)).expect("it is run once")
}

#[inline(never)]
fn make_here<T>(run: impl FnOnce() -> T) -> T {
    // One at a time: what the end of another frees below would be taken here.
    alone(|| {
        IS_MAKING.store(true, Ordering::SeqCst);
        let first = first();
        for_each_from(first, |descriptor| _ = BEFORE.insert(descriptor));
        HAS_BEFORE.store(true, Ordering::SeqCst);
        // Whatever is free below is in use meanwhile.
        let filler = memfd_create(FILLER, MemfdFlags::CLOEXEC);
        let file = filler.as_ref().ok().and_then(identity);
        let below = filler.map(|filler| fill(filler, first)).unwrap_or_default();
        let result = run();
        below.into_iter().for_each(|number| free(number, file));
        for_each_from(first, |descriptor| {
            if is_new(descriptor) {
                OF_CONNECTIONS.insert(descriptor);
                // In this order: whoever has got it meanwhile says so before it looks.
                if OF_PROGRAM.has(descriptor) {
                    OF_CONNECTIONS.remove(descriptor);
                }
            }
        });
        HAS_BEFORE.store(false, Ordering::SeqCst);
        BEFORE.forget_all();
        OF_PROGRAM.forget_all();
        IS_MAKING.store(false, Ordering::SeqCst);
        result
    })
}

/// Has what a descriptor is open on have all numbers below `first` that are free: which these are. Who reads or writes
/// there hears what it would of a number that is free (EBADF).
fn fill(filler: OwnedFd, first: c_int) -> Vec<c_int> {
    let mut below = Vec::new();
    let path = format!("/proc/thread-self/fd/{}", filler.as_raw_fd());
    let filler = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap_or(filler);
    // At once: another thread may close or duplicate to any number, and a child of its has no use for them.
    let mut keep = |filler: OwnedFd| {
        FILLERS.insert(filler.as_raw_fd());
        below.push(filler.into_raw_fd());
    };
    while let Ok(another) = fcntl_dupfd_cloexec(&filler, 0) {
        if another.as_raw_fd() >= first {
            break;
        }
        keep(another);
    }
    keep(filler);
    below
}

/// Which file a descriptor is open on.
fn identity(descriptor: impl AsFd) -> Option<(u64, u64)> {
    fstat(descriptor).ok().map(|found| (found.st_dev, found.st_ino))
}

/// Gives a low number back, unless another thread has taken it: what it is open on is another file then.
fn free(number: c_int, file: Option<(u64, u64)>) {
    // SAFETY: what is open there stays so for this call, or is the program's.
    let found = identity(unsafe { BorrowedFd::borrow_raw(number) });
    if FILLERS.has(number) && found.is_some() && found == file {
        description::close(number);
    }
    // Who waits for the number finds it free.
    FILLERS.remove(number);
}

/// The program has got a descriptor, of such a kind as connections have: it may have come when one was made.
pub(crate) fn is_programs(descriptor: c_int) {
    let is_making = IS_MAKING.load(Ordering::SeqCst);
    if descriptor < 0 || !is_making && !OF_CONNECTIONS.has(descriptor) || setup::is_inside() {
        return;
    }
    if is_making {
        OF_PROGRAM.insert(descriptor);
        FILLERS.remove(descriptor);
    }
    OF_CONNECTIONS.remove(descriptor);
}

/// A descriptor is closed.
pub(crate) fn is_closed(descriptor: c_int) {
    OF_CONNECTIONS.remove(descriptor);
    OF_PROGRAM.remove(descriptor);
}

/// Whether one that is being made has it, as far as is known: it was not there before.
fn is_new(descriptor: c_int) -> bool {
    !BEFORE.has(descriptor) && with_link(descriptor, is_of_connections)
}

/// Whether what a descriptor is open on is such as connections have: a file, a directory or a pipe that another thread
/// has opened meanwhile is none.
fn is_of_connections(link: &[u8]) -> bool {
    const KINDS: [&[u8]; 3] = [b"socket:", b"anon_inode:[eventfd]", b"/memfd:blockyard-guest "];
    const FILES: [&str; 2] = [locks::ENDING, partial_writes::ENDING];
    KINDS.iter().any(|kind| link.starts_with(kind)) || FILES.iter().any(|file| link.ends_with(file.as_bytes()))
}

/// Asks `is_it` of what a descriptor is open on, as /proc says it. Takes no memory.
fn with_link(descriptor: c_int, is_it: impl FnOnce(&[u8]) -> bool) -> bool {
    let mut path = [0; 32];
    let mut rest = &mut path[..];
    let mut link = [MaybeUninit::uninit(); LINK_BYTES];
    write!(rest, "/proc/thread-self/fd/{descriptor}\0").is_ok()
        && CStr::from_bytes_until_nul(&path)
            .is_ok_and(|path| readlinkat_raw(CWD, path, &mut link).is_ok_and(|(link, _)| is_it(link)))
}

/// Calls `each` with this process's descriptors from `first` on. Takes no memory.
fn for_each_from(first: c_int, mut each: impl FnMut(c_int)) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = open(c"/proc/thread-self/fd", flags, Mode::empty()) else { return };
    let own = directory.as_raw_fd();
    let mut room = [MaybeUninit::uninit(); ENTRIES_BYTES];
    let mut entries = RawDir::new(&directory, &mut room);
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|&number| number >= first && number != own) {
            each(number);
        }
    }
}

/// Calls `close` with the ranges between `first` and `last` that have none of them.
pub(crate) fn around(first: u32, last: u32, mut close: impl FnMut(u32, u32) -> c_int) -> c_int {
    let mut from = first;
    if [&OF_CONNECTIONS, &OF_LOCKS, &FILLERS].iter().any(|set| !set.is_empty()) {
        for number in first..last.saturating_add(1).min(END as u32) {
            if is_kept(number as c_int) || FILLERS.has(number as c_int) {
                if number > from {
                    close(from, number - 1);
                }
                from = number + 1;
            }
        }
    }
    if from <= last { close(from, last) } else { 0 }
}

/// In a child: the files of locks are those of these descriptions, and no others.
pub(crate) fn keep_locks_of(descriptions: impl Iterator<Item = c_int>) {
    descriptions.filter(|&number| OF_LOCKS.has(number)).for_each(|number| _ = KEPT.insert(number));
    OF_LOCKS.take_all(|number| {
        if !KEPT.has(number) {
            description::close(number);
        }
    });
    KEPT.take_all(|number| _ = OF_LOCKS.insert(number));
}

/// In a child: those of connections are of no use, nor are those of one that was being made.
pub(crate) fn close_all() {
    // First: whoever closes one of those waits for it.
    FILLERS.forget_all();
    if IS_MAKING.load(Ordering::SeqCst) {
        let (first, has_before) = (first(), HAS_BEFORE.load(Ordering::SeqCst));
        for_each_from(0, |number| {
            let is_known = OF_CONNECTIONS.has(number) || OF_PROGRAM.has(number);
            let is_half_made = || has_before && number >= first && (number as usize) < END && is_new(number);
            if with_link(number, |link| link.starts_with(FILLER_LINK)) || !is_known && is_half_made() {
                description::close(number);
            }
        });
    }
    OF_CONNECTIONS.take_all(description::close);
}

/// In a child: it makes nothing. What is still one of a connection's is its parent's, and not the program's to close.
pub(crate) fn forget_what_is_made() {
    [&FILLERS, &OF_PROGRAM, &BEFORE].into_iter().for_each(Set::forget_all);
    HAS_BEFORE.store(false, Ordering::SeqCst);
    IS_MAKING.store(false, Ordering::SeqCst);
}
