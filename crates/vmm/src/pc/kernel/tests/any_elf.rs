//! Of ELF files, good and bad.

use super::*;
use linux_loader::elf::{Elf64_Ehdr, Elf64_Phdr};
use linux_loader::start_info::{hvm_modlist_entry, hvm_start_info};
use vm_memory::ByteValued;

const HEADERS: usize = 64;
const NOTES: usize = 0x200;
const CODE: usize = 0x400;
const CODE_BYTES: usize = 0x1000;
const ADDRESS: u64 = 0x100_0000;
const PVH_ENTRY: u64 = ADDRESS + 0x40;

/// A kernel with code, zeros behind it, and notes.
fn elf(change: impl FnOnce(&mut Elf64_Ehdr, &mut [Elf64_Phdr; 3])) -> Vec<u8> {
    let mut header = Elf64_Ehdr { e_type: 2, e_machine: 62, e_entry: ADDRESS + 0x20, ..Default::default() };
    header.e_ident[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (header.e_phoff, header.e_phentsize, header.e_phnum) = (HEADERS as u64, size_of::<Elf64_Phdr>() as u16, 3);
    let notes = [note(b"GNU\0", 3, b"identifier"), note(b"Xen\0", 18, &PVH_ENTRY.to_le_bytes())].concat();
    let part = |p_type, offset: usize, p_paddr, file_bytes: usize, p_memsz| Elf64_Phdr {
        p_type,
        p_offset: offset as u64,
        p_paddr,
        p_vaddr: p_paddr + 0xffff_ffff_8000_0000,
        p_filesz: file_bytes as u64,
        p_memsz,
        ..Default::default()
    };
    let mut parts = [
        part(1, CODE, ADDRESS, CODE_BYTES, 0x10_0000),
        part(1, CODE, ADDRESS + 0x20_0000, 0x800, 0x800),
        part(4, NOTES, 0, notes.len(), notes.len() as u64),
    ];
    change(&mut header, &mut parts);
    let mut image = header.as_slice().to_vec();
    image.extend(parts.iter().flat_map(|part| part.as_slice().to_vec()));
    image.resize(NOTES, 0);
    image.extend(notes);
    image.resize(CODE, 0);
    image.resize(CODE + CODE_BYTES, 0x90);
    image
}

fn note(name: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
    let mut note = [name.len() as u32, content.len() as u32, kind].map(u32::to_le_bytes).concat();
    for part in [name, content] {
        note.extend(part);
        note.resize(note.len().next_multiple_of(4), 0);
    }
    note
}

fn without_notes(header: &mut Elf64_Ehdr) {
    header.e_phnum = 2;
}

#[test]
fn with_the_note_it_begins_by_pvh_and_finds_everything() {
    let initrd = cpio(&[7; 5000]);
    let (entry, memory) = load(&elf(|_, _| {}), &initrd, "quiet", MEMORY_BYTES).unwrap();
    assert_eq!(entry, Entry::Pvh { entry: PVH_ENTRY, start_info: map::PVH_START_INFO });
    assert_eq!(read(&memory, ADDRESS, CODE_BYTES), [0x90; CODE_BYTES]);
    assert_eq!(read(&memory, ADDRESS + 0x20_0000, 0x801), [&[0x90; 0x800][..], &[0]].concat());
    let mut info = hvm_start_info::default();
    info.as_mut_slice().copy_from_slice(&read(&memory, map::PVH_START_INFO, size_of::<hvm_start_info>()));
    assert_eq!((info.magic, info.version, info.rsdp_paddr), (0x336e_c578, 1, map::ACPI_TABLES));
    assert_eq!(read(&memory, info.cmdline_paddr, 6), b"quiet\0");
    let mut module = hvm_modlist_entry::default();
    module.as_mut_slice().copy_from_slice(&read(&memory, info.modlist_paddr, size_of::<hvm_modlist_entry>()));
    assert_eq!(info.nr_modules, 1);
    assert_eq!(read(&memory, module.paddr, module.size as usize), initrd);
    let last = read(&memory, info.memmap_paddr + 24 * (u64::from(info.memmap_entries) - 1), 24);
    assert_eq!(last[..16], [map::LOW_MEMORY_END, MEMORY_BYTES - map::LOW_MEMORY_END].map(u64::to_le_bytes).concat());
    assert_eq!(last[16..], [1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn without_it_it_begins_by_linuxs_protocol() {
    let (entry, memory) = load(&elf(|header, _| without_notes(header)), b"", "quiet", MEMORY_BYTES).unwrap();
    let (boot_parameters, gdt, page_tables) = (map::BOOT_PARAMETERS, map::GDT, map::PAGE_TABLES);
    assert_eq!(entry, Entry::Linux64 { entry: ADDRESS + 0x20, boot_parameters, gdt, page_tables });
    // The protocol's mark, where it looks for boot parameters.
    assert_eq!(read(&memory, map::BOOT_PARAMETERS + 0x202, 4), b"HdrS");
}

#[test]
fn a_32_bit_one_begins_in_protected_mode() {
    let mut image = vec![0; CODE + CODE_BYTES];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x01\x01");
    put(16, &[2, 0, 3, 0]);
    put(24, &[ADDRESS as u32 + 4, 52].map(u32::to_le_bytes).concat());
    put(42, &[32, 0, 1, 0]);
    put(52, &[1, CODE as u32, 0, ADDRESS as u32, CODE_BYTES as u32, 0x2000].map(u32::to_le_bytes).concat());
    let (entry, _) = load(&image, b"", "", MEMORY_BYTES).unwrap();
    let (boot_parameters, gdt) = (map::BOOT_PARAMETERS, map::GDT);
    assert_eq!(entry, Entry::Protected32 { entry: ADDRESS + 4, boot_parameters, gdt });
}

#[test]
fn what_cannot_be_started_is_refused_with_a_sentence() {
    let whole = elf(|_, _| {});
    assert_refused(&[
        (whole[..40].to_vec(), "the kernel is cut off"),
        (whole[..200].to_vec(), "the kernel is cut off"),
        (whole[..CODE + 50].to_vec(), "the kernel is cut off: the file has 1074 bytes"),
        (elf(|header, _| header.e_machine = 183), "for another processor (machine 183)"),
        (elf(|header, _| header.e_ident[5] = 2), "for another processor"),
        (elf(|header, _| header.e_type = 1), "an object file, a module or a core dump"),
        (elf(|header, _| header.e_phnum = 0), "nothing to be loaded"),
        (elf(|header, _| header.e_phnum = 200), "damaged headers"),
        (elf(|header, _| header.e_phentsize = 8), "damaged headers"),
        (elf(|header, _| header.e_phoff = u64::MAX), "the kernel is cut off"),
        (elf(|header, parts| (header.e_entry, parts[2].p_type) = (0x1000, 0)), "would begin at 0x1000"),
        (elf(|_, parts| parts[2].p_type = 3), "a program of an operating system's"),
        (elf(|_, parts| parts[0].p_filesz = 0x20_0000), "larger than its place in memory"),
        (elf(|_, parts| parts[0].p_paddr = 0xe_0000), "for address 0xe0000, which is the machine's own"),
        (elf(|_, parts| parts[1].p_paddr = ADDRESS + 0xf_ffff), "for address 0x10fffff, which another part of it has"),
        (elf(|_, parts| parts[0].p_memsz = 1 << 32), "the kernel needs 4112 MiB of memory, and there are 64"),
        (elf(|_, parts| parts[0].p_paddr = u64::MAX), "the kernel needs"),
        (elf(|_, parts| parts[1].p_offset = u64::MAX), "the kernel is cut off"),
    ]);
}

/// Whatever the headers and notes say: no panic, nothing of the file in the machine's own megabyte, and a kernel that
/// begins where it lies.
#[test]
fn fuzz_any_elf_is_refused_or_starts_in_memory() {
    let memory = memory(MEMORY_BYTES);
    let canary = vec![0x5a; (map::LOW_MEMORY_END - map::ACPI_TABLES) as usize];
    memory.guest_memory().write_slice(&canary, GuestAddress(map::ACPI_TABLES)).unwrap();
    let image = file(b"");
    let whole = elf(|_, _| {});
    blockyard_fuzz::check!(20_000).with_type::<(Vec<(u16, u8)>, u16)>().for_each(|(changes, length)| {
        let mut bytes = whole.clone();
        for &(at, value) in changes {
            bytes[usize::from(at) % CODE] = value;
        }
        bytes.truncate(bytes.len() - usize::from(*length) % bytes.len() / 4);
        image.set_len(0).unwrap();
        image.write_all_at(&bytes, 0).unwrap();
        let kernel = Kernel { image: &image, initrd: None, command_line: "quiet" };
        if let Ok(Entry::Linux64 { entry, .. } | Entry::Protected32 { entry, .. } | Entry::Pvh { entry, .. }) =
            kernel.load(memory.guest_memory(), MEMORY_BYTES)
        {
            assert!((map::LOW_MEMORY_END..MEMORY_BYTES).contains(&entry), "{entry:#x}");
        }
        assert!(read(&memory, map::ACPI_TABLES, canary.len()) == canary);
    });
}
