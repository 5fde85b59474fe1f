//! What sessions have done.

use blockyard_block::Operation;
use blockyard_devices::virtio::{LatencyCounts, QueueCounts, QueueStatistics};
use std::sync::Arc;

/// A session at one moment, all its queues together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStatistics {
    /// Requests, bytes, kicks (`doorbells`), notifications (`interrupts`), work found by polling, and errors.
    pub counts: QueueCounts,
    /// Requests that the disk has now.
    pub in_flight: u64,
    /// How long reads took, from when they were taken from the queue to when they were answered.
    pub reads: LatencyCounts,
    /// The same for writes.
    pub writes: LatencyCounts,
    /// The same for flushes.
    pub flushes: LatencyCounts,
    /// The same for discards.
    pub discards: LatencyCounts,
    /// The same for write-zeroes requests.
    pub write_zeroes: LatencyCounts,
    /// The first thing the client's driver did wrong that was answered with an error, as a sentence.
    pub first_fault: Option<String>,
}

impl SessionStatistics {
    pub(super) fn of(queues: &[Arc<QueueStatistics>]) -> Self {
        let latencies = |operation: Operation| {
            let mut sum = LatencyCounts::default();
            queues.iter().for_each(|queue| sum.add(&queue.latencies(operation).counts()));
            sum
        };
        Self {
            counts: queues.iter().map(|queue| queue.counts()).sum(),
            in_flight: queues.iter().map(|queue| queue.in_flight()).sum(),
            reads: latencies(Operation::Read),
            writes: latencies(Operation::Write { force_unit_access: false }),
            flushes: latencies(Operation::Flush),
            discards: latencies(Operation::Discard { length_bytes: 0 }),
            write_zeroes: latencies(Operation::WriteZeroes { length_bytes: 0, may_unmap: false }),
            first_fault: queues.iter().find_map(|queue| queue.first_fault().map(str::to_owned)),
        }
    }
}
