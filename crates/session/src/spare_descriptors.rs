//! Room for descriptors that come from others, in a process that may have only so many.
//!
//! A message whose descriptors find no room is not left for later: the kernel takes it out and closes them, in the
//! thread that asked for it, which may take as long as whoever sent them likes. So nothing is received unless there is
//! room for it, and that is kept by descriptors of no use.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// As many descriptors as may come at once.
#[derive(Debug)]
pub(crate) struct SpareDescriptors {
    kept: Vec<OwnedFd>,
    count: usize,
}

impl SpareDescriptors {
    pub(crate) fn new(count: usize) -> Self {
        let mut this = Self { kept: Vec::with_capacity(count), count };
        // Whether there is room is seen when it is needed.
        let _ = this.fill();
        this
    }

    /// Receives something, with room for it; `None` when there is none.
    pub(crate) fn receive<T>(&mut self, receive: impl FnOnce() -> T) -> Option<T> {
        self.fill().ok()?;
        self.kept.clear();
        let received = receive();
        // What came may have taken it.
        let _ = self.fill();
        Some(received)
    }

    /// Whether there is room for the next.
    pub(crate) fn has_room(&mut self) -> bool {
        self.fill().is_ok()
    }

    fn fill(&mut self) -> Result<(), Errno> {
        while self.kept.len() < self.count {
            self.kept.push(eventfd(0, EventfdFlags::CLOEXEC)?);
        }
        Ok(())
    }
}
