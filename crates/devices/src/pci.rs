//! A PCI bus and what a function on it is (PCI Local Bus 3.0; configuration as PCI Express 5.0 §7.2 has it).
//!
//! A device model implements [`PciFunction`]: its [`Identity`], its BARs with their registers, and how it interrupts.
//! [`PciBus`] gives it a configuration space with the capabilities that follow, finds it by configuration and memory
//! addresses, and keeps its doorbells where its BARs are. [`ConfigPorts`] are configuration mechanism 1;
//! [`PciBus::read_config`] and [`PciBus::write_config`] take addresses as ECAM has them.
//!
//! Interrupts are messages: the VMM hands a function as many [`MessageVector`]s as it wants, which are [`Interrupt`]s
//! that the guest routes and masks through MSI or MSI-X.
//!
//! A guest may move BARs. One answers only while it lies in the bus's window and shares no address with another one;
//! whatever else a guest programs is as if nothing were there. So no BAR covers memory, or devices that are not on the
//! bus.
//!
//! Deliberately absent: I/O and 64-bit BARs, bridges and further buses, interrupt pins, hot-plug, power management.
//! Functions reach memory and interrupt whatever their bus-master bit says.
//!
//! [`Interrupt`]: crate::Interrupt

mod bus;
mod config_ports;
mod config_space;
mod decoder;
mod function;
mod host_bridge;
mod message;
mod msi;
mod msix;

pub use bus::{DoorbellRegistry, PciBus, PciBusError};
pub use config_ports::{CONFIG_PORTS, ConfigPorts};
pub use config_space::Capability;
pub use function::{Bar, BarDoorbell, Identity, PciFunction, Signalling};
pub use host_bridge::HostBridge;
pub use message::{Message, MessageVector};

/// Bytes of the configuration addresses of a bus, as ECAM has them: 4 KiB for each of 8 functions of 32 devices.
pub const CONFIG_BYTES: u64 = 32 * 8 * FUNCTION_CONFIG_BYTES;
/// Those of one function, of which a conventional one has 256 and the others are zero.
const FUNCTION_CONFIG_BYTES: u64 = 4096;
/// Devices that a bus has addresses for.
const DEVICES_MAX: usize = 32;
