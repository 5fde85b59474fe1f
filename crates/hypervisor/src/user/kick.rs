//! Fetching a guest back from another thread.

use crate::Kick;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Signal, pidfd_send_signal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Kicks one guest process. It outlives the process: a pidfd never means another one.
#[derive(Debug)]
pub(super) struct Kicker {
    wanted: AtomicBool,
    /// Wakes the thread in `run`, in case the guest does not answer the signal.
    event: OwnedFd,
    pidfd: Arc<OwnedFd>,
}

impl Kicker {
    pub(super) fn new(pidfd: Arc<OwnedFd>) -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { wanted: AtomicBool::new(false), event, pidfd })
    }

    /// Readable since a kick.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Whether somebody waits for the guest to come back.
    pub(super) fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Takes the kick, if there is one: it is answered now.
    pub(super) fn take(&self) -> bool {
        // A kick between the two is answered by this one; the event it leaves readable is found stale and quietened.
        self.wanted() && {
            self.quieten();
            self.wanted.swap(false, Ordering::AcqRel)
        }
    }

    /// Makes the event unreadable.
    pub(super) fn quieten(&self) {
        // An eventfd that is zero already says EAGAIN: fine.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl Kick for Kicker {
    fn kick(&self) {
        self.wanted.store(true, Ordering::Release);
        // The process may be gone; then `run` says so without a kick.
        let _ = pidfd_send_signal(&*self.pidfd, Signal::USR1);
        // Cannot be full: only kicks add to it, and only as often as they happen.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}
