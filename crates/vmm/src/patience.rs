//! Whether an I/O thread that wakes up takes the CPU from the vCPU that rang.
//!
//! Where it runs on the CPU of a vCPU, it does so by default: each doorbell then takes the CPU away from the guest, for
//! one request: an exit, two switches of threads and an interrupt for each. Had the guest gone on, it would have made
//! more available, and rung for none of it. On a machine of one CPU, KVM on an emulated processor, 64 reads of 4 KiB in
//! flight were six times as many a second when the thread waited for its turn.
//!
//! A guest that has one request at a time, and other work meanwhile, would only wait longer. How many it has cannot be
//! seen, but how many there are when the thread comes can: so it is patient for as long as it finds a batch, which a
//! driver that asks for a few at a time never has, and tries that again later, each time twice as late.

use blockyard_block::WakeUp;

/// Requests that are a batch.
const BATCH_MIN: u32 = 4;
/// Waits between two tries, at most.
const INTERVAL_MAX: u32 = 1024;

/// A thread's patience: what is to be done before and after its waits.
#[derive(Debug)]
pub(crate) struct Patience {
    now: WakeUp,
    /// Waits until it is tried again.
    left: u32,
    /// That many, after the next try, if that is in vain.
    interval: u32,
}

impl Patience {
    /// Of a thread that has none yet.
    pub(crate) const fn new() -> Self {
        Self { now: WakeUp::Preempts, left: 0, interval: 1 }
    }

    /// Before a wait: what to change to.
    pub(crate) fn waits(&mut self) -> Option<WakeUp> {
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        self.changed_to(WakeUp::Waits)
    }

    /// A doorbell has ended the wait, and there were so many requests then, at least one: what to change to.
    pub(crate) fn found(&mut self, requests: u32) -> Option<WakeUp> {
        if requests >= BATCH_MIN {
            self.interval = 1;
            return None;
        }
        if self.now == WakeUp::Waits {
            self.left = self.interval;
            self.interval = (2 * self.interval).min(INTERVAL_MAX);
        }
        self.changed_to(WakeUp::Preempts)
    }

    fn changed_to(&mut self, to: WakeUp) -> Option<WakeUp> {
        (std::mem::replace(&mut self.now, to) != to).then_some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In so many waits: how often the thread was patient, and how often it changed. There are so many requests then.
    fn wait(patience: &mut Patience, waits: u32, requests: u32) -> (u32, u32) {
        let (mut patient, mut changes) = (0, 0);
        for _ in 0..waits {
            changes += u32::from(patience.waits().is_some());
            patient += u32::from(patience.now == WakeUp::Waits);
            changes += u32::from(patience.found(requests).is_some());
        }
        (patient, changes)
    }

    #[test]
    fn it_lasts_where_it_pays() {
        let mut patience = Patience::new();
        assert_eq!(wait(&mut patience, 1000, 16), (1000, 1));
        let (patient, changes) = wait(&mut patience, 100_000, 1);
        assert!(patient < 120 && changes < 240, "{patient} patient, {changes} changes for one at a time");
        assert!(wait(&mut patience, 10_000, 16).0 > 8_900, "batches again");
    }
}
