//! Waiting for descriptors. A signal ends a wait and is no error.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Descriptors that are waited for without allocating.
const INLINE_COUNT: usize = 16;

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The queue's own event is readable; the caller's may be, too.
    Own,
    /// Only events of the caller's are, or a signal came.
    Other,
    /// The time is over.
    Late,
}

/// Waits until one of `descriptors` is ready, `timeout` has passed (`None`: for ever) or a signal came.
///
/// # Errors
/// When the system refuses to wait.
pub fn wait_ready(descriptors: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    ready_count(descriptors, timeout).map(drop)
}

/// Waits until `own` or one of `events` is readable, `timeout` has passed (`None`: for ever) or a signal came.
///
/// # Errors
/// When the system refuses to wait. EBADF: one of them is not open, as a program may close what a library in it has.
pub fn wait_readable(
    own: Option<BorrowedFd<'_>>,
    events: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<Woken> {
    let woken = |fds: &mut [PollFd<'_>]| {
        let count = ready_count(fds, timeout)?;
        if fds.iter().any(|fd| fd.revents().contains(PollFlags::NVAL)) {
            return Err(Errno::BADF.into());
        }
        Ok(match count {
            Some(0) => Woken::Late,
            Some(_) if own.is_some() && !fds[0].revents().is_empty() => Woken::Own,
            _ => Woken::Other,
        })
    };
    let mut fds = own.iter().chain(events).map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let count = events.len() + usize::from(own.is_some());
    let Some(first) = own.or(events.first().copied()) else { return woken(&mut []) };
    if count > INLINE_COUNT {
        return woken(&mut fds.collect::<Vec<_>>());
    }
    let mut inline: [PollFd<'_>; INLINE_COUNT] =
        std::array::from_fn(|_| fds.next().unwrap_or_else(|| PollFd::from_borrowed_fd(first, PollFlags::empty())));
    woken(&mut inline[..count])
}

/// How many of `descriptors` are ready after waiting; `None`: a signal came.
fn ready_count(descriptors: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<Option<usize>> {
    // A timeout that a timespec cannot hold is longer than anybody waits.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(descriptors, timeout.as_ref()) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
