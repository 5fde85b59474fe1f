//! Guest writes that ring an eventfd.

use crate::machine::{DEVICE, machine};
use blockyard_hypervisor::{Error, Exit};
use iced_x86::code_asm::*;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};

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
fn doorbells_of_any_write_come_and_go_while_the_guest_runs() {
    let Some(mut machine) = machine(|a| {
        a.mov(edi, DEVICE as u32)?;
        a.mov(word_ptr(rdi), 7)?;
        a.mov(eax, 9)?;
        a.mov(dword_ptr(rdi), eax)?;
        a.mov(byte_ptr(rdi + 1), 7)?;
        a.mov(word_ptr(rdi), 8)?;
        a.ud2()
    }) else {
        return;
    };
    machine.vm.create_interrupt_controllers(1).unwrap();
    let (routes, event) = (machine.vm.event_routes().unwrap(), event());
    routes.add_doorbell(DEVICE, event.as_fd()).unwrap();
    assert!(matches!(routes.add_doorbell(DEVICE, event.as_fd()), Err(Error::Refused(_))));
    let mut vcpu = machine.vcpu();
    assert_eq!(vcpu.run().unwrap(), Exit::MmioWrite { address: DEVICE + 1, data: &[7] });
    assert_eq!(count(&event), 2);
    routes.remove_doorbell(DEVICE).unwrap();
    assert!(matches!(routes.remove_doorbell(DEVICE), Err(Error::Refused(_))));
    assert_eq!(vcpu.run().unwrap(), Exit::MmioWrite { address: DEVICE, data: &[8, 0] });
    assert_eq!(count(&event), 0);
}

#[test]
fn doorbells_need_an_eventfd() {
    let Some(mut machine) = machine(|a| a.hlt()) else { return };
    let file = tempfile::tempfile().unwrap();
    assert!(machine.vm.register_doorbell(DEVICE, 0, file.as_fd()).is_err());
    machine.vm.register_doorbell(DEVICE, 0, event().as_fd()).unwrap();
}
