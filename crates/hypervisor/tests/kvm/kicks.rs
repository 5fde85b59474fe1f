//! Fetching a guest back from another thread.

use crate::machine::{DATA, machine};
use blockyard_hypervisor::Exit;
use iced_x86::IcedError;
use iced_x86::code_asm::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn endless(a: &mut CodeAssembler) -> Result<(), IcedError> {
    let mut again = a.create_label();
    a.set_label(&mut again)?;
    a.inc(qword_ptr(DATA))?;
    a.jmp(again)
}

#[test]
fn kick_fetches_an_endless_guest_back() {
    let Some(mut machine) = machine(endless) else { return };
    let mut vcpu = machine.vcpu();
    let kick = vcpu.kicker();
    let kicker = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        kick.kick();
    });
    assert_eq!(vcpu.run().unwrap(), Exit::Kicked);
    kicker.join().unwrap();
    assert_ne!(machine.bytes(DATA, 8), [0; 8]);
}

#[test]
fn kick_before_a_run_stops_that_run_and_no_other() {
    let Some(mut machine) = machine(|a| {
        a.hlt()?;
        a.hlt()
    }) else {
        return;
    };
    let mut vcpu = machine.vcpu();
    let kick = vcpu.kicker();
    kick.kick();
    kick.kick();
    assert_eq!(vcpu.run().unwrap(), Exit::Kicked);
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
}

#[test]
fn kick_is_never_lost() {
    let Some(mut machine) = machine(endless) else { return };
    let mut vcpu = machine.vcpu();
    let kick = vcpu.kicker();
    const ROUNDS: u32 = 500;
    let ready = Arc::new(AtomicBool::new(false));
    let kicker = thread::spawn({
        let ready = Arc::clone(&ready);
        move || {
            for round in 0..ROUNDS {
                while !ready.swap(false, Ordering::AcqRel) {
                    std::hint::spin_loop();
                }
                // Vary where in `run` the kick arrives.
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_nanos(u64::from(round) * 200) {}
                kick.kick();
            }
        }
    });
    for _ in 0..ROUNDS {
        ready.store(true, Ordering::Release);
        assert_eq!(vcpu.run().unwrap(), Exit::Kicked);
    }
    kicker.join().unwrap();
}

#[test]
fn kick_reaches_a_vcpu_that_changed_threads() {
    let Some(mut machine) = machine(endless) else { return };
    let mut vcpu = machine.vcpu();
    let kick = vcpu.kicker();
    for _ in 0..3 {
        let runner = thread::spawn(move || {
            assert_eq!(vcpu.run().unwrap(), Exit::Kicked);
            vcpu
        });
        thread::sleep(Duration::from_millis(10));
        kick.kick();
        vcpu = runner.join().unwrap();
    }
    drop(vcpu);
    kick.kick();
}

#[test]
fn run_does_not_return_for_other_signals() {
    let Some(mut machine) = machine(|a| {
        let mut again = a.create_label();
        a.mov(ecx, 50_000_000)?;
        a.set_label(&mut again)?;
        a.dec(ecx)?;
        a.jne(again)?;
        a.hlt()
    }) else {
        return;
    };
    extern "C" fn do_nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, do_nothing as *const () as libc::sighandler_t) };
    // SAFETY: no preconditions.
    let thread_id = unsafe { libc::gettid() };
    let stop = Arc::new(AtomicBool::new(false));
    let signaller = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(5));
                // SAFETY: a system call without pointers; the handler does nothing.
                unsafe { libc::tgkill(libc::getpid(), thread_id, libc::SIGUSR1) };
            }
        }
    });
    let result = machine.vcpu().run().map(|exit| exit == Exit::Halt);
    stop.store(true, Ordering::Release);
    signaller.join().unwrap();
    assert!(result.unwrap());
}
