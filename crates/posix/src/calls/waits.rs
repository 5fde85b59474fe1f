//! Calls that wait for descriptors: a disk is always ready, as a file is.

use crate::errno::{Errno, answer_int};
use crate::guarded::{get, put};
use crate::next::{calls, own};
use crate::table;
use libc::{c_int, c_short, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

/// Descriptors that a process may have, and more than there may be of disks (`table`).
const DESCRIPTORS_MAX: nfds_t = 1 << 20;

/// What a disk is ready for.
const READY: c_short = libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;

calls! {
    fn [poll](list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int |own| {
        polled(list, count, own, |list, waits| own_poll(list, count, if waits { timeout } else { 0 }))
    }
    fn [__poll_chk](list: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int |own| {
        polled(list, count, own, |list, waits| own_poll(list, count, if waits { timeout } else { 0 }))
    }
    fn [ppoll](list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int |own| {
        polled(list, count, own, |list, waits| own_ppoll(list, count, timeout, mask, waits))
    }
    fn [__ppoll_chk](
        list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: usize
    ) -> c_int |own| {
        polled(list, count, own, |list, waits| own_ppoll(list, count, timeout, mask, waits))
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

fn own_poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    own!(poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int)
}

fn own_ppoll(list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, waits: bool) -> c_int {
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    let timeout = if waits { timeout } else { &raw const now };
    own!(ppoll(list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int)
}

/// As poll(2), which is `own`. Where there are disks in the list, `ask` asks of the others, in a list without disks: it
/// waits for them, or not where a disk is ready.
fn polled(
    list: *mut pollfd,
    count: nfds_t,
    own: impl FnOnce() -> c_int,
    ask: impl FnOnce(*mut pollfd, bool) -> c_int,
) -> c_int {
    // More than can be open, or what is not there, is for the kernel to say.
    let places = || (0..count as usize).map(|index| list.wrapping_add(index));
    let has_disk = || places().map_while(|place| get(place).ok()).any(|one| table::has(one.fd));
    if count > DESCRIPTORS_MAX || !table::is_used() || !has_disk() {
        return own();
    }
    let Ok(all) = places().map(|place| get(place.cast_const())).collect::<Result<Vec<pollfd>, _>>() else {
        return own();
    };
    let is_ready = all.iter().any(|one| table::has(one.fd) && one.events & READY != 0);
    // Those of disks are nothing to the kernel, which takes none that are negative.
    let hide = |one: &pollfd| if table::has(one.fd) { pollfd { fd: -1, ..*one } } else { *one };
    let mut others: Vec<pollfd> = all.iter().map(hide).collect();
    let found = ask(others.as_mut_ptr(), !is_ready);
    if found < 0 {
        return found;
    }
    let mut ready = 0;
    for ((place, one), other) in places().zip(&all).zip(&others) {
        let events = if other.fd == one.fd { other.revents } else { one.events & READY };
        ready += c_int::from(events != 0);
        // SAFETY: the field of what is there; it is not looked at.
        if let Err(error) = put(unsafe { &raw mut (*place).revents }, events) {
            return answer_int::<c_int>(Err(error));
        }
    }
    ready
}

/// As select(2), with sets of what is to be read, written, and to fail.
fn selected(count: c_int, sets: [*mut fd_set; 3], wait: impl FnOnce() -> c_int, look: impl FnOnce() -> c_int) -> c_int {
    // Programs have larger sets than that, of which only the bits below the count are there.
    let place = |set: *mut fd_set, descriptor: c_int| set.cast::<u8>().wrapping_add(descriptor as usize / 8);
    let has = |set: *mut fd_set, descriptor: c_int| {
        // What is not there is for the kernel to say.
        !set.is_null() && get(place(set, descriptor)).is_ok_and(|byte| byte & 1 << (descriptor % 8) != 0)
    };
    let change = |set: *mut fd_set, descriptor: c_int| {
        let place = place(set, descriptor);
        get(place).and_then(|byte| put(place, byte ^ 1 << (descriptor % 8)))
    };
    if !table::is_used() {
        return wait();
    }
    let mut hidden = Vec::new();
    for descriptor in (0..count.min(DESCRIPTORS_MAX as c_int)).filter(|&descriptor| table::has(descriptor)) {
        for (kind, set) in sets.into_iter().enumerate() {
            if has(set, descriptor) {
                hidden.push((kind, set, descriptor));
            }
        }
    }
    // None of them fails.
    let is_ready = hidden.iter().any(|(kind, ..)| *kind < 2);
    for (index, &(_, set, descriptor)) in hidden.iter().enumerate() {
        if let Err(error) = change(set, descriptor) {
            hidden.iter().take(index).for_each(|&(_, set, descriptor)| _ = change(set, descriptor));
            return answer_int::<c_int>(Err(error));
        }
    }
    let mut found = if is_ready { look() } else { wait() };
    for (kind, set, descriptor) in hidden {
        // What fails leaves the sets as they are.
        if found < 0 || kind < 2 {
            // It was there a moment ago.
            let _ = change(set, descriptor);
        }
        found += c_int::from(found >= 0 && kind < 2);
    }
    found
}
