//! Ports that are stopped and reset, also while the disk is at work.

use crate::driver::*;
use crate::scripted_disk::{ScriptedDisk, State};
use blockyard_block::MemoryDisk;
use std::sync::Arc;

/// A port with two commands, a queued one and a long one, that the disk has.
fn busy() -> (Hba, Arc<State>) {
    let disk = ScriptedDisk::new(2);
    disk.geometry.lock().unwrap().capacity_bytes = 64 << 20;
    let state = disk.state.clone();
    let mut hba = Hba::started(Arc::new(disk));
    hba.prepare(0, 0, &Ata::queued(READ_QUEUED, 0, 0, 1), &[(DATA, 512)]);
    // 5 MiB, of which the disk has no room for the second piece.
    hba.prepare(0, 1, &Ata::queued(READ_QUEUED, 1, 0, 10240), &[(SEAM, 1 << 19); 10]);
    hba.issue(0, 0b11, true);
    hba.run();
    assert_eq!(state.log.lock().unwrap().len(), 2);
    (hba, state)
}

const LIST_RUNNING: u32 = 1 << 15;

#[test]
fn a_port_that_is_stopped_runs_until_the_disk_has_let_go_of_memory() {
    let (mut hba, state) = busy();
    hba.set_port(0, CMD, 1 << 4);
    assert_eq!((hba.port(0, CI), hba.port(0, SACT)), (0, 0));
    for left in [2, 1] {
        hba.run();
        assert_eq!(hba.port(0, CMD) & LIST_RUNNING, LIST_RUNNING, "{left} are under way");
        state.finish(1, Ok(()));
    }
    hba.run();
    assert_eq!((hba.port(0, CMD) & LIST_RUNNING, hba.port(0, PORT_IS), hba.interrupts.take()), (0, 0, 0));
    // The rest of the long one is not asked for.
    assert_eq!(state.log.lock().unwrap().len(), 2);
    hba.set_port(0, CMD, 1 << 4 | 1);
    hba.issue(0, 1, true);
    hba.run();
    state.finish(1, Ok(()));
    hba.run();
    assert_eq!((hba.port(0, SACT), hba.acknowledge(0)), (0, DEVICE_BITS));
}

/// A driver that does not wait: what it issues is begun when the disk is done with what was before.
#[test]
fn a_port_that_is_started_too_early_begins_later() {
    let (mut hba, state) = busy();
    hba.set_port(0, CMD, 1 << 4);
    hba.set_port(0, CMD, 1 << 4 | 1);
    hba.prepare(0, 7, &Ata::queued(READ_QUEUED, 7, 0, 1), &[(DATA, 512)]);
    hba.issue(0, 1 << 7, true);
    hba.run();
    assert_eq!((state.log.lock().unwrap().len(), hba.port(0, SACT)), (2, 1 << 7));
    state.finish(2, Ok(()));
    hba.run();
    assert_eq!((state.log.lock().unwrap().len(), hba.port(0, SACT)), (3, 1 << 7));
    state.finish(1, Ok(()));
    hba.run();
    assert_eq!((hba.port(0, SACT), hba.port(0, TFD)), (0, READY));
}

#[test]
fn a_reset_of_the_controller_ends_when_every_port_has_let_go() {
    let (mut hba, state) = busy();
    hba.write(GHC, 1 << 31 | 1);
    hba.run();
    assert_eq!(hba.read(GHC), 1 << 31 | 1);
    state.finish(2, Ok(()));
    hba.run();
    assert_eq!((hba.read(GHC), hba.port(0, CMD), hba.port(0, TFD)), (1 << 31, 0b110, 0x7f));
    assert_eq!((hba.port(0, CLB), hba.port(0, PORT_IE), hba.interrupts.take()), (list(0) as u32, 0, 0));
    hba.start(0);
}

#[test]
fn a_reset_of_the_link_brings_the_disk_back() {
    for is_busy in [false, true] {
        let (mut hba, state) = busy();
        if !is_busy {
            state.finish(2, Ok(()));
            hba.run();
            state.finish(2, Ok(()));
            hba.run();
            assert_eq!(hba.port(0, SACT), 0);
            hba.set_port(0, CMD, 1 << 4);
            // Nothing is under way: it has stopped at once.
            assert_eq!(hba.port(0, CMD) & LIST_RUNNING, 0);
        }
        hba.acknowledge(0);
        hba.interrupts.take();
        hba.set_port(0, SCTL, 0x301);
        assert_eq!((hba.port(0, SSTS), hba.port(0, TFD), hba.port(0, SIG)), (0, 0x7f, !0));
        hba.set_port(0, SCTL, 0x300);
        assert_eq!((hba.port(0, SSTS), hba.port(0, SERR), hba.port(0, PORT_IS)), (0x133, 1 << 26, 1 << 6));
        assert_eq!(hba.interrupts.take(), 1);
        hba.put(frames(0) + 0x40, &[0; 20]);
        hba.run();
        if is_busy {
            assert_eq!(hba.port(0, TFD), 0x80);
            state.finish(2, Ok(()));
            hba.run();
        }
        assert_eq!((hba.port(0, TFD), hba.port(0, SIG)), (0x150, 0x101));
        assert_eq!(hba.get::<14>(frames(0) + 0x40), [0x34, 0, 0x50, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        hba.set_port(0, SERR, !0);
        assert_eq!(hba.port(0, PORT_IS), 0);
    }
}

#[test]
fn a_software_reset_is_two_frames() {
    let mut hba = Hba::started(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()));
    hba.succeed(&Ata { command: 0xef, features: 0x82, ..Ata::default() }, &[]);
    for (control, interrupt) in [(1 << 2, 0), (0, REGISTERS)] {
        let mut frame = [0; 20];
        (frame[0], frame[15]) = (0x27, control);
        hba.prepare_frame(0, 0, &frame, &[]);
        hba.issue(0, 1, false);
        hba.run();
        assert_eq!((hba.port(0, CI), hba.acknowledge(0)), (0, interrupt));
    }
    assert_eq!((hba.port(0, TFD), hba.port(0, SIG)), (0x150, 0x101));
    assert_eq!(hba.get::<5>(frames(0) + 0x40), [0x34, 0x40, 0x50, 1, 1]);
    // Its settings are those after power-on.
    hba.succeed(&Ata { command: IDENTIFY, ..Ata::default() }, &[(DATA, 512)]);
    assert_eq!(hba.get::<512>(DATA)[2 * 85] & 1 << 5, 1 << 5);
}

/// What a driver that handles interrupts in any order may miss is said again.
#[test]
fn an_interrupt_that_is_acknowledged_too_early_comes_again() {
    let mut hba = Hba::started(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()));
    hba.succeed(&Ata { command: 0xe7, ..Ata::default() }, &[]);
    assert_eq!(hba.interrupts.take(), 1);
    hba.prepare(0, 0, &Ata { command: 0xe7, ..Ata::default() }, &[]);
    hba.issue(0, 1, false);
    hba.run();
    assert_eq!(hba.interrupts.take(), 1);
    // IS, but not PxIS: it stays set, and that is an interrupt.
    hba.write(IS, 1);
    assert_eq!((hba.read(IS), hba.interrupts.take()), (1, 1));
    // Switched off and on again.
    hba.write(GHC, 1 << 31);
    hba.write(GHC, 1 << 31 | 1 << 1);
    assert_eq!(hba.interrupts.take(), 1);
    hba.set_port(0, PORT_IE, 0);
    hba.write(IS, 1);
    assert_eq!(hba.read(IS), 0);
    hba.set_port(0, PORT_IE, !0);
    assert_eq!((hba.read(IS), hba.interrupts.take()), (1, 1));
}

#[test]
fn ports_that_do_not_exist_are_nothing() {
    let hba = Hba::started(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()));
    for port in 1..32 {
        hba.set_port(port, CMD, 1 << 4 | 1);
        hba.set_port(port, CI, !0);
        assert_eq!((hba.port(port, CMD), hba.port(port, CI), hba.port(port, SSTS)), (0, 0, 0));
    }
    // Neither is what lies behind, or what is no whole register.
    hba.controller.write(0x100 + CI + 2, &[0xff; 4]);
    hba.controller.write(0x100 + CI, &[0xff; 2]);
    hba.controller.write(u64::MAX - 3, &[0xff; 4]);
    assert_eq!((hba.port(0, CI), hba.read(0x1ffc)), (0, 0));
    let mut both = [0; 8];
    hba.controller.read(0x0c, &mut both);
    assert_eq!(both, [1, 0, 0, 0, 1, 3, 1, 0]);
}
