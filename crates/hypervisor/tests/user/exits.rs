//! Every kind of exit, every size of operand.

use crate::guest::{DEVICE, Guest, MEMORY_BYTES, STACK_TOP, bounded, crash};
use blockyard_hypervisor::{Exit, Vcpu};
use iced_x86::code_asm::*;

fn expect_halt(vcpu: &mut dyn Vcpu) {
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
}

#[test]
fn starts_with_clean_registers() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            // All registers into memory, by the stack.
            a.mov(qword_ptr(0x90000), rsp)?;
            for register in [rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15] {
                a.push(register)?;
            }
            a.sub(rsp, 0x100)?;
            for (index, register) in
                [xmm0, xmm1, xmm2, xmm3, xmm4, xmm5, xmm6, xmm7, xmm8, xmm9, xmm10, xmm11, xmm12, xmm13, xmm14, xmm15]
                    .into_iter()
                    .enumerate()
            {
                a.movdqu(xmmword_ptr(rsp + 16 * index as i32), register)?;
            }
            a.stmxcsr(dword_ptr(0x90008))?;
            a.fnstcw(word_ptr(0x9000c))?;
            a.hlt()
        });
        let mut vcpu = guest.vcpu();
        expect_halt(&mut *vcpu);
        assert_eq!(guest.read(0x90000, 8), STACK_TOP.to_le_bytes());
        assert!(guest.read(STACK_TOP - 15 * 8 - 0x100, 15 * 8 + 0x100).iter().all(|&byte| byte == 0));
        assert_eq!(guest.read(0x90008, 6), [0x80, 0x1f, 0, 0, 0x7f, 0x03]);
    });
}

#[test]
fn port_output_of_every_size() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            a.mov(eax, 0x4433_2211)?;
            a.mov(edx, 0xaaaa_03f8u32)?;
            a.out(dx, al)?;
            a.out(dx, ax)?;
            a.out(dx, eax)?;
            a.out(0x21, al)?;
            a.out(0x21, ax)?;
            a.out(0x21, eax)?;
            a.hlt()
        });
        let mut vcpu = guest.vcpu();
        for port in [0x3f8, 0x21] {
            for size in [1, 2, 4] {
                let data = &[0x11, 0x22, 0x33, 0x44][..usize::from(size)];
                assert_eq!(vcpu.run().unwrap(), Exit::PortOut { port, size, data });
            }
        }
        expect_halt(&mut *vcpu);
    });
}

#[test]
fn port_input_of_every_size_keeps_the_rest_of_the_register() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            a.mov(edx, 0x3f8)?;
            a.mov(rax, u64::MAX)?;
            a.in_(al, dx)?;
            a.mov(qword_ptr(0x90000), rax)?;
            a.mov(rax, u64::MAX)?;
            a.in_(ax, dx)?;
            a.mov(qword_ptr(0x90008), rax)?;
            a.mov(rax, u64::MAX)?;
            a.in_(eax, 0x40)?;
            a.mov(qword_ptr(0x90010), rax)?;
            a.hlt()
        });
        let mut vcpu = guest.vcpu();
        for (expected_port, expected_size) in [(0x3f8, 1), (0x3f8, 2), (0x40, 4)] {
            match vcpu.run().unwrap() {
                Exit::PortIn { port, size, data } => {
                    assert_eq!((port, size, data.len()), (expected_port, expected_size, expected_size.into()));
                    data.copy_from_slice(&[0x11, 0x22, 0x33, 0x44][..data.len()]);
                }
                exit => panic!("{exit:?}"),
            }
        }
        expect_halt(&mut *vcpu);
        assert_eq!(guest.read(0x90000, 8), 0xffff_ffff_ffff_ff11u64.to_le_bytes());
        assert_eq!(guest.read(0x90008, 8), 0xffff_ffff_ffff_2211u64.to_le_bytes());
        assert_eq!(guest.read(0x90010, 8), 0x0000_0000_4433_2211u64.to_le_bytes());
    });
}

#[test]
fn repeated_output_is_one_exit() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            a.mov(edx, 0x3f8)?;
            a.mov(esi, 0x90000)?;
            a.mov(ecx, 5)?;
            a.rep().outsb()?;
            a.mov(ecx, 2)?;
            a.rep().outsw()?;
            a.outsd()?;
            a.rep().outsb()?; // rcx is 0: nothing
            a.mov(ebx, esi)?;
            a.hlt()
        });
        guest.write(0x90000, b"abcdefghijklm");
        let mut vcpu = guest.vcpu();
        assert_eq!(vcpu.run().unwrap(), Exit::PortOut { port: 0x3f8, size: 1, data: b"abcde" });
        assert_eq!(vcpu.run().unwrap(), Exit::PortOut { port: 0x3f8, size: 2, data: b"fghi" });
        assert_eq!(vcpu.run().unwrap(), Exit::PortOut { port: 0x3f8, size: 4, data: b"jklm" });
        expect_halt(&mut *vcpu);
    });
}

#[test]
fn repeated_transfers_go_down_too() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            a.std()?;
            a.mov(edx, 0x3f8)?;
            a.mov(esi, 0x90004)?;
            a.mov(ecx, 3)?;
            a.rep().outsw()?;
            a.mov(edi, 0x90104)?;
            a.mov(ecx, 3)?;
            a.rep().insw()?;
            a.cld()?;
            a.mov(dword_ptr(0x90200), esi)?;
            a.mov(dword_ptr(0x90204), edi)?;
            a.mov(dword_ptr(0x90208), ecx)?;
            a.hlt()
        });
        guest.write(0x90000, b"AaBbCc");
        let mut vcpu = guest.vcpu();
        assert_eq!(vcpu.run().unwrap(), Exit::PortOut { port: 0x3f8, size: 2, data: b"CcBbAa" });
        match vcpu.run().unwrap() {
            Exit::PortIn { port: 0x3f8, size: 2, data } => data.copy_from_slice(b"XxYyZz"),
            exit => panic!("{exit:?}"),
        }
        expect_halt(&mut *vcpu);
        assert_eq!(guest.read(0x90100, 6), b"ZzYyXx");
        let words: Vec<u32> =
            guest.read(0x90200, 12).chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [0x8fffe, 0x900fe, 0]);
    });
}

#[test]
fn long_transfers_come_in_parts() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            a.mov(edx, 0x3f8)?;
            a.mov(edi, 0x90000)?;
            a.mov(ecx, 0x5000)?;
            a.rep().insd()?;
            a.mov(dword_ptr(0x80000), ecx)?;
            a.mov(dword_ptr(0x80004), edi)?;
            a.hlt()
        });
        let mut vcpu = guest.vcpu();
        for (expected, byte) in [(0x10000, 7), (0x4000, 9)] {
            match vcpu.run().unwrap() {
                Exit::PortIn { port: 0x3f8, size: 4, data } => {
                    assert_eq!(data.len(), expected);
                    data.fill(byte);
                }
                exit => panic!("{exit:?}"),
            }
        }
        expect_halt(&mut *vcpu);
        assert_eq!(guest.read(0x80000, 8), [0, 0, 0, 0, 0, 0x40, 0x0a, 0]);
        assert!(guest.read(0x90000, 0x10000).iter().all(|&byte| byte == 7));
        assert!(guest.read(0xa0000, 0x4000).iter().all(|&byte| byte == 9));
        assert!(guest.read(0xa4000, 0x100).iter().all(|&byte| byte == 0));
    });
}

#[test]
fn string_transfers_with_32_bit_addresses() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            a.mov(edx, 0x3f8)?;
            a.mov(rsi, 0xffff_ffff_0009_0000u64)?;
            a.mov(rcx, 0xffff_ffff_0000_0002u64)?;
            a.db(&[0x67, 0xf3, 0x6e])?; // rep outs dx, byte ptr [esi]
            a.mov(qword_ptr(0x90010), rsi)?;
            a.mov(qword_ptr(0x90018), rcx)?;
            a.hlt()
        });
        guest.write(0x90000, b"ab");
        let mut vcpu = guest.vcpu();
        assert_eq!(vcpu.run().unwrap(), Exit::PortOut { port: 0x3f8, size: 1, data: b"ab" });
        expect_halt(&mut *vcpu);
        assert_eq!(guest.read(0x90010, 8), 0x90002u64.to_le_bytes());
        assert_eq!(guest.read(0x90018, 8), [0; 8]);
    });
}

#[test]
fn mmio_writes_of_every_size() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            a.mov(rbx, DEVICE)?;
            a.mov(rax, 0x8877_6655_4433_2211u64)?;
            a.mov(byte_ptr(rbx), al)?;
            a.mov(byte_ptr(rbx), ah)?;
            a.mov(word_ptr(rbx + 2), ax)?;
            a.mov(dword_ptr(rbx + 4), eax)?;
            a.mov(qword_ptr(rbx + 8), rax)?;
            a.mov(byte_ptr(rbx), 0x5a)?;
            a.mov(word_ptr(rbx + 2), 0x5aa5)?;
            a.mov(dword_ptr(rbx + 4), -2)?;
            a.mov(qword_ptr(rbx + 8), -2)?;
            a.mov(ecx, 3)?;
            a.mov(dword_ptr(rbx + rcx * 4 + 0x100), r8d)?;
            a.mov(dword_ptr(DEVICE), eax)?;
            a.hlt()
        });
        let mut vcpu = guest.vcpu();
        let value = 0x8877_6655_4433_2211u64.to_le_bytes();
        let expected: [(u64, &[u8]); 11] = [
            (0, &value[..1]),
            (0, &value[1..2]),
            (2, &value[..2]),
            (4, &value[..4]),
            (8, &value),
            (0, &[0x5a]),
            (2, &[0xa5, 0x5a]),
            (4, &[0xfe, 0xff, 0xff, 0xff]),
            (8, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (0x10c, &[0; 4]),
            (0, &value[..4]),
        ];
        for (offset, data) in expected {
            assert_eq!(vcpu.run().unwrap(), Exit::MmioWrite { address: DEVICE + offset, data });
        }
        expect_halt(&mut *vcpu);
    });
}

#[test]
fn mmio_reads_of_every_size_and_extension() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            let mut place = 0x90000;
            let mut keep = |a: &mut CodeAssembler, register| {
                a.mov(qword_ptr(place), register)?;
                place += 8;
                a.mov(rax, u64::MAX)
            };
            a.mov(rbx, DEVICE)?;
            a.mov(rax, u64::MAX)?;
            a.mov(al, byte_ptr(rbx))?;
            keep(a, rax)?;
            a.mov(ah, byte_ptr(rbx))?;
            keep(a, rax)?;
            a.mov(ax, word_ptr(rbx))?;
            keep(a, rax)?;
            a.mov(eax, dword_ptr(rbx))?;
            keep(a, rax)?;
            a.mov(rax, qword_ptr(rbx))?;
            keep(a, rax)?;
            a.movzx(eax, byte_ptr(rbx))?;
            keep(a, rax)?;
            a.movzx(rax, word_ptr(rbx))?;
            keep(a, rax)?;
            a.movsx(ax, byte_ptr(rbx))?;
            keep(a, rax)?;
            a.movsx(eax, word_ptr(rbx))?;
            keep(a, rax)?;
            a.movsxd(rax, dword_ptr(rbx))?;
            keep(a, rax)?;
            a.mov(r9d, dword_ptr(rbx))?;
            keep(a, r9)?;
            a.hlt()
        });
        let mut vcpu = guest.vcpu();
        let mut sizes = Vec::new();
        loop {
            match vcpu.run().unwrap() {
                Exit::MmioRead { address: DEVICE, data } => {
                    sizes.push(data.len());
                    data.copy_from_slice(&0x8877_6655_f4f3_f2f1u64.to_le_bytes()[..data.len()]);
                }
                Exit::Halt => break,
                exit => panic!("{exit:?}"),
            }
        }
        assert_eq!(sizes, [1, 1, 2, 4, 8, 1, 2, 1, 2, 4, 4]);
        let values: Vec<u64> =
            guest.read(0x90000, 8 * 11).chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(
            values,
            [
                0xffff_ffff_ffff_fff1,
                0xffff_ffff_ffff_f1ff,
                0xffff_ffff_ffff_f2f1,
                0x0000_0000_f4f3_f2f1,
                0x8877_6655_f4f3_f2f1,
                0x0000_0000_0000_00f1,
                0x0000_0000_0000_f2f1,
                0xffff_ffff_ffff_fff1,
                0x0000_0000_ffff_f2f1,
                0xffff_ffff_f4f3_f2f1,
                0x0000_0000_f4f3_f2f1,
            ]
        );
    });
}

#[test]
fn vector_registers_survive_exits() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            a.movdqu(xmm7, xmmword_ptr(0x90000))?;
            a.out(0x21, al)?;
            a.movdqu(xmmword_ptr(0x90010), xmm7)?;
            a.hlt()
        });
        guest.write(0x90000, b"0123456789abcdef");
        let mut vcpu = guest.vcpu();
        assert!(matches!(vcpu.run().unwrap(), Exit::PortOut { .. }));
        expect_halt(&mut *vcpu);
        assert_eq!(guest.read(0x90010, 16), b"0123456789abcdef");
    });
}

#[test]
fn several_memory_slots() {
    bounded(|| {
        let layout = [(0, MEMORY_BYTES), (0x1000_0000, 0x10000), (0x2_0000_0000, 0x4000)];
        let mut guest = Guest::with_layout(&layout, |a| {
            a.mov(rbx, 0x1000_8000u64)?;
            a.mov(dword_ptr(rbx), 0x1111)?;
            a.mov(rbx, 0x2_0000_3ff8u64)?;
            a.mov(dword_ptr(rbx), 0x2222)?;
            a.mov(rbx, 0x2_0000_4000u64)?;
            a.mov(dword_ptr(rbx), 0x3333)?;
            a.hlt()
        });
        let mut vcpu = guest.vcpu();
        let data = &0x3333u32.to_le_bytes();
        assert_eq!(vcpu.run().unwrap(), Exit::MmioWrite { address: 0x2_0000_4000, data });
        expect_halt(&mut *vcpu);
        assert_eq!(guest.read(0x1000_8000, 4), 0x1111u32.to_le_bytes());
        assert_eq!(guest.read(0x2_0000_3ff8, 4), 0x2222u32.to_le_bytes());
    });
}

/// What a guest did wrong is said in a sentence that names it, and said again when asked again.
#[test]
fn crashes_say_what_happened() {
    type Program = fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>;
    let cases: [(Program, &str); 19] = [
        (|a| a.ud2(), "executed an invalid instruction at 0x10000 (0f 0b"),
        (|a| a.int3(), "executed a breakpoint at 0x10001"),
        (|a| a.div(rcx), "divided by zero"),
        (|a| a.cli(), "executed `cli` at 0x10000"),
        (|a| a.mov(cr3, rax), "executed `mov` at 0x10000"),
        (|a| a.wrmsr(), "executed `wrmsr`"),
        (
            |a| a.mov(rbx, 0x8000_0000_0000_0000u64).and_then(|()| a.mov(eax, dword_ptr(rbx))),
            "outside ring 0 or with the address",
        ),
        (
            |a| a.mov(rbx, 0xffff_8000_0000_0000u64).and_then(|()| a.mov(eax, dword_ptr(rbx))),
            "neither memory nor devices",
        ),
        (|a| a.mov(eax, dword_ptr(0x5000)), "accessed 0x5000; here it can reach no address below 0x10000"),
        (|a| a.jmp(0xd000_0000u64), "jumped to 0xd0000000"),
        (|a| a.mov(eax, 0x100ff0).and_then(|()| a.jmp(rax)), "jumped to 0x100ff0"),
        (|a| a.mov(esp, 0xd000_1000u32).and_then(|()| a.push(rax)), "with `push`"),
        (|a| a.mov(rbx, DEVICE).and_then(|()| a.add(dword_ptr(rbx), eax)), "with `add`"),
        (|a| a.mov(rbx, DEVICE).and_then(|()| a.movdqu(xmm0, xmmword_ptr(rbx))), "with `movdqu`"),
        (|a| a.mov(ebx, 0xffffe).and_then(|()| a.mov(eax, dword_ptr(rbx))), "access to 4 bytes at 0xffffe"),
        (
            |a| a.mov(esi, 0xfffff).and_then(|()| a.mov(ecx, 2)).and_then(|()| a.rep().outsb()),
            "not all of them in its memory",
        ),
        (|a| a.mov(rcx, u64::MAX).and_then(|()| a.rep().insd()), "not all of them in its memory"),
        (|a| a.pushfq().and_then(|()| a.or(dword_ptr(rsp), 0x100)).and_then(|()| a.popfq()), "single-stepped"),
        (
            |a| a.mov(eax, 0x2000).and_then(|()| a.sub(rsp, 0x8000_0000u32 as i32)).and_then(|()| a.call(rax)),
            "with `call`",
        ),
    ];
    bounded(move || {
        for (program, expected) in cases {
            let mut guest = Guest::new(|a| {
                program(a)?;
                a.nop()?;
                a.hlt()
            });
            let mut vcpu = guest.vcpu();
            let sentence = crash(&mut *vcpu);
            assert!(sentence.contains(expected), "{sentence:?} does not say {expected:?}");
            assert_eq!(vcpu.run().unwrap(), Exit::Crashed(sentence));
        }
    });
}

#[test]
fn code_at_the_end_of_memory() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            a.mov(eax, MEMORY_BYTES as u32 - 1)?;
            a.jmp(rax)
        });
        guest.write(MEMORY_BYTES as u64 - 1, &[0x48]); // a prefix with nothing after it
        assert!(crash(&mut *guest.vcpu()).contains("runs over the end of its memory"));
        let mut guest = Guest::new(|a| {
            a.mov(eax, MEMORY_BYTES as u32 - 1)?;
            a.jmp(rax)
        });
        guest.write(MEMORY_BYTES as u64 - 1, &[0xf4]);
        let mut vcpu = guest.vcpu();
        expect_halt(&mut *vcpu);
        assert!(crash(&mut *vcpu).contains(&format!("jumped to {MEMORY_BYTES:#x}")));
    });
}
