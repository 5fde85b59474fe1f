//! The initial file system: whether a file is one, and where it goes (Linux, Documentation/driver-api/early-userspace/
//! buffer-format.rst).

use super::file::BootFile;
use super::refused;
use crate::machine::MachineError;
use std::fs::File;
use std::ops::Range;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

const PAGE_BYTES: u64 = 4096;
/// Where all of [`KINDS`] lies.
const BEGINNING_BYTES: usize = 2048;

/// What Linux unpacks or mounts: offset, and the bytes there.
const KINDS: [(usize, &[u8]); 14] = [
    (0, CPIO),
    (0, CPIO_WITH_CHECKSUMS),
    (0, b"\x1f\x8b"),
    (0, b"\x1f\x9e"),
    (0, b"\xfd7zXZ\0"),
    (0, b"\x28\xb5\x2f\xfd"),
    (0, b"\x02\x21\x4c\x18"),
    (0, b"BZh"),
    (0, b"\x5d\0\0"),
    (0, b"\x89LZO\0\r\n\x1a\n"),
    // File systems: squashfs, ext2, cramfs, romfs.
    (0, b"hsqs"),
    (1080, b"\x53\xef"),
    (0, b"\x45\x3d\xcd\x28"),
    (0, b"-rom1fs-"),
];
const CPIO: &[u8] = b"070701";
const CPIO_WITH_CHECKSUMS: &[u8] = b"070702";

/// A file whose first bytes are those of what Linux takes.
///
/// # Errors
/// When they are not.
pub(super) fn recognized(file: &File) -> Result<BootFile<'_>, MachineError> {
    let file = BootFile::new("the initrd", file)?;
    let beginning = file.beginning(BEGINNING_BYTES)?;
    if KINDS.iter().any(|(at, bytes)| beginning.get(*at..).is_some_and(|rest| rest.starts_with(bytes))) {
        return Ok(file);
    }
    Err(refused(
        "the initrd is none: Linux takes cpio archives (newc), compressed or not, as distributions have them in \
         /boot/initrd.img",
    ))
}

/// Reads it into guest memory: as high in `room` as it goes, out of the way of what the kernel unpacks. Where it lies.
///
/// # Errors
/// When it is none, is cut off, or does not fit.
pub(super) fn load(
    file: &File,
    memory: &impl GuestMemoryBackend,
    room: Range<u64>,
) -> Result<Range<u64>, MachineError> {
    let file = recognized(file)?;
    let start = room.end.checked_sub(file.bytes()).map(|start| start / PAGE_BYTES * PAGE_BYTES);
    let Some(start) = start.filter(|&start| start >= room.start) else {
        let (length, left) = (file.bytes().div_ceil(1 << 20), room.end.saturating_sub(room.start) >> 20);
        return Err(refused(format!(
            "the initrd has {length} MiB, and beside the kernel there is room for {left} in the memory: give it more"
        )));
    };
    file.load(0, file.bytes(), memory, start)?;
    let place = start..start + file.bytes();
    check_archives(memory, place.clone())?;
    Ok(place)
}

/// Lengths of a cpio entry's header, and where its name's and its content's lengths are, in hexadecimal.
const HEADER_BYTES: usize = 110;
pub(super) const CONTENT_LENGTH: Range<usize> = 54..62;
const NAME_LENGTH: Range<usize> = 94..102;

/// Whether archives that are not compressed are there as a whole: entry by entry, to the end or to what is compressed,
/// which says nothing of its length. In guest memory, where that takes no system calls.
fn check_archives(memory: &impl GuestMemoryBackend, place: Range<u64>) -> Result<(), MachineError> {
    let mut at = place.start;
    // Each turn goes on by a header at least.
    while at < place.end {
        let mut header = [0; HEADER_BYTES];
        let there = ((place.end - at) as usize).min(HEADER_BYTES);
        let read = memory.read_slice(&mut header[..there], GuestAddress(at));
        read.map_err(|error| refused(format!("the initrd cannot be looked at: {error}")))?;
        if header[0] == 0 {
            // Padding between archives. Nothing is said of what comes behind.
            match header.iter().position(|&byte| byte != 0) {
                Some(zeros) => at += zeros as u64,
                None => at += there as u64,
            }
            continue;
        }
        if !header.starts_with(CPIO) && !header.starts_with(CPIO_WITH_CHECKSUMS) {
            return Ok(());
        }
        let offset = at - place.start;
        let cut_off = || refused(format!("the initrd is cut off: of the entry at byte {offset}, not all is there"));
        if there < HEADER_BYTES {
            return Err(cut_off());
        }
        let number = |field: Range<usize>| {
            std::str::from_utf8(&header[field]).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok())
        };
        let (Some(name), Some(content)) = (number(NAME_LENGTH), number(CONTENT_LENGTH)) else {
            return Err(refused(format!("the initrd is damaged: at byte {offset}, a length is no number")));
        };
        // Both have 32 bits, and both are padded, counted from the beginning.
        let content_start = (offset + HEADER_BYTES as u64 + name).next_multiple_of(4);
        if content_start + content > place.end - place.start {
            return Err(cut_off());
        }
        at = place.start + (content_start + content).next_multiple_of(4);
    }
    Ok(())
}
