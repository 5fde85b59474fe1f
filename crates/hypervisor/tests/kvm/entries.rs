//! Guests that begin in protected mode.

use crate::machine::{CODE, DATA, HIGH_MEMORY, Machine, expect_out, hypervisor};
use blockyard_hypervisor::{Entry, Exit};
use iced_x86::IcedError;
use iced_x86::code_asm::*;
use vm_memory::{Bytes, GuestAddress};

fn machine(program: fn(&mut CodeAssembler) -> Result<(), IcedError>) -> Option<Machine> {
    let mut assembler = CodeAssembler::new(32).unwrap();
    program(&mut assembler).unwrap();
    Some(Machine::new(&hypervisor()?, &assembler.assemble(CODE).unwrap()))
}

/// Reports paging, protection and long mode, and whether interrupts are off.
fn report_mode(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(eax, cr0)?;
    a.and(eax, 0x8000_0001_u32)?;
    a.out(0x10, eax)?;
    a.mov(eax, cr4)?;
    a.out(0x10, eax)?;
    a.mov(esp, 0x8_0000)?;
    a.pushfd()?;
    a.pop(eax)?;
    a.and(eax, 0x2_0300)?;
    a.out(0x10, eax)
}

#[test]
fn linux_has_its_selectors_and_flat_segments_without_paging() {
    let Some(mut machine) = machine(|a| {
        a.mov(eax, esi)?;
        a.out(0x10, eax)?;
        a.mov(eax, cs)?;
        a.out(0x10, eax)?;
        report_mode(a)?;
        // From the table, where the protocol says that it is.
        a.mov(eax, 0x18)?;
        for segment in [ds, es, ss] {
            a.mov(segment, eax)?;
        }
        a.mov(eax, dword_ptr(HIGH_MEMORY as u32))?;
        a.out(0x10, eax)?;
        a.hlt()
    }) else {
        return;
    };
    machine.memory.guest_memory().write_slice(&0x1234_5678_u32.to_le_bytes(), GuestAddress(HIGH_MEMORY)).unwrap();
    let entry = Entry::Protected32 { entry: CODE, boot_parameters: DATA, gdt: 0x1000 };
    let mut vcpu = machine.vm.create_vcpu(0, &entry).unwrap();
    for expected in [DATA as u32, 0x10, 1, 0, 0, 0x1234_5678] {
        expect_out(&mut *vcpu, 0x10, 4, &expected.to_le_bytes());
    }
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
}

#[test]
fn pvh_has_its_start_information_in_ebx() {
    let Some(mut machine) = machine(|a| {
        a.mov(eax, ebx)?;
        a.out(0x10, eax)?;
        report_mode(a)?;
        a.mov(eax, dword_ptr(HIGH_MEMORY as u32))?;
        a.hlt()
    }) else {
        return;
    };
    let mut vcpu = machine.vm.create_vcpu(0, &Entry::Pvh { entry: CODE, start_info: DATA }).unwrap();
    for expected in [DATA as u32, 1, 0, 0] {
        expect_out(&mut *vcpu, 0x10, 4, &expected.to_le_bytes());
    }
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
}
