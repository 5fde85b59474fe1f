//! Events that a hypervisor, a guest process or another thread rings.

use crate::FileIdentity;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read, retry_on_intr, write};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An eventfd that is never waited on by reading: both ends are non-blocking.
#[derive(Debug)]
pub struct EventFd {
    descriptor: OwnedFd,
    /// What it is looked at for before each use.
    guarded: Option<FileIdentity>,
}

impl EventFd {
    /// A new event that nobody has rung.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?.into())
    }

    /// The same, for a library in somebody else's program, which may close the descriptor by its number and open a file
    /// there: nothing is written to that, or read from it, unless it is an event, too (or an epoll instance, a timer or
    /// another file of this sort, which the kernel does not tell apart). Each use costs one more system call.
    ///
    /// # Errors
    /// As [`EventFd::new`].
    pub fn guarded() -> io::Result<Self> {
        let event = Self::new()?;
        let guarded = Some(FileIdentity::of_open(&event.descriptor)?);
        Ok(Self { guarded, ..event })
    }

    /// Whether its number is still its own, or another event's.
    fn check(&self) -> io::Result<()> {
        match self.guarded {
            Some(own) if !own.is_of(&self.descriptor) => Err(Errno::BADF.into()),
            _ => Ok(()),
        }
    }

    /// Makes the event readable.
    pub fn ring(&self) {
        // What fails is heard of where it is waited for.
        let _ = self.try_ring();
    }

    /// The same, for one who does not wait for the event.
    ///
    /// # Errors
    /// When the descriptor is closed, or another file's: a program may close what a library in it has.
    pub fn try_ring(&self) -> io::Result<()> {
        self.check()?;
        match retry_on_intr(|| write(&self.descriptor, &1u64.to_ne_bytes())) {
            // The only failure of a non-blocking eventfd is a counter that is full, and then it is readable already.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// How often it was rung since it was last taken; zero when it was not. Afterwards it is no longer readable. Does
    /// not wait, though another process that has it may have made it an event to wait on: they share its flags.
    pub fn take(&self) -> u64 {
        if self.check().is_err() {
            return 0;
        }
        let mut count = [0; 8];
        // At no offset.
        let mut take =
            || preadv2(&self.descriptor, &mut [IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT);
        let taken = match retry_on_intr(&mut take) {
            taken @ (Ok(_) | Err(Errno::AGAIN)) => taken,
            // A kernel that knows this of files alone, or a filter of system calls that does not know it.
            Err(_) => retry_on_intr(|| read(&self.descriptor, &mut count)),
        };
        if taken == Ok(8) { u64::from_ne_bytes(count) } else { 0 }
    }
}

/// Takes an eventfd made elsewhere, by a vhost-user front end for example. It must be non-blocking.
impl From<OwnedFd> for EventFd {
    fn from(descriptor: OwnedFd) -> Self {
        Self { descriptor, guarded: None }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_how_often_it_was_rung() {
        let event = EventFd::new().unwrap();
        assert_eq!(event.take(), 0);
        event.ring();
        event.ring();
        assert_eq!(event.take(), 2);
        assert_eq!(event.take(), 0);
    }

    #[test]
    fn a_guarded_one_leaves_a_file_alone_that_has_its_number() {
        let event = EventFd::guarded().unwrap();
        event.ring();
        assert_eq!(event.take(), 1);
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"a file's", 0).unwrap();
        let EventFd { mut descriptor, guarded } = event;
        rustix::io::dup2(&file, &mut descriptor).unwrap();
        let event = EventFd { descriptor, guarded };
        assert_eq!(event.try_ring().unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(event.take(), 0);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut &file, &mut text).unwrap();
        assert_eq!(text, "a file's", "and its place is its beginning");
    }

    #[test]
    fn taking_does_not_wait_whoever_else_has_it() {
        let event = EventFd::new().unwrap();
        let theirs = event.descriptor.try_clone().unwrap();
        rustix::fs::fcntl_setfl(&theirs, rustix::fs::OFlags::empty()).unwrap();
        assert_eq!(event.take(), 0);
        event.ring();
        assert_eq!(event.take(), 1);
    }
}
