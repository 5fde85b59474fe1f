//! The queues that one thread serves.

use crate::queue_events::{QueueEvent, QueueEvents};
use crate::{IoQueue, IoQueueFailure, Limit};
use std::io;
use std::os::fd::AsFd;

/// Queues that one thread serves: it does [`QueueSet::round`]s until there is no more progress, then
/// [`QueueSet::arm`]s, then [`QueueSet::wait`]s.
///
/// ```
/// # use blockyard_block::EventFd;
/// # use blockyard_devices::{Limit, QueueSet, virtio::BlockQueue};
/// fn serve(queues: Vec<BlockQueue>, limit: Limit) -> Result<(), Box<dyn std::error::Error>> {
///     let mut set = QueueSet::new(EventFd::new()?)?;
///     for queue in queues {
///         set.push(queue)?;
///     }
///     while !set.is_empty() {
///         let round = set.round(limit, |failure| eprintln!("{failure}"));
///         if round.done == 0 && !set.is_empty() && !set.arm() {
///             set.wait()?;
///         }
///     }
///     Ok(())
/// }
/// ```
pub struct QueueSet<Q: IoQueue> {
    events: QueueEvents,
    queues: Vec<Watched<Q>>,
    /// What the next queue is watched as.
    next: u64,
}

/// What [`QueueSet::round`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Queues that did something.
    pub queues: usize,
    /// Requests, and pieces of long ones, that were begun, or at least completed: if any, there may be more.
    pub done: u32,
}

/// What ended a [`QueueSet::wait`]; where neither, a completion, or a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// The thread's own event.
    pub own: bool,
    /// A driver rang, or a queue shall stop.
    pub doorbell: bool,
}

struct Watched<Q> {
    number: u64,
    queue: Q,
}

impl<Q: IoQueue> QueueSet<Q> {
    /// None yet. What becomes readable as `own` ends a wait, too, until it was taken.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn new(own: impl AsFd) -> io::Result<Self> {
        Ok(Self { events: QueueEvents::new(own)?, queues: Vec::new(), next: 0 })
    }

    /// Serves this queue, too.
    ///
    /// # Errors
    /// When it cannot be waited for: then it was dropped.
    pub fn push(&mut self, queue: Q) -> io::Result<()> {
        self.events.watch(self.next, queue.doorbell(), queue.completion_event())?;
        self.queues.push(Watched { number: self.next, queue });
        self.next += 1;
        Ok(())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Everybody's turn: does what can be done without waiting, taking no more from each queue than `limit`. Queues
    /// that shall stop are dropped, which drains them, and so are those that fail.
    pub fn round(&mut self, limit: Limit, mut failed: impl FnMut(IoQueueFailure)) -> Round {
        let mut round = Round::default();
        let events = &self.events;
        self.queues.retain_mut(|Watched { queue, .. }| {
            let goes_on = !queue.is_stopping()
                && match queue.process_up_to(limit) {
                    Ok(done) => {
                        round.queues += usize::from(done > 0);
                        round.done += done;
                        true
                    }
                    Err(failure) => {
                        failed(failure);
                        false
                    }
                };
            if !goes_on {
                events.forget(queue.doorbell(), queue.completion_event());
            }
            goes_on
        });
        round
    }

    /// Has every driver ring from now on. Whether to do another round instead of waiting.
    pub fn arm(&mut self) -> bool {
        self.queues.iter_mut().fold(false, |more, Watched { queue, .. }| more | queue.arm())
    }

    /// Waits for a doorbell, a completion, or the thread's own event.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn wait(&mut self) -> io::Result<Heard> {
        let mut heard = Heard::default();
        let queues = &self.queues;
        self.events.wait(None, |event| match event {
            QueueEvent::Own => heard.own = true,
            QueueEvent::Doorbell(number) => {
                heard.doorbell = true;
                if let Some(rung) = queues.iter().find(|watched| watched.number == number) {
                    rung.queue.count_doorbell();
                }
            }
            QueueEvent::Completion => {}
        })?;
        Ok(heard)
    }
}
