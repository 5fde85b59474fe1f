//! Virtio 1.2 devices and their transports.
//!
//! A [`VirtioDevice`] says what it is and is activated by a transport, here [`MmioTransport`], once the driver has set
//! up its queues. [`BlockDevice`] then opens a [`BlockQueue`] for each and hands them to whoever runs them.

mod block;
mod block_config;
mod block_queue;
mod block_request;
mod descriptor_chain;
mod device;
mod failure;
mod interrupt_status;
mod mmio;
mod queue_config;
mod queue_control;
mod queue_statistics;

pub use block::{BlockDevice, BlockDeviceError, BlockDeviceOptions, QueueSink};
pub use block_queue::{BlockQueue, BlockQueueParts};
pub use block_request::SERIAL_BYTES;
pub use descriptor_chain::ChainFault;
pub use device::{Activation, ActivationQueue, VirtioDevice};
pub use failure::{DeviceFailure, FailureCause};
pub use interrupt_status::{InterruptStatus, QueueNotifier};
pub use mmio::{MMIO_QUEUE_NOTIFY_OFFSET, MMIO_WINDOW_BYTES, MmioTransport};
pub use queue_config::QueueConfig;
pub use queue_control::QueueControl;
pub use queue_statistics::{QueueCounts, QueueStatistics};
