//! Guests that misbehave.

use crate::machine::{DATA, DEVICE, LOW_MEMORY_BYTES, Machine, Program, assemble, hypervisor};
use blockyard_hypervisor::{Exit, Kick};
use iced_x86::code_asm::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How a hostile guest ended.
#[derive(Debug, PartialEq)]
enum End {
    Halted,
    ShutDown,
    Crashed(String),
    /// It would go on for ever: fetched back.
    Stopped,
}

/// Runs a guest to its end, answering all it asks, for `patience` at most.
fn run_to_end(machine: &mut Machine, patience: Duration) -> End {
    let mut vcpu = machine.vcpu();
    let over = Arc::new(AtomicBool::new(false));
    let watchdog = thread::spawn({
        let (over, kick): (_, Arc<dyn Kick>) = (Arc::clone(&over), vcpu.kicker());
        move || {
            thread::park_timeout(patience);
            over.store(true, Ordering::Release);
            kick.kick();
        }
    });
    let end = loop {
        if over.load(Ordering::Acquire) {
            break End::Stopped;
        }
        match vcpu.run().expect("whatever a guest does is an exit") {
            Exit::Halt => break End::Halted,
            Exit::Shutdown => break End::ShutDown,
            Exit::Crashed(sentence) => break End::Crashed(sentence),
            Exit::Kicked => break End::Stopped,
            Exit::PortIn { data, .. } | Exit::MmioRead { data, .. } => data.fill(0xff),
            Exit::PortOut { .. } | Exit::MmioWrite { .. } => {}
        }
    };
    // Running it again does no harm either.
    vcpu.kicker().kick();
    vcpu.run().expect("whatever a guest does is an exit");
    watchdog.thread().unpark();
    watchdog.join().unwrap();
    end
}

#[test]
fn guests_that_fault_shut_down() {
    let Some(hypervisor) = hypervisor() else { return };
    let programs: [(&str, Program); 7] = [
        ("undefined instruction", |a| a.ud2()),
        ("breakpoint without a handler", |a| a.int3()),
        ("divide by zero", |a| a.div(ecx)),
        ("access beyond the page tables", |a| a.mov(eax, dword_ptr(rsp + 0x7fff_0000_i32))),
        ("non-canonical address", |a| {
            a.mov(rax, 1_u64 << 63)?;
            a.mov(eax, dword_ptr(rax))
        }),
        ("page tables into nowhere", |a| {
            a.mov(eax, 0x7000_0000)?;
            a.mov(cr3, rax)?;
            a.hlt()
        }),
        ("segment that is not there", |a| {
            a.mov(eax, 0x40)?;
            a.mov(ds, eax)
        }),
    ];
    for (name, program) in programs {
        let end = run_to_end(&mut Machine::new(&hypervisor, &assemble(program)), Duration::from_secs(5));
        // A walk of page tables that are no memory may also be something that KVM cannot emulate.
        assert!(matches!(end, End::ShutDown | End::Crashed(_)), "{name}: {end:?}");
    }
}

#[test]
fn guests_that_jump_to_where_no_memory_is_crash_with_a_sentence() {
    let Some(hypervisor) = hypervisor() else { return };
    let program: Program = |a| {
        a.mov(eax, DEVICE as u32)?;
        a.jmp(rax)
    };
    match run_to_end(&mut Machine::new(&hypervisor, &assemble(program)), Duration::from_secs(5)) {
        End::Crashed(sentence) => assert!(sentence.contains("0x20000000"), "{sentence}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hostile_guests_neither_hang_nor_break_the_vmm() {
    let Some(hypervisor) = hypervisor() else { return };
    const DEV: u32 = DEVICE as u32;
    let programs: [(&str, Program); 20] = [
        ("paging off in long mode", |a| {
            a.mov(rax, cr0)?;
            a.btr(rax, 31)?;
            a.mov(cr0, rax)
        }),
        ("PAE off in long mode", |a| {
            a.xor(eax, eax)?;
            a.mov(cr4, rax)
        }),
        ("EFER cleared", |a| {
            a.mov(ecx, 0xc000_0080_u32)?;
            a.xor(eax, eax)?;
            a.wrmsr()
        }),
        ("unknown MSR", |a| {
            a.mov(ecx, 0xdead_beef_u32)?;
            a.rdmsr()
        }),
        ("APIC base moved onto memory", |a| {
            a.mov(ecx, 0x1b)?;
            a.mov(eax, 0x1_0900)?;
            a.xor(edx, edx)?;
            a.wrmsr()?;
            a.hlt()
        }),
        ("nested virtualization", |a| {
            a.mov(ecx, 0xc000_0080_u32)?;
            a.rdmsr()?;
            a.bts(eax, 12)?;
            a.wrmsr()?;
            a.mov(eax, 0x2_0000)?;
            a.vmrun()
        }),
        ("hypercalls", |a| {
            a.mov(eax, 12)?;
            a.vmmcall()?;
            a.mov(eax, 0xffff_ffff_u32)?;
            a.vmcall()?;
            a.hlt()
        }),
        ("task priority up and down", |a| {
            a.mov(eax, 15)?;
            a.mov(cr8, rax)?;
            a.xor(eax, eax)?;
            a.mov(cr8, rax)?;
            a.hlt()
        }),
        ("IDT in device space", |a| {
            a.mov(dword_ptr(DATA), 0xfff)?;
            a.mov(dword_ptr(DATA + 2), DEV)?;
            a.lidt(ptr(DATA))?;
            a.int(0x80)
        }),
        ("stack in device space", |a| {
            a.mov(esp, DEV + 0x1000)?;
            a.call(rax)
        }),
        ("GDT in device space", |a| {
            a.mov(dword_ptr(DATA), 0xfff)?;
            a.mov(dword_ptr(DATA + 2), DEV)?;
            a.lgdt(ptr(DATA))?;
            a.mov(eax, 0x10)?;
            a.mov(ss, eax)?;
            a.hlt()
        }),
        ("page tables in device space", |a| {
            a.mov(eax, DEV)?;
            a.mov(cr3, rax)?;
            a.hlt()
        }),
        ("SSE at a device", |a| {
            a.movaps(xmmword_ptr(DEVICE), xmm0)?;
            a.hlt()
        }),
        ("state saved to a device", |a| {
            a.fxsave(ptr(DEVICE))?;
            a.hlt()
        }),
        ("atomics at a device", |a| {
            a.mov(edi, DEV)?;
            a.lock().cmpxchg16b(xmmword_ptr(rdi))?;
            a.lock().add(qword_ptr(rdi), 1)?;
            a.hlt()
        }),
        ("device to device", |a| {
            a.mov(esi, DEV)?;
            a.mov(edi, DEV + 0x1000)?;
            a.mov(ecx, 64)?;
            a.rep().movsq()?;
            a.hlt()
        }),
        ("strings between ports and devices", |a| {
            a.mov(esi, DEV)?;
            a.mov(edi, DEV + 0x1000)?;
            a.mov(ecx, 64)?;
            a.rep().insd()?;
            a.mov(ecx, 64)?;
            a.rep().outsd()?;
            a.hlt()
        }),
        ("memory that straddles a device", |a| {
            a.mov(edi, LOW_MEMORY_BYTES as u32 - 3)?;
            a.mov(rax, qword_ptr(rdi))?;
            a.mov(qword_ptr(rdi), rax)?;
            a.hlt()
        }),
        ("a port string of 2^64 items", |a| {
            a.mov(rcx, u64::MAX)?;
            a.mov(edi, DATA as u32)?;
            a.rep().insb()
        }),
        ("code that becomes device space", |a| {
            a.mov(eax, LOW_MEMORY_BYTES as u32 - 1)?;
            a.mov(byte_ptr(rax), 0x90)?;
            a.jmp(rax)
        }),
    ];
    for (name, program) in programs {
        let end = run_to_end(&mut Machine::new(&hypervisor, &assemble(program)), Duration::from_millis(500));
        eprintln!("{name}: {end:?}");
        // Stopped is well too: some faults at a device repeat for ever, and it was a kick that ended it.
        if let End::Crashed(sentence) = &end {
            assert!(sentence.contains("guest"), "{name}: {sentence}");
        }
    }
}

#[test]
fn guests_of_random_bytes_do_no_harm() {
    let Some(hypervisor) = hypervisor() else { return };
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..30 {
        let code: Vec<u8> = (0..4096)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect();
        run_to_end(&mut Machine::new(&hypervisor, &code), Duration::from_millis(20));
    }
}
