//! A disk attached to a machine: virtio-blk, its queues on the I/O threads.

use crate::machine::{Machine, MachineError};
use crate::virtio_mmio;
use blockyard_block::Disk;
use blockyard_devices::virtio::{BlockDevice, BlockDeviceOptions};
use blockyard_devices::{Interrupt, QueueStatistics};
use blockyard_hypervisor as hypervisor;
use std::sync::Arc;

pub use blockyard_devices::QueueCounts as DiskStatistics;

/// Entries of each virtqueue at most.
const QUEUE_SIZE: u16 = 256;

/// What is known of an attached disk from outside.
pub struct VirtioDisk {
    statistics: Vec<Arc<QueueStatistics>>,
}

impl VirtioDisk {
    /// Attaches `disk` at guest-physical `address` as `name`, with `queues` virtqueues, behind virtio-mmio registers.
    /// It signals `interrupt`.
    ///
    /// # Errors
    /// When the address is taken, or the hypervisor or the operating system refuses.
    pub fn attach(
        machine: &mut Machine,
        name: &str,
        interrupt: Arc<dyn Interrupt>,
        address: u64,
        disk: Arc<dyn Disk>,
        queues: u16,
    ) -> Result<Self, MachineError> {
        let (device, attached) = Self::device(machine, name, disk, queues)?;
        virtio_mmio::attach(machine, device, interrupt, address)?;
        Ok(attached)
    }

    /// The device of `disk`, whatever its transport is to be.
    pub(crate) fn device(
        machine: &Machine,
        name: &str,
        disk: Arc<dyn Disk>,
        queues: u16,
    ) -> Result<(BlockDevice, Self), MachineError> {
        let router = machine.io_threads().router();
        let options = BlockDeviceOptions {
            name: name.to_owned(),
            serial: format!("blockyard-{name}"),
            queues,
            queue_size: QUEUE_SIZE,
        };
        let sink = Box::new(move |queues| router.hand_over(queues));
        let device = BlockDevice::new(disk, machine.memory().clone(), &options, sink)
            .map_err(|error| hypervisor::Error::Refused(error.to_string()))?;
        let statistics = device.statistics().to_vec();
        Ok((device, Self { statistics }))
    }

    /// What all its queues have done so far.
    pub fn counts(&self) -> DiskStatistics {
        self.statistics.iter().map(|queue| queue.counts()).sum()
    }
}
