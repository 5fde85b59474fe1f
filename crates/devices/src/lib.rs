//! Device models: what a guest's driver talks to.
//!
//! - [`serial`]: a 16550 port ([`serial::SerialPort`]) whose string instructions move whole slices, and
//!   [`serial::LineBuffer`], which makes printable lines of what a guest says.
//! - [`pci`]: a PCI bus ([`pci::PciBus`]) and what a function on it is ([`pci::PciFunction`]).
//! - [`virtio`]: the virtio 1.2 transports over PCI ([`virtio::PciTransport`]) and MMIO ([`virtio::MmioTransport`]),
//!   the virtio-blk device ([`virtio::BlockDevice`]), and [`virtio::BlockQueue`], one virtqueue turned into block
//!   requests by the thread that owns it. A `BlockQueue` knows no transport: a vhost-user server uses it as it is.
//! - [`ahci`]: an AHCI controller ([`ahci::AhciController`]) with SATA disks, each a port with a [`ahci::PortQueue`].
//! - [`IoQueue`]: what a thread that serves devices' queues calls, whatever device they are of; [`QueueSet`] does so.
//!
//! A driver is hostile until proven otherwise. Everything in shared memory is read once and the copy is judged; every
//! loop is bounded by the size of the queue; a bad request is answered with a status, a bad ring sets
//! DEVICE_NEEDS_RESET and comes back as a [`virtio::DeviceFailure`], which names device and queue and has the reason as
//! its source.
//!
//! Deliberately absent: any knowledge of the hypervisor (the VMM hands in an [`Interrupt`] and registers the
//! [`EventFd`](blockyard_block::EventFd) doorbells), threads (whoever receives the queues runs them), and `unsafe`.

#![forbid(unsafe_code)]

pub mod ahci;
mod interrupt;
mod io_queue;
mod limit;
pub mod pci;
mod queue_control;
mod queue_events;
mod queue_set;
mod queue_statistics;
mod requests;
mod rest;
mod segments;
pub mod serial;
pub mod virtio;

pub use interrupt::Interrupt;
pub use io_queue::{IoQueue, IoQueueFailure};
pub use limit::{Limit, REQUEST_COST_BYTES_MIN};
pub use queue_control::QueueControl;
pub use queue_events::{QueueEvent, QueueEvents};
pub use queue_set::{Heard, QueueSet, Round};
pub use queue_statistics::{QueueCounts, QueueStatistics};
