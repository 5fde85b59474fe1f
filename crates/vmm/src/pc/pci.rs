//! A PC's PCI bus: its configuration, its window of memory addresses, and what it has of the hypervisor.

use super::map;
use crate::bus::{MmioRange, PortDevice};
use crate::event::{EventSink, MachineEvent};
use crate::machine::{Machine, MachineError};
use blockyard_block::{EventFd, Woken, explain, wait_readable};
use blockyard_devices::Interrupt;
use blockyard_devices::pci::{
    CONFIG_BYTES, CONFIG_PORTS, ConfigPorts, DoorbellRegistry, HostBridge, Message, MessageVector, PciBus, PciFunction,
};
use blockyard_hypervisor::{Error, EventRoutes, MessageInterrupt};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The bus while the machine is put together.
pub(super) struct PcPci {
    bus: PciBus,
    routes: Arc<dyn EventRoutes>,
    events: EventSink,
}

impl PcPci {
    /// A bus with a host bridge.
    pub(super) fn new(machine: &mut Machine) -> Result<Self, MachineError> {
        let routes = machine.vm().event_routes()?;
        let mut bus = PciBus::new(map::PCI_WINDOW, Box::new(Doorbells(Arc::clone(&routes))));
        bus.attach(Box::new(HostBridge), Vec::new()).map_err(|error| MachineError::Refused(error.to_string()))?;
        Ok(Self { bus, routes, events: Arc::clone(machine.events()) })
    }

    /// Attaches what `make` makes of `vectors` interrupts.
    pub(super) fn attach(
        &mut self,
        vectors: usize,
        make: impl FnOnce(Vec<Arc<dyn Interrupt>>) -> Result<Box<dyn PciFunction>, MachineError>,
    ) -> Result<(), MachineError> {
        let vectors: Vec<_> = (0..vectors).map(|_| self.vector()).collect::<Result<_, _>>()?;
        let function = make(vectors.iter().map(|vector| Arc::clone(vector) as Arc<dyn Interrupt>).collect())?;
        let attached = self.bus.attach(function, vectors);
        attached.map(drop).map_err(|error| MachineError::Refused(error.to_string()))
    }

    /// Lets the guest find the bus, which is complete.
    pub(super) fn connect(self, machine: &mut Machine) -> Result<(), MachineError> {
        let bus = Arc::new(self.bus);
        machine.attach_mmio_device(map::PCI_CONFIG, CONFIG_BYTES, Arc::new(Configuration(Arc::clone(&bus))))?;
        let window_bytes = map::PCI_WINDOW.end - map::PCI_WINDOW.start;
        machine.attach_mmio_device(map::PCI_WINDOW.start, window_bytes, Arc::new(Window(Arc::clone(&bus))))?;
        let ports = Arc::new(Mutex::new(Ports(ConfigPorts::new(bus))));
        machine.attach_port_device(map::PCI_CONFIG_PORT, CONFIG_PORTS, ports)
    }

    fn vector(&self) -> Result<Arc<dyn MessageVector>, MachineError> {
        let event = EventFd::new().map_err(|source| MachineError::Os { what: "making an interrupt", source })?;
        let interrupt = self.routes.add_message_interrupt(event.as_fd())?;
        Ok(Arc::new(Vector { event, interrupt, events: Arc::clone(&self.events) }))
    }
}

/// An event that the hypervisor takes while the vector is not masked, and that is pending while it has a signal.
struct Vector {
    event: EventFd,
    interrupt: Box<dyn MessageInterrupt>,
    events: EventSink,
}

impl Vector {
    fn report(&self, result: Result<(), Error>) {
        if let Err(error) = result {
            (self.events)(MachineEvent::IoFailed(explain(&error)));
        }
    }
}

impl Interrupt for Vector {
    fn signal(&self) {
        self.event.ring();
    }
}

impl MessageVector for Vector {
    fn unmask(&self, Message { address, data }: Message) {
        self.report(self.interrupt.unmask(address, data));
    }

    fn mask(&self) {
        self.report(self.interrupt.mask());
    }

    fn is_pending(&self) -> bool {
        matches!(wait_readable(Some(self.event.as_fd()), &[], Some(Duration::ZERO)), Ok(Woken::Own))
    }
}

/// Doorbells that the hypervisor rings.
struct Doorbells(Arc<dyn EventRoutes>);

impl DoorbellRegistry for Doorbells {
    fn register(&self, address: u64, event: &EventFd) {
        // A hypervisor that has no room for more makes exits of them, and the device rings.
        let _ = self.0.add_doorbell(address, event.as_fd());
    }

    fn unregister(&self, address: u64) {
        // Fails only if it could not be registered.
        let _ = self.0.remove_doorbell(address);
    }
}

/// ECAM.
struct Configuration(Arc<PciBus>);

impl MmioRange for Configuration {
    fn read(&self, offset: u64, data: &mut [u8]) {
        self.0.read_config(offset, data);
    }

    fn write(&self, offset: u64, data: &[u8]) {
        self.0.write_config(offset, data);
    }
}

/// Where BARs are.
struct Window(Arc<PciBus>);

impl MmioRange for Window {
    fn read(&self, offset: u64, data: &mut [u8]) {
        self.0.read_memory(map::PCI_WINDOW.start + offset, data);
    }

    fn write(&self, offset: u64, data: &[u8]) {
        self.0.write_memory(map::PCI_WINDOW.start + offset, data);
    }
}

/// Configuration mechanism 1.
struct Ports(ConfigPorts);

impl PortDevice for Ports {
    fn read(&mut self, offset: u16, size: u8, data: &mut [u8]) {
        data.chunks_mut(size.into()).for_each(|item| self.0.read(offset, item));
    }

    fn write(&mut self, offset: u16, size: u8, data: &[u8]) {
        data.chunks(size.into()).for_each(|item| self.0.write(offset, item));
    }
}
