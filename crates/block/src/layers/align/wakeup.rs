//! One descriptor for everything that a queue waits for.

use crate::wait::{add_event, one_event};
use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Readable while any of what was added is.
pub(super) struct Wakeup {
    epoll: OwnedFd,
}

impl Wakeup {
    pub(super) fn of(events: &[BorrowedFd<'_>]) -> io::Result<Self> {
        Ok(Self { epoll: one_event(events.iter().copied())? })
    }

    /// Adds an event that does not matter until [`Self::heed`] says so.
    pub(super) fn add_unheeded(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        add_event(&self.epoll, event, epoll::EventFlags::empty())
    }

    /// Whether an event matters that was added. Takes no memory, so it does not fail.
    pub(super) fn heed(&self, event: BorrowedFd<'_>, heeded: bool) {
        let flags = if heeded { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let _ = epoll::modify(&self.epoll, event, epoll::EventData::new_u64(0), flags);
    }

    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
