//! A kernel in an ELF file: a vmlinux, or any other that begins by PVH (System V Application Binary Interface, chapters
//! 4 and 5; Xen, docs/misc/pvh.pandoc).

use super::file::BootFile;
use super::{Image, Protocol, Segment, pvh, refused, zero_page};
use crate::machine::MachineError;
use blockyard_block::Remedy;

/// More program headers than any kernel has.
const HEADERS_MAX: u16 = 128;
/// Notes are looked for this far: a kernel's have some hundred bytes.
const NOTES_BYTES_MAX: u64 = 64 << 10;
/// Below this is what 32-bit and 64-bit kernels both find with the page tables that they begin with.
const INITRD_END: u64 = 1 << 31;
/// `COMMAND_LINE_SIZE`, without the zero byte: nothing in the file says it.
const COMMAND_LINE_BYTES: u64 = 2047;

const LITTLE_ENDIAN: u8 = 1;
const CLASS_32: u8 = 1;
const CLASS_64: u8 = 2;
const MACHINE_386: u64 = 3;
const MACHINE_X86_64: u64 = 62;
const TYPE_EXECUTABLE: u64 = 2;
const TYPE_SHARED: u64 = 3;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;
const PT_TLS: u64 = 7;

/// Where a number lies, and how many bytes it has.
type Field = (usize, usize);

/// Where numbers lie in files of one class.
struct Class {
    header_bytes: usize,
    entry: Field,
    program_headers: Field,
    program_header_bytes: Field,
    program_header_count: Field,
    /// In a program header, whose type comes first in both.
    length: usize,
    offset: Field,
    physical_address: Field,
    file_bytes: Field,
    memory_bytes: Field,
}

const ELF_32: Class = Class {
    header_bytes: 52,
    entry: (24, 4),
    program_headers: (28, 4),
    program_header_bytes: (42, 2),
    program_header_count: (44, 2),
    length: 32,
    offset: (4, 4),
    physical_address: (12, 4),
    file_bytes: (16, 4),
    memory_bytes: (20, 4),
};

const ELF_64: Class = Class {
    header_bytes: 64,
    entry: (24, 8),
    program_headers: (32, 8),
    program_header_bytes: (54, 2),
    program_header_count: (56, 2),
    length: 56,
    offset: (8, 8),
    physical_address: (24, 8),
    file_bytes: (32, 8),
    memory_bytes: (40, 8),
};

/// A program header: its type, and what it is of.
#[derive(Clone, Copy, Debug)]
struct ProgramHeader {
    kind: u64,
    segment: Segment,
}

/// What an ELF file says.
///
/// # Errors
/// When it is no kernel, or none that can be started here, or cut off.
pub(super) fn parse(file: &BootFile<'_>) -> Result<Image, MachineError> {
    let header = file.read(0, ELF_32.header_bytes)?;
    let class = class(&header)?;
    let header = file.read(0, class.header_bytes)?;
    let headers = program_headers(file, class, &header)?;
    let segments = segments(&headers)?;
    let wide = class.header_bytes == ELF_64.header_bytes;
    let (entry, protocol) = match pvh_entry(file, &headers)? {
        Some(entry) => (entry, Protocol::Pvh),
        None if headers.iter().any(|header| matches!(header.kind, PT_DYNAMIC | PT_INTERP | PT_TLS)) => {
            return Err(refused(format!(
                "the kernel is a program of an operating system's: if it is User-Mode Linux, {}; else give it a bzImage, \
                 as distributions have it in /boot/vmlinuz, or an ELF vmlinux",
                Remedy::TakeUserModeLinux
            )));
        }
        None if wide => (number(&header, class.entry), Protocol::Linux64(Box::new(zero_page::header_of_elf()))),
        None => (number(&header, class.entry), Protocol::Linux32(Box::new(zero_page::header_of_elf()))),
    };
    Ok(Image { segments, entry, protocol, initrd_end: INITRD_END, command_line_bytes: COMMAND_LINE_BYTES })
}

fn class(header: &[u8]) -> Result<&'static Class, MachineError> {
    let (kind, machine) = (number(header, (16, 2)), number(header, (18, 2)));
    let class = match (header[4], header[5], machine) {
        (CLASS_64, LITTLE_ENDIAN, MACHINE_X86_64) => &ELF_64,
        (CLASS_32, LITTLE_ENDIAN, MACHINE_386) => &ELF_32,
        _ => {
            return Err(refused(format!(
                "the kernel is an ELF file for another processor (machine {machine}), and this machine is a PC: give \
                 it one for x86-64"
            )));
        }
    };
    match kind {
        TYPE_EXECUTABLE | TYPE_SHARED => Ok(class),
        _ => Err(refused("the kernel is an ELF file that is not executable: an object file, a module or a core dump")),
    }
}

fn program_headers(file: &BootFile<'_>, class: &Class, header: &[u8]) -> Result<Vec<ProgramHeader>, MachineError> {
    let count = number(header, class.program_header_count) as u16;
    if count > HEADERS_MAX || number(header, class.program_header_bytes) != class.length as u64 {
        return Err(refused("the kernel is an ELF file with damaged headers"));
    }
    let table = file.read(number(header, class.program_headers), usize::from(count) * class.length)?;
    let headers = table.chunks_exact(class.length).map(|bytes| ProgramHeader {
        kind: number(bytes, (0, 4)),
        segment: Segment {
            offset: number(bytes, class.offset),
            file_bytes: number(bytes, class.file_bytes),
            address: number(bytes, class.physical_address),
            memory_bytes: number(bytes, class.memory_bytes),
        },
    });
    Ok(headers.collect())
}

fn segments(headers: &[ProgramHeader]) -> Result<Vec<Segment>, MachineError> {
    let loaded = headers.iter().filter(|header| header.kind == PT_LOAD).map(|header| header.segment);
    let segments: Vec<_> = loaded.filter(|segment| segment.memory_bytes > 0).collect();
    if segments.is_empty() {
        return Err(refused("the kernel is an ELF file that has nothing to be loaded"));
    }
    if segments.iter().any(|segment| segment.file_bytes > segment.memory_bytes) {
        return Err(refused("the kernel is an ELF file with a part that is larger than its place in memory"));
    }
    Ok(segments)
}

fn pvh_entry(file: &BootFile<'_>, headers: &[ProgramHeader]) -> Result<Option<u64>, MachineError> {
    for header in headers.iter().filter(|header| header.kind == PT_NOTE) {
        let bytes = file.read(header.segment.offset, header.segment.file_bytes.min(NOTES_BYTES_MAX) as usize)?;
        if let Some(entry) = pvh::entry(&bytes) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// A number of a header that is there as a whole.
fn number(header: &[u8], (at, bytes): Field) -> u64 {
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(&header[at..at + bytes]);
    u64::from_le_bytes(number)
}
