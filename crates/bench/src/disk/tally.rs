//! What a job has counted.

use super::steps::{Action, Step};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Latencies beyond an hour count as one.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
/// Decimal digits that a latency keeps.
const LATENCY_DIGITS: u8 = 3;

/// Counts of one job, or of all.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) flushes: u64,
    pub(super) discards: u64,
    pub(super) write_zeroes: u64,
    /// All of them, flushes too.
    pub(super) completed: u64,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) submits: u64,
    pub(super) waits: u64,
    /// By the job's thread, once every slot had been used; `None` if nobody counts them.
    pub(super) allocations: Option<u64>,
    /// Of everything but flushes, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    pub(super) flush_latency: Histogram<u64>,
    pub(super) started: Option<Instant>,
    /// When the last completion was seen.
    pub(super) ended: Option<Instant>,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, LATENCY_DIGITS).expect("these bounds are possible ones")
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            reads: 0,
            writes: 0,
            flushes: 0,
            discards: 0,
            write_zeroes: 0,
            completed: 0,
            read_bytes: 0,
            written_bytes: 0,
            submits: 0,
            waits: 0,
            allocations: None,
            latency: histogram(),
            flush_latency: histogram(),
            started: None,
            ended: None,
        }
    }
}

impl Tally {
    pub(super) fn begin(&mut self, now: Instant) {
        self.started = Some(now);
    }

    pub(super) fn count(&mut self, step: &Step, latency: Duration) {
        self.completed += 1;
        let histogram = if step.action == Action::Flush { &mut self.flush_latency } else { &mut self.latency };
        histogram.saturating_record(latency.as_nanos() as u64);
        match step.action {
            Action::Read => {
                self.reads += 1;
                self.read_bytes += step.length_bytes;
            }
            Action::Write => {
                self.writes += 1;
                self.written_bytes += step.length_bytes;
            }
            Action::Flush => self.flushes += 1,
            Action::Discard => self.discards += 1,
            Action::WriteZeroes => self.write_zeroes += 1,
        }
    }

    /// Adds another job's counts.
    pub(super) fn merge(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.write_zeroes += other.write_zeroes;
        self.completed += other.completed;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.submits += other.submits;
        self.waits += other.waits;
        self.allocations = match (self.allocations, other.allocations) {
            (Some(ours), Some(theirs)) => Some(ours + theirs),
            (ours, theirs) => ours.or(theirs),
        };
        for (ours, theirs) in [(&mut self.latency, &other.latency), (&mut self.flush_latency, &other.flush_latency)] {
            ours.add(theirs).expect("all histograms have the same bounds");
        }
        self.started = [self.started, other.started].into_iter().flatten().min();
        self.ended = [self.ended, other.ended].into_iter().flatten().max();
    }

    /// From the first job's start to the last completion.
    pub(super) fn elapsed(&self) -> Duration {
        let times = self.started.zip(self.ended);
        times.map_or(Duration::ZERO, |(started, ended)| ended.saturating_duration_since(started))
    }
}
