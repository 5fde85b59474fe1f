//! Why a device stopped.

use super::ChainFault;
use std::io;
use std::sync::Arc;

/// A device met something it cannot recover from: it has set DEVICE_NEEDS_RESET (virtio 1.2 §2.1.2) and the driver has
/// to reset it. Prints as the device and the queue; the reason is its source.
#[derive(Debug, thiserror::Error)]
#[error("virtio device {device}{}", .queue.map(|index| format!(", queue {index}")).unwrap_or_default())]
pub struct DeviceFailure {
    /// The device's name, as the VMM gave it.
    pub device: Arc<str>,
    /// The queue, where it was one.
    pub queue: Option<u16>,
    /// What the driver did, or how the disk failed.
    #[source]
    pub cause: FailureCause,
}

impl DeviceFailure {
    /// Whether the guest's driver is to blame, rather than the host.
    pub fn is_drivers_fault(&self) -> bool {
        !matches!(self.cause, FailureCause::Backend(_))
    }
}

/// The reason of a [`DeviceFailure`].
#[derive(Debug, thiserror::Error)]
pub enum FailureCause {
    /// DRIVER_OK without FEATURES_OK.
    #[error("the driver set DRIVER_OK although its features were not accepted")]
    FeaturesNotAccepted,
    /// Not a power of two, or more than QueueNumMax.
    #[error("the driver set a queue size of {size}, which is not a power of two from 1 to {max}")]
    QueueSize {
        /// What was set.
        size: u32,
        /// The most the queue can have.
        max: u16,
    },
    /// A part of the queue is not aligned as §2.7 demands.
    #[error("the {part} at {address:#x} is not aligned to {alignment} bytes")]
    QueueAlignment {
        /// Descriptor table, available ring or used ring.
        part: &'static str,
        /// Where the driver put it.
        address: u64,
        /// What it has to be a multiple of.
        alignment: u64,
    },
    /// A part of the queue has no address.
    #[error("the driver has not said where the whole queue is")]
    QueueUnset,
    /// A part of the queue does not lie in guest memory.
    #[error("the {part} at {address:#x} ({length_bytes} bytes) is not in the guest's memory")]
    QueueOutsideMemory {
        /// Descriptor table, available ring or used ring.
        part: &'static str,
        /// Where the driver put it.
        address: u64,
        /// How long it is.
        length_bytes: u64,
    },
    /// More chains were made available than the queue has room for.
    #[error("the available index moved by {moved}, but the queue holds {size}")]
    AvailableIndex {
        /// How far the index is ahead of the device.
        moved: u16,
        /// The queue's size.
        size: u16,
    },
    /// A descriptor chain that cannot be followed, with no place for a status.
    #[error(transparent)]
    Chain(ChainFault),
    /// A descriptor's buffer does not lie in guest memory, or the chain's lie in too many pieces of it.
    #[error("a buffer at {address:#x} ({length_bytes} bytes) is not in the guest's memory")]
    BufferOutsideMemory {
        /// Where the driver put it.
        address: u64,
        /// How long it is.
        length_bytes: u32,
    },
    /// What a vhost-user client keeps of the requests in flight cannot be right.
    #[error("the record of requests in flight {0}")]
    InFlightRecord(&'static str),
    /// What is behind the device is broken: a disk's queue, another process. Not the driver's fault.
    #[error("it cannot be served")]
    Backend(#[source] io::Error),
}
