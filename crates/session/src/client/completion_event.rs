//! When the server is asked to ring, and when its ring is taken back.
//!
//! The server writes a completion into shared memory first and rings an eventfd then, if it was asked to. Asking is a
//! store, ringing and taking the ring back are a system call each, so neither happens per request:
//!
//! - A [`wait`](blockyard_block::Queue::wait) looks at the memory before it asks. With eight and more requests in
//!   flight it asks for a ring after half of them, and if that does not come within [`COALESCE_TIME`], for one after
//!   the next. With fewer, latency counts: the next one rings.
//! - An owner that polls the descriptor itself is asked for by the two things it does just before: taking the
//!   descriptor and, once it has done that, a reap that finds nothing. Both ask for a ring at the next completion.
//! - A ring is taken back where the next one is asked for, if it may have come since; and by an owner that keeps
//!   reaping nothing though it asked: a ring may have come late.

use blockyard_block::EventFd;
use std::cell::Cell;
use std::time::Duration;

/// From how many requests in flight a ring after half of them will do.
pub(super) const COALESCE_MIN: u16 = 8;
/// How long such a ring is waited for.
pub(super) const COALESCE_TIME: Duration = Duration::from_micros(100);

/// What the server was asked for and has not done as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Nothing,
    /// A ring at the next completion.
    Next,
    /// A ring after some.
    Later,
}

/// The state of a queue's completion event, which is known to its owner only.
#[derive(Debug)]
pub(super) struct CompletionEvent {
    pub(super) asked: Cell<Asked>,
    /// The event may be readable.
    pub(super) rung: Cell<bool>,
    /// The owner has the descriptor.
    pub(super) is_held: Cell<bool>,
    /// Reaps in a row that found nothing though a ring was asked for.
    idle: Cell<u32>,
}

impl CompletionEvent {
    pub(super) fn new() -> Self {
        // libvhost-user rings as soon as it gets the descriptor.
        Self { asked: Cell::new(Asked::Nothing), rung: Cell::new(true), is_held: Cell::new(false), idle: Cell::new(0) }
    }

    /// Something has come: if a ring was asked for, it has come or will.
    pub(super) fn came(&self) {
        self.idle.set(0);
        if self.asked.replace(Asked::Nothing) != Asked::Nothing {
            self.rung.set(true);
        }
    }

    /// Makes the event unreadable, if it may be readable: whether it may have been. What came before must be looked for
    /// after this.
    pub(super) fn take(&self, event: &EventFd) -> bool {
        let may_be_readable = self.rung.replace(false);
        if may_be_readable {
            event.take();
        }
        may_be_readable
    }

    /// Makes the event readable.
    pub(super) fn ring(&self, event: &EventFd) {
        if !self.rung.replace(true) {
            event.ring();
        }
    }

    /// Nothing has come though a ring was asked for. The event may be readable nevertheless, from a ring that came
    /// late: every now and then, less and less often, that is worth a system call.
    pub(super) fn suspect(&self) -> bool {
        self.idle.set(self.idle.get().saturating_add(1));
        let suspicious = self.idle.get().is_power_of_two();
        if suspicious {
            self.rung.set(true);
        }
        suspicious
    }
}
