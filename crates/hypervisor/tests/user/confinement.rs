//! Hostile guests: what they try fails, and the VMM says so in a sentence, whatever they do while it looks.

use crate::guest::{DEVICE, Guest, bounded, crash, exists};
use blockyard_hypervisor::Exit;
use iced_x86::IcedError;
use iced_x86::code_asm::*;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The stub's own places (guests/stub/src/layout.rs).
const STUB: u64 = 0x6000_0000_0000;
const STUB_STACK: u64 = STUB + 0x1000;
const CONTROL: u64 = STUB + 0x10_0000;
const CONTROL_BYTES: u32 = 8192;

/// `syscall` with up to four arguments.
fn system_call(a: &mut CodeAssembler, number: u64, arguments: [u64; 4]) -> Result<(), IcedError> {
    let [first, second, third, fourth] = arguments;
    a.mov(rdi, first)?;
    a.mov(rsi, second)?;
    a.mov(rdx, third)?;
    a.mov(r10, fourth)?;
    a.xor(r8d, r8d)?;
    a.xor(r9d, r9d)?;
    a.mov(rax, number)?;
    a.syscall()
}

fn expect_killed(program: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>, what: &str) {
    let mut guest = Guest::new(|a| {
        program(a)?;
        a.hlt()
    });
    guest.write(0x90000, b"/etc/passwd\0");
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    guest.vm.register_doorbell(DEVICE, 0, event.as_fd()).unwrap();
    let mut vcpu = guest.vcpu();
    let pid = vcpu.process_id().unwrap();
    match vcpu.run().unwrap() {
        Exit::Crashed(sentence) => assert!(sentence.contains("SIGSYS"), "{what}: {sentence}"),
        exit => panic!("{what} was allowed: {exit:?}"),
    }
    assert!(!exists(pid), "{what}");
}

#[test]
fn system_calls_kill() {
    bounded(|| {
        let forbidden: [(&str, u64, [u64; 4]); 29] = [
            ("read of the trap pipe", 0, [0, 0x90000, 1, 0]),
            ("write of other memory", 1, [0, 0x90000, 1, 0]),
            ("write of more than a byte", 1, [0, STUB, 2, 0]),
            ("write to the descriptor after the last", 1, [3, STUB, 8, 0]),
            ("write of another number to an eventfd", 1, [2, 0x90000, 8, 0]),
            ("write of one byte to an eventfd", 1, [2, STUB, 1, 0]),
            ("write to no descriptor", 1, [u64::MAX, STUB, 8, 0]),
            ("open", 2, [0x90000, 0, 0, 0]),
            ("close", 3, [0, 0, 0, 0]),
            ("mmap", 9, [0x20_0000, 0x1000, 7, 0x32]),
            ("mprotect of the stub", 10, [STUB, 0x1000, 7, 0]),
            ("munmap", 11, [CONTROL, 0x1000, 0, 0]),
            ("rt_sigaction", 13, [11, 0, 0x90000, 8]),
            ("rt_sigprocmask", 14, [0, 0, 0x90000, 8]),
            ("ioctl", 16, [0, 0x5401, 0x90000, 0]),
            ("getpid", 39, [0; 4]),
            ("socket", 41, [1, 1, 0, 0]),
            ("clone", 56, [0x100, 0, 0, 0]),
            ("execve", 59, [0x90000, 0, 0, 0]),
            ("exit", 60, [0; 4]),
            ("kill", 62, [1, 9, 0, 0]),
            ("ptrace", 101, [0; 4]),
            ("prctl", 157, [1, 0, 0, 0]),
            ("futex elsewhere", 202, [0x90000, 0, 0, 0]),
            ("futex wake", 202, [CONTROL, 1, 1, 0]),
            ("futex with a timeout", 202, [CONTROL, 0, 0, 0x90000]),
            ("exit_group", 231, [0; 4]),
            ("x32 write", 0x4000_0001, [0, STUB, 1, 0]),
            ("io_uring_setup", 425, [8, 0x90000, 0, 0]),
        ];
        for (what, number, arguments) in forbidden {
            expect_killed(|a| system_call(a, number, arguments), what);
        }
        expect_killed(|a| a.mov(eax, 1).and_then(|()| a.int(0x80)), "int 0x80");
        expect_killed(|a| a.mov(rax, 0xffff_ffff_ff60_0000u64).and_then(|()| a.call(rax)), "vsyscall");
    });
}

#[test]
fn memory_outside_the_map_is_not_there() {
    bounded(|| {
        // The initial stack, the vDSO, the heap and the mapping area are gone: whatever address, nothing but the stub.
        for address in [
            0x7fff_ffff_e000u64,
            0x7ffc_0000_0000,
            0x7f00_0000_0000,
            CONTROL + u64::from(CONTROL_BYTES),
            0x5555_5555_4000,
        ] {
            let mut guest = Guest::new(|a| a.mov(rbx, address).and_then(|()| a.mov(al, byte_ptr(rbx))));
            let sentence = crash(&mut *guest.vcpu());
            assert!(sentence.contains("neither memory nor devices can be"), "{sentence}");
        }
        // The stub's code and its constant are there, but not to be written.
        let mut guest = Guest::new(|a| a.mov(rbx, STUB).and_then(|()| a.mov(byte_ptr(rbx), 2)));
        assert!(crash(&mut *guest.vcpu()).contains("neither memory nor devices can be"));
    });
}

/// Entering the stub's code at any byte does the guest no good.
#[test]
fn jumps_into_the_handler() {
    bounded(|| {
        for offset in (0..0x900).step_by(7) {
            let mut guest = Guest::new(|a| {
                a.lea(rdx, qword_ptr(0x90000))?;
                a.mov(rax, STUB + offset)?;
                a.jmp(rax)
            });
            let mut vcpu = guest.vcpu();
            let kicker = vcpu.kicker();
            // The code may wait on the futex or loop; a kick must then end the run.
            let thread = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(3));
                kicker.kick();
            });
            for _ in 0..4 {
                if matches!(vcpu.run().unwrap(), Exit::Crashed(_) | Exit::Kicked) {
                    break;
                }
            }
            thread.join().unwrap();
        }
    });
}

/// The handler's stack, the signal frame and the control area full of rubbish before every trap.
#[test]
fn rewrites_the_handlers_stack_and_the_control_area() {
    bounded(|| {
        for fill in [0u8, 1, 0x41, 0x7f, 0xff] {
            for (place, length) in [(STUB_STACK, 0x10000), (CONTROL, CONTROL_BYTES)] {
                let mut guest = Guest::new(|a| {
                    let mut again = a.create_label();
                    a.set_label(&mut again)?;
                    a.mov(rdi, place)?;
                    a.mov(ecx, length)?;
                    a.mov(al, u32::from(fill))?;
                    a.rep().stosb()?;
                    a.out(0x21, al)?;
                    a.mov(rbx, DEVICE)?;
                    a.mov(dword_ptr(rbx), 0)?;
                    a.jmp(again)
                });
                let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
                guest.vm.register_doorbell(DEVICE, 0, event.as_fd()).unwrap();
                let mut vcpu = guest.vcpu();
                for _ in 0..20 {
                    match vcpu.run().unwrap() {
                        Exit::PortOut { port: 0x21, size: 1, data } => assert_eq!(data, [fill]),
                        exit => panic!("{exit:?}"),
                    }
                }
            }
        }
    });
}

/// A forged trap: the guest writes the record and the pipe itself, and scribbles on while the VMM judges.
#[test]
fn forges_traps_and_keeps_scribbling() {
    bounded(|| {
        let deadline = Instant::now() + Duration::from_secs(3);
        let mut seed = 0x1234_5678u32;
        while Instant::now() < deadline {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let mut guest = Guest::new(|a| {
                let mut again = a.create_label();
                let mut scribble = a.create_label();
                a.mov(rbx, CONTROL)?;
                a.mov(r12d, seed)?;
                a.set_label(&mut again)?;
                // A trap that looks like one: #GP at an `outs`, `in` or `mov` below; `turn` says it is the VMM's.
                a.mov(dword_ptr(rbx), 1)?;
                a.mov(qword_ptr(rbx + 8), 11)?;
                a.mov(qword_ptr(rbx + 16 + 8 * 16), 0x11000 + (seed % 4) as i32 * 16)?;
                a.mov(qword_ptr(rbx + 16 + 8 * 18), 0x33)?;
                a.mov(qword_ptr(rbx + 16 + 8 * 20), 13 + (seed / 8 % 2) as i32)?;
                a.mov(qword_ptr(rbx + 16 + 8 * 14), -1)?;
                a.mov(dword_ptr(rbx + 16 + 8 * 9), 0x90000)?;
                system_call(a, 1, [0, STUB, 1, 0])?;
                a.mov(ecx, 2000)?;
                a.set_label(&mut scribble)?;
                a.imul_3(r12d, r12d, 1_664_525)?;
                a.add(r12d, 1_013_904_223)?;
                a.mov(eax, r12d)?;
                a.shr(eax, 9)?;
                a.and(eax, 0xff8)?;
                a.mov(dword_ptr(rbx + rax), r12d)?;
                a.mov(dword_ptr(rbx), 1)?;
                a.dec(ecx)?;
                a.jnz(scribble)?;
                a.jmp(again)
            });
            guest.write(0x11000, &[0xf3, 0x6e]); // rep outsb
            guest.write(0x11010, &[0xf3, 0x6d]); // rep insd
            guest.write(0x11020, &[0xed]); // in eax, dx
            guest.write(0x11030, &[0x89, 0x03]); // mov [rbx], eax
            let mut vcpu = guest.vcpu();
            for _ in 0..200 {
                match vcpu.run().unwrap() {
                    Exit::PortIn { data, .. } => data.fill(0xee),
                    Exit::Crashed(_) => break,
                    _ => {}
                }
            }
            let pid = vcpu.process_id().unwrap();
            drop(vcpu);
            assert!(!exists(pid));
        }
    });
}

/// Bytes in the pipe without a trap are found out.
#[test]
fn floods_the_trap_pipe() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            system_call(a, 1, [0, STUB, 1, 0])?;
            a.jmp(again)
        });
        assert!(crash(&mut *guest.vcpu()).contains("wrote to its trap pipe itself"));
    });
}

/// With `turn` set it may claim traps without end; then every run gives an exit or a crash, and a kick gets through.
#[test]
fn claims_traps_without_end() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            let mut again = a.create_label();
            a.mov(rbx, CONTROL)?;
            a.set_label(&mut again)?;
            a.mov(dword_ptr(rbx), 1)?;
            a.mov(qword_ptr(rbx + 8), 10)?; // SIGUSR1: the VMM just lets the guest go on
            system_call(a, 1, [0, STUB, 1, 0])?;
            a.jmp(again)
        });
        let mut vcpu = guest.vcpu();
        let kicker = vcpu.kicker();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            kicker.kick();
        });
        assert!(matches!(vcpu.run().unwrap(), Exit::Kicked | Exit::Crashed(_)));
        thread.join().unwrap();
    });
}

/// Waiting for itself on the futex: endless, and ended by a kick like any loop.
#[test]
fn waits_on_the_futex() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            system_call(a, 202, [CONTROL, 0, 0, 0])?;
            a.jmp(again)
        });
        let mut vcpu = guest.vcpu();
        for _ in 0..3 {
            let kicker = vcpu.kicker();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(10));
                kicker.kick();
            });
            assert_eq!(vcpu.run().unwrap(), Exit::Kicked);
            thread.join().unwrap();
        }
    });
}

/// A doorbell entry that the guest has rewritten: other descriptors, absurd lengths and registers.
#[test]
fn rewrites_the_doorbell_table() {
    bounded(|| {
        let doorbells = CONTROL + 8 + 24 * 8 + 18 * 8;
        for (offset, value) in [(16, 7), (20, 0xffff_fff0u32), (20, 22), (24, 0xffff_ffff), (28, 0), (28, 0xffff_ffff)]
        {
            let mut guest = Guest::new(|a| {
                let mut again = a.create_label();
                a.mov(rbx, DEVICE)?;
                a.mov(rcx, doorbells)?;
                a.set_label(&mut again)?;
                a.mov(dword_ptr(rbx), eax)?;
                a.mov(dword_ptr(rcx + offset), value)?;
                a.mov(dword_ptr(CONTROL + 4), eax)?; // the number of entries, through rax's moffs form
                a.jmp(again)
            });
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
            guest.vm.register_doorbell(DEVICE, 0, event.as_fd()).unwrap();
            let mut vcpu = guest.vcpu();
            let kicker = vcpu.kicker();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                kicker.kick();
            });
            let exit = vcpu.run().unwrap();
            assert!(matches!(exit, Exit::Crashed(_) | Exit::Kicked | Exit::MmioWrite { .. }), "{exit:?}");
            thread.join().unwrap();
        }
    });
}

#[test]
fn leaves_64_bit_mode() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            a.push(0x23)?;
            a.push(0x12000)?;
            a.db(&[0x48, 0xcb]) // retfq
        });
        guest.write(0x12000, &[0xf4]);
        let sentence = crash(&mut *guest.vcpu());
        assert!(sentence.contains("64-bit mode"), "{sentence}");
    });
}

/// Repeats with counts and addresses at the ends of everything.
#[test]
fn absurd_string_transfers() {
    bounded(|| {
        for (count, address, down) in [
            (u64::MAX, 0x90000u64, false),
            (1 << 63, u64::MAX, false),
            (4, u64::MAX - 3, false),
            (4, 0, true),
            (4, 1, true),
            (4, STUB, false),
            (4, CONTROL, false),
            (4, 0x8000, false),
            (0x1_0000_0000, 0x90000, false),
        ] {
            for input in [false, true] {
                let mut guest = Guest::new(|a| {
                    if down {
                        a.std()?;
                    }
                    a.mov(rcx, count)?;
                    a.mov(rsi, address)?;
                    a.mov(rdi, address)?;
                    if input { a.rep().insd() } else { a.rep().outsd() }
                });
                let sentence = crash(&mut *guest.vcpu());
                assert!(
                    sentence.contains("not all of them in its memory"),
                    "{count:#x} {address:#x} {down}: {sentence}"
                );
            }
        }
    });
}
