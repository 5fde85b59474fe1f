//! A bzImage: a kernel that unpacks itself, behind a header that says how (Linux, Documentation/arch/x86/boot.rst).

use super::file::BootFile;
use super::{Image, Protocol, Segment, map, refused};
use crate::machine::MachineError;
use linux_loader::bootparam::setup_header;
use vm_memory::ByteValued;

/// In the setup header.
pub(super) const MAGIC: &[u8] = b"HdrS";
pub(super) const MAGIC_AT: usize = 0x202;
/// Where the setup header is, and where it says itself how long it is.
pub(super) const SETUP_HEADER: usize = 0x1f1;
pub(super) const SETUP_HEADER_LENGTH: usize = 0x201;
/// Its length counts from here.
pub(super) const SETUP_HEADER_JUMP: usize = 0x202;
const SECTOR_BYTES: u64 = 512;
/// The first version that says what a 64-bit entry needs to be known.
const VERSION_MIN: u16 = 0x020c;
/// Of `loadflags`.
pub(super) const LOADED_HIGH: u8 = 1 << 0;
/// Of `xloadflags`: there is a 64-bit entry.
pub(super) const KERNEL_64: u16 = 1 << 0;
/// From the beginning of what is loaded.
const ENTRY_32: u64 = 0;
const ENTRY_64: u64 = 0x200;

/// What a bzImage says.
///
/// # Errors
/// When it is none that can be started here, or cut off.
pub(super) fn parse(file: &BootFile<'_>) -> Result<Image, MachineError> {
    let mut header = read_header(file)?;
    if header.version < VERSION_MIN || header.loadflags & LOADED_HIGH == 0 {
        return Err(refused("the kernel is from before 2012, or a zImage: too old to be started here"));
    }
    let sectors = if header.setup_sects == 0 { 4 } else { u64::from(header.setup_sects) };
    let offset = (sectors + 1) * SECTOR_BYTES;
    let file_bytes = file.bytes().saturating_sub(offset);
    // What is compressed in there says its own length.
    let wanted = u64::from(header.syssize) * 16;
    if file_bytes == 0 || file_bytes.next_multiple_of(16) < wanted {
        let (wanted, there) = (offset.saturating_add(wanted), file.bytes());
        return Err(refused(format!("the kernel is cut off: of its {wanted} bytes, {there} are there")));
    }
    let address = header.pref_address.max(map::LOW_MEMORY_END);
    // Of no use to a kernel that begins elsewhere, and one above 4 GiB is refused by its place.
    header.code32_start = address as u32;
    let memory_bytes = u64::from(header.init_size).max(file_bytes);
    let initrd_end = u64::from(header.initrd_addr_max) + 1;
    let command_line_bytes = u64::from(header.cmdline_size);
    let (entry, protocol) = match header.xloadflags & KERNEL_64 {
        0 => (ENTRY_32, Protocol::Linux32(Box::new(header))),
        _ => (ENTRY_64, Protocol::Linux64(Box::new(header))),
    };
    Ok(Image {
        segments: vec![Segment { offset, file_bytes, address, memory_bytes }],
        entry: address.saturating_add(entry),
        protocol,
        initrd_end,
        command_line_bytes,
    })
}

fn read_header(file: &BootFile<'_>) -> Result<setup_header, MachineError> {
    let beginning = file.read(0, SETUP_HEADER_JUMP)?;
    let end = SETUP_HEADER_JUMP + usize::from(beginning[SETUP_HEADER_LENGTH]);
    let bytes = file.read(SETUP_HEADER as u64, end - SETUP_HEADER)?;
    let mut header = setup_header::default();
    // A header that is longer than we know has fields that nobody here fills in, and a shorter one zeros.
    let known = bytes.len().min(size_of::<setup_header>());
    header.as_mut_slice()[..known].copy_from_slice(&bytes[..known]);
    Ok(header)
}
