use super::*;
use blockyard_block::MemoryMap;

const MEMORY_BYTES: u64 = 64 << 20;

/// The beginning of a kernel, as far as a boot loader looks at it.
fn kernel(change: impl FnOnce(&mut setup_header)) -> Vec<u8> {
    let mut header = setup_header {
        setup_sects: 1,
        header: MAGIC,
        version: 0x020f,
        loadflags: LOADED_HIGH,
        xloadflags: KERNEL_64,
        initrd_addr_max: 0x7fff_ffff,
        kernel_alignment: 0x20_0000,
        pref_address: 0x100_0000,
        init_size: 0x80_0000,
        cmdline_size: 2047,
        syssize: 4096 / 16,
        ..Default::default()
    };
    change(&mut header);
    let mut image = vec![0; 2 * SECTOR_BYTES];
    image[SETUP_HEADER..SETUP_HEADER + size_of::<setup_header>()].copy_from_slice(header.as_slice());
    image[SETUP_HEADER_LENGTH] = (SETUP_HEADER + size_of::<setup_header>() - SETUP_HEADER_JUMP) as u8;
    image.resize(image.len() + 4096, 0x90);
    image
}

fn load(kernel: &[u8], initrd: &[u8], command_line: &str, memory_bytes: u64) -> Result<(Entry, MemoryMap), String> {
    let memory = MemoryMap::allocate(&map::memory(memory_bytes).unwrap()).unwrap();
    let linux = Linux { kernel, initrd, command_line };
    let entry = linux.load(memory.guest_memory(), memory_bytes).map_err(|error| error.to_string())?;
    Ok((entry, memory))
}

#[test]
fn everything_lies_where_the_boot_parameters_say() {
    let initrd = [7; 5000];
    let (entry, memory) = load(&kernel(|_| {}), &initrd, "quiet root=/dev/vda", MEMORY_BYTES).unwrap();
    assert_eq!(
        entry,
        Entry::Linux64 {
            entry: 0x100_0200,
            boot_parameters: map::BOOT_PARAMETERS,
            gdt: map::GDT,
            page_tables: map::PAGE_TABLES
        }
    );
    let read = |address: u64, length: usize| {
        let mut bytes = vec![0; length];
        memory.guest_memory().read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    };
    let mut parameters = boot_params::default();
    parameters.as_mut_slice().copy_from_slice(&read(map::BOOT_PARAMETERS, size_of::<boot_params>()));
    let header = parameters.hdr;
    assert_eq!(read(0x100_0000, 4096), [0x90; 4096]);
    assert_eq!(read(header.ramdisk_image.into(), header.ramdisk_size as usize), initrd);
    assert_eq!(header.ramdisk_image % 4096, 0);
    assert_eq!(read(header.cmd_line_ptr.into(), 20), b"quiet root=/dev/vda\0");
    let rsdp = parameters.acpi_rsdp_addr;
    assert_eq!((rsdp, header.type_of_loader), (map::ACPI_TABLES, OTHER_LOADER));
    let table = parameters.e820_table;
    let last = table[usize::from(parameters.e820_entries) - 1];
    assert_eq!({ last.addr } + { last.size }, MEMORY_BYTES);
}

#[test]
fn what_cannot_be_started_is_refused_with_a_sentence() {
    let whole = kernel(|_| {});
    let no_kernel = "this is no Linux kernel";
    let cases: [(Vec<u8>, &str); 10] = [
        (Vec::new(), no_kernel),
        (vec![0; 4096], no_kernel),
        (b"\x7fELF".repeat(2000), no_kernel),
        (whole[..0x230].to_vec(), no_kernel),
        (whole[..1024].to_vec(), "the kernel is cut off"),
        (whole[..3000].to_vec(), "the kernel is cut off"),
        (kernel(|header| header.version = 0x0209), "too old"),
        (kernel(|header| header.loadflags = 0), "too old"),
        (kernel(|header| header.xloadflags = 0), "32-bit"),
        (kernel(|header| header.init_size = 0x4000_0000), "the kernel needs 1040 MiB of memory, and there are 64"),
    ];
    for (kernel, sentence) in cases {
        let said = load(&kernel, b"", "", MEMORY_BYTES).map(drop).unwrap_err();
        assert!(said.contains(sentence), "{said}");
    }
    let said = load(&whole, &vec![1; 48 << 20], "", MEMORY_BYTES).map(drop).unwrap_err();
    assert!(said.contains("the initrd has 48 MiB, and beside the kernel there is room for 40"), "{said}");
    let said = load(&whole, b"", &"x".repeat(2048), MEMORY_BYTES).map(drop).unwrap_err();
    assert!(said.contains("the command line has 2048 bytes, and the kernel takes 2047"), "{said}");
    assert!(load(&whole, b"", &"x".repeat(2047), MEMORY_BYTES).is_ok());
    assert!(load(&whole, b"", "a\0b", MEMORY_BYTES).is_err());
}

/// Whatever a kernel's header says, what is written lies where the kernel may lie, and nothing panics.
#[test]
fn fuzz_any_header_is_refused_or_starts_in_memory() {
    let memory = MemoryMap::allocate(&map::memory(MEMORY_BYTES).unwrap()).unwrap();
    blockyard_fuzz::check!(20_000).with_type::<(Vec<(u8, u8)>, u16, u16)>().for_each(|(changes, length, initrd)| {
        let mut image = kernel(|_| {});
        for &(at, value) in changes {
            image[SETUP_HEADER - 1 + usize::from(at) % 0x90] = value;
        }
        image.truncate(image.len() - usize::from(*length) % image.len());
        let linux = Linux { kernel: &image, initrd: &vec![1; (*initrd).into()], command_line: "quiet" };
        if let Ok(Entry::Linux64 { entry, .. }) = linux.load(memory.guest_memory(), MEMORY_BYTES) {
            assert!((map::LOW_MEMORY_END..MEMORY_BYTES).contains(&entry), "{entry:#x}");
        }
    });
}
