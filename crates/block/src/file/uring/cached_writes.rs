//! Which writes the queue's own thread makes, ahead of the ring.
//!
//! A write into the page cache is a copy of some microseconds. Most file systems cannot promise io_uring that it will
//! not wait (ext4 among them), so the ring hands each to a kernel thread: measured with 4 KiB through a session on
//! ext4, 28,000 a second one at a time where a plain call does 150,000, and 103,000 against 152,000 with 64 in flight.
//!
//! That is so on the file systems listed here, which are local, too: one whose server is gone would stop this thread.
//!
//! A write may wait all the same: for a journal, or because too much is dirty already. One that did shows that others
//! will, so they are the ring's for a while, in proportion: this thread, which has other requests to serve, waits for a
//! small part of its time at most.

use rustix::fs::fstatfs;
use std::fs::File;
use std::time::{Duration, Instant};

/// Those that hand every buffered write over (linux/magic.h): ext2, ext3 and ext4; tmpfs; overlayfs, which containers
/// have.
const FILE_SYSTEMS: [u64; 3] = [0xef53, 0x0102_1994, 0x794c_7630];

/// Handing over costs as much as copying some 32 KiB. What is longer, two threads do sooner than one: measured through
/// a session with four in flight, thousands a second made here and handed over: 93 and 74 of 32 KiB, 45 and 49 of 64
/// KiB, 30 and 32 of 128 KiB, 16 and 18 of 256 KiB.
const BYTES_MAX: u64 = 64 << 10;
/// While nothing else is in flight there is nothing that this thread could do meanwhile: 38 and 22 of 64 KiB, 3.5 and
/// 1.8 of 1 MiB. Nor is there when it has handed over what was submitted together: two of 1 MiB are written by two
/// CPUs then, 1.03 times as soon. A larger one would keep requests that come waiting for longer than handing it over
/// costs.
const BYTES_MAX_FREE: u64 = 1 << 20;
/// What is not whole pages may have to be read first.
const PAGE_BYTES: u64 = 4096;

/// What took longer waited for something: the largest copy takes some 200 µs.
const LONG: Duration = Duration::from_millis(1);
/// For how many times as long as it waited the ring has the writes.
const PAUSE_FACTOR: u32 = 64;

/// Whether writes are made here now.
#[derive(Debug)]
pub(super) struct CachedWrites {
    pays: bool,
    paused_until: Option<Instant>,
}

impl CachedWrites {
    /// For writes to `file`.
    pub(super) fn to(file: &File) -> Self {
        let pays = fstatfs(file).is_ok_and(|place| FILE_SYSTEMS.contains(&(place.f_type as u64)));
        Self { pays, paused_until: None }
    }

    /// Whether a write to the page cache may be made here, `now`: `free` when this thread has nothing else to do.
    pub(super) fn may_make(&mut self, offset_bytes: u64, length_bytes: u64, free: bool, now: Instant) -> bool {
        if !self.pays || self.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        self.paused_until = None;
        let whole_pages = (offset_bytes | length_bytes).is_multiple_of(PAGE_BYTES);
        whole_pages && length_bytes <= if free { BYTES_MAX_FREE } else { BYTES_MAX }
    }

    /// One was made, from `started` until `ended`.
    pub(super) fn made(&mut self, started: Instant, ended: Instant) {
        let took = ended - started;
        if took > LONG {
            self.paused_until = Some(ended + took * PAUSE_FACTOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_writes_of_whole_pages_are_made_here() {
        let (mut writes, now) = (CachedWrites { pays: true, paused_until: None }, Instant::now());
        assert!(writes.may_make(8192, 4096, false, now));
        assert!(writes.may_make(0, 64 << 10, false, now));
        assert!(!writes.may_make(0, 68 << 10, false, now), "another thread does it sooner");
        assert!(writes.may_make(0, 1 << 20, true, now));
        assert!(!writes.may_make(512, 4096, true, now), "it begins within a page");
        assert!(!writes.may_make(4096, 512, true, now), "it ends within a page");
        assert!(!writes.may_make(0, 2 << 20, true, now), "it is large");
    }

    #[test]
    fn other_file_systems_writes_are_the_ring_s() {
        let proc_file = File::open("/proc/self/stat").unwrap();
        assert!(!CachedWrites::to(&proc_file).may_make(8192, 4096, true, Instant::now()));
    }

    #[test]
    fn a_write_that_waited_sends_the_next_ones_to_the_ring_for_a_while() {
        let (mut writes, start) = (CachedWrites { pays: true, paused_until: None }, Instant::now());
        let end = start + Duration::from_millis(10);
        writes.made(start, end);
        assert!(!writes.may_make(0, 4096, true, end + Duration::from_millis(639)));
        assert!(writes.may_make(0, 4096, true, end + Duration::from_millis(640)));
        writes.made(end, end + Duration::from_micros(900));
        assert!(writes.may_make(0, 4096, true, end + Duration::from_millis(641)));
    }
}
