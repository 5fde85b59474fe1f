//! Linux's boot parameters: what it finds in its zero page (Linux, Documentation/arch/x86/zero-page.rst).

use super::bzimage::{LOADED_HIGH, MAGIC};
use super::{MemoryKind, map};
use crate::machine::MachineError;
use linux_loader::bootparam::{boot_e820_entry, boot_params, setup_header};
use std::ops::Range;
use vm_memory::{ByteValued, GuestMemoryBackend};

/// A boot loader that has no number.
pub(super) const OTHER_LOADER: u8 = 0xff;

/// What a bzImage has and a vmlinux has not: as much as says that there are boot parameters.
pub(super) fn header_of_elf() -> setup_header {
    setup_header {
        boot_flag: 0xaa55,
        header: u32::from_le_bytes(MAGIC.try_into().expect("four bytes")),
        version: 0x020c,
        loadflags: LOADED_HIGH,
        ..Default::default()
    }
}

/// Writes them for a kernel with this setup header. An empty `initrd` is none.
pub(super) fn write(
    memory: &impl GuestMemoryBackend,
    header: &setup_header,
    kinds: &[MemoryKind],
    initrd: Range<u64>,
) -> Result<(), MachineError> {
    let hdr = setup_header {
        type_of_loader: OTHER_LOADER,
        cmd_line_ptr: map::COMMAND_LINE as u32,
        // Below 4 GiB, as all of the initrd's room is.
        ramdisk_image: initrd.start as u32,
        ramdisk_size: (initrd.end - initrd.start) as u32,
        ..*header
    };
    let mut parameters = boot_params { hdr, acpi_rsdp_addr: map::ACPI_TABLES, ..Default::default() };
    for (place, piece) in parameters.e820_table.iter_mut().zip(kinds) {
        *place = boot_e820_entry { addr: piece.address, size: piece.bytes, r#type: piece.kind };
    }
    parameters.e820_entries = kinds.len() as u8;
    super::write(memory, parameters.as_slice(), map::BOOT_PARAMETERS, "the boot parameters")
}
