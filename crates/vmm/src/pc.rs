//! A PC that Linux boots on: memory, interrupt controllers, serial ports, disks, and the ACPI tables that describe
//! them.
//!
//! There is no firmware and no legacy hardware: ACPI's hardware-reduced profile, everything named in its tables. (At
//! the reset vector are nine bytes that ask for a reset.) Virtio devices are functions of a PCI bus, or have
//! virtio-mmio registers and an ACPI name; [`kernel`] puts a kernel into memory as its boot protocol wants it.

mod acpi;
pub mod kernel;
mod map;
mod pci;
mod power;

use self::kernel::Kernel;
use self::pci::PcPci;
use crate::ahci::AhciDisks;
use crate::attached_disk::AttachedDisk;
use crate::event::{EventSink, MachineEvent};
use crate::machine::{Absent, Machine, MachineError, RunningMachine};
use crate::serial::SerialWindow;
use crate::threads::Threads;
use crate::virtio_disk;
use crate::virtio_mmio;
use blockyard_block::{Disk, EventFd, MemoryMap, explain, size};
use blockyard_devices::Interrupt;
use blockyard_devices::pci::PciFunction;
use blockyard_devices::serial::{SerialInput, SerialOutput, SerialPort};
use blockyard_devices::virtio::{DeviceFailure, EntropyDevice, PciTransport, VirtioDevice};
use blockyard_hypervisor::{Entry, Hypervisor};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

pub use power::{PowerRequest, PowerSink};

/// A device at addresses, that the tables describe.
#[derive(Clone, Copy, Debug)]
struct MmioSlot {
    address: u64,
    line: u32,
}

/// How a guest reaches a virtio device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VirtioTransport {
    /// As a PCI function, with an interrupt for each queue.
    #[default]
    Pci,
    /// By virtio-mmio registers that ACPI names, with one interrupt.
    Mmio,
}

/// A PC's memory.
#[derive(Clone, Copy, Debug)]
pub struct PcMemory {
    /// How much of it there is.
    pub bytes: u64,
    /// Whether other processes are to reach it, that serve its devices. It has huge pages if not, and a first touch of
    /// any of them costs the guest one exit and not 512.
    pub shared: bool,
}

impl PcMemory {
    fn allocate(self) -> Result<MemoryMap, MachineError> {
        let layout = map::memory(self.bytes)?;
        let memory = if self.shared { MemoryMap::allocate(&layout) } else { MemoryMap::allocate_private(&layout) };
        let bytes = size::human(self.bytes);
        memory.map_err(|error| {
            MachineError::Refused(format!("a guest cannot have {bytes} of memory here: {}", explain(&error)))
        })
    }
}

/// A device at ports, that the tables describe.
#[derive(Clone, Copy, Debug)]
struct PortSlot {
    port: u16,
    line: u32,
}

/// A PC that is being put together.
pub struct Pc {
    machine: Machine,
    /// Made with the first function: a guest without any has no bus to search.
    pci: Option<PcPci>,
    vcpus: u32,
    memory_bytes: u64,
    serial_ports: Vec<PortSlot>,
    disks: usize,
    ahci: AhciDisks,
    slots: Vec<MmioSlot>,
    /// By lines. Devices that share a line signal one event: of two, which KVM would serve side by side, one could come
    /// while the line is still up for the other, and be lost.
    mmio_interrupts: BTreeMap<u32, Arc<dyn Interrupt>>,
}

impl Pc {
    /// A PC with `vcpus` processors, whose requests to be switched off or reset go to
    /// `power`.
    ///
    /// # Errors
    /// When there is too little memory for any guest, or the hypervisor or the operating system refuses.
    pub fn new(
        hypervisor: &dyn Hypervisor,
        vcpus: u32,
        memory: PcMemory,
        threads: impl Into<Threads>,
        power: PowerSink,
        events: EventSink,
    ) -> Result<Self, MachineError> {
        if !hypervisor.capabilities().kernels {
            let name = hypervisor.name();
            return Err(MachineError::Refused(format!("a kernel does not run on the backend {name}: KVM is needed")));
        }
        let mut machine = Machine::new(hypervisor, memory.allocate()?, vcpus as usize, threads, events)?;
        machine.set_absent(Absent::ReadsAsOnes);
        machine.vm().create_interrupt_controllers(vcpus)?;
        machine.attach_port_device(power::PORT, power::PORTS, Arc::new(Mutex::new(power::PowerPorts(power))))?;
        Ok(Self {
            machine,
            pci: None,
            vcpus,
            memory_bytes: memory.bytes,
            serial_ports: Vec::new(),
            disks: 0,
            ahci: AhciDisks::default(),
            slots: Vec::new(),
            mmio_interrupts: BTreeMap::new(),
        })
    }

    /// The machine's memory.
    pub fn memory(&self) -> &MemoryMap {
        self.machine.memory()
    }

    /// Attaches the first serial port, which is the guest's console unless its command line says otherwise. What is
    /// returned is told when its input has something new ([`SerialPort::input_ready`]).
    ///
    /// # Errors
    /// When it is there already, or the hypervisor or the operating system refuses.
    pub fn attach_console(
        &mut self,
        output: SerialOutput,
        input: Box<dyn SerialInput>,
    ) -> Result<Arc<Mutex<SerialWindow>>, MachineError> {
        self.attach_serial_port(map::CONSOLE, output, input)
    }

    /// Attaches the second serial port, likewise.
    ///
    /// # Errors
    /// As [`Pc::attach_console`].
    pub fn attach_second_serial_port(
        &mut self,
        output: SerialOutput,
        input: Box<dyn SerialInput>,
    ) -> Result<Arc<Mutex<SerialWindow>>, MachineError> {
        self.attach_serial_port(map::SECOND_SERIAL_PORT, output, input)
    }

    fn attach_serial_port(
        &mut self,
        slot: PortSlot,
        output: SerialOutput,
        input: Box<dyn SerialInput>,
    ) -> Result<Arc<Mutex<SerialWindow>>, MachineError> {
        let interrupt = self.interrupt(slot.line)?;
        let window = Arc::new(Mutex::new(SerialWindow(SerialPort::new(output, input, Some(interrupt)))));
        self.machine.attach_port_device(slot.port, map::SERIAL_PORT_PORTS, Arc::clone(&window) as _)?;
        self.serial_ports.push(slot);
        Ok(window)
    }

    /// Attaches `disk` as the next of the guest's virtio disks, with `queues` virtqueues: one for each vCPU is best.
    ///
    /// # Errors
    /// When there are as many devices as there is room for, or the hypervisor or the operating system refuses.
    pub fn attach_disk(
        &mut self,
        disk: Arc<dyn Disk>,
        queues: u16,
        transport: VirtioTransport,
    ) -> Result<AttachedDisk, MachineError> {
        let name = format!("disk{}", self.disks);
        let (device, attached) = virtio_disk::device(&self.machine, &name, disk, queues)?;
        self.attach_virtio(device, transport)?;
        self.disks += 1;
        Ok(attached)
    }

    /// Attaches `disk` to the next port of the guest's AHCI controller, for a guest without virtio drivers. The port is
    /// served by the I/O thread of its number.
    ///
    /// # Errors
    /// When there are as many as there is room for. A disk that cannot be served is an error when the machine starts.
    pub fn attach_ahci_disk(&mut self, disk: Arc<dyn Disk>) -> Result<AttachedDisk, MachineError> {
        self.ahci.add(disk)
    }

    /// Attaches a device that gives the guest random bytes.
    ///
    /// # Errors
    /// As [`Pc::attach_disk`].
    pub fn attach_entropy(&mut self, transport: VirtioTransport) -> Result<(), MachineError> {
        let router = self.machine.io_threads().router();
        let sink = Box::new(move |queue| router.hand_over([queue]));
        let device = EntropyDevice::new("entropy", self.machine.memory().clone(), sink);
        self.attach_virtio(device, transport)
    }

    /// Attaches a virtio device.
    ///
    /// # Errors
    /// As [`Pc::attach_disk`].
    pub fn attach_virtio<D: VirtioDevice + 'static>(
        &mut self,
        device: D,
        transport: VirtioTransport,
    ) -> Result<(), MachineError> {
        match transport {
            VirtioTransport::Pci => {
                let events = Arc::clone(self.machine.events());
                let failures = Box::new(move |failure: &DeviceFailure| events(MachineEvent::from(failure)));
                self.attach_pci(PciTransport::vectors_wanted(&device), |vectors| {
                    let transport = PciTransport::new(device, vectors, failures);
                    let transport =
                        transport.map_err(|source| MachineError::Os { what: "making doorbells", source })?;
                    Ok(Box::new(transport))
                })
            }
            VirtioTransport::Mmio => {
                let full = || format!("the machine has room for {} virtio-mmio devices", map::MMIO_SLOTS_MAX);
                let slot = map::mmio_slot(self.slots.len()).ok_or_else(|| MachineError::Refused(full()))?;
                let interrupt = self.mmio_interrupt(slot.line)?;
                virtio_mmio::attach(&mut self.machine, device, interrupt, slot.address)?;
                self.slots.push(slot);
                Ok(())
            }
        }
    }

    /// Attaches the PCI function that `make` makes, which is given as many interrupts as `vectors`.
    ///
    /// # Errors
    /// When there is no room for it on the bus, or it cannot be made, or the hypervisor or the operating system
    /// refuses.
    pub fn attach_pci(
        &mut self,
        vectors: usize,
        make: impl FnOnce(Vec<Arc<dyn Interrupt>>) -> Result<Box<dyn PciFunction>, MachineError>,
    ) -> Result<(), MachineError> {
        let pci = match &mut self.pci {
            Some(pci) => pci,
            none => none.insert(PcPci::new(&mut self.machine)?),
        };
        pci.attach(vectors, make)
    }

    /// Puts `kernel` into memory and starts it.
    ///
    /// # Errors
    /// When it is no kernel, or does not fit, or the hypervisor or the operating system refuses.
    pub fn start(self, kernel: &Kernel<'_>) -> Result<RunningMachine, MachineError> {
        self.load(kernel)?.start()
    }

    /// Puts `kernel` into memory: afterwards its files are not needed.
    ///
    /// # Errors
    /// As [`Pc::start`].
    pub fn load(mut self, kernel: &Kernel<'_>) -> Result<LoadedPc, MachineError> {
        self.attach_ahci()?;
        let described = acpi::Described {
            vcpus: self.vcpus,
            serial_ports: &self.serial_ports,
            has_pci: self.pci.is_some(),
            slots: &self.slots,
        };
        let tables = acpi::tables(&described);
        if let Some(pci) = self.pci {
            pci.connect(&mut self.machine)?;
        }
        let memory = self.machine.memory().guest_memory();
        self.machine.load(&tables, map::ACPI_TABLES, map::RESET_VECTOR)?;
        self.machine.load(&power::RESET_CODE, map::RESET_VECTOR, map::LOW_MEMORY_END)?;
        let entry = kernel.load(memory, self.memory_bytes)?;
        let others = (1..self.vcpus).map(|_| Entry::AwaitStartup);
        let entries: Vec<_> = std::iter::once(entry).chain(others).collect();
        Ok(LoadedPc { machine: self.machine, entries })
    }

    /// Attaches the controller of the AHCI disks, if there are any.
    fn attach_ahci(&mut self) -> Result<(), MachineError> {
        let disks = std::mem::take(&mut self.ahci);
        if disks.is_empty() {
            return Ok(());
        }
        let router = self.machine.io_threads().router();
        let memory = self.machine.memory().clone();
        self.attach_pci(1, |vectors| Ok(Box::new(disks.controller(&memory, &router, &vectors[0])?)))
    }

    /// What raises `line` for all virtio-mmio devices that have it.
    fn mmio_interrupt(&mut self, line: u32) -> Result<Arc<dyn Interrupt>, MachineError> {
        if let Some(interrupt) = self.mmio_interrupts.get(&line) {
            return Ok(Arc::clone(interrupt));
        }
        let interrupt = self.interrupt(line)?;
        self.mmio_interrupts.insert(line, Arc::clone(&interrupt));
        Ok(interrupt)
    }

    /// An event that raises `line`.
    fn interrupt(&mut self, line: u32) -> Result<Arc<dyn Interrupt>, MachineError> {
        let event = EventFd::new().map_err(|source| MachineError::Os { what: "making an interrupt", source })?;
        self.machine.vm().register_interrupt(line, event.as_fd())?;
        Ok(Arc::new(event))
    }
}

/// A PC with a kernel in its memory, at the moment of power-on.
pub struct LoadedPc {
    machine: Machine,
    entries: Vec<Entry>,
}

impl LoadedPc {
    /// Starts it.
    ///
    /// # Errors
    /// When the hypervisor or the operating system refuses.
    pub fn start(self) -> Result<RunningMachine, MachineError> {
        self.machine.start(&self.entries)
    }
}
