//! Offsets and bits of the registers (AHCI 1.3.1 §3).

/// Ports a controller can have.
pub const PORTS_MAX: usize = 32;

/// Bytes of the register window: all ports' registers, and a power of two as a BAR wants it.
pub const WINDOW_BYTES: u64 = 0x2000;

/// Command slots of a port.
pub(super) const SLOTS: u8 = 32;

/// The first port's registers, and how far the next port's are away.
pub(super) const PORTS_OFFSET: u64 = 0x100;
pub(super) const PORT_BYTES: u64 = 0x80;

/// AHCI 1.3.1.
pub(super) const VERSION: u32 = 0x0001_0301;

/// Generic host control (§3.1).
pub(super) mod host {
    pub(in super::super) const CAPABILITIES: u64 = 0x00;
    pub(in super::super) const CONTROL: u64 = 0x04;
    pub(in super::super) const INTERRUPT_STATUS: u64 = 0x08;
    pub(in super::super) const PORTS_IMPLEMENTED: u64 = 0x0c;
    pub(in super::super) const VERSION: u64 = 0x10;
}

/// CAP: 64-bit addresses, NCQ, command list override, 6 Gbit/s, AHCI only, PIO of several blocks, 32 slots. The number
/// of ports comes to it.
pub(super) const CAPABILITIES: u32 = 1 << 31 | 1 << 30 | 1 << 24 | 3 << 20 | 1 << 18 | 1 << 15 | 31 << 8;

/// GHC.
pub(super) const HBA_RESET: u32 = 1;
pub(super) const INTERRUPT_ENABLE: u32 = 1 << 1;
pub(super) const AHCI_ENABLE: u32 = 1 << 31;

/// A port's registers (§3.3).
pub(super) mod port {
    pub(in super::super) const COMMAND_LIST: u64 = 0x00;
    pub(in super::super) const COMMAND_LIST_UPPER: u64 = 0x04;
    pub(in super::super) const RECEIVED_FIS: u64 = 0x08;
    pub(in super::super) const RECEIVED_FIS_UPPER: u64 = 0x0c;
    pub(in super::super) const INTERRUPT_STATUS: u64 = 0x10;
    pub(in super::super) const INTERRUPT_ENABLE: u64 = 0x14;
    pub(in super::super) const COMMAND: u64 = 0x18;
    pub(in super::super) const TASK_FILE: u64 = 0x20;
    pub(in super::super) const SIGNATURE: u64 = 0x24;
    pub(in super::super) const SATA_STATUS: u64 = 0x28;
    pub(in super::super) const SATA_CONTROL: u64 = 0x2c;
    pub(in super::super) const SATA_ERROR: u64 = 0x30;
    pub(in super::super) const SATA_ACTIVE: u64 = 0x34;
    pub(in super::super) const COMMAND_ISSUE: u64 = 0x38;
}

/// PxCMD.
pub(super) const START: u32 = 1;
/// Spin-up and power: a disk here always is.
pub(super) const SPUN_UP_AND_POWERED: u32 = 1 << 1 | 1 << 2;
pub(super) const COMMAND_LIST_OVERRIDE: u32 = 1 << 3;
pub(super) const FIS_RECEIVE_ENABLE: u32 = 1 << 4;
pub(super) const CURRENT_SLOT_SHIFT: u32 = 8;
pub(super) const FIS_RECEIVE_RUNNING: u32 = 1 << 14;
pub(super) const COMMAND_LIST_RUNNING: u32 = 1 << 15;

/// PxIS and PxIE.
pub(super) const REGISTERS_FRAME: u32 = 1;
pub(super) const PIO_SETUP_FRAME: u32 = 1 << 1;
pub(super) const DEVICE_BITS_FRAME: u32 = 1 << 3;
pub(super) const CONNECT_CHANGE: u32 = 1 << 6;
pub(super) const PHY_READY_CHANGE: u32 = 1 << 22;
pub(super) const OVERFLOW: u32 = 1 << 24;
pub(super) const HOST_BUS_FATAL: u32 = 1 << 29;
pub(super) const TASK_FILE_ERROR: u32 = 1 << 30;
pub(super) const INTERRUPTS: u32 = 0xfdc0_00ff;

/// PxSCTL.DET, and what PxSSTS says of a link at 6 Gbit/s.
pub(super) const DETECTION: u32 = 0xf;
pub(super) const LINK_OFFLINE: u32 = 4;
pub(super) const LINK_UP: u32 = 0x133;

/// PxSERR.
pub(super) const PHY_READY_CHANGED: u32 = 1 << 16;
pub(super) const EXCHANGED: u32 = 1 << 26;
