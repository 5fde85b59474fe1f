//! Waiting on a queue's own event and the caller's together.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Descriptors that are waited for without allocating.
const INLINE_COUNT: usize = 16;

/// Waits until `own` or one of `events` is readable, `timeout` has passed (`None`: for ever) or a signal came.
pub(crate) fn wait_readable(
    own: Option<BorrowedFd<'_>>,
    events: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<()> {
    // A timeout that a timespec cannot hold is longer than anybody waits.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut fds = own.iter().chain(events).map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let count = events.len() + usize::from(own.is_some());
    let Some(first) = own.or(events.first().copied()) else {
        return interrupted_is_fine(poll(&mut [], timeout.as_ref()));
    };
    if count > INLINE_COUNT {
        let mut fds: Vec<_> = fds.collect();
        return interrupted_is_fine(poll(&mut fds, timeout.as_ref()));
    }
    let mut inline: [PollFd<'_>; INLINE_COUNT] =
        std::array::from_fn(|_| fds.next().unwrap_or_else(|| PollFd::from_borrowed_fd(first, PollFlags::empty())));
    interrupted_is_fine(poll(&mut inline[..count], timeout.as_ref()))
}

fn interrupted_is_fine(result: rustix::io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
