//! The controller's registers: generic host control, and the ports behind it (AHCI 1.3.1 §3.1).

use super::identity::SERIAL_CHARACTERS;
use super::port::{HostState, Port};
use super::port_queue::{PortFailure, PortQueue, PortQueueParts};
use super::registers::{self as bits, PORT_BYTES, PORTS_MAX, PORTS_OFFSET, host};
use crate::{Interrupt, QueueControl, QueueStatistics};
use blockyard_block::{Disk, EventFd, MemoryMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An AHCI controller: the registers behind a PCI function's BAR 5, [`super::WINDOW_BYTES`] long.
///
/// A driver's access takes a few instructions and waits for nothing. Dropping the controller asks its queues to stop.
pub struct AhciController {
    memory: MemoryMap,
    ports: Vec<AttachedPort>,
    host: Arc<HostState>,
}

struct AttachedPort {
    port: Arc<Port>,
    control: Arc<QueueControl>,
}

/// A disk to be attached to an [`AhciController`].
pub struct AhciDisk {
    /// What it is called in messages.
    pub name: String,
    /// Its serial: at most 20 characters of ASCII.
    pub serial: String,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// How its port reaches the driver: several ports may share one.
    pub interrupt: Arc<dyn Interrupt>,
}

/// Why a disk cannot be attached.
#[derive(Debug, thiserror::Error)]
pub enum AhciError {
    /// Every port has a disk.
    #[error("an AHCI controller has {PORTS_MAX} ports, and each has a disk")]
    PortsTaken,
    /// Longer than ATA has room for, or not ASCII.
    #[error("the serial {0:?} is not at most 20 printable characters of ASCII")]
    Serial(String),
    /// The disk opens no queue, or the process has no descriptors left.
    #[error(transparent)]
    Queue(#[from] PortFailure),
}

impl AhciController {
    /// A controller without disks, of a machine with this memory.
    pub fn new(memory: MemoryMap) -> Self {
        Self { memory, ports: Vec::new(), host: Arc::default() }
    }

    /// Attaches a disk to the next port, before a driver looks. What is returned carries out the port's commands, and
    /// counts them where `statistics` are.
    ///
    /// # Errors
    /// When there is no port left, the serial is none, or the disk opens no queue.
    pub fn attach(&mut self, disk: AhciDisk, statistics: Arc<QueueStatistics>) -> Result<PortQueue, AhciError> {
        let AhciDisk { name, serial, disk, interrupt } = disk;
        if self.ports.len() == PORTS_MAX {
            return Err(AhciError::PortsTaken);
        }
        let is_text = serial.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if serial.len() > SERIAL_CHARACTERS || !is_text {
            return Err(AhciError::Serial(serial));
        }
        let name: Arc<str> = name.into();
        let index = self.ports.len() as u8;
        let failure = |source| PortFailure { port: index, disk: Arc::clone(&name), source };
        let doorbell = Arc::new(EventFd::new().map_err(failure)?);
        let port = Arc::new(Port::new(index, Arc::clone(&doorbell), Arc::clone(&self.host), interrupt));
        let parts = PortQueueParts {
            name: Arc::clone(&name),
            serial,
            disk,
            memory: self.memory.clone(),
            port: Arc::clone(&port),
            doorbell,
            statistics,
        };
        let queue = PortQueue::open(parts).map_err(failure)?;
        self.ports.push(AttachedPort { port, control: Arc::clone(queue.control()) });
        Ok(queue)
    }

    /// The driver reads `data.len()` bytes at `offset` of the window.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        for (at, byte) in (offset..).zip(data) {
            // Drivers read whole registers: reading one twice for eight bytes costs nobody anything.
            *byte = self.read_register(at & !3).to_le_bytes()[(at & 3) as usize];
        }
    }

    /// The driver writes `data` at `offset` of the window: one register, or two. What is smaller goes nowhere, as the
    /// specification has no such accesses.
    pub fn write(&self, offset: u64, data: &[u8]) {
        if !offset.is_multiple_of(4) {
            return;
        }
        for (index, register) in data.as_chunks::<4>().0.iter().enumerate() {
            self.write_register(offset + 4 * index as u64, u32::from_le_bytes(*register));
        }
    }

    fn read_register(&self, offset: u64) -> u32 {
        if let Some((port, offset)) = self.port_at(offset) {
            return port.read(offset);
        }
        match offset {
            host::CAPABILITIES => bits::CAPABILITIES | (self.ports.len().max(1) - 1) as u32,
            host::CONTROL => self.control(),
            host::INTERRUPT_STATUS => self.host.interrupt_status.load(Ordering::SeqCst),
            // All of those that have a disk, from the first on.
            host::PORTS_IMPLEMENTED => ((1u64 << self.ports.len()) - 1) as u32,
            host::VERSION => bits::VERSION,
            _ => 0,
        }
    }

    fn write_register(&self, offset: u64, value: u32) {
        if let Some((port, offset)) = self.port_at(offset) {
            return port.write(offset, value);
        }
        match offset {
            host::CONTROL if value & bits::HBA_RESET != 0 => self.reset(),
            host::CONTROL => {
                let enables = value & bits::INTERRUPT_ENABLE != 0;
                if !self.host.interrupts_enabled.swap(enables, Ordering::SeqCst) && enables {
                    self.ports.iter().for_each(|attached| attached.port.interrupt_again());
                }
            }
            host::INTERRUPT_STATUS => {
                self.host.interrupt_status.fetch_and(!value, Ordering::SeqCst);
                // What a port has still to say is said again (§10.7.2).
                self.ports.iter().for_each(|attached| attached.port.interrupt_again());
            }
            _ => {}
        }
    }

    /// GHC. A reset ends when every port has let go of its commands.
    fn control(&self) -> u32 {
        let is_resetting = self.host.is_resetting.load(Ordering::SeqCst)
            && self.ports.iter().any(|attached| attached.port.is_draining());
        if !is_resetting {
            self.host.is_resetting.store(false, Ordering::SeqCst);
        }
        let enabled = self.host.interrupts_enabled.load(Ordering::SeqCst);
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        bits::AHCI_ENABLE | bit(is_resetting, bits::HBA_RESET) | bit(enabled, bits::INTERRUPT_ENABLE)
    }

    fn reset(&self) {
        self.host.interrupts_enabled.store(false, Ordering::SeqCst);
        self.ports.iter().for_each(|attached| attached.port.reset());
        self.host.interrupt_status.store(0, Ordering::SeqCst);
        self.host.is_resetting.store(true, Ordering::SeqCst);
    }

    /// The port whose registers lie at `offset`, and where among them.
    fn port_at(&self, offset: u64) -> Option<(&Port, u64)> {
        let offset = offset.checked_sub(PORTS_OFFSET)?;
        let attached = self.ports.get((offset / PORT_BYTES) as usize)?;
        Some((&attached.port, offset % PORT_BYTES))
    }
}

/// The queues are asked to stop, and finish on their own.
impl Drop for AhciController {
    fn drop(&mut self) {
        self.ports.iter().for_each(|attached| attached.control.stop());
    }
}
