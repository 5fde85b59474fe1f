//! What a device model on a PCI bus is.

use super::Capability;
use blockyard_block::EventFd;
use std::sync::Arc;

/// What a function's configuration space says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who made it.
    pub vendor: u16,
    /// Which of its maker's it is.
    pub device: u16,
    /// Of the device.
    pub revision: u8,
    /// Base class, subclass and programming interface: 0x010601 is a SATA controller with AHCI's registers.
    pub class: u32,
    /// Who made the whole.
    pub subsystem_vendor: u16,
    /// Which of its maker's the whole is.
    pub subsystem: u16,
}

/// A memory window of a function, of 32-bit addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Which of the six base address registers.
    pub index: u8,
    /// How long: a power of two from 16 to 1 GiB.
    pub bytes: u32,
}

/// How a function interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalling {
    /// It never does.
    None,
    /// One message, in its configuration space.
    Msi,
    /// As many as it is given vectors, in tables in a BAR that the bus adds: the first that the function does not have.
    MsiX,
}

/// A place in a BAR that a guest writes to, whatever it writes, for nothing but to ring an event. The hypervisor may
/// ring it without the function.
#[derive(Clone, Debug)]
pub struct BarDoorbell {
    /// The BAR's index.
    pub bar: u8,
    /// Where in it.
    pub offset: u64,
    /// What becomes readable.
    pub event: Arc<EventFd>,
}

/// A function of a PCI device: its own part, without the bus. Its vectors are handed to whoever makes it, as
/// [`Interrupt`](crate::Interrupt)s.
///
/// ```
/// use blockyard_devices::pci::{Bar, Identity, PciFunction, Signalling};
///
/// /// A register that keeps what is written.
/// struct Scratch([u8; 16]);
///
/// impl PciFunction for Scratch {
///     fn identity(&self) -> Identity {
///         Identity { vendor: 0x1b36, device: 5, revision: 0, class: 0xff0000, subsystem_vendor: 0, subsystem: 0 }
///     }
///     fn bars(&self) -> &[Bar] {
///         &[Bar { index: 0, bytes: 16 }]
///     }
///     fn signalling(&self) -> Signalling {
///         Signalling::None
///     }
///     fn read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
///         data.copy_from_slice(&self.0[offset as usize..][..data.len()]);
///     }
///     fn write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
///         self.0[offset as usize..][..data.len()].copy_from_slice(data);
///     }
/// }
/// ```
pub trait PciFunction: Send {
    /// What it is.
    fn identity(&self) -> Identity;

    /// Its memory windows.
    fn bars(&self) -> &[Bar];

    /// How it interrupts.
    fn signalling(&self) -> Signalling;

    /// What else its configuration space tells of it.
    fn capabilities(&self) -> Vec<Capability> {
        Vec::new()
    }

    /// Places in its BARs that ring events.
    fn doorbells(&self) -> Vec<BarDoorbell> {
        Vec::new()
    }

    /// The guest reads `data` at `offset` of a BAR: 1, 2, 4 or 8 bytes, all within it, at any alignment.
    fn read(&mut self, bar: u8, offset: u64, data: &mut [u8]);

    /// The guest writes `data`, likewise.
    fn write(&mut self, bar: u8, offset: u64, data: &[u8]);
}
