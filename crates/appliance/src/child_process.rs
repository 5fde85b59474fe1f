//! The guest's processes, as the host has them.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

/// The guest's processes.
pub(crate) struct ChildProcess {
    pub(crate) child: Child,
    pub(crate) descriptor: OwnedFd,
    is_reaped: bool,
    /// How it ended, if it did so by itself.
    pub(crate) status: Option<ExitStatus>,
}

impl ChildProcess {
    /// `descriptor`: by which its end can be waited for.
    pub(crate) fn new(child: Child, descriptor: OwnedFd) -> Self {
        Self { child, descriptor, is_reaped: false, status: None }
    }

    pub(crate) fn ends_within(&self, patience: Timespec) -> bool {
        poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], Some(&patience)).is_ok_and(|ended| ended > 0)
    }

    /// Whether a signal is what ends it, as far as that is known when it has had so long to end.
    pub(crate) fn ends_by_signal(&mut self, patience: Timespec) -> bool {
        if !self.is_reaped && self.ends_within(patience) {
            self.status = self.child.try_wait().ok().flatten();
            self.is_reaped = self.status.is_some();
        }
        self.status.is_some_and(|status| status.signal().is_some())
    }

    pub(crate) fn kill(&mut self) {
        // Once it was waited for, its number may be another's.
        if std::mem::replace(&mut self.is_reaped, true) {
            return;
        }
        self.status = self.child.try_wait().ok().flatten();
        // It leads a group once it has come that far; they may all be gone already.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
