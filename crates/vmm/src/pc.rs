//! A PC that Linux boots on: memory, interrupt controllers, a console, disks, and the ACPI tables that describe them.
//!
//! There is no firmware and no legacy hardware: ACPI's hardware-reduced profile, everything named in its tables. (At
//! the reset vector are nine bytes that ask for a reset.) A disk
//! is virtio-blk behind virtio-mmio registers, found by its ACPI name; [`linux`] puts a kernel into memory as Linux's
//! boot protocol wants it.

mod acpi;
pub mod linux;
mod map;
mod power;

use crate::event::EventSink;
use crate::machine::{Absent, Machine, MachineError, RunningMachine};
use crate::placement::Placement;
use crate::serial::SerialWindow;
use crate::virtio_disk::VirtioDisk;
use blockyard_block::{Disk, EventFd, MemoryMap};
use blockyard_devices::Interrupt;
use blockyard_devices::serial::{SerialInput, SerialOutput, SerialPort};
use blockyard_hypervisor::{Entry, Hypervisor};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

pub use power::{PowerRequest, PowerSink};

/// A device that the tables describe.
#[derive(Clone, Copy, Debug)]
struct MmioSlot {
    address: u64,
    line: u32,
}

/// A PC that is being put together.
pub struct Pc {
    machine: Machine,
    vcpus: u32,
    memory_bytes: u64,
    has_console: bool,
    disks: Vec<MmioSlot>,
}

impl Pc {
    /// A PC with `vcpus` processors and `memory_bytes` of memory, whose requests to be switched off or reset go to
    /// `power`.
    ///
    /// # Errors
    /// When there is too little memory for any guest, or the hypervisor or the operating system refuses.
    pub fn new(
        hypervisor: &dyn Hypervisor,
        vcpus: u32,
        memory_bytes: u64,
        placement: Placement,
        power: PowerSink,
        events: EventSink,
    ) -> Result<Self, MachineError> {
        if !hypervisor.capabilities().kernels {
            let name = hypervisor.name();
            return Err(MachineError::Refused(format!("a kernel does not run on the backend {name}: KVM is needed")));
        }
        let memory = MemoryMap::allocate(&map::memory(memory_bytes)?)
            .map_err(|error| MachineError::Refused(format!("the guest's memory: {error}")))?;
        let mut machine = Machine::new(hypervisor, memory, vcpus as usize, placement, events)?;
        machine.set_absent(Absent::ReadsAsOnes);
        machine.vm().create_interrupt_controllers(vcpus)?;
        machine.attach_port_device(power::PORT, power::PORTS, Arc::new(Mutex::new(power::PowerPorts(power))))?;
        Ok(Self { machine, vcpus, memory_bytes, has_console: false, disks: Vec::new() })
    }

    /// Attaches the serial port that is the guest's console. What is returned is told when its input has something new
    /// ([`SerialPort::input_ready`]).
    ///
    /// # Errors
    /// When there is one already, or the hypervisor or the operating system refuses.
    pub fn attach_console(
        &mut self,
        output: SerialOutput,
        input: Box<dyn SerialInput>,
    ) -> Result<Arc<Mutex<SerialWindow>>, MachineError> {
        let interrupt = self.interrupt(map::CONSOLE_LINE)?;
        let console = Arc::new(Mutex::new(SerialWindow(SerialPort::new(output, input, Some(interrupt)))));
        self.machine.attach_port_device(map::CONSOLE_PORT, map::CONSOLE_PORTS, Arc::clone(&console) as _)?;
        self.has_console = true;
        Ok(console)
    }

    /// Attaches `disk` as the next of the guest's virtio disks, with `queues` virtqueues.
    ///
    /// # Errors
    /// When there are as many as there is room for, or the hypervisor or the operating system refuses.
    pub fn attach_disk(&mut self, disk: Arc<dyn Disk>, queues: u16) -> Result<VirtioDisk, MachineError> {
        let index = self.disks.len();
        let slot = map::disk_slot(index)
            .ok_or_else(|| MachineError::Refused(format!("the machine has room for {} disks", map::DISKS_MAX)))?;
        let interrupt = self.interrupt(slot.line)?;
        let attached =
            VirtioDisk::attach(&mut self.machine, &format!("disk{index}"), interrupt, slot.address, disk, queues)?;
        self.disks.push(slot);
        Ok(attached)
    }

    /// Puts `linux` into memory and starts it.
    ///
    /// # Errors
    /// When it is no kernel, or does not fit, or the hypervisor or the operating system refuses.
    pub fn start(self, linux: &linux::Linux<'_>) -> Result<RunningMachine, MachineError> {
        let memory = self.machine.memory().guest_memory();
        let tables = acpi::tables(self.vcpus, self.has_console, &self.disks);
        self.machine.load(&tables, map::ACPI_TABLES, map::RESET_VECTOR)?;
        self.machine.load(&power::RESET_CODE, map::RESET_VECTOR, map::LOW_MEMORY_END)?;
        let entry = linux.load(memory, self.memory_bytes)?;
        let others = (1..self.vcpus).map(|_| Entry::AwaitStartup);
        let entries: Vec<_> = std::iter::once(entry).chain(others).collect();
        self.machine.start(&entries)
    }

    /// An event that raises `line`.
    fn interrupt(&mut self, line: u32) -> Result<Arc<dyn Interrupt>, MachineError> {
        let event = EventFd::new().map_err(|source| MachineError::Os { what: "making an interrupt", source })?;
        self.machine.vm().register_interrupt(line, event.as_fd())?;
        Ok(Arc::new(event))
    }
}
