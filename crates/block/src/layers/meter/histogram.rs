//! A histogram that one thread writes and any may read.

use super::{LatencySnapshot, add};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Log-linear buckets, as HdrHistogram has them: every power of two is cut into 32 equal parts, so a value is known to
/// within a thirty-second of itself.
///
/// The hdrhistogram crate is not used because its histograms cannot be read while they are written: its way to do that
/// (`SyncHistogram`) hands histograms through a channel when the writer records next, and a queue that is stuck in a
/// slow request, which is when somebody looks, records nothing.
const PARTS_SHIFT: u32 = 5;
const PARTS: usize = 1 << PARTS_SHIFT;

/// Longest time that has a bucket of its own: 2^42 ns are over an hour. Longer ones count as that.
const OCTAVES_END: u32 = 42;

pub(super) const BUCKETS: usize = (OCTAVES_END - PARTS_SHIFT + 1) as usize * PARTS;

/// How often latencies occurred. One thread records at a time; any thread looks at any time.
pub struct LatencyHistogram {
    counts: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        let counts = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Self { counts, sum_ns: AtomicU64::new(0), max_ns: AtomicU64::new(0) }
    }
}

impl fmt::Debug for LatencyHistogram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LatencyHistogram of {}", self.snapshot().count())
    }
}

impl LatencyHistogram {
    /// Counts a latency. For one thread at a time.
    pub fn record(&self, value_ns: u64) {
        add(&self.counts[bucket(value_ns)], 1);
        add(&self.sum_ns, value_ns);
        if value_ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.store(value_ns, Ordering::Relaxed);
        }
    }

    /// What was recorded up to now.
    pub fn snapshot(&self) -> LatencySnapshot {
        let mut snapshot = LatencySnapshot::default();
        self.add_to(&mut snapshot);
        snapshot
    }

    /// Adds what was recorded up to now to what others recorded.
    pub fn add_to(&self, snapshot: &mut LatencySnapshot) {
        for (count, sum) in self.counts.iter().zip(&mut snapshot.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
        snapshot.sum_ns = snapshot.sum_ns.wrapping_add(self.sum_ns.load(Ordering::Relaxed));
        snapshot.max_ns = snapshot.max_ns.max(self.max_ns.load(Ordering::Relaxed));
    }
}

/// The bucket of a value: below 64 its own, above that by the place of its highest bit and the five bits after that.
fn bucket(value_ns: u64) -> usize {
    let value_ns = value_ns.min((1 << OCTAVES_END) - 1);
    // With the lowest bit set, zero has a highest bit too.
    let shift = (value_ns | 1).ilog2().saturating_sub(PARTS_SHIFT);
    shift as usize * PARTS + (value_ns >> shift) as usize
}

/// The largest value of a bucket.
pub(super) fn bucket_end_ns(index: usize) -> u64 {
    let (octave, part) = (index / PARTS, (index % PARTS) as u64);
    match octave.checked_sub(1) {
        None => part,
        Some(shift) => ((part + PARTS as u64 + 1) << shift) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut expected = 0;
        for index in 0..BUCKETS {
            let end = bucket_end_ns(index);
            assert_eq!((bucket(expected), bucket(end)), (index, index), "{expected}..={end}");
            expected = end + 1;
        }
        assert_eq!(expected, 1 << OCTAVES_END);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_bucket_is_no_wider_than_a_thirty_second_of_its_values() {
        for index in PARTS..BUCKETS {
            let (start, end) = (bucket_end_ns(index - 1) + 1, bucket_end_ns(index));
            assert!((end - start) <= start / 32, "{start}..={end}");
        }
    }
}
