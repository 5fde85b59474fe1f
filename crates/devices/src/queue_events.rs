//! What a thread that serves queues waits for: their doorbells, their disks, and somebody who has a word for it.

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Becomes readable when something is to be heard of. A doorbell is an edge, so nobody has to read its eventfd: where a
/// request comes alone, that would be one in four of its system calls. A disk is ready for as long as it has
/// completions, and whoever has a word for the thread until it was taken.
#[derive(Debug)]
pub struct QueueEvents {
    epoll: OwnedFd,
}

/// What [`QueueEvents::wait`] heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    /// The thread's own event is readable.
    Own,
    /// The driver of the queue of this number rang, or the queue shall stop.
    Doorbell(u64),
    /// A disk may have completed something.
    Completion,
}

/// What epoll says for these; for a doorbell, its queue's number.
const OWN: u64 = u64::MAX;
const COMPLETION: u64 = u64::MAX - 1;

/// Descriptors that become ready and are heard of in one wait.
const EVENTS: usize = 64;

impl QueueEvents {
    /// Nothing but an event of the thread's own.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn new(own: impl AsFd) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, own, epoll::EventData::new_u64(OWN), epoll::EventFlags::IN)?;
        Ok(Self { epoll })
    }

    /// Hears of a queue, by a number that is none of the two highest, until it is forgotten.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn watch(&self, queue: u64, doorbell: impl AsFd, completion: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, doorbell, epoll::EventData::new_u64(queue), edges)?;
        if let Some(completion) = completion {
            epoll::add(&self.epoll, completion, epoll::EventData::new_u64(COMPLETION), epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Hears of these no more. Whoever drops a queue says so first: its descriptors may stay open elsewhere.
    pub fn forget(&self, doorbell: impl AsFd, completion: Option<BorrowedFd<'_>>) {
        // What was not watched cannot be forgotten, which is as well.
        let _ = epoll::delete(&self.epoll, doorbell);
        if let Some(completion) = completion {
            let _ = epoll::delete(&self.epoll, completion);
        }
    }

    /// Waits until there is something to hear of, `timeout` has passed (`None`: for ever), or a signal came.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn wait(&self, timeout: Option<Duration>, mut heard: impl FnMut(QueueEvent)) -> io::Result<()> {
        let mut events = [MaybeUninit::uninit(); EVENTS];
        // A timeout that a timespec cannot hold is longer than anybody waits.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let ready = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        for event in ready {
            heard(match event.data.u64() {
                OWN => QueueEvent::Own,
                COMPLETION => QueueEvent::Completion,
                queue => QueueEvent::Doorbell(queue),
            });
        }
        Ok(())
    }
}
