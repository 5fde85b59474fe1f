//! Files that posix_spawn(3) is to open for a child: libc does that by itself, where no library sees it. So a disk is
//! opened at once, and what the child opens is that descriptor.

use crate::calls::duplicated;
use crate::calls::names::{disk_followed, opened};
use crate::errno::Errno;
use crate::next::{calls, own};
use crate::own;
use crate::signals::Busy;
use libc::{c_char, c_int, mode_t, posix_spawn_file_actions_t as Actions};
use std::ffi::CString;
use std::iter::successors;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

/// One of them.
struct Opened {
    /// The address of the actions that it belongs to; 0: there is none, 1: there is about to be one.
    of: AtomicUsize,
    descriptor: AtomicI32,
}

/// Some of them, and where more are: these are never given back to the system.
struct Chunk {
    opened: [Opened; 64],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    const fn new() -> Self {
        let opened = [const { Opened { of: AtomicUsize::new(0), descriptor: AtomicI32::new(0) } }; _];
        Self { opened, next: AtomicPtr::new(null_mut()) }
    }
}

static OPENED: Chunk = Chunk::new();

fn all() -> impl Iterator<Item = &'static Opened> {
    // SAFETY: it is null, or was leaked for ever.
    let next = |chunk: &&'static Chunk| unsafe { chunk.next.load(Ordering::Acquire).as_ref() };
    successors(Some(&OPENED), next).flat_map(|chunk| &chunk.opened)
}

/// A place for another one.
fn take_place() -> &'static Opened {
    loop {
        let is_free = |place: &&Opened| place.of.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if let Some(place) = all().find(is_free) {
            return place;
        }
        // In front of those that there are, behind the first.
        let new = Box::into_raw(Box::new(Chunk::new()));
        let _ = OPENED.next.fetch_update(Ordering::AcqRel, Ordering::Acquire, |second| {
            // SAFETY: nobody else has seen it.
            unsafe { (*new).next.store(second, Ordering::Relaxed) };
            Some(new)
        });
    }
}

calls! {
    fn [posix_spawn_file_actions_addopen](
        actions: *mut Actions, descriptor: c_int, path: *const c_char, flags: c_int, mode: mode_t
    ) -> c_int |own| {
        disk_followed(libc::AT_FDCWD, path).map_or_else(own, |number| added(actions, descriptor, number, flags))
    }
    fn [posix_spawn_file_actions_destroy](actions: *mut Actions) -> c_int |own| {
        for opened in all().filter(|opened| opened.of.load(Ordering::Acquire) == actions.addr()) {
            // SAFETY: it was opened below.
            unsafe { libc::close(opened.descriptor.load(Ordering::Relaxed)) };
            opened.of.store(0, Ordering::Release);
        }
        own()
    }
}

/// Opens a disk, which a child that is spawned with these actions has by the descriptor's number. As the function: the
/// error's number.
fn added(actions: *mut Actions, descriptor: c_int, number: usize, flags: c_int) -> c_int {
    let _busy = Busy::enter();
    let place = take_place();
    let free = |error| {
        place.of.store(0, Ordering::Release);
        error
    };
    // The child's descriptor is one that it keeps.
    let low = match opened(number, flags & !libc::O_CLOEXEC) {
        Ok(low) => low,
        Err(Errno(error)) => return free(error),
    };
    // SAFETY: numbers; what is opened here is closed here.
    let high = unsafe {
        let high = duplicated(low, libc::syscall(libc::SYS_fcntl, low, libc::F_DUPFD_CLOEXEC, own::first()) as c_int);
        libc::close(low);
        high
    };
    if high < 0 {
        return free(libc::EMFILE);
    }
    place.descriptor.store(high, Ordering::Relaxed);
    place.of.store(actions.addr(), Ordering::Release);
    // SAFETY: numbers.
    let (process, is_seen) = unsafe { (libc::getpid(), libc::prctl(libc::PR_GET_DUMPABLE) == 1) };
    match CString::new(format!("/proc/{process}/fd/{high}")) {
        // From this process, as the child may have closed what it has of it.
        Ok(path) if is_seen => {
            let (path, flags, mode) = (path.as_ptr(), libc::O_PATH | flags & libc::O_CLOEXEC, 0);
            own!(posix_spawn_file_actions_addopen(
                actions: *mut Actions, descriptor: c_int, path: *const c_char, flags: c_int, mode: mode_t
            ) -> c_int)
        }
        _ => own!(posix_spawn_file_actions_adddup2(actions: *mut Actions, high: c_int, descriptor: c_int) -> c_int),
    }
}
