//! What is known from outside of a disk that is attached to a machine.

use blockyard_block::RequestError;
use blockyard_devices::QueueStatistics;
use std::sync::Arc;

pub use blockyard_devices::QueueCounts as DiskCounts;

/// A disk of a machine.
pub struct AttachedDisk {
    pub(crate) statistics: Vec<Arc<QueueStatistics>>,
}

impl AttachedDisk {
    /// What all its queues have done so far.
    pub fn counts(&self) -> DiskCounts {
        self.statistics.iter().map(|queue| queue.counts()).sum()
    }

    /// Why the first request failed that the disk had taken, of the first queue where one has.
    pub fn first_error(&self) -> Option<RequestError> {
        self.statistics.iter().find_map(|queue| queue.first_error())
    }
}
