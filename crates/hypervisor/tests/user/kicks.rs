//! Fetching guests back.

use crate::guest::{Guest, bounded, crash, exists};
use blockyard_hypervisor::{Exit, Vcpu};
use iced_x86::code_asm::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

fn kick_in(vcpu: &dyn Vcpu, delay: Duration) -> std::thread::JoinHandle<()> {
    let kicker = vcpu.kicker();
    std::thread::spawn(move || {
        std::thread::sleep(delay);
        kicker.kick();
    })
}

#[test]
fn an_endless_loop_comes_back_and_goes_on() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.inc(rcx)?;
            a.cmp(byte_ptr(0x90000), 0)?;
            a.je(again)?;
            a.mov(qword_ptr(0x90008), rcx)?;
            a.hlt()
        });
        let mut vcpu = guest.vcpu();
        for _ in 0..20 {
            let thread = kick_in(&*vcpu, Duration::from_millis(2));
            assert_eq!(vcpu.run().unwrap(), Exit::Kicked);
            thread.join().unwrap();
        }
        guest.write(0x90000, &[1]);
        assert_eq!(vcpu.run().unwrap(), Exit::Halt);
        assert_ne!(guest.read(0x90008, 8), [0; 8]);
    });
}

#[test]
fn a_kick_before_run_is_not_lost_and_several_are_one() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            a.out(0x21, al)?;
            a.in_(al, 0x21)?;
            a.out(0x21, al)?;
            a.hlt()
        });
        let mut vcpu = guest.vcpu();
        vcpu.kicker().kick();
        vcpu.kicker().kick();
        assert_eq!(vcpu.run().unwrap(), Exit::Kicked);
        assert_eq!(vcpu.run().unwrap(), Exit::PortOut { port: 0x21, size: 1, data: &[0] });
        match vcpu.run().unwrap() {
            Exit::PortIn { data, .. } => data[0] = 0x77,
            exit => panic!("{exit:?}"),
        }
        // The answer to the input waits out the kick.
        vcpu.kicker().kick();
        assert_eq!(vcpu.run().unwrap(), Exit::Kicked);
        assert_eq!(vcpu.run().unwrap(), Exit::PortOut { port: 0x21, size: 1, data: &[0x77] });
        assert_eq!(vcpu.run().unwrap(), Exit::Halt);
    });
}

/// Kicks at random moments of a guest that exits all the time: none is lost, nothing is done twice.
#[test]
fn kicks_among_exits() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.out(0x21, eax)?;
            a.inc(eax)?;
            a.jmp(again)
        });
        let mut vcpu = guest.vcpu();
        let kicker = vcpu.kicker();
        let (enough, kicking) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let thread = std::thread::spawn({
            let enough = Arc::clone(&enough);
            move || {
                while !enough.load(Ordering::Relaxed) {
                    kicker.kick();
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        let (mut next, mut kicks) = (0u32, 0);
        // For a while, and until there were some of both.
        while kicking.elapsed() < Duration::from_millis(500) || next <= 10 || kicks <= 10 {
            match vcpu.run().unwrap() {
                Exit::PortOut { data, .. } => {
                    assert_eq!(data, next.to_le_bytes());
                    next += 1;
                }
                Exit::Kicked => kicks += 1,
                exit => panic!("{exit:?}"),
            }
        }
        enough.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        vcpu.kicker().kick();
        assert_eq!(vcpu.run().unwrap(), Exit::Kicked);
    });
}

/// A guest can block every signal by returning from one that never was. Then it is ended.
#[test]
fn a_guest_that_blocks_the_signal_is_ended() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            let mut endless = a.create_label();
            // A signal frame in zeroed memory: only what must not be zero is set.
            a.mov(rsp, 0x90000u64)?;
            a.mov(dword_ptr(0x90000 + 40 + 8 * 15), 0x80000)?; // rsp
            a.lea(rax, qword_ptr(endless))?;
            a.mov(qword_ptr(0x90000 + 40 + 8 * 16), rax)?; // rip
            a.mov(dword_ptr(0x90000 + 40 + 8 * 17), 2)?; // rflags
            a.mov(ax, cs)?;
            a.mov(word_ptr(0x90000 + 40 + 8 * 18), ax)?;
            a.mov(ax, ss)?;
            a.mov(word_ptr(0x90000 + 40 + 8 * 18 + 6), ax)?;
            // The signal mask, after 23 registers, the FPU's pointer and 8 reserved words.
            a.mov(qword_ptr(0x90000 + 40 + 8 * 32), -1)?;
            a.mov(eax, 15)?;
            a.syscall()?;
            a.set_label(&mut endless)?;
            a.mov(byte_ptr(0xa0000), 1)?;
            a.jmp(endless)
        });
        let mut vcpu = guest.vcpu();
        let pid = vcpu.process_id().unwrap();
        // Not before it has blocked the signal, or that kick is one like any other.
        let (kicker, memory) = (vcpu.kicker(), guest.memory.clone());
        let thread = std::thread::spawn(move || {
            let mut went_on = [0];
            while went_on == [0] {
                std::thread::sleep(Duration::from_millis(2));
                memory.guest_memory().read_slice(&mut went_on, GuestAddress(0xa0000)).unwrap();
            }
            kicker.kick();
        });
        let sentence = crash(&mut *vcpu);
        thread.join().unwrap();
        assert!(sentence.contains("does not react to signals"), "{sentence}");
        assert_eq!(guest.read(0xa0000, 1), [1], "the guest went on after its forged return");
        assert!(!exists(pid));
    });
}
