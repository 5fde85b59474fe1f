//! One descriptor for everything that a queue waits for.

use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Readable while any of what was added is.
pub(super) struct Wakeup {
    epoll: OwnedFd,
}

impl Wakeup {
    pub(super) fn of(events: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for event in events {
            epoll::add(&epoll, event, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll })
    }

    /// Adds an event that does not matter until [`Self::heed`] says so.
    pub(super) fn add_unheeded(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, event, epoll::EventData::new_u64(0), epoll::EventFlags::empty())?)
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
