//! A virtio device attached to a machine behind virtio-mmio registers.

use crate::bus::MmioDevice;
use crate::event::{EventSink, MachineEvent};
use crate::machine::{Machine, MachineError};
use blockyard_devices::Interrupt;
use blockyard_devices::virtio::{MMIO_QUEUE_NOTIFY_OFFSET, MMIO_WINDOW_BYTES, MmioTransport, VirtioDevice};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

/// Attaches `device` at guest-physical `address`. It signals `interrupt`.
///
/// # Errors
/// When the address is taken, or the hypervisor or the operating system refuses.
pub fn attach<D: VirtioDevice + 'static>(
    machine: &mut Machine,
    device: D,
    interrupt: Arc<dyn Interrupt>,
    address: u64,
) -> Result<(), MachineError> {
    let transport = MmioTransport::new(device, interrupt)
        .map_err(|source| MachineError::Os { what: "making doorbells", source })?;
    for (queue, doorbell) in transport.doorbells().iter().enumerate() {
        machine.vm().register_doorbell(address + MMIO_QUEUE_NOTIFY_OFFSET, queue as u32, doorbell.as_fd())?;
    }
    let window = TransportWindow { transport, events: Arc::clone(machine.events()) };
    machine.attach_mmio_device(address, MMIO_WINDOW_BYTES, Arc::new(Mutex::new(window)))
}

/// The registers on the bus. A driver that sets the device up wrongly is reported.
struct TransportWindow<D> {
    transport: MmioTransport<D>,
    events: EventSink,
}

impl<D: VirtioDevice> MmioDevice for TransportWindow<D> {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        self.transport.read(offset, data);
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        if let Err(failure) = self.transport.write(offset, data) {
            (self.events)(MachineEvent::from(&failure));
        }
    }
}
