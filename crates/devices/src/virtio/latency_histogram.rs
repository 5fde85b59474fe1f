//! How long requests took.

use super::queue_statistics::Counter;
use blockyard_block::Operation;
use std::array;

/// Each power of two of nanoseconds is cut into as many buckets: no latency is off by more than an eighth.
const BUCKETS_PER_POWER: usize = 8;
/// Up to 2^40 ns, 18 minutes; what is longer counts as that.
const POWERS: usize = 40;
const BUCKETS: usize = BUCKETS_PER_POWER * (POWERS - 2);

/// A log-linear histogram of nanoseconds with one writer. Others read it while it is written.
#[derive(Debug)]
pub struct LatencyHistogram {
    buckets: [Counter; BUCKETS],
}

/// A [`LatencyHistogram`] at one moment. They add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyCounts {
    buckets: Box<[u64]>,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| Counter::default()) }
    }
}

impl LatencyHistogram {
    pub(crate) fn record(&self, latency_ns: u64) {
        self.buckets[bucket(latency_ns)].add(1);
    }

    /// What was recorded until now.
    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts { buckets: self.buckets.iter().map(Counter::get).collect() }
    }
}

impl Default for LatencyCounts {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS].into() }
    }
}

impl LatencyCounts {
    /// Requests counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds what another queue has.
    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(bucket, other)| *bucket += other);
    }

    /// What was counted since `before`, an earlier state of the same histogram.
    pub fn since(&self, before: &Self) -> Self {
        let pairs = self.buckets.iter().zip(&before.buckets);
        Self { buckets: pairs.map(|(now, before)| now.saturating_sub(*before)).collect() }
    }

    /// The latency that this part (0.5 for the median) of the requests did not exceed, in nanoseconds, rounded up by an eighth
    /// at most; `None` when there were none.
    pub fn percentile_ns(&self, part: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * part).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        self.buckets.iter().enumerate().find_map(|(index, in_bucket)| {
            seen += in_bucket;
            (seen >= rank).then(|| bucket_end_ns(index))
        })
    }

    /// The buckets that are not empty, in order: (largest latency in ns that belongs there, requests).
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, count)| **count > 0).map(|(index, count)| (bucket_end_ns(index), *count))
    }
}

fn bucket(latency_ns: u64) -> usize {
    if latency_ns < BUCKETS_PER_POWER as u64 {
        return latency_ns as usize;
    }
    let power = latency_ns.ilog2() as usize;
    let within = (latency_ns >> (power - 3)) as usize - BUCKETS_PER_POWER;
    (BUCKETS_PER_POWER * (power - 2) + within).min(BUCKETS - 1)
}

/// The largest latency that belongs into a bucket.
fn bucket_end_ns(index: usize) -> u64 {
    let (row, within) = (index / BUCKETS_PER_POWER, (index % BUCKETS_PER_POWER) as u64);
    match row {
        0 => within,
        row => ((BUCKETS_PER_POWER as u64 + within + 1) << (row - 1)) - 1,
    }
}

/// A histogram for each kind of request.
#[derive(Debug, Default)]
pub(crate) struct Latencies([LatencyHistogram; 5]);

impl Latencies {
    pub(crate) fn of(&self, operation: Operation) -> &LatencyHistogram {
        let index = match operation {
            Operation::Read => 0,
            Operation::Write { .. } => 1,
            Operation::Flush => 2,
            Operation::Discard { .. } => 3,
            Operation::WriteZeroes { .. } => 4,
        };
        &self.0[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_an_eighth_wide() {
        for index in 1..BUCKETS {
            let (before, end) = (bucket_end_ns(index - 1), bucket_end_ns(index));
            assert_eq!((bucket(before), bucket(before + 1), bucket(end)), (index - 1, index, index));
            assert!(end - before <= 1 + before / 8, "{before} to {end}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles() {
        let histogram = LatencyHistogram::default();
        assert_eq!(histogram.counts().percentile_ns(0.5), None);
        (1..=100).for_each(|count| histogram.record(count * 1000));
        let counts = histogram.counts();
        let near = |part, wanted: u64| {
            let found = counts.percentile_ns(part).unwrap();
            assert!((wanted..=wanted + wanted / 8).contains(&found), "{found} for {wanted}");
        };
        near(0.5, 50_000);
        near(0.99, 99_000);
        near(1.0, 100_000);
        near(0.0, 1000);
        let mut twice = counts.clone();
        twice.add(&counts);
        assert_eq!((twice.count(), twice.since(&counts)), (200, counts.clone()));
        assert_eq!(counts.buckets().map(|(_, count)| count).sum::<u64>(), 100);
    }
}
