//! Slots of guest memory: which are taken, who shares them, how long they live.

use crate::machine::{
    DATA, DEVICE, ENTRY, HIGH_MEMORY, HIGH_MEMORY_BYTES, LOW_MEMORY_BYTES, STACK_TOP, expect_out, hypervisor, machine,
};
use blockyard_block::MemoryMap;
use blockyard_hypervisor::kvm::KvmHypervisor;
use blockyard_hypervisor::{Entry, Error, Exit, Hypervisor};
use iced_x86::code_asm::*;
use std::thread;
use vm_memory::{Bytes, GuestAddress};

#[test]
fn slots_are_one_guest_memory() {
    let Some(mut machine) = machine(|a| {
        a.mov(esi, HIGH_MEMORY as u32)?;
        a.mov(edi, DATA as u32)?;
        a.mov(ecx, 512)?;
        a.rep().movsq()?;
        a.mov(dword_ptr(HIGH_MEMORY + HIGH_MEMORY_BYTES as u64 - 4), 0x600d)?;
        a.hlt()
    }) else {
        return;
    };
    let pattern: Vec<u8> = (0..4096_u32).map(|number| (number % 255) as u8).collect();
    machine.memory.guest_memory().write_slice(&pattern, GuestAddress(HIGH_MEMORY)).unwrap();
    assert_eq!(machine.vcpu().run().unwrap(), Exit::Halt);
    assert_eq!(machine.bytes(DATA, 4096), pattern);
    assert_eq!(machine.bytes(HIGH_MEMORY + HIGH_MEMORY_BYTES as u64 - 4, 4), 0x600d_u32.to_le_bytes());
}

#[test]
fn vcpus_share_memory() {
    let Some(mut machine) = machine(|a| {
        // Whoever comes second halts; the first spins until there is a second.
        let mut again = a.create_label();
        a.mov(eax, 1)?;
        a.lock().xadd(dword_ptr(DATA), eax)?;
        a.test(eax, eax)?;
        a.je(again)?;
        a.hlt()?;
        a.set_label(&mut again)?;
        a.pause()?;
        a.cmp(dword_ptr(DATA), 2)?;
        a.jne(again)?;
        a.out(0x10, al)?;
        a.hlt()
    }) else {
        return;
    };
    if KvmHypervisor::open().unwrap().capabilities().vcpus_max < 2 {
        return;
    }
    let mut first = machine.vcpu();
    let mut second = machine.vm.create_vcpu(1, &ENTRY).unwrap();
    let first = thread::spawn(move || {
        expect_out(&mut *first, 0x10, 1, &[0]);
        assert_eq!(first.run().unwrap(), Exit::Halt);
    });
    while machine.bytes(DATA, 1) == [0] {
        thread::yield_now();
    }
    assert_eq!(second.run().unwrap(), Exit::Halt);
    first.join().unwrap();
}

#[test]
fn refuses_what_does_not_fit() {
    let Some(hypervisor) = hypervisor() else { return };
    let memory = MemoryMap::allocate(&[(0, LOW_MEMORY_BYTES)]).unwrap();
    let overlapping = MemoryMap::allocate(&[(0xf_f000, 0x2000)]).unwrap();
    let mut vm = hypervisor.create_vm().unwrap();
    assert!(matches!(vm.create_vcpu(0, &ENTRY), Err(Error::Refused(_))), "no memory yet");
    assert!(matches!(vm.map_memory(0, &memory, 1), Err(Error::Refused(_))), "no such region");
    assert!(matches!(vm.map_memory(u32::MAX, &memory, 0), Err(Error::Refused(_))), "no such slot");
    vm.map_memory(0, &memory, 0).unwrap();
    assert!(matches!(vm.map_memory(0, &memory, 0), Err(Error::Refused(_))), "slot taken");
    assert!(matches!(vm.map_memory(1, &overlapping, 0), Err(Error::Refused(_))), "overlap");

    let outside = Entry::Flat64 { entry: DEVICE, stack_top: STACK_TOP, gdt: 0x1000, page_tables: 0x2000 };
    assert!(matches!(vm.create_vcpu(0, &outside), Err(Error::Refused(_))));
    assert!(matches!(vm.create_vcpu(u32::MAX, &ENTRY), Err(Error::Refused(_))), "index too large");
    let vcpu = vm.create_vcpu(0, &ENTRY).unwrap();
    assert!(matches!(vm.create_vcpu(0, &ENTRY), Err(Error::Refused(_))), "index taken");
    assert!(matches!(vm.map_memory(1, &memory, 0), Err(Error::Refused(_))), "memory after a vCPU");
    drop(vcpu);
    let unaligned = MemoryMap::allocate(&[(0x800, 0x1000)]).unwrap();
    assert!(hypervisor.create_vm().unwrap().map_memory(0, &unaligned, 0).is_err());
}

#[test]
fn guest_outlives_the_vm_handle_and_the_memory_map() {
    let Some(mut machine) = machine(|a| {
        a.mov(eax, dword_ptr(DATA))?;
        a.out(0x10, eax)?;
        a.hlt()
    }) else {
        return;
    };
    machine.memory.guest_memory().write_slice(&7_u32.to_le_bytes(), GuestAddress(DATA)).unwrap();
    let mut vcpu = machine.vcpu();
    drop(machine);
    expect_out(&mut *vcpu, 0x10, 4, &7_u32.to_le_bytes());
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
}
