//! The entries in 64-bit mode on KVM, [`Entry::Flat64`](crate::Entry::Flat64) and
//! [`Entry::Linux64`](crate::Entry::Linux64): GDT and page tables in guest memory, registers to match.
//!
//! Register and table formats: AMD64 Architecture Programmer's Manual volume 2, chapter 5 (paging).

use super::segments::{GDT_BYTES, Width, set_segments, table};
use super::start::little_endian;
use crate::{Entry, Error};
use kvm_bindings::{kvm_dtable, kvm_regs, kvm_sregs};

const PAGE_TABLES_BYTES: u64 = 3 * PAGE_BYTES;
/// The identity map ends here.
const MAPPED_BYTES: u64 = 1 << 30;
const PAGE_BYTES: u64 = 4096;

const CR0_PE: u64 = 1 << 0;
const CR0_MP: u64 = 1 << 1;
const CR0_ET: u64 = 1 << 4;
const CR0_NE: u64 = 1 << 5;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const CR4_OSFXSR: u64 = 1 << 9;
const CR4_OSXMMEXCPT: u64 = 1 << 10;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;

const PAGE_PRESENT_WRITABLE: u64 = 0b11;
const PAGE_LARGE: u64 = 1 << 7;
const LARGE_PAGE_BYTES: u64 = 2 << 20;

/// How a vCPU starts in 64-bit mode, and where its start-up structures lie, known to fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongMode {
    registers: kvm_regs,
    gdt: u64,
    page_tables: u64,
}

impl LongMode {
    /// Checks the addresses; `is_memory` says whether a range (address, length) lies in one memory slot. `None` for an
    /// entry that is not in 64-bit mode.
    pub(super) fn new(entry: &Entry, is_memory: impl Fn(u64, u64) -> bool) -> Result<Option<Self>, Error> {
        let (registers, gdt, page_tables, own) = match *entry {
            Entry::Flat64 { entry, stack_top, gdt, page_tables } => {
                let below_stack = stack_top.checked_sub(8).ok_or_else(|| refused("stack", stack_top))?;
                let registers = kvm_regs { rip: entry, rsp: stack_top, ..Default::default() };
                (registers, gdt, page_tables, ("stack", below_stack, 8))
            }
            Entry::Linux64 { entry, boot_parameters, gdt, page_tables } => {
                let registers = kvm_regs { rip: entry, rsi: boot_parameters, ..Default::default() };
                (registers, gdt, page_tables, ("boot parameters", boot_parameters, PAGE_BYTES))
            }
            _ => return Ok(None),
        };
        for (name, address, length) in
            [("entry", registers.rip, 1), own, ("GDT", gdt, GDT_BYTES), ("page tables", page_tables, PAGE_TABLES_BYTES)]
        {
            let below_limit = address.checked_add(length).is_some_and(|end| end <= MAPPED_BYTES);
            if !below_limit || !is_memory(address, length) {
                return Err(refused(name, address));
            }
        }
        if !page_tables.is_multiple_of(PAGE_BYTES) {
            return Err(Error::Refused(format!("the guest's page tables at {page_tables:#x} are not 4 KiB aligned")));
        }
        if gdt < page_tables + PAGE_TABLES_BYTES && page_tables < gdt + GDT_BYTES {
            return Err(Error::Refused(format!(
                "the guest's GDT at {gdt:#x} lies in its page tables at {page_tables:#x}"
            )));
        }
        // Bit 1 of RFLAGS is always set.
        Ok(Some(Self { registers: kvm_regs { rflags: 2, ..registers }, gdt, page_tables }))
    }

    /// What to write into guest memory, and where.
    pub(super) fn tables(&self) -> [(u64, Vec<u8>); 2] {
        let directory_pointers = self.page_tables + PAGE_BYTES;
        let directory = directory_pointers + PAGE_BYTES;
        let mut tables = vec![0_u64; (PAGE_TABLES_BYTES / 8) as usize];
        tables[0] = directory_pointers | PAGE_PRESENT_WRITABLE;
        tables[512] = directory | PAGE_PRESENT_WRITABLE;
        for (entry, address) in tables[1024..].iter_mut().zip((0..MAPPED_BYTES).step_by(LARGE_PAGE_BYTES as usize)) {
            *entry = address | PAGE_PRESENT_WRITABLE | PAGE_LARGE;
        }
        [(self.gdt, table(Width::Bits64)), (self.page_tables, little_endian(&tables))]
    }

    /// General registers at entry.
    pub(super) fn registers(&self) -> kvm_regs {
        self.registers
    }

    /// Sets segments and control registers; the rest stays as KVM resets it.
    pub(super) fn set_system_registers(&self, registers: &mut kvm_sregs) {
        set_segments(registers, Width::Bits64);
        registers.gdt = kvm_dtable { base: self.gdt, limit: GDT_BYTES as u16 - 1, ..Default::default() };
        // No interrupts and no handlers: an exception is a triple fault, and that an exit.
        registers.idt = kvm_dtable::default();
        registers.cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_PG;
        registers.cr3 = self.page_tables;
        registers.cr4 = CR4_PAE | CR4_OSFXSR | CR4_OSXMMEXCPT;
        registers.efer = EFER_LME | EFER_LMA;
    }
}

fn refused(name: &str, address: u64) -> Error {
    Error::Refused(format!("the guest's {name} at {address:#x} is outside its memory below 1 GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_memory(address: u64, length: u64) -> bool {
        address.checked_add(length).is_some_and(|end| end <= 0x10_0000)
    }

    fn flat64(stack_top: u64, gdt: u64, page_tables: u64) -> Result<LongMode, Error> {
        let entry = Entry::Flat64 { entry: 0x1_0000, stack_top, gdt, page_tables };
        Ok(LongMode::new(&entry, is_memory)?.expect("it is in 64-bit mode"))
    }

    #[test]
    fn page_tables_map_the_first_gibibyte_to_itself() {
        let [(gdt, descriptors), (at, bytes)] = flat64(0x8_0000, 0x1000, 0x2000).unwrap().tables();
        assert_eq!((gdt, descriptors.len(), at, bytes.len()), (0x1000, 32, 0x2000, 12288));
        let word = |index: usize| u64::from_le_bytes(bytes[index * 8..][..8].try_into().unwrap());
        assert_eq!(word(0), 0x3003);
        assert_eq!(word(512), 0x4003);
        assert_eq!(word(1024), 0x83);
        assert_eq!(word(1535), (MAPPED_BYTES - LARGE_PAGE_BYTES) | 0x83);
        assert!((1..512).chain(513..1024).all(|index| word(index) == 0));
    }

    #[test]
    fn addresses_that_do_not_fit_are_refused() {
        assert!(flat64(0x10_0000, 0x1000, 0x2000).is_ok());
        for (stack_top, gdt, page_tables) in [
            (0, 0x1000, 0x2000),
            (0x10_0008, 0x1000, 0x2000),
            (u64::MAX, 0x1000, 0x2000),
            (0x8_0000, 0xf_fff0, 0x2000),
            (0x8_0000, u64::MAX, 0x2000),
            (0x8_0000, 0x1000, 0x2008),
            (0x8_0000, 0x1000, 0xf_e000),
            (0x8_0000, 0x1000, u64::MAX - 0xfff),
            (0x8_0000, 0x4ff8, 0x2000),
            (0x8_0000, 0x1ff0, 0x2000),
        ] {
            assert!(
                matches!(flat64(stack_top, gdt, page_tables), Err(Error::Refused(_))),
                "{stack_top:#x} {gdt:#x} {page_tables:#x}"
            );
        }
    }

    #[test]
    fn linux_finds_its_boot_parameters_in_rsi() {
        let linux64 = |entry, boot_parameters| {
            let entry = Entry::Linux64 { entry, boot_parameters, gdt: 0x1000, page_tables: 0x2000 };
            LongMode::new(&entry, is_memory).map(|long_mode| long_mode.expect("it is in 64-bit mode").registers())
        };
        let registers = linux64(0x1_0200, 0x7000).unwrap();
        assert_eq!((registers.rip, registers.rsi, registers.rflags), (0x1_0200, 0x7000, 2));
        for (entry, boot_parameters) in [(0x10_0000, 0x7000), (0x1_0200, 0xf_f001), (0x1_0200, u64::MAX)] {
            assert!(linux64(entry, boot_parameters).is_err(), "{entry:#x} {boot_parameters:#x}");
        }
        assert!(LongMode::new(&Entry::AwaitStartup, is_memory).unwrap().is_none());
    }
}
