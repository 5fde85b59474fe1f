//! Waiting for descriptors. A signal ends a wait and is no error.

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
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

/// One descriptor that is readable while any of these is.
///
/// # Errors
/// When the system has no more of them, or what is waited for waits for others in turn too often: the error says so.
pub fn one_event<'e>(events: impl IntoIterator<Item = BorrowedFd<'e>>) -> io::Result<OwnedFd> {
    let one = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    events.into_iter().try_for_each(|event| add_event(&one, event, epoll::EventFlags::IN))?;
    Ok(one)
}

/// Adds an event to one of others, for which these flags matter.
///
/// # Errors
/// As [`one_event`].
pub(crate) fn add_event(one: &OwnedFd, event: BorrowedFd<'_>, flags: epoll::EventFlags) -> io::Result<()> {
    epoll::add(one, event, epoll::EventData::new_u64(0), flags).map_err(|errno| match errno {
        Errno::LOOP => io::Error::other(
            "it is too many things one over the other, of which the system lets no more than five wait for each other: \
             leave out one of overlay=, snapshot, iops=, latency= and the like, or convert it to one image without \
             others behind it",
        ),
        errno => errno.into(),
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_waits_for_too_many_others_is_told_so() {
        let mut events = vec![one_event([]).unwrap()];
        let error = loop {
            match one_event([events[events.len() - 1].as_fd()]) {
                Ok(event) => events.push(event),
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!(events.len(), 5);
        assert!(error.contains("no more than five wait for each other"), "{error}");
    }
}
