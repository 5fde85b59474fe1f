//! A kernel in a PC's memory, and what it is given.
//!
//! `kind` decides what a file is. `bzimage` and `elf` make an `Image` of a file that may say anything: which of
//! its bytes go where, and by which protocol the kernel begins. Here that is held against the memory that there is, and
//! carried out: files are read straight into guest memory, and nothing of them is kept. `zero_page` and `pvh` write
//! what the protocol has the kernel find.

mod bzimage;
mod elf;
mod file;
mod initrd;
mod kind;
mod pvh;
mod zero_page;

use super::map;
use crate::machine::MachineError;
use blockyard_hypervisor::Entry;
use file::BootFile;
use kind::Kind;
use linux_loader::bootparam::setup_header;
use std::fs::File;
use std::ops::Range;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

/// A kernel and what it is given.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    /// A bzImage, 64-bit or 32-bit, as distributions have it in /boot/vmlinuz; or an ELF file: a vmlinux, or any kernel
    /// that begins by PVH. Its offset is moved.
    pub image: &'a File,
    /// The initial file system. Its offset is moved.
    pub initrd: Option<&'a File>,
    /// Without a zero byte.
    pub command_line: &'a str,
}

/// What a kernel's file says of it.
#[derive(Debug)]
struct Image {
    segments: Vec<Segment>,
    /// First instruction.
    entry: u64,
    protocol: Protocol,
    /// The initrd ends here at the latest.
    initrd_end: u64,
    /// Without the zero byte at its end.
    command_line_bytes: u64,
}

/// A piece of the file that goes to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    offset: u64,
    file_bytes: u64,
    address: u64,
    /// What the kernel takes there, the file's bytes included.
    memory_bytes: u64,
}

/// How a kernel begins.
#[derive(Debug)]
enum Protocol {
    /// Linux's, in 64-bit mode.
    Linux64(Box<setup_header>),
    /// Linux's, in protected mode.
    Linux32(Box<setup_header>),
    /// Xen's for guests without firmware, in protected mode.
    Pvh,
}

/// Checks that a file is what Linux takes as an initial file system, as far as its first bytes say so.
///
/// # Errors
/// When it is not: a sentence.
pub fn check_initrd(file: &File) -> Result<(), MachineError> {
    initrd::recognized(file).map(drop)
}

/// The page tables that a 64-bit kernel starts with end here: it lies below.
const MAPPED_BYTES: u64 = 1 << 30;

impl Kernel<'_> {
    /// Puts it into `memory`, which has `memory_bytes`, and says where to begin.
    ///
    /// # Errors
    /// When it is no kernel that can be started, or something does not fit.
    pub(super) fn load(&self, memory: &impl GuestMemoryBackend, memory_bytes: u64) -> Result<Entry, MachineError> {
        let file = BootFile::new("the kernel", self.image)?;
        let image = match kind::of(&file)? {
            Kind::BzImage => bzimage::parse(&file)?,
            Kind::Elf => elf::parse(&file)?,
        };
        let kernel_end = image.check(memory_bytes)?;
        for segment in &image.segments {
            file.load(segment.offset, segment.file_bytes, memory, segment.address)?;
        }
        let initrd_end = map::low_end(memory_bytes).min(image.initrd_end);
        let initrd = self.initrd.map(|initrd| initrd::load(initrd, memory, kernel_end..initrd_end)).transpose()?;
        self.write_command_line(memory, image.command_line_bytes)?;
        image.finish(memory, memory_bytes, initrd.unwrap_or_default())
    }

    fn write_command_line(&self, memory: &impl GuestMemoryBackend, bytes_max: u64) -> Result<(), MachineError> {
        let room = bytes_max.min(map::COMMAND_LINE_BYTES - 1);
        let length = self.command_line.len();
        if length as u64 > room {
            return Err(refused(format!("the command line has {length} bytes, and the kernel takes {room}")));
        }
        if self.command_line.contains('\0') {
            return Err(refused("the command line has a zero byte in it, where the kernel would take it to end"));
        }
        write(memory, &[self.command_line.as_bytes(), &[0]].concat(), map::COMMAND_LINE, "the command line")
    }
}

impl Image {
    /// Holds it against a machine with so much memory; where the last of it ends.
    fn check(&self, memory_bytes: u64) -> Result<u64, MachineError> {
        let low_end = map::low_end(memory_bytes);
        let room_end = match self.protocol {
            Protocol::Linux64(_) => low_end.min(MAPPED_BYTES),
            Protocol::Linux32(_) | Protocol::Pvh => low_end,
        };
        let mut segments = self.segments.clone();
        segments.sort_unstable_by_key(|segment| segment.address);
        let mut end = map::LOW_MEMORY_END;
        for (index, segment) in segments.iter().enumerate() {
            let address = segment.address;
            if address < end {
                let whose = if index == 0 { "is the machine's own" } else { "another part of it has" };
                return Err(refused(format!("the kernel has a part for address {address:#x}, which {whose}")));
            }
            end = address.saturating_add(segment.memory_bytes);
            if end > room_end {
                return Err(too_large(end, room_end, low_end));
            }
        }
        let begins_in = |segment: &Segment| {
            self.entry.checked_sub(segment.address).is_some_and(|offset| offset < segment.file_bytes)
        };
        if !self.segments.iter().any(begins_in) {
            return Err(refused(format!("the kernel would begin at {:#x}, where nothing of it lies", self.entry)));
        }
        Ok(end)
    }

    /// Writes what the kernel finds by its protocol; `initrd` is empty where there is none.
    fn finish(
        self,
        memory: &impl GuestMemoryBackend,
        memory_bytes: u64,
        initrd: Range<u64>,
    ) -> Result<Entry, MachineError> {
        let entry = self.entry;
        let kinds = memory_kinds(memory_bytes);
        Ok(match self.protocol {
            Protocol::Linux64(header) => {
                zero_page::write(memory, &header, &kinds, initrd)?;
                Entry::Linux64 {
                    entry,
                    boot_parameters: map::BOOT_PARAMETERS,
                    gdt: map::GDT,
                    page_tables: map::PAGE_TABLES,
                }
            }
            Protocol::Linux32(header) => {
                zero_page::write(memory, &header, &kinds, initrd)?;
                Entry::Protected32 { entry, boot_parameters: map::BOOT_PARAMETERS, gdt: map::GDT }
            }
            Protocol::Pvh => {
                pvh::write(memory, &kinds, initrd)?;
                Entry::Pvh { entry, start_info: map::PVH_START_INFO }
            }
        })
    }
}

/// `end`: of what the kernel wants; `room_end`: of where it may lie; `low_end`: of memory.
fn too_large(end: u64, room_end: u64, low_end: u64) -> MachineError {
    let (wanted, room, there) = (end.div_ceil(1 << 20), room_end >> 20, low_end >> 20);
    refused(match room_end == low_end {
        true => format!("the kernel needs {wanted} MiB of memory, and there are {there}: give it more"),
        false => format!("the kernel reaches to {wanted} MiB, and a 64-bit one has to lie below {room} MiB"),
    })
}

/// A piece of memory and its kind, one of E820's, which are PVH's too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryKind {
    address: u64,
    bytes: u64,
    kind: u32,
}

const USABLE: u32 = 1;
const RESERVED: u32 = 2;

/// The pieces of a PC's memory, in order of address.
fn memory_kinds(memory_bytes: u64) -> Vec<MemoryKind> {
    let piece = |range: Range<u64>, kind| MemoryKind { address: range.start, bytes: range.end - range.start, kind };
    let low_end = map::low_end(memory_bytes);
    let mut kinds = vec![
        piece(0..map::LOW_MEMORY_FREE_END, USABLE),
        piece(map::LOW_MEMORY_FREE_END..map::LOW_MEMORY_END, RESERVED),
        piece(map::LOW_MEMORY_END..low_end, USABLE),
    ];
    if memory_bytes > low_end {
        kinds.push(piece(map::HIGH_MEMORY..map::HIGH_MEMORY + (memory_bytes - low_end), USABLE));
    }
    kinds
}

fn write(memory: &impl GuestMemoryBackend, bytes: &[u8], address: u64, what: &str) -> Result<(), MachineError> {
    let written = memory.write_slice(bytes, GuestAddress(address));
    written.map_err(|error| refused(format!("{what} does not fit into the guest's memory: {error}")))
}

fn refused(sentence: impl Into<String>) -> MachineError {
    MachineError::Refused(sentence.into())
}

#[cfg(test)]
mod tests;
