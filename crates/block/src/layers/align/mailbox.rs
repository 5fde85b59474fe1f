//! How the merger tells a queue what became of its writes, from whichever thread drives it.

use crate::RequestError;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A job of the merger that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) slot: u16,
    pub(super) result: Result<(), RequestError>,
}

pub(super) struct Mailbox {
    ended: Mutex<Vec<Ended>>,
    rung: AtomicBool,
    event: OwnedFd,
}

impl Mailbox {
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { ended: Mutex::new(Vec::with_capacity(capacity)), rung: AtomicBool::new(false), event })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Ended>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn post(&self, ended: Ended) {
        self.lock().push(ended);
        self.ring();
    }

    /// Makes the event readable until the queue looks.
    pub(super) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // An eventfd's counter is far from full when it only ever counts to two.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Moves what ended to `into`. False when nobody rang.
    pub(super) fn collect(&self, into: &mut Vec<Ended>) -> bool {
        if !self.rung.load(Ordering::Acquire) {
            return false;
        }
        // In this order: who rings after the swap is heard the next time, who rang before it has posted already.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        self.rung.swap(false, Ordering::AcqRel);
        into.append(&mut self.lock());
        true
    }

    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
