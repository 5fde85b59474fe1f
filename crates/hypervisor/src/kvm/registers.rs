//! A vCPU's registers as KVM tells them.

use crate::registers::{Registers, SegmentRegister, TableRegister};
use kvm_bindings::{kvm_dtable, kvm_regs, kvm_segment, kvm_sregs};

pub(super) fn registers(general: &kvm_regs, system: &kvm_sregs) -> Registers {
    let segment = |segment: &kvm_segment| SegmentRegister { selector: segment.selector, base: segment.base };
    let table = |table: &kvm_dtable| TableRegister { base: table.base, limit: table.limit };
    Registers {
        rip: general.rip,
        rflags: general.rflags,
        general: [
            general.rax,
            general.rcx,
            general.rdx,
            general.rbx,
            general.rsp,
            general.rbp,
            general.rsi,
            general.rdi,
            general.r8,
            general.r9,
            general.r10,
            general.r11,
            general.r12,
            general.r13,
            general.r14,
            general.r15,
        ],
        control: [system.cr0, system.cr2, system.cr3, system.cr4],
        efer: system.efer,
        segments: [&system.cs, &system.ss, &system.ds, &system.es, &system.fs, &system.gs].map(segment),
        gdt: table(&system.gdt),
        idt: table(&system.idt),
    }
}
