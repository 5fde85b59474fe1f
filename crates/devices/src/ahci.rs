//! An AHCI 1.3.1 host bus adapter with SATA disks, for guests without virtio drivers.
//!
//! [`AhciController`] is the registers, and a function on a [PCI bus](crate::pci). Each disk is at a port of its own,
//! whose commands a [`PortQueue`] carries out, run by the thread that owns it ([`crate::IoQueue`]). A driver's write to
//! PxCI only stores bits, and rings the queue's doorbell if its thread sleeps.
//!
//! A command is read once, out of the command list; its data go between guest memory and disk as they lie. Up to 32
//! queued commands (NCQ) of a port are under way at a time, and all that are done together are shown with one frame and
//! one interrupt. A command that is not queued waits for those before it, and those after it wait, as with a drive that
//! has one task file.
//!
//! Stopping a port (PxCMD.ST, COMRESET, HBA reset) waits for nothing in a register write: PxCMD.CR, or GHC.HR, reads as
//! one until the disk has let go of the guest's memory, as the specification has drivers wait for.
//!
//! Deliberately absent: port multipliers, ATAPI, power management of the link, command completion coalescing, which
//! drivers leave off, and PRD interrupts (DPS), which are a hint.

mod ata;
mod command;
mod controller;
mod frames;
mod function;
mod identity;
mod port;
mod port_queue;
mod registers;

pub use controller::{AhciController, AhciDisk, AhciError};
pub use port_queue::{PortFailure, PortQueue};
pub use registers::{PORTS_MAX, WINDOW_BYTES};
