//! Virtio 1.2 devices and their transports.
//!
//! A [`VirtioDevice`] says what it is and is activated by a transport, [`PciTransport`] or [`MmioTransport`], once the
//! driver has set up its queues. [`BlockDevice`] then opens a [`BlockQueue`] for each and hands them to whoever runs
//! them. A vhost-user server has a transport of its own and runs [`ServedQueue`]s: [`BlockVirtqueue`], which is what is
//! in a `BlockQueue`, or [`MessageVirtqueue`], whose requests are answered at once.

mod block;
mod block_config;
mod block_queue;
mod block_request;
mod block_virtqueue;
mod descriptor_chain;
mod device;
mod device_state;
mod entropy;
mod entropy_queue;
mod failure;
mod in_flight_record;
mod interrupt_status;
mod message_virtqueue;
mod mmio;
mod pci;
mod pci_interrupts;
mod queue_config;
mod served_queue;
mod split_ring;

pub use crate::{Limit, QueueControl, QueueCounts, QueueStatistics, REQUEST_COST_BYTES_MIN};
pub use block::{BlockDevice, BlockDeviceError, BlockDeviceOptions, QueueSink};
pub use block_config::{CONFIG_BYTES, block_config, block_features};
pub use block_queue::BlockQueue;
pub use block_request::SERIAL_BYTES;
pub use block_virtqueue::{BlockVirtqueue, BlockVirtqueueParts, Pass};
pub use descriptor_chain::ChainFault;
pub use device::{Activation, ActivationQueue, VirtioDevice};
pub use entropy::{EntropyDevice, EntropySink};
pub use entropy_queue::EntropyQueue;
pub use failure::{DeviceFailure, FailureCause};
pub use in_flight_record::InFlightRecord;
pub use interrupt_status::{InterruptStatus, QueueNotifier};
pub use message_virtqueue::{Message, MessageHandler, MessageVirtqueue, MessageVirtqueueParts};
pub use mmio::{MMIO_QUEUE_NOTIFY_OFFSET, MMIO_WINDOW_BYTES, MmioTransport};
pub use pci::{FailureSink, PciTransport};
pub use queue_config::QueueConfig;
pub use served_queue::ServedQueue;
pub use split_ring::SplitRing;
