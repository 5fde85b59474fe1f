//! Doorbells ring eventfds, and the VMM sees nothing of it.

use crate::guest::{DEVICE, Guest, bounded};
use blockyard_hypervisor::Exit;
use iced_x86::code_asm::*;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap()
}

/// How often it rang since the last time.
fn rings(event: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(event, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

#[test]
fn ring_without_an_exit() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            let mut again = a.create_label();
            a.mov(rbx, DEVICE)?;
            a.mov(ecx, 1000)?;
            a.xor(esi, esi)?;
            a.set_label(&mut again)?;
            a.mov(dword_ptr(rbx + 0x50), esi)?; // 0 and 1 in turns: two values at one instruction
            a.mov(dword_ptr(rbx + 0x50), 2)?;
            a.xor(esi, 1)?;
            a.dec(ecx)?;
            a.jnz(again)?;
            a.mov(dword_ptr(rbx + 0x50), 3)?; // no doorbell for this value
            a.mov(dword_ptr(rbx + 0x54), esi)?; // nor for this address
            a.mov(word_ptr(rbx + 0x50), si)?; // nor for this size
            a.hlt()
        });
        let events = [event(), event(), event()];
        for (value, event) in events.iter().enumerate() {
            guest.vm.register_doorbell(DEVICE + 0x50, value as u32, event.as_fd()).unwrap();
        }
        assert!(guest.vm.register_doorbell(DEVICE + 0x50, 1, events[0].as_fd()).is_err());
        let mut vcpu = guest.vcpu();
        assert_eq!(vcpu.run().unwrap(), Exit::MmioWrite { address: DEVICE + 0x50, data: &[3, 0, 0, 0] });
        assert_eq!(events.each_ref().map(rings), [500, 500, 1000]);
        assert_eq!(vcpu.run().unwrap(), Exit::MmioWrite { address: DEVICE + 0x54, data: &[0; 4] });
        assert_eq!(vcpu.run().unwrap(), Exit::MmioWrite { address: DEVICE + 0x50, data: &[0; 2] });
        assert_eq!(vcpu.run().unwrap(), Exit::Halt);
    });
}

#[test]
fn unregistered_ones_are_exits_again_and_late_ones_ring() {
    bounded(|| {
        let mut guest = Guest::new(|a| {
            let mut again = a.create_label();
            a.mov(rbx, DEVICE)?;
            a.set_label(&mut again)?;
            a.mov(dword_ptr(rbx), eax)?;
            a.mov(dword_ptr(rbx), eax)?;
            a.hlt()?;
            a.jmp(again)
        });
        let event = event();
        guest.vm.register_doorbell(DEVICE, 0, event.as_fd()).unwrap();
        let mut vcpu = guest.vcpu();
        for _ in 0..3 {
            assert_eq!(vcpu.run().unwrap(), Exit::Halt);
            assert_eq!(rings(&event), 2);
        }
        guest.vm.unregister_doorbell(DEVICE, 0).unwrap();
        assert!(guest.vm.unregister_doorbell(DEVICE, 0).is_err());
        for _ in 0..2 {
            assert_eq!(vcpu.run().unwrap(), Exit::MmioWrite { address: DEVICE, data: &[0; 4] });
        }
        assert_eq!(vcpu.run().unwrap(), Exit::Halt);
        assert_eq!(rings(&event), 0);
        guest.vm.register_doorbell(DEVICE, 0, event.as_fd()).unwrap();
        assert_eq!(vcpu.run().unwrap(), Exit::Halt);
        assert_eq!(rings(&event), 2);
    });
}

/// More doorbells than the process can hold, and more instructions than the stub can know.
#[test]
fn more_than_fit_still_ring() {
    bounded(|| {
        let count = 100;
        let mut guest = Guest::new(|a| {
            a.mov(rbx, DEVICE)?;
            for _ in 0..2 {
                for value in 0..count {
                    a.mov(dword_ptr(rbx), value)?;
                }
            }
            a.hlt()
        });
        let events: Vec<_> = (0..count).map(|_| event()).collect();
        for (value, event) in events.iter().enumerate() {
            guest.vm.register_doorbell(DEVICE, value as u32, event.as_fd()).unwrap();
        }
        let mut vcpu = guest.vcpu();
        assert_eq!(vcpu.run().unwrap(), Exit::Halt);
        assert!(events.iter().all(|event| rings(event) == 2));
    });
}
