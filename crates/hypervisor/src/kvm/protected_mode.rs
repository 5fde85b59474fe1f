//! The entries in protected mode on KVM, [`Entry::Protected32`](crate::Entry::Protected32) and
//! [`Entry::Pvh`](crate::Entry::Pvh): flat 32-bit segments, and no paging.
//!
//! What each demands: Linux, Documentation/arch/x86/boot.rst ("32-bit Boot Protocol"); Xen, docs/misc/pvh.pandoc.

use super::segments::{GDT_BYTES, Width, set_segments, table};
use crate::{Entry, Error};
use kvm_bindings::{kvm_dtable, kvm_regs, kvm_sregs};

/// Nothing that a guest begins with lies beyond.
const ADDRESSABLE_BYTES: u64 = 1 << 32;
const PAGE_BYTES: u64 = 4096;
/// `struct hvm_start_info`, version 1.
const START_INFO_BYTES: u64 = 56;

const CR0_PE: u64 = 1 << 0;
const CR0_ET: u64 = 1 << 4;

/// How a vCPU starts in protected mode, and where its GDT lies, known to fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProtectedMode {
    registers: kvm_regs,
    /// PVH has no selectors, and so no table.
    gdt: Option<u64>,
}

impl ProtectedMode {
    /// Checks the addresses; `is_memory` says whether a range (address, length) lies in one memory slot. `None` for an
    /// entry that is not in protected mode.
    pub(super) fn new(entry: &Entry, is_memory: impl Fn(u64, u64) -> bool) -> Result<Option<Self>, Error> {
        let (registers, gdt, own) = match *entry {
            Entry::Protected32 { entry, boot_parameters, gdt } => {
                let registers = kvm_regs { rip: entry, rsi: boot_parameters, ..Default::default() };
                (registers, Some(gdt), ("boot parameters", boot_parameters, PAGE_BYTES))
            }
            Entry::Pvh { entry, start_info } => {
                let registers = kvm_regs { rip: entry, rbx: start_info, ..Default::default() };
                (registers, None, ("start information", start_info, START_INFO_BYTES))
            }
            _ => return Ok(None),
        };
        let gdt_range = gdt.map(|gdt| ("GDT", gdt, GDT_BYTES));
        for (name, address, length) in [("entry", registers.rip, 1), own].into_iter().chain(gdt_range) {
            let below_limit = address.checked_add(length).is_some_and(|end| end <= ADDRESSABLE_BYTES);
            if !below_limit || !is_memory(address, length) {
                return Err(Error::Refused(format!(
                    "the guest's {name} at {address:#x} is outside its memory below 4 GiB"
                )));
            }
        }
        // Bit 1 of RFLAGS is always set.
        Ok(Some(Self { registers: kvm_regs { rflags: 2, ..registers }, gdt }))
    }

    /// The GDT, and where it goes.
    pub(super) fn table(&self) -> Option<(u64, Vec<u8>)> {
        self.gdt.map(|gdt| (gdt, table(Width::Bits32)))
    }

    /// General registers at entry.
    pub(super) fn registers(&self) -> kvm_regs {
        self.registers
    }

    /// Sets segments and control registers; the rest stays as KVM resets it.
    pub(super) fn set_system_registers(&self, registers: &mut kvm_sregs) {
        set_segments(registers, Width::Bits32);
        registers.gdt = self.gdt.map_or_else(kvm_dtable::default, |base| kvm_dtable {
            base,
            limit: GDT_BYTES as u16 - 1,
            ..Default::default()
        });
        // No interrupts and no handlers: an exception is a triple fault, and that an exit.
        registers.idt = kvm_dtable::default();
        registers.cr0 = CR0_PE | CR0_ET;
        registers.cr3 = 0;
        registers.cr4 = 0;
        registers.efer = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_memory(address: u64, length: u64) -> bool {
        address.checked_add(length).is_some_and(|end| end <= 0x10_0000)
    }

    fn start(entry: Entry) -> Result<ProtectedMode, Error> {
        Ok(ProtectedMode::new(&entry, is_memory)?.expect("it is in protected mode"))
    }

    #[test]
    fn linux_finds_its_boot_parameters_in_esi_and_its_segments_in_the_gdt() {
        let mode = start(Entry::Protected32 { entry: 0x1_0000, boot_parameters: 0x7000, gdt: 0x1000 }).unwrap();
        let registers = mode.registers();
        assert_eq!((registers.rip, registers.rsi, registers.rflags), (0x1_0000, 0x7000, 2));
        assert_eq!((registers.rbp, registers.rdi, registers.rbx), (0, 0, 0));
        let mut system = kvm_sregs { cr4: !0, efer: !0, ..Default::default() };
        mode.set_system_registers(&mut system);
        assert_eq!((system.cr0, system.cr3, system.cr4, system.efer), (0x11, 0, 0, 0));
        assert_eq!((system.cs.selector, system.cs.db, system.cs.l, system.ss.selector), (0x10, 1, 0, 0x18));
        let (address, bytes) = mode.table().unwrap();
        assert_eq!((address, system.gdt.base, usize::from(system.gdt.limit) + 1), (0x1000, 0x1000, bytes.len()));
    }

    #[test]
    fn pvh_finds_its_start_information_in_ebx() {
        let mode = start(Entry::Pvh { entry: 0x1_0000, start_info: 0x7000 }).unwrap();
        assert_eq!((mode.registers().rip, mode.registers().rbx), (0x1_0000, 0x7000));
        assert!(mode.table().is_none());
    }

    #[test]
    fn addresses_that_do_not_fit_are_refused() {
        let linux = |entry, boot_parameters, gdt| start(Entry::Protected32 { entry, boot_parameters, gdt });
        let pvh = |entry, start_info| start(Entry::Pvh { entry, start_info });
        for refused in [
            linux(0x10_0000, 0x7000, 0x1000),
            linux(0x1_0000, 0xf_f001, 0x1000),
            linux(0x1_0000, u64::MAX, 0x1000),
            linux(0x1_0000, 0x7000, 0xf_ffe1),
            linux(0x1_0000_0000, 0x7000, 0x1000),
            pvh(u64::MAX, 0x7000),
            pvh(0x1_0000, 0xf_ffc9),
        ] {
            assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        }
        assert!(ProtectedMode::new(&Entry::AwaitStartup, is_memory).unwrap().is_none());
    }
}
