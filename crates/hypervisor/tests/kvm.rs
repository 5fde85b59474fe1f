//! The `kvm` backend on a real /dev/kvm: small guests, each about one exit, and hostile ones.
//!
//! These run where `BLOCKYARD_TEST_KVM=1` says that there is a KVM that executes guest code: in `cargo xtask lab`, or on
//! a machine of that kind. Elsewhere (no KVM, or PVM, whose emulator knows too few instructions) they return early.

use blockyard_block::MemoryMap;
use blockyard_hypervisor::kvm::{KvmHypervisor, nanoseconds_per_instruction, probe};
use blockyard_hypervisor::{Entry, Error, Exit, Hypervisor, Kick, Vcpu, Vm};
use iced_x86::IcedError;
use iced_x86::code_asm::*;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

const CODE: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;
const STACK_TOP: u64 = 0x8_0000;
const LOW_MEMORY_BYTES: usize = 0x10_0000;
const HIGH_MEMORY: u64 = 0x1000_0000;
const HIGH_MEMORY_BYTES: usize = 0x1_0000;
/// No memory here.
const DEVICE: u64 = 0x2000_0000;
const ENTRY: Entry = Entry::Flat64 { entry: CODE, stack_top: STACK_TOP, gdt: 0x1000, page_tables: 0x2000 };

/// The hypervisor, or `None` where these tests have no business.
fn hypervisor() -> Option<KvmHypervisor> {
    if std::env::var_os("BLOCKYARD_TEST_KVM").is_none_or(|value| value != "1") {
        eprintln!("runs in the lab: cargo xtask lab");
        return None;
    }
    Some(KvmHypervisor::open().expect("BLOCKYARD_TEST_KVM=1 promises a usable /dev/kvm"))
}

/// A VM with two memory slots and code in it, not yet with a vCPU.
struct Machine {
    vm: Box<dyn Vm>,
    memory: MemoryMap,
}

impl Machine {
    fn new(hypervisor: &KvmHypervisor, code: &[u8]) -> Self {
        let memory = MemoryMap::allocate(&[(0, LOW_MEMORY_BYTES), (HIGH_MEMORY, HIGH_MEMORY_BYTES)]).unwrap();
        memory.guest_memory().write_slice(code, GuestAddress(CODE)).unwrap();
        let mut vm = hypervisor.create_vm().unwrap();
        vm.map_memory(0, &memory, 0).unwrap();
        vm.map_memory(1, &memory, 1).unwrap();
        Self { vm, memory }
    }

    fn vcpu(&mut self) -> Box<dyn Vcpu> {
        self.vm.create_vcpu(0, &ENTRY).unwrap()
    }

    fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.guest_memory().read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }
}

type Program = fn(&mut CodeAssembler) -> Result<(), IcedError>;

fn assemble(program: Program) -> Vec<u8> {
    let mut assembler = CodeAssembler::new(64).unwrap();
    program(&mut assembler).unwrap();
    assembler.assemble(CODE).unwrap()
}

fn machine(program: Program) -> Option<Machine> {
    Some(Machine::new(&hypervisor()?, &assemble(program)))
}

fn expect_out(vcpu: &mut dyn Vcpu, expected_port: u16, expected_size: u8, expected: &[u8]) {
    match vcpu.run().unwrap() {
        Exit::PortOut { port, size, data } => {
            assert_eq!((port, size, data), (expected_port, expected_size, expected));
        }
        other => panic!("expected output at port {expected_port:#x}, got {other:?}"),
    }
}

#[test]
fn says_what_it_can_do() {
    let Some(hypervisor) = hypervisor() else { return };
    assert_eq!(hypervisor.name(), "kvm");
    let capabilities = hypervisor.capabilities();
    assert!(capabilities.kernels && capabilities.vcpus_max >= 1 && capabilities.memory_slots_max >= 8);
}

#[test]
fn is_probed_as_native_where_it_executes_guest_code() {
    let Some(hypervisor) = hypervisor() else { return };
    let per_instruction = nanoseconds_per_instruction(&hypervisor).unwrap();
    eprintln!("{per_instruction:.2} ns an instruction; {:?}", probe());
    // A loaded machine may preempt the one measurement, but not each of ten.
    assert!((0..10).any(|_| probe().native), "{:?}", probe());
    assert!(probe().usable);
}

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

fn count(event: &OwnedFd) -> u64 {
    let mut counter = [0; 8];
    match rustix::io::read(event, &mut counter) {
        Ok(_) => u64::from_ne_bytes(counter),
        Err(rustix::io::Errno::AGAIN) => 0,
        Err(error) => panic!("{error}"),
    }
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap()
}

#[test]
fn doorbells_ring_without_an_exit() {
    let Some(mut machine) = machine(|a| {
        a.mov(edi, DEVICE as u32 + 0x50)?;
        a.mov(dword_ptr(rdi), 0)?;
        a.mov(dword_ptr(rdi), 1)?;
        a.mov(eax, 1)?;
        a.mov(dword_ptr(rdi), eax)?;
        a.hlt()?;
        // Neither this value nor this width nor this address has a doorbell.
        a.mov(dword_ptr(rdi), 2)?;
        a.mov(word_ptr(rdi), 1)?;
        a.mov(dword_ptr(rdi + 4), 1)?;
        // Nor this one by now.
        a.mov(dword_ptr(rdi), 1)?;
        a.mov(dword_ptr(rdi), 0)?;
        a.hlt()
    }) else {
        return;
    };
    let (zero, one) = (event(), event());
    let bell = DEVICE + 0x50;
    machine.vm.register_doorbell(bell, 0, zero.as_fd()).unwrap();
    machine.vm.register_doorbell(bell, 1, one.as_fd()).unwrap();
    assert!(matches!(machine.vm.register_doorbell(bell, 1, zero.as_fd()), Err(Error::Refused(_))));
    let mut vcpu = machine.vcpu();
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
    assert_eq!((count(&zero), count(&one)), (1, 2));

    machine.vm.unregister_doorbell(bell, 1).unwrap();
    assert!(matches!(machine.vm.unregister_doorbell(bell, 1), Err(Error::Refused(_))));
    for (address, expected) in
        [(bell, &2_u32.to_le_bytes()[..]), (bell, &[1, 0]), (bell + 4, &[1, 0, 0, 0]), (bell, &[1, 0, 0, 0])]
    {
        assert_eq!(vcpu.run().unwrap(), Exit::MmioWrite { address, data: expected });
    }
    assert_eq!(vcpu.run().unwrap(), Exit::Halt);
    assert_eq!((count(&zero), count(&one)), (1, 0));
}

#[test]
fn doorbells_need_an_eventfd() {
    let Some(mut machine) = machine(|a| a.hlt()) else { return };
    let file = tempfile::tempfile().unwrap();
    assert!(machine.vm.register_doorbell(DEVICE, 0, file.as_fd()).is_err());
    machine.vm.register_doorbell(DEVICE, 0, event().as_fd()).unwrap();
}

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
