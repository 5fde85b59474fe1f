//! A disk attached to a machine: virtio-blk, its queues on the I/O threads.

use crate::attached_disk::AttachedDisk;
use crate::machine::{Machine, MachineError};
use crate::virtio_mmio;
use blockyard_block::Disk;
use blockyard_devices::Interrupt;
use blockyard_devices::virtio::{BlockDevice, BlockDeviceOptions};
use blockyard_hypervisor as hypervisor;
use std::sync::Arc;

/// Entries of each virtqueue at most.
const QUEUE_SIZE: u16 = 256;

/// Attaches `disk` at guest-physical `address` as `name`, with `queues` virtqueues, behind virtio-mmio registers. It
/// signals `interrupt`.
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
) -> Result<AttachedDisk, MachineError> {
    let (device, attached) = device(machine, name, disk, queues)?;
    virtio_mmio::attach(machine, device, interrupt, address)?;
    Ok(attached)
}

/// The device of `disk`, whatever its transport is to be.
pub(crate) fn device(
    machine: &Machine,
    name: &str,
    disk: Arc<dyn Disk>,
    queues: u16,
) -> Result<(BlockDevice, AttachedDisk), MachineError> {
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
    Ok((device, AttachedDisk { statistics }))
}
