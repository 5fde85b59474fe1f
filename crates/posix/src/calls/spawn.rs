//! Files that posix_spawn(3) is to open for a child: libc does that by itself, where no library sees it. So a disk is
//! opened at once, and what the child does is duplicate the descriptor.

use crate::calls::duplicated;
use crate::calls::names::{disk_named, opened};
use crate::errno::Errno;
use crate::next::{calls, own};
use crate::own;
use libc::{c_char, c_int, mode_t, posix_spawn_file_actions_t as Actions};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Disks that are open for children, at most.
const OPENED_MAX: usize = 64;

/// One of them.
struct Opened {
    /// The address of the actions that it belongs to; 0: there is none, 1: there is about to be one.
    of: AtomicUsize,
    descriptor: AtomicI32,
}

static OPENED: [Opened; OPENED_MAX] =
    [const { Opened { of: AtomicUsize::new(0), descriptor: AtomicI32::new(0) } }; OPENED_MAX];

calls! {
    fn [posix_spawn_file_actions_addopen](
        actions: *mut Actions, descriptor: c_int, path: *const c_char, flags: c_int, mode: mode_t
    ) -> c_int |own| {
        disk_named(path).map_or_else(own, |number| added(actions, descriptor, number, flags))
    }
    fn [posix_spawn_file_actions_destroy](actions: *mut Actions) -> c_int |own| {
        for opened in OPENED.iter().filter(|opened| opened.of.load(Ordering::Acquire) == actions.addr()) {
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
    let is_free = |place: &&Opened| place.of.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let Some(place) = OPENED.iter().find(is_free) else { return libc::ENOMEM };
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
    own!(posix_spawn_file_actions_adddup2(actions: *mut Actions, high: c_int, descriptor: c_int) -> c_int)
}
