//! The writes of whole blocks that a queue has in flight, for the merger to see.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A slot for each request of a queue. The queue's thread publishes and withdraws; the merger marks.
pub(super) struct WritesInFlight {
    slots: Box<[Slot]>,
}

struct Slot {
    start: AtomicU64,
    /// Where the write ends, a multiple of 512, and [`MARK`]; zero when there is none.
    end_and_mark: AtomicU64,
}

/// The write overlaps a merge that began while it was in flight.
const MARK: u64 = 1;

impl WritesInFlight {
    pub(super) fn new(depth: usize) -> Self {
        let slot = || Slot { start: AtomicU64::new(0), end_and_mark: AtomicU64::new(0) };
        Self { slots: (0..depth).map(|_| slot()).collect() }
    }

    /// Publishes a write before it is begun. Whoever asks whether there are merges must do so after this.
    pub(super) fn publish(&self, slot: u16, range: &Range<u64>) {
        let published = &self.slots[usize::from(slot)];
        published.start.store(range.start, Ordering::Relaxed);
        published.end_and_mark.store(range.end, Ordering::Release);
        // Dekker: this side's store before this side's load, against the fence in `mark`.
        fence(Ordering::SeqCst);
    }

    /// Withdraws a write that has ended or will not be. True when a merge overlapped it.
    pub(super) fn withdraw(&self, slot: u16) -> bool {
        self.slots[usize::from(slot)].end_and_mark.swap(0, Ordering::AcqRel) & MARK != 0
    }

    /// Marks the writes that overlap `range`. Whoever merges must have made that known before this.
    ///
    /// A slot that changes hands meanwhile may be marked for nothing: then a write is done twice for nothing. One that
    /// was published after this looked is not missed, because its queue sees the merge.
    pub(super) fn mark(&self, range: &Range<u64>) {
        for slot in &self.slots {
            let end = slot.end_and_mark.load(Ordering::Acquire) & !MARK;
            let start = slot.start.load(Ordering::Relaxed);
            if end != 0 && start < range.end && range.start < end {
                slot.end_and_mark.fetch_or(MARK, Ordering::AcqRel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_marked() {
        let writes = WritesInFlight::new(4);
        writes.publish(0, &(0..4096));
        writes.publish(1, &(4096..8192));
        writes.publish(3, &(8192..16384));
        writes.mark(&(4096..12288));
        assert_eq!([0, 1, 2, 3].map(|slot| writes.withdraw(slot)), [false, true, false, true]);
        writes.publish(1, &(4096..8192));
        assert!(!writes.withdraw(1));
    }
}
