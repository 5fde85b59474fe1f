//! A completion event that the clock can raise too.

use super::hurry::until_next_look;
use crate::wait::one_event;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// When [`TimedEvent`] becomes readable by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Never,
    Now,
    /// At this time of the layer's clock.
    At(u64),
}

/// One descriptor that polls readable when the inner queue's event does, or when a time has come: an epoll descriptor
/// that joins the inner event and a timerfd. A timer that has run out stays readable until it is set anew.
pub(super) struct TimedEvent {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// What it was set to; `None`: it becomes readable before, to be set anew.
    due: Option<Due>,
}

impl TimedEvent {
    /// `inner` must stay the queue's event for as long as the queue lives.
    pub(super) fn new(inner: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let epoll = one_event(inner.into_iter().chain([timer.as_fd()]))?;
        Ok(Self { epoll, timer, due: Some(Due::Never) })
    }

    /// Sets the timer; a system call only where that changes something.
    pub(super) fn set(&mut self, due: Due, now_ns: u64) {
        if Some(due) == self.due {
            return;
        }
        let after_ns = match due {
            Due::Never => 0,
            // Zero would stop the timer.
            Due::Now => 1,
            Due::At(due_ns) => due_ns.saturating_sub(now_ns).clamp(1, i64::MAX as u64),
        };
        let looks_after_ns = until_next_look(Duration::from_nanos(after_ns)).as_nanos() as u64;
        let is_set = (looks_after_ns == after_ns).then_some(due);
        let after_ns = looks_after_ns;
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value =
            Timespec { tv_sec: (after_ns / 1_000_000_000) as i64, tv_nsec: (after_ns % 1_000_000_000) as i64 };
        let time = Itimerspec { it_interval: zero, it_value };
        // It fails for wrong arguments only, and these are right.
        if timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time).is_ok() {
            self.due = is_set;
        }
    }
}

impl AsFd for TimedEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait_readable;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

    fn is_readable(event: &TimedEvent) -> bool {
        poll(&mut [PollFd::new(&event.epoll, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn it_follows_the_inner_event() {
        let inner = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let event = TimedEvent::new(Some(inner.as_fd())).unwrap();
        assert!(!is_readable(&event));
        rustix::io::write(&inner, &1u64.to_ne_bytes()).unwrap();
        assert!(is_readable(&event));
        rustix::io::read(&inner, &mut [0; 8]).unwrap();
        assert!(!is_readable(&event));
    }

    #[test]
    fn it_is_readable_from_the_time_it_was_set_to_until_it_is_set_anew() {
        let mut event = TimedEvent::new(None).unwrap();
        event.set(Due::At(5_000_000), 4_000_000);
        wait_readable(Some(event.as_fd()), &[], None).unwrap();
        assert!(is_readable(&event) && is_readable(&event));
        event.set(Due::At(1 << 60), 5_000_000);
        assert!(!is_readable(&event));
        event.set(Due::Now, 0);
        wait_readable(Some(event.as_fd()), &[], None).unwrap();
        event.set(Due::Never, 0);
        assert!(!is_readable(&event));
    }
}
