//! A Linux kernel in a PC's memory, as its boot protocol wants it (Documentation/arch/x86/boot.rst).

use super::map;
use crate::machine::MachineError;
use blockyard_hypervisor::Entry;
use linux_loader::bootparam::{boot_e820_entry, boot_params, setup_header};
use vm_memory::{ByteValued, Bytes, GuestAddress, GuestMemoryMmap};

/// A kernel and what it is given.
#[derive(Clone, Copy, Debug)]
pub struct Linux<'a> {
    /// A bzImage.
    pub kernel: &'a [u8],
    /// The initial file system; empty for none.
    pub initrd: &'a [u8],
    /// Without a zero byte.
    pub command_line: &'a str,
}

/// Where a bzImage has its setup header, and where the header says itself how long it is.
const SETUP_HEADER: usize = 0x1f1;
const SETUP_HEADER_LENGTH: usize = 0x201;
const SETUP_HEADER_JUMP: usize = 0x202;
const MAGIC: u32 = u32::from_le_bytes(*b"HdrS");
const SECTOR_BYTES: usize = 512;
/// The first version that says what a 64-bit entry needs to be known.
const VERSION_MIN: u16 = 0x020c;
/// Of `loadflags`.
const LOADED_HIGH: u8 = 1 << 0;
/// Of `xloadflags`: there is a 64-bit entry, 0x200 bytes from the beginning.
const KERNEL_64: u16 = 1 << 0;
const ENTRY_64: u64 = 0x200;
/// A boot loader that has no number.
const OTHER_LOADER: u8 = 0xff;
const PAGE_BYTES: u64 = 4096;
/// The page tables that the kernel starts with end here: it lies below.
const MAPPED_BYTES: u64 = 1 << 30;

/// Kinds of memory.
const USABLE: u32 = 1;
const RESERVED: u32 = 2;

impl Linux<'_> {
    /// Puts it into `memory`, which has `memory_bytes`, and says where to begin.
    ///
    /// # Errors
    /// When it is no kernel that can be started, or something does not fit.
    pub(super) fn load(&self, memory: &GuestMemoryMmap, memory_bytes: u64) -> Result<Entry, MachineError> {
        let (mut header, kernel) = self.parse()?;
        let low_end = map::low_end(memory_bytes);
        let start = header.pref_address.max(map::LOW_MEMORY_END);
        let needed = u64::from(header.init_size).max(kernel.len() as u64);
        let kernel_end = start.checked_add(needed).filter(|&end| end <= low_end.min(MAPPED_BYTES));
        let Some(kernel_end) = kernel_end else {
            let needed = start.saturating_add(needed).div_ceil(1 << 20);
            return Err(refused(format!("the kernel needs {needed} MiB of memory, and there are {}", low_end >> 20)));
        };
        write(memory, kernel, start, "the kernel")?;

        let initrd = self.place_initrd(&header, kernel_end, low_end)?;
        write(memory, self.initrd, initrd, "the initrd")?;
        let room = u64::from(header.cmdline_size).min(map::COMMAND_LINE_BYTES - 1);
        if self.command_line.len() as u64 > room || self.command_line.contains('\0') {
            let length = self.command_line.len();
            return Err(refused(format!("the command line has {length} bytes, and the kernel takes {room}")));
        }
        write(memory, &[self.command_line.as_bytes(), &[0]].concat(), map::COMMAND_LINE, "the command line")?;

        header.type_of_loader = OTHER_LOADER;
        header.code32_start = start as u32;
        header.cmd_line_ptr = map::COMMAND_LINE as u32;
        header.ramdisk_image = initrd as u32;
        header.ramdisk_size = self.initrd.len() as u32;
        let mut parameters = boot_params { hdr: header, acpi_rsdp_addr: map::ACPI_TABLES, ..Default::default() };
        let regions = memory_kinds(memory_bytes);
        for (place, &(addr, size, r#type)) in parameters.e820_table.iter_mut().zip(&regions) {
            *place = boot_e820_entry { addr, size, r#type };
        }
        parameters.e820_entries = regions.len() as u8;
        write(memory, parameters.as_slice(), map::BOOT_PARAMETERS, "the boot parameters")?;
        Ok(Entry::Linux64 {
            entry: start + ENTRY_64,
            boot_parameters: map::BOOT_PARAMETERS,
            gdt: map::GDT,
            page_tables: map::PAGE_TABLES,
        })
    }

    /// The setup header, and the kernel without its setup.
    fn parse(&self) -> Result<(setup_header, &[u8]), MachineError> {
        let no_kernel = || refused("this is no Linux kernel (a bzImage, as distributions have it in /boot/vmlinuz)");
        let length = *self.kernel.get(SETUP_HEADER_LENGTH).ok_or_else(no_kernel)?;
        let end = SETUP_HEADER_JUMP + usize::from(length);
        let bytes = self.kernel.get(SETUP_HEADER..end).ok_or_else(no_kernel)?;
        let mut header = setup_header::default();
        // A header that is longer than we know has fields that nobody here fills in, and a shorter one zeros.
        let known = bytes.len().min(size_of::<setup_header>());
        header.as_mut_slice()[..known].copy_from_slice(&bytes[..known]);
        if header.header != MAGIC {
            return Err(no_kernel());
        }
        if header.version < VERSION_MIN || header.loadflags & LOADED_HIGH == 0 {
            return Err(refused("the kernel is from before 2012, or a zImage: too old to be started here"));
        }
        if header.xloadflags & KERNEL_64 == 0 {
            return Err(refused("the kernel is a 32-bit one, and those are not started here yet"));
        }
        let sectors = if header.setup_sects == 0 { 4 } else { usize::from(header.setup_sects) };
        let kernel = self.kernel.get((sectors + 1) * SECTOR_BYTES..).filter(|kernel| !kernel.is_empty());
        // What is compressed in there says its own length.
        let wanted = header.syssize as usize * 16;
        let kernel = kernel.filter(|kernel| kernel.len().next_multiple_of(16) >= wanted);
        Ok((header, kernel.ok_or_else(|| refused("the kernel is cut off"))?))
    }

    /// Where the initrd goes: as high as the kernel takes it, out of the way of what it unpacks.
    fn place_initrd(&self, header: &setup_header, kernel_end: u64, low_end: u64) -> Result<u64, MachineError> {
        if self.initrd.is_empty() {
            return Ok(0);
        }
        let end = low_end.min(u64::from(header.initrd_addr_max) + 1);
        let start = end.checked_sub(self.initrd.len() as u64).map(|start| start / PAGE_BYTES * PAGE_BYTES);
        start.filter(|&start| start >= kernel_end).ok_or_else(|| {
            let room = end.saturating_sub(kernel_end) >> 20;
            let length = (self.initrd.len() as u64).div_ceil(1 << 20);
            refused(format!(
                "the initrd has {length} MiB, and beside the kernel there is room for {room} in the memory"
            ))
        })
    }
}

/// Start, length and kind of each piece of a PC's memory.
fn memory_kinds(memory_bytes: u64) -> Vec<(u64, u64, u32)> {
    let low_end = map::low_end(memory_bytes);
    let mut kinds = vec![
        (0, map::LOW_MEMORY_FREE_END, USABLE),
        (map::LOW_MEMORY_FREE_END, map::LOW_MEMORY_END - map::LOW_MEMORY_FREE_END, RESERVED),
        (map::LOW_MEMORY_END, low_end - map::LOW_MEMORY_END, USABLE),
    ];
    if memory_bytes > low_end {
        kinds.push((map::HIGH_MEMORY, memory_bytes - low_end, USABLE));
    }
    kinds
}

fn write(memory: &GuestMemoryMmap, bytes: &[u8], address: u64, what: &str) -> Result<(), MachineError> {
    let written = memory.write_slice(bytes, GuestAddress(address));
    written.map_err(|error| refused(format!("{what} does not fit into the guest's memory: {error}")))
}

fn refused(sentence: impl Into<String>) -> MachineError {
    MachineError::Refused(sentence.into())
}

#[cfg(test)]
mod tests;
