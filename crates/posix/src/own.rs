//! Descriptors of this library's own: sockets, events and memory of its connections.
//!
//! Programs count on numbers: what is opened next has the lowest that is free, a shell moves 3 to where it likes, a
//! daemon closes all that it did not open. So the library's own are high ones, are not the program's to close, and are
//! gone in a child.

use crate::locks;
use libc::c_int;
use rustix::fs::{Dir, Mode, OFlags, open, readlink};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where they begin, if a process may have as many.
const FIRST: u64 = 768;
/// Higher ones are not looked for.
const END: usize = 1 << 16;

/// A bit for each.
static OWN: [AtomicU64; END / 64] = [const { AtomicU64::new(0) }; END / 64];
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Whether a descriptor is one.
#[inline]
pub(crate) fn is_own(descriptor: c_int) -> bool {
    let Ok(descriptor) = usize::try_from(descriptor) else { return false };
    COUNT.load(Ordering::Relaxed) > 0
        && OWN.get(descriptor / 64).is_some_and(|bits| bits.load(Ordering::Relaxed) & 1 << (descriptor % 64) != 0)
}

/// Runs `run`, whose descriptors are high ones.
pub(crate) fn make<T>(run: impl FnOnce() -> T) -> T {
    let first = getrlimit(Resource::Nofile).current.map_or(FIRST, |limit| FIRST.min(limit * 3 / 4)) as c_int;
    let before = all_from(first);
    // Whatever is free below is in use meanwhile.
    let mut below: Vec<OwnedFd> = Vec::new();
    if let Ok(filler) = open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        below.push(filler);
        while let Ok(another) = fcntl_dupfd_cloexec(&below[0], 0) {
            if another.as_raw_fd() >= first {
                break;
            }
            below.push(another);
        }
    }
    let result = run();
    drop(below);
    let is_new = |descriptor: &c_int| !before.contains(descriptor) && is_of_connections(*descriptor);
    for descriptor in all_from(first).into_iter().filter(is_new) {
        let index = descriptor as usize;
        if let Some(bits) = OWN.get(index / 64) {
            bits.fetch_or(1 << (index % 64), Ordering::Relaxed);
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
    }
    result
}

/// Whether it is such as connections have. Another thread may have opened something meanwhile, which has a high number
/// then: a file, a directory or a pipe stays its own.
fn is_of_connections(descriptor: c_int) -> bool {
    const KINDS: [&[u8]; 3] = [b"socket:", b"anon_inode:[eventfd]", b"/memfd:"];
    let link = readlink(format!("/proc/self/fd/{descriptor}"), Vec::new());
    link.is_ok_and(|link| {
        let link = link.as_bytes();
        KINDS.iter().any(|kind| link.starts_with(kind)) || link.ends_with(locks::ENDING.as_bytes())
    })
}

/// This process's descriptors from `first` on.
fn all_from(first: c_int) -> Vec<c_int> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = open("/proc/self/fd", flags, Mode::empty()) else { return Vec::new() };
    let own = directory.as_raw_fd();
    let Ok(entries) = Dir::new(directory) else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse().ok());
    numbers.filter(|&number| number >= first && number != own).collect()
}

/// Calls `close` with the ranges between `first` and `last` that have none of them.
pub(crate) fn around(first: u32, last: u32, mut close: impl FnMut(u32, u32) -> c_int) -> c_int {
    let mut from = first;
    if COUNT.load(Ordering::Relaxed) > 0 {
        for number in first..last.saturating_add(1).min(END as u32) {
            if is_own(number as c_int) {
                if number > from {
                    close(from, number - 1);
                }
                from = number + 1;
            }
        }
    }
    if from <= last { close(from, last) } else { 0 }
}

/// In a child: none is of any use.
pub(crate) fn close_all() {
    if COUNT.swap(0, Ordering::Relaxed) == 0 {
        return;
    }
    for (index, bits) in OWN.iter().enumerate() {
        let mut bits = bits.swap(0, Ordering::Relaxed);
        while bits != 0 {
            crate::description::close((index * 64) as c_int + bits.trailing_zeros() as c_int);
            bits &= bits - 1;
        }
    }
}
