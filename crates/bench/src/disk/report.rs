//! What a test of a disk found.

use super::pattern::Mismatch;
use super::tally::Tally;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies, in nanoseconds; all zero where nothing was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// The shortest.
    pub min: u64,
    /// The mean.
    pub mean: f64,
    /// Half are no longer.
    pub p50: u64,
    /// 99 in a hundred are no longer.
    pub p99: u64,
    /// 999 in a thousand are no longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            min: histogram.min(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

/// The result of a run. Everything is about the measured phase, reading back not counted, unless it says otherwise.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Requests a second, flushes not counted.
    pub iops: f64,
    /// Data read and written, MiB a second.
    pub mib_per_s: f64,
    /// From the submission of the batch that a request was in until its completion was seen. Flushes are not counted.
    pub latency_ns: Latency,
    /// Of each CPU of the machine: how much of the time it was idle; `None` where the kernel does not tell.
    pub cpu_idle_percent: Vec<Option<f64>>,
    /// Whether the run was to verify, had something to check, and found everything as it should be.
    pub verified: bool,
    /// Bytes that were checked, while measuring and while reading back.
    pub verified_bytes: u64,
    /// Blocks of 512 bytes that were not what they should be.
    pub mismatches: u64,
    /// Whether somebody stopped it before its end.
    pub interrupted: bool,
    /// How long it took.
    pub seconds: f64,
    /// Requests, flushes not counted.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Discards.
    pub discards: u64,
    /// Ranges zeroed.
    pub write_zeroes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Latency of the flushes.
    pub flush_latency_ns: Latency,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Jobs that had something to do.
    pub jobs: usize,
    /// Requests that each job kept in flight: less than was asked for if the queue or the memory holds no more.
    pub batch: usize,
    /// How often requests were handed to the disk, a batch at a time.
    pub submits: u64,
    /// How often there was nothing to do but wait for the disk.
    pub waits: u64,
    /// Allocations that the jobs' threads made once every slot of their queues had been used, ours and the disk's;
    /// `None` in a program that does not count them, or where the run ended before.
    pub allocations: Option<u64>,
    /// The disk's size.
    pub capacity_bytes: u64,
    /// Of each request; `None` where they differ.
    pub size_bytes: Option<u64>,
    /// The first mismatches: sentences.
    #[serde(serialize_with = "sentences")]
    pub first_mismatches: Vec<Mismatch>,
}

fn sentences<S: serde::Serializer>(mismatches: &[Mismatch], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(mismatches.iter().map(ToString::to_string))
}

impl Report {
    /// What all jobs' counts say; the caller fills in the rest.
    pub(super) fn new(tally: &Tally) -> Self {
        let seconds = tally.elapsed().as_secs_f64();
        let requests = tally.completed - tally.flushes;
        let a_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        Self {
            iops: a_second(requests as f64),
            mib_per_s: a_second((tally.read_bytes + tally.written_bytes) as f64 / f64::from(1 << 20)),
            latency_ns: Latency::of(&tally.latency),
            cpu_idle_percent: Vec::new(),
            verified: false,
            verified_bytes: 0,
            mismatches: 0,
            interrupted: false,
            seconds,
            requests,
            reads: tally.reads,
            writes: tally.writes,
            discards: tally.discards,
            write_zeroes: tally.write_zeroes,
            flushes: tally.flushes,
            flush_latency_ns: Latency::of(&tally.flush_latency),
            read_bytes: tally.read_bytes,
            written_bytes: tally.written_bytes,
            jobs: 0,
            batch: 0,
            submits: tally.submits,
            waits: tally.waits,
            allocations: tally.allocations,
            capacity_bytes: 0,
            size_bytes: None,
            first_mismatches: Vec::new(),
        }
    }
}
