//! Nothing is left of a guest.

use crate::guest::{CODE, ENTRY, Guest, MEMORY_BYTES, bounded, exists};
use blockyard_block::MemoryMap;
use blockyard_hypervisor::user::{UserHypervisor, availability};
use blockyard_hypervisor::{Entry, Exit, Hypervisor};
use iced_x86::code_asm::CodeAssembler;
use rustix::event::{EventfdFlags, eventfd};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn endless(a: &mut CodeAssembler) -> Result<(), iced_x86::IcedError> {
    let mut again = a.create_label();
    a.set_label(&mut again)?;
    a.jmp(again)
}

#[test]
fn works_here() {
    let sentence = availability().unwrap();
    assert!(sentence.contains("0x10000"), "{sentence}");
}

#[test]
fn the_process_is_gone_after_drop() {
    bounded(|| {
        let mut guest = Guest::new(endless);
        let vcpu = guest.vcpu();
        let kicker = vcpu.kicker();
        let pid = vcpu.process_id().unwrap();
        assert!(exists(pid));
        drop(guest);
        assert!(exists(pid), "the vCPU alone keeps the guest");
        drop(vcpu);
        assert!(!exists(pid));
        kicker.kick();
    });
}

#[test]
fn the_guest_outlives_the_thread_that_created_it() {
    bounded(|| {
        let (_guest, mut vcpu) = std::thread::spawn(|| {
            let mut guest = Guest::new(|a| a.hlt());
            let vcpu = guest.vcpu();
            (guest, vcpu)
        })
        .join()
        .unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(vcpu.run().unwrap(), Exit::Halt);
    });
}

#[test]
fn a_killed_process_is_a_crash() {
    bounded(|| {
        let mut guest = Guest::new(endless);
        let mut vcpu = guest.vcpu();
        let pid = rustix::process::Pid::from_raw(vcpu.process_id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        match vcpu.run().unwrap() {
            Exit::Crashed(sentence) => assert!(sentence.contains("SIGKILL"), "{sentence}"),
            exit => panic!("{exit:?}"),
        }
        vcpu.kicker().kick();
        assert!(matches!(vcpu.run().unwrap(), Exit::Crashed(_)));
    });
}

/// The process holds its descriptors and mappings, nothing else; it leads a session of its own and nobody may attach.
#[test]
fn the_process_holds_nothing_of_the_vmm() {
    bounded(|| {
        let mut guest = Guest::new(|a| a.hlt());
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        guest.vm.register_doorbell(0xd000_0000, 0, event.as_fd()).unwrap();
        let mut vcpu = guest.vcpu();
        let pid = vcpu.process_id().unwrap();
        assert_eq!(vcpu.run().unwrap(), Exit::Halt);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').trim().to_owned()
        };
        assert_eq!(field("Name"), "blockyard-guest");
        assert_eq!(field("Seccomp"), "2");
        assert_eq!(field("NoNewPrivs"), "1");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        assert_eq!(
            field("NSsid").split('\t').next_back().map(str::to_owned),
            field("NSpid").split('\t').next_back().map(str::to_owned)
        );
        // Readable to root only, as the process is not dumpable.
        if let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) {
            assert_eq!(descriptors.count(), 2, "trap pipe and doorbell");
        }
        if let Ok(maps) = std::fs::read_to_string(format!("/proc/{pid}/maps")) {
            let maps: Vec<_> = maps.lines().filter(|line| !line.contains("[v")).collect();
            assert_eq!(maps.len(), 4, "memory, two parts of the stub, control area: {maps:#?}");
        }
    });
}

const CHILD: &str = "BLOCKYARD_TEST_CHILD";

/// Not a test by itself: the VMM process that the next test kills.
#[test]
fn vmm_to_be_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut guest = Guest::new(endless);
    let mut vcpu = guest.vcpu();
    println!("\nguest {}", vcpu.process_id().unwrap());
    let _ = vcpu.run();
}

#[test]
fn the_process_dies_with_the_vmm() {
    bounded(|| {
        let mut vmm = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lifetime::vmm_to_be_killed", "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(vmm.stdout.take().unwrap()).lines();
        let pid = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("guest ")?.parse().ok()).unwrap();
        assert!(exists(pid));
        vmm.kill().unwrap();
        vmm.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(50);
        // Its new parent may be slow to reap it: a zombie is dead enough.
        let dead = || std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "));
        while !dead() {
            assert!(Instant::now() < deadline, "guest {pid} is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    let memory = MemoryMap::allocate(&[(0, MEMORY_BYTES), (1 << 44, 0x1000)]).unwrap();
    let mut vm = UserHypervisor.create_vm().unwrap();
    vm.map_memory(0, &memory, 0).unwrap();
    assert!(vm.map_memory(0, &memory, 0).is_err(), "slot taken");
    assert!(vm.map_memory(1, &memory, 0).is_err(), "overlap");
    assert!(vm.map_memory(1, &memory, 1).is_err(), "too high");
    assert!(vm.map_memory(1, &memory, 2).is_err(), "no such region");
    let at = |entry, stack_top| Entry::Flat64 { entry, stack_top, gdt: 0, page_tables: 0 };
    assert!(vm.create_vcpu(0, &at(0x1000, 0x80000)).is_err(), "entry below the lowest address");
    assert!(vm.create_vcpu(0, &at(CODE, MEMORY_BYTES as u64 + 1)).is_err(), "stack outside");
    assert!(vm.create_vcpu(0, &at(CODE, 0)).is_err(), "no stack");
    assert!(vm.create_vcpu(1, &ENTRY).is_err(), "one vCPU only");
    let kernel = Entry::Linux64 { entry: CODE, boot_parameters: CODE, gdt: 0x1000, page_tables: 0x2000 };
    for entry in [kernel, Entry::AwaitStartup] {
        let refused = vm.create_vcpu(0, &entry).map(drop).unwrap_err().to_string();
        assert!(refused.contains("no kernels"), "{refused}");
    }
    assert!(vm.create_interrupt_controllers(1).is_err(), "no interrupts");
    let vcpu = vm.create_vcpu(0, &ENTRY).unwrap();
    assert!(vm.create_vcpu(0, &ENTRY).is_err(), "one vCPU only");
    assert!(vm.map_memory(1, &memory, 1).is_err(), "too late");
    drop(vcpu);
}
