//! Of bzImages, good and bad.

use super::super::bzimage::{KERNEL_64, LOADED_HIGH, MAGIC, SETUP_HEADER, SETUP_HEADER_JUMP, SETUP_HEADER_LENGTH};
use super::super::zero_page::OTHER_LOADER;
use super::*;
use linux_loader::bootparam::boot_params;
use vm_memory::ByteValued;

const SETUP_BYTES: usize = 1024;
const CODE_BYTES: usize = 4096;

/// The beginning of a kernel, as far as a boot loader looks at it.
pub(super) fn kernel(change: impl FnOnce(&mut setup_header)) -> Vec<u8> {
    let mut header = setup_header {
        setup_sects: 1,
        header: u32::from_le_bytes(MAGIC.try_into().unwrap()),
        version: 0x020f,
        loadflags: LOADED_HIGH,
        xloadflags: KERNEL_64,
        initrd_addr_max: 0x7fff_ffff,
        kernel_alignment: 0x20_0000,
        pref_address: 0x100_0000,
        init_size: 0x80_0000,
        cmdline_size: 2047,
        syssize: CODE_BYTES as u32 / 16,
        ..Default::default()
    };
    change(&mut header);
    let mut image = vec![0; SETUP_BYTES];
    image[SETUP_HEADER..SETUP_HEADER + size_of::<setup_header>()].copy_from_slice(header.as_slice());
    image[SETUP_HEADER_LENGTH] = (SETUP_HEADER + size_of::<setup_header>() - SETUP_HEADER_JUMP) as u8;
    image.resize(SETUP_BYTES + CODE_BYTES, 0x90);
    image
}

#[test]
fn everything_lies_where_the_boot_parameters_say() {
    let initrd = cpio(&[7; 5000]);
    let (entry, memory) = load(&kernel(|_| {}), &initrd, "quiet root=/dev/vda", MEMORY_BYTES).unwrap();
    let (boot_parameters, gdt, page_tables) = (map::BOOT_PARAMETERS, map::GDT, map::PAGE_TABLES);
    assert_eq!(entry, Entry::Linux64 { entry: 0x100_0200, boot_parameters, gdt, page_tables });
    let mut parameters = boot_params::default();
    parameters.as_mut_slice().copy_from_slice(&read(&memory, map::BOOT_PARAMETERS, size_of::<boot_params>()));
    let header = parameters.hdr;
    assert_eq!(read(&memory, 0x100_0000, CODE_BYTES), [0x90; CODE_BYTES]);
    assert_eq!(read(&memory, header.ramdisk_image.into(), header.ramdisk_size as usize), initrd);
    assert_eq!(header.ramdisk_image % 4096, 0);
    assert_eq!(read(&memory, header.cmd_line_ptr.into(), 20), b"quiet root=/dev/vda\0");
    let rsdp = parameters.acpi_rsdp_addr;
    assert_eq!((rsdp, header.type_of_loader), (map::ACPI_TABLES, OTHER_LOADER));
    let table = parameters.e820_table;
    let last = table[usize::from(parameters.e820_entries) - 1];
    assert_eq!({ last.addr } + { last.size }, MEMORY_BYTES);
}

#[test]
fn a_32_bit_kernel_begins_in_protected_mode_where_it_was_put() {
    let (entry, memory) = load(&kernel(|header| header.xloadflags = 0), b"", "quiet", MEMORY_BYTES).unwrap();
    let (boot_parameters, gdt) = (map::BOOT_PARAMETERS, map::GDT);
    assert_eq!(entry, Entry::Protected32 { entry: 0x100_0000, boot_parameters, gdt });
    assert_eq!(read(&memory, 0x100_0000, CODE_BYTES), [0x90; CODE_BYTES]);
}

#[test]
fn what_cannot_be_started_is_refused_with_a_sentence() {
    let whole = kernel(|_| {});
    assert_refused(&[
        (whole[..0x200].to_vec(), "this is no Linux kernel"),
        (whole[..0x230].to_vec(), "the kernel is cut off"),
        (whole[..SETUP_BYTES].to_vec(), "the kernel is cut off: of its 5120 bytes, 1024 are there"),
        (whole[..3000].to_vec(), "the kernel is cut off: of its 5120 bytes, 3000 are there"),
        (kernel(|header| header.version = 0x0209), "too old"),
        (kernel(|header| header.loadflags = 0), "too old"),
        (kernel(|header| header.init_size = 0x4000_0000), "the kernel needs 1040 MiB of memory, and there are 64"),
        (kernel(|header| header.pref_address = u64::MAX), "the kernel needs"),
    ]);
    let high = kernel(|header| header.pref_address = 0x4000_0000);
    let said = load(&high, b"", "", 2 << 30).map(drop).unwrap_err();
    assert_eq!(said, "the kernel reaches to 1032 MiB, and a 64-bit one has to lie below 1024 MiB");
    let high = kernel(|header| (header.pref_address, header.xloadflags) = (0x4000_0000, 0));
    assert!(load(&high, b"", "", 2 << 30).is_ok());
}

/// Whatever a kernel's header says, what is written lies where the kernel may lie, and nothing panics.
#[test]
fn fuzz_any_header_is_refused_or_starts_in_memory() {
    let memory = memory(MEMORY_BYTES);
    let (image, initrd) = (file(b""), file(b""));
    let archive = cpio(&[1; 70_000]);
    blockyard_fuzz::check!(20_000).with_type::<(Vec<(u8, u8)>, u16, u16)>().for_each(|(changes, length, archived)| {
        let mut bytes = kernel(|_| {});
        for &(at, value) in changes {
            bytes[SETUP_HEADER - 1 + usize::from(at) % 0x90] = value;
        }
        bytes.truncate(bytes.len() - usize::from(*length) % bytes.len());
        image.set_len(0).unwrap();
        image.write_all_at(&bytes, 0).unwrap();
        initrd.set_len(0).unwrap();
        initrd.write_all_at(&archive[..usize::from(*archived)], 0).unwrap();
        let kernel = Kernel { image: &image, initrd: Some(&initrd), command_line: "quiet" };
        if let Ok(Entry::Linux64 { entry, .. } | Entry::Protected32 { entry, .. }) =
            kernel.load(memory.guest_memory(), MEMORY_BYTES)
        {
            assert!((map::LOW_MEMORY_END..MEMORY_BYTES).contains(&entry), "{entry:#x}");
        }
    });
}
