//! What sessions have done.

use blockyard_block::RequestError;
use blockyard_block::layers::{LatencySnapshot, OperationKind};
use blockyard_devices::virtio::{QueueCounts, QueueStatistics};
use std::sync::Arc;

/// A session at one moment, all its queues together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStatistics {
    /// Requests, bytes, kicks (`doorbells`), notifications (`interrupts`), work found by polling, and errors.
    pub counts: QueueCounts,
    /// Requests that the disk has now.
    pub in_flight: u64,
    /// How long requests took, from when they were taken from the queue to when they were answered, by
    /// [`OperationKind::index`].
    pub latencies: [LatencySnapshot; OperationKind::ALL.len()],
    /// The first thing the client's driver did wrong that was answered with an error, as a sentence.
    pub first_fault: Option<String>,
    /// Why the first request that the disk had taken failed.
    pub first_error: Option<RequestError>,
    /// Why the first write that the disk had taken failed.
    pub first_write_error: Option<RequestError>,
}

impl SessionStatistics {
    pub(super) fn of(queues: &[Arc<QueueStatistics>]) -> Self {
        let mut latencies: [LatencySnapshot; OperationKind::ALL.len()] = Default::default();
        for (kind, sum) in OperationKind::ALL.into_iter().zip(&mut latencies) {
            queues.iter().for_each(|queue| queue.latencies(kind).add_to(sum));
        }
        Self {
            counts: queues.iter().map(|queue| queue.counts()).sum(),
            in_flight: queues.iter().map(|queue| queue.in_flight()).sum(),
            latencies,
            first_fault: queues.iter().find_map(|queue| queue.first_fault().map(str::to_owned)),
            first_error: queues.iter().find_map(|queue| queue.first_error()),
            first_write_error: queues.iter().find_map(|queue| queue.first_write_error()),
        }
    }

    /// Adds what another session has done.
    pub fn add(&mut self, other: &Self) {
        self.counts = self.counts + other.counts;
        self.in_flight += other.in_flight;
        self.latencies.iter_mut().zip(&other.latencies).for_each(|(sum, latency)| sum.add(latency));
        if self.first_fault.is_none() {
            self.first_fault.clone_from(&other.first_fault);
        }
        self.first_error = self.first_error.or(other.first_error);
        self.first_write_error = self.first_write_error.or(other.first_write_error);
    }
}
