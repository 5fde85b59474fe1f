//! What lies where in a PC's memory and ports, and on which interrupt line.

use super::{MmioSlot, PortSlot};
use crate::machine::MachineError;
use blockyard_devices::pci::CONFIG_BYTES;
use blockyard_devices::virtio::MMIO_WINDOW_BYTES;
use std::ops::Range;

/// Boot parameters: Linux's zero page.
pub(super) const BOOT_PARAMETERS: u64 = 0x7000;
/// What a kernel finds that begins by PVH, in place of boot parameters. A page.
pub(super) const PVH_START_INFO: u64 = BOOT_PARAMETERS;
pub(super) const GDT: u64 = 0x8000;
/// Three pages.
pub(super) const PAGE_TABLES: u64 = 0x9000;
/// The command line, with its zero at the end.
pub(super) const COMMAND_LINE: u64 = 0x2_0000;
pub(super) const COMMAND_LINE_BYTES: u64 = 0x1_0000;
/// What the kernel may use of the first megabyte ends here.
pub(super) const LOW_MEMORY_FREE_END: u64 = 0x9_fc00;
/// Where kernels look for tables, if nobody tells them.
pub(super) const ACPI_TABLES: u64 = 0xe_0000;
/// Where a processor begins after a reset, in real mode, as far as software jumps there.
pub(super) const RESET_VECTOR: u64 = 0xf_fff0;
/// The first megabyte ends here, and kernels begin.
pub(super) const LOW_MEMORY_END: u64 = 0x10_0000;
/// Below 4 GiB, memory ends here at the latest: then come devices.
pub(super) const DEVICES: u64 = 0xc000_0000;
/// Memory goes on here.
pub(super) const HIGH_MEMORY: u64 = 1 << 32;
/// Less is too little for any kernel.
pub(super) const MEMORY_BYTES_MIN: u64 = 16 << 20;

pub(super) const LOCAL_APIC: u32 = 0xfee0_0000;
pub(super) const IO_APIC: u32 = 0xfec0_0000;

/// COM1 and COM2, where kernels look for them.
pub(super) const CONSOLE: PortSlot = PortSlot { port: 0x3f8, line: 4 };
pub(super) const SECOND_SERIAL_PORT: PortSlot = PortSlot { port: 0x2f8, line: 3 };
/// Ports of a serial port.
pub(super) const SERIAL_PORT_PORTS: u16 = 8;

const MMIO_SLOTS: u64 = 0xd000_0000;
/// Lines that no device of an old PC has. The first devices have one each, and those that come after share them.
const MMIO_LINES: Range<u32> = 16..blockyard_hypervisor::INTERRUPT_LINES;
pub(super) const MMIO_SLOTS_MAX: usize = 32;

/// Configuration of the PCI bus, by address and by ports.
pub(super) const PCI_CONFIG: u64 = 0xd800_0000;
pub(super) const PCI_CONFIG_PORT: u16 = 0xcf8;
/// Where PCI functions may have their registers.
pub(super) const PCI_WINDOW: Range<u64> = 0xe000_0000..0xf000_0000;
const _: () = assert!(MMIO_SLOTS + MMIO_SLOTS_MAX as u64 * MMIO_WINDOW_BYTES <= PCI_CONFIG);
const _: () = assert!(PCI_CONFIG + CONFIG_BYTES <= PCI_WINDOW.start && PCI_WINDOW.end <= IO_APIC as u64);

/// Where the virtio device with this number is that has virtio-mmio registers.
pub(super) fn mmio_slot(index: usize) -> Option<MmioSlot> {
    if index >= MMIO_SLOTS_MAX {
        return None;
    }
    let line = MMIO_LINES.clone().cycle().nth(index)?;
    Some(MmioSlot { address: MMIO_SLOTS + index as u64 * MMIO_WINDOW_BYTES, line })
}

/// Where memory below 4 GiB ends, of so much.
pub(super) fn low_end(bytes: u64) -> u64 {
    bytes.min(DEVICES)
}

/// Start and length of each piece of memory.
pub(super) fn memory(bytes: u64) -> Result<Vec<(u64, usize)>, MachineError> {
    if bytes < MEMORY_BYTES_MIN {
        let (bytes, least) = (bytes >> 20, MEMORY_BYTES_MIN >> 20);
        return Err(MachineError::Refused(format!(
            "{bytes} MiB of memory are too little: give it {least} MiB or more"
        )));
    }
    let low = low_end(bytes);
    let mut pieces = vec![(0, low as usize)];
    if bytes > low {
        pieces.push((HIGH_MEMORY, (bytes - low) as usize));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_leaves_room_for_devices() {
        assert_eq!(memory(64 << 20).unwrap(), [(0, 64 << 20)]);
        assert_eq!(memory(4 << 30).unwrap(), [(0, 3 << 30), (4 << 30, 1 << 30)]);
        assert_eq!(memory(3 << 30).unwrap(), [(0, 3 << 30)]);
        assert!(memory(MEMORY_BYTES_MIN - 1).is_err());
    }

    #[test]
    fn mmio_slots_lie_apart_and_the_first_ones_have_lines_of_their_own() {
        let slots: Vec<_> = (0..).map_while(mmio_slot).collect();
        assert_eq!(slots.len(), MMIO_SLOTS_MAX);
        for (one, next) in slots.iter().zip(&slots[1..]) {
            assert!(one.address + MMIO_WINDOW_BYTES <= next.address);
        }
        let lines: Vec<_> = slots.iter().map(|slot| slot.line).collect();
        assert_eq!(lines[..10], [16, 17, 18, 19, 20, 21, 22, 23, 16, 17]);
    }
}
