use super::*;
use blockyard_block::MemoryMap;
use rustix::fs::{MemfdFlags, memfd_create};
use std::os::unix::fs::FileExt;

mod any_bzimage;
mod any_elf;

const MEMORY_BYTES: u64 = 64 << 20;

/// A file without a name.
fn file(content: &[u8]) -> File {
    let file = File::from(memfd_create("content", MemfdFlags::CLOEXEC).unwrap());
    file.write_all_at(content, 0).unwrap();
    file
}

fn memory(bytes: u64) -> MemoryMap {
    MemoryMap::allocate(&map::memory(bytes).unwrap()).unwrap()
}

fn load(kernel: &[u8], initrd: &[u8], command_line: &str, bytes: u64) -> Result<(Entry, MemoryMap), String> {
    let memory = memory(bytes);
    let (image, initrd_file) = (file(kernel), file(initrd));
    let kernel = Kernel { image: &image, initrd: (!initrd.is_empty()).then_some(&initrd_file), command_line };
    let entry = kernel.load(memory.guest_memory(), bytes).map_err(|error| error.to_string())?;
    Ok((entry, memory))
}

fn read(memory: &MemoryMap, address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    memory.guest_memory().read_slice(&mut bytes, GuestAddress(address)).unwrap();
    bytes
}

/// Asserts that each is refused with its sentence.
fn assert_refused(cases: &[(Vec<u8>, &str)]) {
    for (kernel, sentence) in cases {
        let said = load(kernel, b"", "", MEMORY_BYTES).map(drop).unwrap_err();
        assert!(said.contains(sentence), "{said}, rather than {sentence}");
    }
}

/// An archive with one file of this content.
fn cpio(content: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in [("init\0", content), ("TRAILER!!!\0", b"")] {
        let fields = [1, 0o100_755, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, name.len(), 0];
        archive.extend(b"070701");
        archive.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        archive.extend(name.bytes());
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend(content);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }
    archive
}

#[test]
fn what_is_no_kernel_is_told_by_what_it_is() {
    let mut raw_disk = vec![0; 512];
    raw_disk[0x1fe..].copy_from_slice(b"\x55\xaa");
    let mut arm64 = b"MZ".to_vec();
    arm64.resize(4096, 0);
    arm64[0x38..0x3c].copy_from_slice(b"ARM\x64");
    let no_kernel = "this is no Linux kernel";
    assert_refused(&[
        (Vec::new(), "the kernel is an empty file"),
        (vec![0; 4096], no_kernel),
        (b"#!/bin/sh\n".to_vec(), no_kernel),
        (b"\x1f\x8b\x08rest".to_vec(), "the kernel is compressed as a whole (gzip)"),
        (b"MZ\0\0zimg\0\0".to_vec(), "the kernel is an EFI zboot image"),
        (arm64, "the kernel is one for arm64, and this machine is a PC"),
        (b"MZ\x90\0rest".to_vec(), "the kernel is an EFI program, perhaps a unified kernel image"),
        (cpio(b"x"), "the kernel is a cpio archive, as initrds are"),
        (raw_disk, "the kernel is a disk or an old boot sector"),
    ]);
    let directory = File::open("/").unwrap();
    let kernel = Kernel { image: &directory, initrd: None, command_line: "" };
    let said = kernel.load(memory(MEMORY_BYTES).guest_memory(), MEMORY_BYTES).unwrap_err().to_string();
    assert_eq!(said, "the kernel is no regular file");
}

#[test]
fn initrds_are_whole_and_fit_beside_the_kernel() {
    let kernel = any_bzimage::kernel(|_| {});
    let whole = cpio(&[7; 5000]);
    let behind_microcode = [&whole[..], &[0; 300], b"\x28\xb5\x2f\xfdwhat is compressed"].concat();
    for initrd in [whole.clone(), whole.repeat(3), behind_microcode, b"\x1f\x8b\x08\0".to_vec()] {
        assert!(load(&kernel, &initrd, "", MEMORY_BYTES).is_ok());
    }
    let mut damaged = whole.clone();
    damaged[initrd::CONTENT_LENGTH].copy_from_slice(b"lengthy!");
    let mut large = whole.clone();
    large.resize(48 << 20, 0);
    for (initrd, sentence) in [
        (vec![1; 5000], "the initrd is none: Linux takes cpio archives"),
        (whole[..2000].to_vec(), "the initrd is cut off: of the entry at byte 0"),
        (whole[..5200].to_vec(), "the initrd is cut off: of the entry at byte 5116"),
        (damaged, "the initrd is damaged: at byte 0"),
        (large, "the initrd has 48 MiB, and beside the kernel there is room for 40"),
    ] {
        let said = load(&kernel, &initrd, "", MEMORY_BYTES).map(drop).unwrap_err();
        assert!(said.contains(sentence), "{said}, rather than {sentence}");
    }
}

#[test]
fn command_lines_are_as_long_as_the_kernel_takes() {
    let kernel = any_bzimage::kernel(|_| {});
    let said = load(&kernel, b"", &"x".repeat(2048), MEMORY_BYTES).map(drop).unwrap_err();
    assert_eq!(said, "the command line has 2048 bytes, and the kernel takes 2047");
    assert!(load(&kernel, b"", &"x".repeat(2047), MEMORY_BYTES).is_ok());
    assert!(load(&kernel, b"", "a\0b", MEMORY_BYTES).is_err());
}
