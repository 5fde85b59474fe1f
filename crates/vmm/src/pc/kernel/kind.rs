//! What a file is that somebody calls a kernel: decided here, by its first bytes.

use super::file::BootFile;
use super::{bzimage, refused};
use crate::machine::MachineError;

/// A file that can be booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What is compressed in there unpacks itself.
    BzImage,
    /// Which processor it is for is still to be seen.
    Elf,
}

/// Where all of what follows lies.
const BEGINNING_BYTES: usize = 1024;

const UNPACK: &str = "unpack it first, or give the bzImage that distributions have in /boot/vmlinuz";
const OTHER_PROCESSOR: &str = "and this machine is a PC: give it one for x86-64";

/// What else such files are: offset, the bytes there, what it is, and what to do. The first that fits counts.
const OTHERS: [(usize, &[u8], &str, &str); 14] = [
    (0x38, b"ARM\x64", "one for arm64,", OTHER_PROCESSOR),
    (0x38, b"RSC\x05", "one for RISC-V,", OTHER_PROCESSOR),
    (4, b"zimg", "an EFI zboot image, as arm64 and RISC-V have it,", OTHER_PROCESSOR),
    (0, b"\x27\x05\x19\x56", "an image for U-Boot,", OTHER_PROCESSOR),
    (
        0,
        b"MZ",
        "an EFI program, perhaps a unified kernel image:",
        "give the kernel that is in it (`objcopy -O binary --only-section=.linux UKI KERNEL`)",
    ),
    (0, b"\x1f\x8b", "compressed as a whole (gzip), as kernels for other processors are:", UNPACK),
    (0, b"\xfd7zXZ\0", "compressed as a whole (xz):", UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "compressed as a whole (zstd):", UNPACK),
    (0, b"\x02\x21\x4c\x18", "compressed as a whole (lz4):", UNPACK),
    (0, b"BZh", "compressed as a whole (bzip2):", UNPACK),
    (0, b"\x5d\0\0", "compressed as a whole (lzma):", UNPACK),
    (0, b"070701", "a cpio archive, as initrds are:", "give the kernel (/boot/vmlinuz) beside it"),
    (0, b"QFI\xfb", "a disk image (qcow2):", "give the kernel (/boot/vmlinuz) beside it"),
    (0x1fe, b"\x55\xaa", "a disk or an old boot sector:", "give the kernel (/boot/vmlinuz) by itself"),
];

/// Decides.
///
/// # Errors
/// When it is nothing that this machine boots.
pub(super) fn of(file: &BootFile<'_>) -> Result<Kind, MachineError> {
    let beginning = file.beginning(BEGINNING_BYTES)?;
    let has = |at: usize, bytes: &[u8]| beginning.get(at..).is_some_and(|rest| rest.starts_with(bytes));
    if has(bzimage::MAGIC_AT, bzimage::MAGIC) {
        return Ok(Kind::BzImage);
    }
    if has(0, b"\x7fELF") {
        return Ok(Kind::Elf);
    }
    Err(refused(match OTHERS.iter().find(|(at, bytes, ..)| has(*at, bytes)) {
        Some((.., what, remedy)) => format!("the kernel is {what} {remedy}"),
        None => "this is no Linux kernel (a bzImage, as distributions have it in /boot/vmlinuz, or an ELF vmlinux)"
            .to_owned(),
    }))
}
