//! When clusters that requests may still be using can be given away.
//!
//! A request looks up where its bytes lie, and uses that place until it completes. A place that a discard took away
//! must not be given to other data meanwhile, and nobody shall wait for anybody because of that. So requests are
//! counted by the parity of a phase. Once what was taken away cannot be looked up any more, the phase changes; once no
//! request of the old phase is left, nobody uses it. (Phases are told apart by parity because at most two are in use:
//! the next change waits for that.)

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// The phase, and the counts of all queues.
#[derive(Debug, Default)]
pub(super) struct Grace {
    phase: AtomicU64,
    queues: Mutex<Vec<Arc<Counts>>>,
}

/// One queue's requests in flight, by parity of the phase they began in. Only the queue's thread writes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counts {
    in_flight: [AtomicU64; 2],
    gone: AtomicBool,
}

/// A queue's place in the count.
#[derive(Debug)]
pub(super) struct Member {
    counts: Arc<Counts>,
}

/// The parity of the phase that a request began in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket(u8);

impl Grace {
    pub(super) fn join(&self) -> Member {
        let counts = Arc::<Counts>::default();
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counts));
        Member { counts }
    }

    /// Changes the phase: for what can no longer be looked up. Ask [`Grace::is_over`] before changing it again.
    pub(super) fn begin(&self) {
        fence(Ordering::SeqCst);
        self.phase.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether every request that began before the last [`Grace::begin`] has completed.
    pub(super) fn is_over(&self) -> bool {
        fence(Ordering::SeqCst);
        let old = (self.phase.load(Ordering::SeqCst).wrapping_sub(1) & 1) as usize;
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|counts| !counts.gone.load(Ordering::Acquire));
        queues.iter().all(|counts| counts.in_flight[old].load(Ordering::Acquire) == 0)
    }
}

impl Member {
    /// Begins a request: what is looked up from now on stays its own until [`Member::leave`].
    pub(super) fn enter(&self, grace: &Grace) -> Ticket {
        loop {
            if let Some(ticket) = self.enter_in(grace.phase.load(Ordering::Acquire), grace) {
                return ticket;
            }
        }
    }

    /// Begins a request in `phase`; `None` when that is over already: counted there, nobody would wait for it, as it
    /// would pass for one of the phase after the next change.
    fn enter_in(&self, phase: u64, grace: &Grace) -> Option<Ticket> {
        let ticket = Ticket((phase & 1) as u8);
        let count = &self.counts.in_flight[usize::from(ticket.0)];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Either the look-ups that follow see what was taken away, or whoever took it sees this count.
        fence(Ordering::SeqCst);
        if grace.phase.load(Ordering::Relaxed) != phase {
            self.leave(ticket);
            return None;
        }
        Some(ticket)
    }

    pub(super) fn leave(&self, Ticket(parity): Ticket) {
        let count = &self.counts.in_flight[usize::from(parity)];
        count.store(count.load(Ordering::Relaxed) - 1, Ordering::Release);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.counts.gone.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_from_before_are_waited_for() {
        let grace = Grace::default();
        let (first, second) = (grace.join(), grace.join());
        let before = first.enter(&grace);
        grace.begin();
        let after = second.enter(&grace);
        assert!(!grace.is_over());
        first.leave(before);
        assert!(grace.is_over());
        grace.begin();
        assert!(!grace.is_over());
        let later = first.enter(&grace);
        second.leave(after);
        assert!(grace.is_over());
        first.leave(later);
    }

    #[test]
    fn a_request_that_begins_while_the_phase_changes_is_waited_for() {
        let grace = Grace::default();
        let queue = grace.join();
        // Its thread was interrupted after it had looked at the phase.
        let phase = grace.phase.load(Ordering::Acquire);
        grace.begin();
        assert!(grace.is_over());
        assert!(queue.enter_in(phase, &grace).is_none());
        let ticket = queue.enter(&grace);
        grace.begin();
        assert!(!grace.is_over(), "what it found may be in what was just taken away");
        queue.leave(ticket);
        assert!(grace.is_over());
    }

    #[test]
    fn a_queue_that_is_gone_is_not_waited_for() {
        let grace = Grace::default();
        let queue = grace.join();
        let _ = queue.enter(&grace);
        grace.begin();
        assert!(!grace.is_over());
        drop(queue);
        assert!(grace.is_over());
    }
}
