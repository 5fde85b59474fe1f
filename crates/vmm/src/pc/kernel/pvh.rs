//! PVH: how Xen, and others by its example, start a kernel without firmware (Xen, docs/misc/pvh.pandoc and
//! xen/include/public/arch-x86/hvm/start_info.h).

use super::{MemoryKind, map};
use crate::machine::MachineError;
use linux_loader::start_info::{XEN_HVM_START_MAGIC_VALUE, hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info};
use std::ops::Range;
use vm_memory::{ByteValued, GuestMemoryBackend};

/// `XEN_ELFNOTE_PHYS32_ENTRY`.
const PHYS32_ENTRY: u32 = 18;
const NAME: &[u8] = b"Xen\0";
/// A note: lengths of its name and its content, and its type. What follows is padded to a multiple of four.
const NOTE_HEADER_BYTES: usize = 12;

/// The entry that a file's notes name; none where there is no such note before the first damaged one.
pub(super) fn entry(mut notes: &[u8]) -> Option<u64> {
    loop {
        let (header, rest) = notes.split_at_checked(NOTE_HEADER_BYTES)?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let (name_bytes, content_bytes) = (word(0) as usize, word(4) as usize);
        let (name, rest) = rest.split_at_checked(name_bytes.checked_next_multiple_of(4)?)?;
        // The last one may lack its padding.
        let content = rest.get(..content_bytes)?;
        if word(8) == PHYS32_ENTRY && name.get(..name_bytes) == Some(NAME) {
            return address(content);
        }
        notes = rest.get(content_bytes.checked_next_multiple_of(4)?..)?;
    }
}

/// 32-bit kernels have four bytes there, and 64-bit ones eight.
fn address(content: &[u8]) -> Option<u64> {
    match content.len() {
        4 => Some(u32::from_le_bytes(content.try_into().ok()?).into()),
        8 => Some(u64::from_le_bytes(content.try_into().ok()?)),
        _ => None,
    }
}

/// In the page that the start information begins: the module list, and the memory map.
const MODULES: u64 = map::PVH_START_INFO + 0x40;
const MEMORY_MAP: u64 = map::PVH_START_INFO + 0x80;

/// Writes what the kernel finds. An empty `initrd` is none.
pub(super) fn write(
    memory: &impl GuestMemoryBackend,
    kinds: &[MemoryKind],
    initrd: Range<u64>,
) -> Result<(), MachineError> {
    let has_initrd = !initrd.is_empty();
    let start_info = hvm_start_info {
        magic: XEN_HVM_START_MAGIC_VALUE,
        version: 1,
        nr_modules: has_initrd.into(),
        modlist_paddr: if has_initrd { MODULES } else { 0 },
        cmdline_paddr: map::COMMAND_LINE,
        rsdp_paddr: map::ACPI_TABLES,
        memmap_paddr: MEMORY_MAP,
        memmap_entries: kinds.len() as u32,
        ..Default::default()
    };
    let module = hvm_modlist_entry { paddr: initrd.start, size: initrd.end - initrd.start, ..Default::default() };
    let entry = |piece: &MemoryKind| hvm_memmap_table_entry {
        addr: piece.address,
        size: piece.bytes,
        type_: piece.kind,
        ..Default::default()
    };
    let memory_map: Vec<u8> = kinds.iter().flat_map(|piece| entry(piece).as_slice().to_vec()).collect();
    super::write(memory, start_info.as_slice(), map::PVH_START_INFO, "the start information")?;
    super::write(memory, module.as_slice(), MODULES, "the list of modules")?;
    super::write(memory, &memory_map, MEMORY_MAP, "the memory map")
}
