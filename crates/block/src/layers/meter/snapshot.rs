//! What a meter says.

use super::DEPTH_TIME_UNIT_NS;
use super::OperationKind;
use super::histogram::{BUCKETS, bucket_end_ns};
use std::time::Duration;

/// What a [`Meter`](super::Meter) had counted at one moment. The queues go on while it is taken, so a request that
/// completes meanwhile may be in one count and not yet in another.
#[derive(Clone, Debug, PartialEq)]
pub struct MeterSnapshot {
    /// By [`OperationKind::index`].
    pub operations: [OperationSnapshot; OperationKind::ALL.len()],
    /// Requests submitted and not yet reaped, over all queues.
    pub depth: u64,
    /// The most there ever were at once.
    pub depth_max: u64,
    /// When it was taken, in nanoseconds since the meter was made.
    pub taken_at_ns: u64,
    pub(super) depth_time: u64,
}

/// What was counted of one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationSnapshot {
    /// Requests that failed.
    pub errors: u64,
    /// Bytes of the disk that requests touched which did not fail.
    pub bytes: u64,
    /// How long requests took, failed ones too.
    pub latency: LatencySnapshot,
}

/// How long requests took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencySnapshot {
    pub(super) counts: Vec<u64>,
    pub(super) sum_ns: u64,
    pub(super) max_ns: u64,
}

impl MeterSnapshot {
    pub(super) fn empty(taken_at_ns: u64) -> Self {
        let none = |_| OperationSnapshot { errors: 0, bytes: 0, latency: LatencySnapshot::default() };
        let operations = std::array::from_fn(none);
        Self { operations, depth: 0, depth_max: 0, taken_at_ns, depth_time: 0 }
    }

    /// What was counted of one kind of operation.
    pub fn operation(&self, kind: OperationKind) -> &OperationSnapshot {
        &self.operations[kind.index()]
    }

    /// Requests of any kind that completed.
    pub fn requests(&self) -> u64 {
        self.operations.iter().map(OperationSnapshot::requests).sum()
    }

    /// Mean number of requests in flight, over the time from the meter's making, or in a difference from the earlier
    /// snapshot.
    pub fn depth_mean(&self) -> f64 {
        if self.taken_at_ns == 0 {
            return 0.0;
        }
        self.depth_time as f64 * DEPTH_TIME_UNIT_NS as f64 / self.taken_at_ns as f64
    }

    /// What was counted after `earlier`, a snapshot of the same meter. `taken_at_ns` is the time between the two;
    /// `depth_max` stays the largest ever, and a largest latency is only known to within its bucket.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            operations: std::array::from_fn(|index| self.operations[index].since(&earlier.operations[index])),
            depth: self.depth,
            depth_max: self.depth_max,
            taken_at_ns: self.taken_at_ns.saturating_sub(earlier.taken_at_ns),
            depth_time: self.depth_time.saturating_sub(earlier.depth_time),
        }
    }
}

impl OperationSnapshot {
    /// Requests that completed, failed ones too.
    pub fn requests(&self) -> u64 {
        self.latency.count()
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            errors: self.errors.saturating_sub(earlier.errors),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            latency: self.latency.since(&earlier.latency),
        }
    }
}

impl Default for LatencySnapshot {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], sum_ns: 0, max_ns: 0 }
    }
}

impl LatencySnapshot {
    /// How many were timed.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The latency that a part `quantile` (0.5: the median, 0.99, 0.999) of the requests did not exceed, to within a
    /// thirty-second; `None` when there were no requests.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let index = self.counts.iter().position(|&count| {
            seen += count;
            seen >= rank
        })?;
        Some(Duration::from_nanos(self.clamped_end_ns(index)))
    }

    /// The largest; `None` when there were no requests.
    pub fn max(&self) -> Option<Duration> {
        (self.count() > 0).then(|| Duration::from_nanos(self.max_ns))
    }

    /// The mean; `None` when there were no requests.
    pub fn mean(&self) -> Option<Duration> {
        self.sum_ns.checked_div(self.count()).map(Duration::from_nanos)
    }

    /// The sum of all.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// The buckets that hold anything, from the shortest latency: (largest latency of the bucket, requests).
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let filled = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        filled.map(|(index, &count)| (Duration::from_nanos(bucket_end_ns(index)), count))
    }

    /// No bucket's end is beyond the largest value there was. The last bucket also holds what is beyond it.
    fn clamped_end_ns(&self, index: usize) -> u64 {
        if index == BUCKETS - 1 { self.max_ns } else { bucket_end_ns(index).min(self.max_ns) }
    }

    /// Adds what was recorded elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// What was recorded after `earlier`, a snapshot of the same histograms; its largest is only known to within its
    /// bucket.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counts: Vec<_> =
            self.counts.iter().zip(&earlier.counts).map(|(now, then)| now.saturating_sub(*then)).collect();
        let last = counts.iter().rposition(|&count| count > 0);
        let max_ns = last.map_or(0, |index| self.clamped_end_ns(index));
        Self { counts, sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns), max_ns }
    }
}
