//! A disk attached to a machine: virtio-blk behind virtio-mmio registers, its queues on the I/O threads.

use crate::bus::MmioDevice;
use crate::event::{EventSink, MachineEvent};
use crate::machine::{Machine, MachineError};
use blockyard_block::Disk;
use blockyard_devices::Interrupt;
use blockyard_devices::virtio::{
    BlockDevice, BlockDeviceOptions, MMIO_QUEUE_NOTIFY_OFFSET, MMIO_WINDOW_BYTES, MmioTransport, QueueStatistics,
};
use blockyard_hypervisor as hypervisor;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

pub use blockyard_devices::virtio::QueueCounts as DiskStatistics;

/// Entries of each virtqueue at most.
const QUEUE_SIZE: u16 = 256;

/// What is known of an attached disk from outside.
pub struct VirtioDisk {
    statistics: Vec<Arc<QueueStatistics>>,
}

impl VirtioDisk {
    /// Attaches `disk` at guest-physical `address` as `name`, with `queues` virtqueues. It signals `interrupt`.
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
        let transport = MmioTransport::new(device, interrupt)
            .map_err(|source| MachineError::Os { what: "making doorbells", source })?;
        for (queue, doorbell) in transport.doorbells().iter().enumerate() {
            machine.vm().register_doorbell(address + MMIO_QUEUE_NOTIFY_OFFSET, queue as u32, doorbell.as_fd())?;
        }
        let window = TransportWindow { transport, events: Arc::clone(machine.events()) };
        machine.attach_mmio_device(address, MMIO_WINDOW_BYTES, Arc::new(Mutex::new(window)))?;
        Ok(Self { statistics })
    }

    /// What all its queues have done so far.
    pub fn counts(&self) -> DiskStatistics {
        self.statistics.iter().map(|queue| queue.counts()).sum()
    }
}

/// The registers on the bus. A driver that sets the device up wrongly is reported.
struct TransportWindow {
    transport: MmioTransport<BlockDevice>,
    events: EventSink,
}

impl MmioDevice for TransportWindow {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        self.transport.read(offset, data);
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        if let Err(failure) = self.transport.write(offset, data) {
            (self.events)(MachineEvent::from(&failure));
        }
    }
}
