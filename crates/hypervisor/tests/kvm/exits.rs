//! How guests are entered, and what their accesses to ports and devices come back as.

use crate::machine::{DATA, DEVICE, STACK_TOP, expect_out, machine};
use blockyard_hypervisor::Exit;
use iced_x86::code_asm::*;
use vm_memory::{Bytes, GuestAddress};

#[test]
fn enters_flat_guests_with_zeroed_registers_and_the_stack_given() {
    let Some(mut machine) = machine(|a| {
        for register in [rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15] {
            a.or(rax, register)?;
        }
        a.out(0x10, eax)?;
        a.shr(rax, 32)?;
        a.out(0x10, eax)?;
        a.mov(eax, esp)?;
        a.out(0x10, eax)?;
        a.pushfq()?;
        a.pop(rax)?;
        a.and(eax, 0x200)?;
        a.out(0x10, eax)?;
        a.hlt()
    }) else {
        return;
    };
    let mut vcpu = machine.vcpu();
    expect_out(&mut *vcpu, 0x10, 4, &[0; 4]);
    expect_out(&mut *vcpu, 0x10, 4, &[0; 4]);
    expect_out(&mut *vcpu, 0x10, 4, &(STACK_TOP as u32).to_le_bytes());
    expect_out(&mut *vcpu, 0x10, 4, &[0; 4]);
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
}

#[test]
fn gives_flat_guests_sse() {
    let Some(mut machine) = machine(|a| {
        a.mov(rax, 0x1122_3344_5566_7788_u64)?;
        a.movq(xmm0, rax)?;
        a.punpcklqdq(xmm0, xmm0)?;
        a.movaps(xmmword_ptr(DATA), xmm0)?;
        a.cvtsi2sd(xmm1, rax)?;
        a.hlt()
    }) else {
        return;
    };
    assert_eq!(machine.vcpu().run().unwrap(), Exit::Halt);
    assert_eq!(machine.bytes(DATA, 16), [0x1122_3344_5566_7788_u64.to_le_bytes(); 2].concat());
}

#[test]
fn output_arrives_with_port_and_size() {
    let Some(mut machine) = machine(|a| {
        a.mov(eax, 0x1234_5678)?;
        a.mov(edx, 0x3f8)?;
        a.out(dx, al)?;
        a.out(dx, ax)?;
        a.mov(edx, 0xffff)?;
        a.out(dx, eax)?;
        a.hlt()
    }) else {
        return;
    };
    let mut vcpu = machine.vcpu();
    expect_out(&mut *vcpu, 0x3f8, 1, &[0x78]);
    expect_out(&mut *vcpu, 0x3f8, 2, &[0x78, 0x56]);
    expect_out(&mut *vcpu, 0xffff, 4, &[0x78, 0x56, 0x34, 0x12]);
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
}

#[test]
fn input_reaches_the_guest_in_each_size() {
    let Some(mut machine) = machine(|a| {
        a.mov(edx, 0x60)?;
        a.in_(al, dx)?;
        a.mov(byte_ptr(DATA), al)?;
        a.in_(ax, dx)?;
        a.mov(word_ptr(DATA + 2), ax)?;
        a.in_(eax, dx)?;
        a.mov(dword_ptr(DATA + 4), eax)?;
        a.hlt()
    }) else {
        return;
    };
    let mut vcpu = machine.vcpu();
    for expected_size in [1_u8, 2, 4] {
        match vcpu.run().unwrap() {
            Exit::PortIn { port: 0x60, size, data } => {
                assert_eq!((size, data.len()), (expected_size, usize::from(expected_size)));
                data.copy_from_slice(&[0xa1, 0xa2, 0xa3, 0xa4][..data.len()]);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
    assert_eq!(machine.bytes(DATA, 8), [0xa1, 0, 0xa1, 0xa2, 0xa1, 0xa2, 0xa3, 0xa4]);
}

#[test]
fn repeated_input_is_few_exits() {
    let Some(mut machine) = machine(|a| {
        a.cld()?;
        a.mov(edx, 0x3f8)?;
        a.mov(edi, DATA as u32)?;
        a.mov(ecx, 600)?;
        a.rep().insb()?;
        a.mov(ecx, 100)?;
        a.rep().insd()?;
        a.hlt()
    }) else {
        return;
    };
    let mut vcpu = machine.vcpu();
    let (mut next, mut exits, mut sizes) = (0_u32, 0, Vec::new());
    loop {
        match vcpu.run().unwrap() {
            Exit::PortIn { port: 0x3f8, size, data } => {
                assert_eq!(data.len() % usize::from(size), 0);
                data.fill_with(|| {
                    next += 1;
                    (next % 251) as u8
                });
                sizes.push(size);
                exits += 1;
            }
            Exit::Halt => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(next, 1000);
    assert!(exits <= 4, "{exits} exits");
    assert!(sizes.contains(&1) && sizes.contains(&4), "{sizes:?}");
    let expected: Vec<u8> = (1..=1000_u32).map(|number| (number % 251) as u8).collect();
    assert_eq!(machine.bytes(DATA, 1000), expected);
}

/// KVM hands out `rep outs` item by item (its emulator calls for one at a time), so only the data is promised.
#[test]
fn repeated_output_arrives_whole_and_in_order() {
    let Some(mut machine) = machine(|a| {
        a.cld()?;
        a.mov(edx, 0x3f8)?;
        a.mov(esi, DATA as u32)?;
        a.mov(ecx, 300)?;
        a.rep().outsb()?;
        a.mov(ecx, 50)?;
        a.rep().outsw()?;
        a.mov(ecx, 25)?;
        a.rep().outsd()?;
        a.hlt()
    }) else {
        return;
    };
    let sent: Vec<u8> = (0..500_u32).map(|number| (number % 253) as u8).collect();
    machine.memory.guest_memory().write_slice(&sent, GuestAddress(DATA)).unwrap();
    let mut vcpu = machine.vcpu();
    let mut received = Vec::new();
    loop {
        match vcpu.run().unwrap() {
            Exit::PortOut { port: 0x3f8, size, data } => {
                let expected_size = match received.len() {
                    0..300 => 1,
                    300..400 => 2,
                    _ => 4,
                };
                assert_eq!((size, data.len() % usize::from(size)), (expected_size, 0));
                received.extend_from_slice(data);
            }
            Exit::Halt => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(received, sent);
}

#[test]
fn accesses_without_memory_are_exits_of_each_size() {
    let Some(mut machine) = machine(|a| {
        a.mov(edi, DEVICE as u32)?;
        a.mov(rax, 0x0807_0605_0403_0201_u64)?;
        a.mov(byte_ptr(rdi), al)?;
        a.mov(word_ptr(rdi + 2), ax)?;
        a.mov(dword_ptr(rdi + 4), eax)?;
        a.mov(qword_ptr(rdi + 8), rax)?;
        a.mov(rax, qword_ptr(rdi + 16))?;
        a.mov(qword_ptr(DATA), rax)?;
        a.movzx(eax, byte_ptr(rdi + 24))?;
        a.mov(qword_ptr(DATA + 8), rax)?;
        a.hlt()
    }) else {
        return;
    };
    let mut vcpu = machine.vcpu();
    for (offset, length) in [(0, 1), (2, 2), (4, 4), (8, 8)] {
        match vcpu.run().unwrap() {
            Exit::MmioWrite { address, data } => {
                assert_eq!((address, data), (DEVICE + offset, &[1_u8, 2, 3, 4, 5, 6, 7, 8][..length]));
            }
            other => panic!("{other:?}"),
        }
    }
    for (offset, length) in [(16, 8), (24, 1)] {
        match vcpu.run().unwrap() {
            Exit::MmioRead { address, data } => {
                assert_eq!((address, data.len()), (DEVICE + offset, length));
                data.fill(0x5a);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
    assert_eq!(machine.bytes(DATA, 16), [[0x5a; 8], [0x5a, 0, 0, 0, 0, 0, 0, 0]].concat());
}

#[test]
fn guests_go_on_after_a_halt() {
    let Some(mut machine) = machine(|a| {
        a.hlt()?;
        a.hlt()?;
        a.out(0x10, al)?;
        a.hlt()
    }) else {
        return;
    };
    let mut vcpu = machine.vcpu();
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
    expect_out(&mut *vcpu, 0x10, 1, &[0]);
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
}
