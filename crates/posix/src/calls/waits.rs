//! Calls that wait for descriptors: a disk is always ready, as a file is.

use crate::errno::{Errno, answer_int};
use crate::next::{calls, own};
use crate::table;
use libc::{c_int, c_short, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use std::slice;

/// What a disk is ready for.
const READY: c_short = libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;

calls! {
    fn [poll](list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int |own| {
        polled(list, count, own, |_| look(list, count))
    }
    fn [__poll_chk](list: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int |own| {
        polled(list, count, own, |_| look(list, count))
    }
    fn [ppoll](list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int |own| {
        polled(list, count, own, |now| {
            own!(ppoll(list: *mut pollfd, count: nfds_t, now: *const timespec, mask: *const sigset_t) -> c_int)
        })
    }
    fn [select](
        count: c_int, reads: *mut fd_set, writes: *mut fd_set, errors: *mut fd_set, timeout: *mut timeval
    ) -> c_int |own| {
        let sets = [reads, writes, errors];
        selected(count, sets, own, || {
            let mut now = timeval { tv_sec: 0, tv_usec: 0 };
            let now = &raw mut now;
            own!(select(count: c_int, reads: *mut fd_set, writes: *mut fd_set, errors: *mut fd_set, now: *mut timeval) -> c_int)
        })
    }
    fn [pselect](
        count: c_int, reads: *mut fd_set, writes: *mut fd_set, errors: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int |own| {
        let sets = [reads, writes, errors];
        selected(count, sets, own, || {
            let now = timespec { tv_sec: 0, tv_nsec: 0 };
            let now = &raw const now;
            own!(pselect(
                count: c_int, reads: *mut fd_set, writes: *mut fd_set, errors: *mut fd_set, now: *const timespec,
                mask: *const sigset_t
            ) -> c_int)
        })
    }
    fn [epoll_ctl](list: c_int, operation: c_int, descriptor: c_int, event: *mut epoll_event) -> c_int |own| {
        match table::find(descriptor) {
            // As for a file.
            Some(_) => answer_int::<c_int>(Err(Errno(libc::EPERM))),
            None => own(),
        }
    }
}

fn look(list: *mut pollfd, count: nfds_t) -> c_int {
    let now = 0;
    own!(poll(list: *mut pollfd, count: nfds_t, now: c_int) -> c_int)
}

/// As poll(2). `wait` waits for the others, and `look` does not, where a disk is ready.
fn polled(
    list: *mut pollfd,
    count: nfds_t,
    wait: impl FnOnce() -> c_int,
    look: impl FnOnce(*const timespec) -> c_int,
) -> c_int {
    if list.is_null() || count == 0 || !table::is_used() {
        return wait();
    }
    // SAFETY: the program's, as of poll(2).
    let list = unsafe { slice::from_raw_parts_mut(list, count as usize) };
    if list.iter().all(|one| !table::has(one.fd)) {
        return wait();
    }
    // Those of disks are nothing to the kernel meanwhile, which takes none that are negative.
    let disks = list.iter_mut().filter(|one| table::has(one.fd));
    let mut is_ready = false;
    let hidden: Vec<(*mut pollfd, c_int)> = disks
        .map(|one| {
            is_ready |= one.events & READY != 0;
            (&raw mut *one, std::mem::replace(&mut one.fd, -1))
        })
        .collect();
    let mut found = if is_ready { look(&timespec { tv_sec: 0, tv_nsec: 0 }) } else { wait() };
    for (one, descriptor) in hidden {
        // SAFETY: one of the list's.
        let one = unsafe { &mut *one };
        one.fd = descriptor;
        if found >= 0 {
            one.revents = one.events & READY;
            found += c_int::from(one.revents != 0);
        }
    }
    found
}

/// As select(2), with sets of what is to be read, written, and to fail.
fn selected(count: c_int, sets: [*mut fd_set; 3], wait: impl FnOnce() -> c_int, look: impl FnOnce() -> c_int) -> c_int {
    // Programs have larger sets than that, of which only the bits below the count are there.
    let place = |set: *mut fd_set, descriptor: c_int| set.cast::<u8>().wrapping_add(descriptor as usize / 8);
    let has = |set: *mut fd_set, descriptor: c_int| {
        // SAFETY: the program's, as of select(2).
        !set.is_null() && unsafe { *place(set, descriptor) } & 1 << (descriptor % 8) != 0
    };
    let change = |set: *mut fd_set, descriptor: c_int| {
        // SAFETY: as above.
        unsafe { *place(set, descriptor) ^= 1 << (descriptor % 8) };
    };
    if !table::is_used() {
        return wait();
    }
    let mut hidden = Vec::new();
    for descriptor in 0..count {
        for (kind, set) in sets.into_iter().enumerate() {
            if has(set, descriptor) && table::has(descriptor) {
                hidden.push((kind, set, descriptor));
            }
        }
    }
    // None of them fails.
    let is_ready = hidden.iter().any(|(kind, ..)| *kind < 2);
    hidden.iter().for_each(|&(_, set, descriptor)| change(set, descriptor));
    let mut found = if is_ready { look() } else { wait() };
    for (kind, set, descriptor) in hidden {
        // What fails leaves the sets as they are.
        if found < 0 || kind < 2 {
            change(set, descriptor);
        }
        found += c_int::from(found >= 0 && kind < 2);
    }
    found
}
