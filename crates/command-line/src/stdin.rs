//! Our stdin, for commands that may end before it does: in the shell, what comes next is for the next line.

use anyhow::{Context, Result, bail};
use blockyard_block::EventFd;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Commands are read from stdin, so that none of them may.
static HAS_COMMANDS: AtomicBool = AtomicBool::new(false);

/// Stdin is where the commands come from, and no command's to read.
pub fn is_where_commands_come_from() {
    HAS_COMMANDS.store(true, Ordering::Relaxed);
}

/// Whether a command may read it.
pub fn is_ours() -> bool {
    !HAS_COMMANDS.load(Ordering::Relaxed)
}

/// For a command that reads it.
///
/// # Errors
/// When the commands come from there.
pub fn claim() -> Result<()> {
    if is_ours() { Ok(()) } else { bail!("stdin is where the commands come from: name a file") }
}

/// Gives stdin to `act`; whoever reads it, in whatever thread, is at its end once that has returned.
///
/// # Errors
/// Those of `act`, or when the system refuses a descriptor.
pub fn lent<T>(act: impl FnOnce(Stdin) -> Result<T>) -> Result<T> {
    let end = Arc::new(EventFd::new().context("making an event")?);
    let done = act(Stdin::until(Arc::clone(&end)));
    end.ring();
    done
}

/// Our stdin, as long as somebody wants it: what is not read stays there for others.
#[derive(Clone)]
pub struct Stdin {
    end: Arc<EventFd>,
}

impl Read for Stdin {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let stdin = rustix::stdio::stdin();
        loop {
            let mut descriptors = [
                PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(stdin, PollFlags::IN),
            ];
            match poll(&mut descriptors, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            if !descriptors[0].revents().is_empty() {
                return Ok(0);
            }
            match rustix::io::read(stdin, &mut *into) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                // Closed, or a terminal that is not ours to read: there is no input.
                Err(Errno::BADF | Errno::IO) => return Ok(0),
                read => return Ok(read?),
            }
        }
    }
}

impl Stdin {
    /// It ends when `end` is rung, at the latest.
    pub fn until(end: Arc<EventFd>) -> Self {
        Self { end }
    }
}
