//! A VM with a PC's interrupt controllers.

use crate::machine::{ENTRY, Machine, assemble, hypervisor};
use blockyard_block::{EventFd, Woken, wait_readable};
use blockyard_hypervisor::{Entry, INTERRUPT_LINES};
use std::os::fd::AsFd;
use std::time::Duration;

fn refused<T>(result: Result<T, blockyard_hypervisor::Error>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn controllers_come_once_and_before_the_first_vcpu() {
    let Some(hypervisor) = hypervisor() else { return };
    let mut machine = Machine::new(&hypervisor, &assemble(|a| a.hlt()));
    let event = EventFd::new().unwrap();
    assert!(refused(machine.vm.register_interrupt(4, event.as_fd())).contains("no interrupt controllers"));
    assert!(refused(machine.vm.create_vcpu(1, &Entry::AwaitStartup)).contains("nobody would start it"));
    for vcpus in [0, 256] {
        assert!(refused(machine.vm.create_interrupt_controllers(vcpus)).contains("1 to 255"));
    }
    machine.vm.create_interrupt_controllers(2).unwrap();
    assert!(refused(machine.vm.create_interrupt_controllers(2)).contains("once"));
    machine.vm.register_interrupt(4, event.as_fd()).unwrap();
    assert!(refused(machine.vm.register_interrupt(INTERRUPT_LINES, event.as_fd())).contains("line 24"));
    assert!(refused(machine.vm.create_vcpu(0, &Entry::AwaitStartup)).contains("nobody would start it"));
    let first = machine.vm.create_vcpu(0, &ENTRY).unwrap();
    let second = machine.vm.create_vcpu(1, &Entry::AwaitStartup).unwrap();
    assert!(refused(machine.vm.create_vcpu(2, &Entry::AwaitStartup)).contains("KVM has 2 here"));
    drop((first, second));

    let mut late = Machine::new(&hypervisor, &assemble(|a| a.hlt()));
    let vcpu = late.vcpu();
    assert!(refused(late.vm.create_interrupt_controllers(1)).contains("before its first vCPU"));
    drop(vcpu);
}

#[test]
fn a_vcpu_that_waits_comes_back_when_it_is_kicked() {
    let Some(hypervisor) = hypervisor() else { return };
    let mut machine = Machine::new(&hypervisor, &assemble(|a| a.hlt()));
    machine.vm.create_interrupt_controllers(2).unwrap();
    // One halts and one was never started: neither comes back by itself.
    for (index, entry) in [(0, ENTRY), (1, Entry::AwaitStartup)] {
        let mut vcpu = machine.vm.create_vcpu(index, &entry).unwrap();
        let kicker = vcpu.kicker();
        let thread = std::thread::spawn(move || format!("{:?}", vcpu.run()));
        kicker.kick();
        assert_eq!(thread.join().unwrap(), "Ok(Kicked)");
    }
}

#[test]
fn messages_are_kept_while_they_are_masked() {
    let Some(hypervisor) = hypervisor() else { return };
    let mut machine = Machine::new(&hypervisor, &assemble(|a| a.hlt()));
    assert!(refused(machine.vm.event_routes()).contains("no interrupt controllers"));
    machine.vm.create_interrupt_controllers(1).unwrap();
    let routes = machine.vm.event_routes().unwrap();
    let events: Vec<_> = (0..2).map(|_| EventFd::new().unwrap()).collect();
    let interrupts: Vec<_> = events.iter().map(|event| routes.add_message_interrupt(event.as_fd()).unwrap()).collect();
    let kept =
        |index: usize| wait_readable(Some(events[index].as_fd()), &[], Some(Duration::ZERO)).unwrap() == Woken::Own;
    for (index, interrupt) in interrupts.iter().enumerate() {
        events[index].ring();
        assert!(kept(index), "it begins masked");
        interrupt.unmask(0xfee0_0000, 0x31).unwrap();
        assert!(!kept(index), "it was raised");
        events[index].ring();
        assert!(!kept(index), "it is raised");
        interrupt.unmask(0x1_fee0_0000, 0x4032).unwrap();
        interrupt.mask().unwrap();
        interrupt.mask().unwrap();
        events[index].ring();
        assert!(kept(index));
    }
    drop(interrupts);
    routes.add_message_interrupt(events[0].as_fd()).unwrap().unmask(0xfee0_0000, 0x31).unwrap();
    machine.vm.register_interrupt(4, events[1].as_fd()).unwrap();
}
