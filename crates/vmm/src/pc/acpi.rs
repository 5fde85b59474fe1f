//! The ACPI tables of a PC (ACPI 6.5, hardware-reduced).

use super::{MmioSlot, PortSlot, map, power};
use acpi_tables::aml::{self, Path};
use acpi_tables::fadt::{FADTBuilder, Flags};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::madt::{EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic};
use acpi_tables::mcfg::MCFG;
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use acpi_tables::xsdt::XSDT;
use acpi_tables::{Aml, aml::EISAName};
use blockyard_devices::pci::{CONFIG_BYTES, CONFIG_PORTS};
use blockyard_devices::virtio::MMIO_WINDOW_BYTES;

const OEM: [u8; 6] = *b"BLKYRD";
const OEM_TABLE: [u8; 8] = *b"BLKYRDPC";
const OEM_REVISION: u32 = 1;
/// Bytes before an SDT's own content.
const SDT_HEADER_BYTES: u32 = 36;
const ALIGNMENT: usize = 16;
const PCI_SEGMENT: u8 = 0;
const PCI_BUS: u8 = 0;

/// What there is besides what every PC has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Described<'a> {
    pub(super) vcpus: u32,
    pub(super) serial_ports: &'a [PortSlot],
    pub(super) has_pci: bool,
    pub(super) slots: &'a [MmioSlot],
}

/// The tables one after the other, to be put at [`map::ACPI_TABLES`]: the root pointer comes first.
pub(super) fn tables(described: &Described<'_>) -> Vec<u8> {
    let mut tables = vec![0; Rsdp::len()];
    let mut append = |table: &[u8]| {
        tables.resize(tables.len().next_multiple_of(ALIGNMENT), 0);
        let address = map::ACPI_TABLES + tables.len() as u64;
        tables.extend(table);
        address
    };
    let dsdt = append(&dsdt(described));
    let fadt = append(&bytes(&fadt(dsdt)));
    let madt = append(&bytes(&madt(described.vcpus)));
    let mcfg = described.has_pci.then(|| append(&bytes(&mcfg())));
    let mut root = XSDT::new(OEM, OEM_TABLE, OEM_REVISION);
    [fadt, madt].into_iter().chain(mcfg).for_each(|table| root.add_entry(table));
    let root = append(&bytes(&root));
    let pointer = bytes(&Rsdp::new(OEM, root));
    tables[..pointer.len()].copy_from_slice(&pointer);
    tables
}

fn bytes(table: &dyn Aml) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.to_aml_bytes(&mut bytes);
    bytes
}

/// What there is of fixed hardware: the registers for sleep and reset.
fn fadt(dsdt: u64) -> impl Aml {
    let port = |port: u16| GAS::new(AddressSpace::SystemIo, 8, 0, AccessSize::ByteAccess, port.into());
    let mut fadt = FADTBuilder::new(OEM, OEM_TABLE, OEM_REVISION)
        .dsdt_64(dsdt)
        .flag(Flags::HwReducedAcpi)
        .flag(Flags::ResetRegSup)
        .flag(Flags::Headless);
    fadt.reset_reg = port(power::RESET_PORT);
    fadt.reset_value = power::RESET_VALUE;
    fadt.sleep_control_reg = port(power::SLEEP_CONTROL_PORT);
    fadt.sleep_status_reg = port(power::SLEEP_STATUS_PORT);
    // No keyboard controller, no VGA, no real-time clock: nobody need look for them.
    const NO_VGA: u16 = 1 << 2;
    const NO_CMOS_CLOCK: u16 = 1 << 5;
    fadt.iapc_boot_arch = (NO_VGA | NO_CMOS_CLOCK).into();
    fadt.finalize()
}

/// Processors, each with an APIC of its own number, and the I/O APIC.
fn madt(vcpus: u32) -> impl Aml {
    let mut madt = MADT::new(OEM, OEM_TABLE, OEM_REVISION, LocalInterruptController::Address(map::LOCAL_APIC));
    for vcpu in 0..vcpus {
        madt.add_structure(ProcessorLocalApic::new(vcpu as u8, vcpu as u8, EnabledStatus::Enabled));
    }
    madt.add_structure(IoApic::new(0, map::IO_APIC, 0));
    madt
}

/// Where the configuration of the PCI bus is.
fn mcfg() -> impl Aml {
    let mut mcfg = MCFG::new(OEM, OEM_TABLE, OEM_REVISION);
    mcfg.add_ecam(map::PCI_CONFIG, PCI_SEGMENT.into(), PCI_BUS, PCI_BUS);
    mcfg
}

/// The devices.
fn dsdt(described: &Described<'_>) -> Vec<u8> {
    let mut table = Sdt::new(*b"DSDT", SDT_HEADER_BYTES, 6, OEM, OEM_TABLE, OEM_REVISION);
    let off = power::SLEEP_TYPE_OFF;
    let sleep_off = aml::Name::new("_S5_".into(), &aml::Package::new(vec![&off, &0_u8, &0_u8, &0_u8]));
    table.append_slice(&bytes(&sleep_off));
    for (index, port) in described.serial_ports.iter().enumerate() {
        table.append_slice(&serial_port(index, port));
    }
    for (index, slot) in described.slots.iter().enumerate() {
        table.append_slice(&virtio_mmio(index, slot));
    }
    if described.has_pci {
        table.append_slice(&pci_config());
        table.append_slice(&pci_root());
    }
    table.as_slice().to_vec()
}

fn serial_port(index: usize, slot: &PortSlot) -> Vec<u8> {
    let ports = aml::IO::new(slot.port, slot.port, 0, map::SERIAL_PORT_PORTS as u8);
    let interrupt = edge(slot.line, Sharing::Alone);
    let resources = aml::ResourceTemplate::new(vec![&ports, &interrupt]);
    device(&format!("_SB_.COM{}", index + 1), &EISAName::new("PNP0501"), index, &resources)
}

fn virtio_mmio(index: usize, slot: &MmioSlot) -> Vec<u8> {
    let registers = aml::Memory32Fixed::new(true, slot.address as u32, MMIO_WINDOW_BYTES as u32);
    let interrupt = edge(slot.line, Sharing::WithOthers);
    let resources = aml::ResourceTemplate::new(vec![&registers, &interrupt]);
    // Linux, FreeBSD and QEMU know virtio-mmio by this name.
    device(&format!("_SB_.VD{index:02X}"), &"LNRO0005", index, &resources)
}

/// What the MCFG names is to be the resource of a device on the board (PCI Firmware 3.2, 4.1.2): else Linux does not
/// believe it.
fn pci_config() -> Vec<u8> {
    let addresses = aml::Memory32Fixed::new(true, map::PCI_CONFIG as u32, CONFIG_BYTES as u32);
    let resources = aml::ResourceTemplate::new(vec![&addresses]);
    device("_SB_.PCIM", &EISAName::new("PNP0C02"), 0, &resources)
}

/// The root of the PCI bus: which number it has, where its functions may have registers, and the ports of its
/// configuration. Interrupts are messages, so nothing says where pins lead.
fn pci_root() -> Vec<u8> {
    let numbers = aml::AddressSpace::new_bus_number(u16::from(PCI_BUS), u16::from(PCI_BUS));
    let ports = aml::IO::new(map::PCI_CONFIG_PORT, map::PCI_CONFIG_PORT, 1, CONFIG_PORTS as u8);
    let (first, last) = (map::PCI_WINDOW.start as u32, (map::PCI_WINDOW.end - 1) as u32);
    let memory = aml::AddressSpace::new_memory(aml::AddressSpaceCacheable::NotCacheable, true, first, last, None);
    let id = aml::Name::new("_HID".into(), &EISAName::new("PNP0A08"));
    let older = aml::Name::new("_CID".into(), &EISAName::new("PNP0A03"));
    let number = aml::Name::new("_UID".into(), &aml::ZERO);
    let segment = aml::Name::new("_SEG".into(), &PCI_SEGMENT);
    let bus = aml::Name::new("_BBN".into(), &PCI_BUS);
    let resources = aml::ResourceTemplate::new(vec![&numbers, &ports, &memory]);
    let resources = aml::Name::new("_CRS".into(), &resources);
    bytes(&aml::Device::new(Path::new("_SB_.PCI0"), vec![&id, &older, &number, &segment, &bus, &resources]))
}

fn device(path: &str, id: &dyn Aml, number: usize, resources: &dyn Aml) -> Vec<u8> {
    let id = aml::Name::new("_HID".into(), id);
    let number = aml::Name::new("_UID".into(), &number);
    let resources = aml::Name::new("_CRS".into(), resources);
    bytes(&aml::Device::new(Path::new(path), vec![&id, &number, &resources]))
}

/// Who has an interrupt line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
    WithOthers,
}

/// An interrupt that an event raises for a moment.
fn edge(line: u32, sharing: Sharing) -> aml::Interrupt {
    aml::Interrupt::new(true, true, false, sharing == Sharing::WithOthers, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_from_the_root_and_their_checksums_are_right() {
        let slots: Vec<_> = (0..).map_while(map::mmio_slot).collect();
        let serial_ports = [map::CONSOLE, map::SECOND_SERIAL_PORT];
        let described = Described { vcpus: 255, serial_ports: &serial_ports, has_pci: true, slots: &slots };
        let tables = tables(&described);
        assert!(map::ACPI_TABLES + tables.len() as u64 <= map::LOW_MEMORY_END);
        let at = |address: u64| &tables[(address - map::ACPI_TABLES) as usize..];
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
        let sum = |bytes: &[u8]| bytes.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte));
        assert_eq!((&tables[..8], sum(&tables[..36])), (&b"RSD PTR "[..], 0));
        let table = |address: u64, signature: &[u8; 4]| {
            let table = at(address);
            assert_eq!(&table[..4], signature);
            let table = table[..number(&table[4..8]) as usize].to_vec();
            assert_eq!(sum(&table), 0, "{signature:?}");
            table
        };
        let root = table(number(&tables[24..32]), b"XSDT");
        let fadt = table(number(&root[36..44]), b"FACP");
        let madt = table(number(&root[44..52]), b"APIC");
        let mcfg = table(number(&root[52..60]), b"MCFG");
        let dsdt = table(number(&fadt[140..148]), b"DSDT");
        assert_eq!((mcfg.len(), number(&mcfg[44..52]), number(&mcfg[52..60])), (60, map::PCI_CONFIG, 0));
        assert_eq!(madt.len(), 44 + 255 * 8 + 12);
        assert_eq!(dsdt.windows(8).filter(|window| window == b"LNRO0005").count(), map::MMIO_SLOTS_MAX);
    }
}
