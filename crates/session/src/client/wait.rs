//! Waiting on a queue's own event and the caller's together.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Descriptors that are waited for without allocating.
const INLINE_COUNT: usize = 16;

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// The queue's own event is readable; the caller's may be, too.
    Own,
    /// Only events of the caller's are, or a signal came.
    Other,
    /// The time is over.
    Late,
}

/// Waits until `own` or one of `events` is readable, `timeout` has passed (`None`: for ever) or a signal came.
pub(super) fn wait_readable(
    own: BorrowedFd<'_>,
    events: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<Woken> {
    // A timeout that a timespec cannot hold is longer than anybody waits.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let fd = |index: usize| if index == 0 { own } else { events[index - 1] };
    let count = events.len() + 1;
    if count > INLINE_COUNT {
        let mut fds: Vec<_> = (0..count).map(|index| PollFd::from_borrowed_fd(fd(index), PollFlags::IN)).collect();
        return judge(poll(&mut fds, timeout.as_ref()), &fds[0]);
    }
    let mut fds: [PollFd<'_>; INLINE_COUNT] =
        std::array::from_fn(|index| PollFd::from_borrowed_fd(fd(index.min(count - 1)), PollFlags::IN));
    judge(poll(&mut fds[..count], timeout.as_ref()), &fds[0])
}

fn judge(result: rustix::io::Result<usize>, own: &PollFd<'_>) -> io::Result<Woken> {
    match result {
        Ok(0) => Ok(Woken::Late),
        Ok(_) if !own.revents().is_empty() => Ok(Woken::Own),
        Ok(_) | Err(Errno::INTR) => Ok(Woken::Other),
        Err(errno) => Err(errno.into()),
    }
}
