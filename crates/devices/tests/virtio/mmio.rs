//! The MMIO transport's registers.

use crate::driver::*;
use crate::scripted_disk::ScriptedDisk;
use blockyard_block::{MemoryDisk, RequestError, explain};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn machine() -> Machine {
    Machine::new(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()), 2)
}

#[test]
fn identity() {
    let machine = machine();
    assert_eq!([0, 4, 8].map(|offset| machine.read(offset)), [0x7472_6976, 2, 2]);
    assert_eq!([0xb0, 0xb4, 0xb8, 0xbc].map(|offset| machine.read(offset)), [u32::MAX; 4], "no shared memory");
    assert_eq!([0x60, 0x70, 0xfc].map(|offset| machine.read(offset)), [0; 3]);
}

#[test]
fn other_widths_and_unknown_registers_are_nothing() {
    let mut machine = machine();
    for length in [0, 1, 2, 3, 5, 8, 100] {
        let mut data = vec![0xaa; length];
        machine.transport.read(0, &mut data);
        assert!(data.iter().all(|&byte| byte == 0));
        machine.transport.write(0x70, &vec![1; length]).unwrap();
    }
    for offset in [1, 2, 3, 0x40, 0xc0, 0xf8] {
        machine.write(offset, u32::MAX);
        assert_eq!(machine.read(offset), 0);
    }
    assert_eq!(machine.read(0x70), 0);
    assert_eq!(machine.read(u64::MAX - 1), 0);
    machine.write(u64::MAX - 1, 1);
}

#[test]
fn features_come_in_pages() {
    let mut machine = machine();
    let offered = machine.offered();
    assert_eq!(offered & (VERSION_1 | INDIRECT | EVENT_IDX | FLUSH), VERSION_1 | INDIRECT | EVENT_IDX | FLUSH);
    assert_ne!(offered & 1 << 12, 0, "multiple queues");
    machine.write(0x14, 2);
    assert_eq!(machine.read(0x10), 0);
}

#[test]
fn features_that_were_not_offered_are_refused() {
    for features in [[0, 0], [1 << 5, 1], [u32::MAX, 1], [0, 3]] {
        let mut machine = machine();
        machine.write(0x70, 3);
        for page in 0..2 {
            machine.write(0x24, page);
            machine.write(0x20, features[page as usize]);
        }
        machine.write(0x70, 11);
        assert_eq!(machine.read(0x70), 3, "{features:x?}");
    }
    let mut machine = machine();
    machine.write(0x70, 3);
    machine.write(0x24, 1);
    machine.write(0x20, 1);
    machine.write(0x24, 7);
    machine.write(0x20, 1);
    machine.write(0x70, 11);
    assert_eq!(machine.read(0x70), 3, "a feature far beyond");
}

#[test]
fn a_driver_that_ignores_the_refusal_is_told_off() {
    let mut machine = machine();
    machine.write(0x70, 3);
    let failure = machine.try_write(0x70, 15).unwrap_err();
    assert_eq!(
        explain(&failure),
        "virtio device test: the driver set DRIVER_OK although its features were not accepted"
    );
    assert_eq!(machine.read(0x70), 0x47);
    assert_eq!(machine.read(0x60), 2);
    machine.write(0x64, 2);
    assert_eq!(machine.read(0x60), 0);
    machine.write(0x70, 0);
    assert_eq!(machine.read(0x70), 0);
}

#[test]
fn features_are_fixed_once_agreed_on() {
    let mut machine = machine();
    machine.negotiate(VERSION_1);
    machine.write(0x24, 0);
    machine.write(0x20, u32::MAX);
    machine.write(0x70, 15);
    assert_eq!(machine.read(0x70), 15);
    machine.write(0x70, 1);
    assert_eq!(machine.read(0x70), 15, "bits are only added");
    machine.write(0x70, 0x8f);
    assert_eq!(machine.read(0x70), 0x8f);
}

#[test]
fn queue_registers() {
    let mut machine = machine();
    machine.negotiate(VERSION_1);
    machine.set_up_queue(1, 8);
    machine.write(0x38, 4);
    machine.write(0x80, 4);
    machine.write(0x30, 0);
    assert_eq!((machine.read(0x34), machine.read(0x44)), (16, 0));
    for beyond in [2, 0x1_0000, u32::MAX] {
        machine.write(0x30, beyond);
        machine.write(0x44, 1);
        assert_eq!((machine.read(0x34), machine.read(0x44)), (0, 0));
    }
    machine.write(0x70, 15);
    let queues = machine.queues.lock().unwrap();
    assert_eq!(queues.iter().map(|queue| queue.index()).collect::<Vec<_>>(), [1], "what is ready is activated");
}

#[test]
fn bad_queues_need_a_reset() {
    let bad: [(u64, u32, &str); 5] = [
        (0x38, 12, "virtio device test, queue 0: the driver set a queue size of 12"),
        (0x38, 32, "not a power of two from 1 to 16"),
        (0x80, 8, "descriptor table at 0x8 is not aligned"),
        (0x94, 1, "available ring at 0x100014000"),
        (0xa0, MEMORY_BYTES as u32 - 4, "used ring at 0x3ffffc (134 bytes) is not in the guest's memory"),
    ];
    for (register, value, message) in bad {
        let mut machine = machine();
        machine.negotiate(VERSION_1);
        machine.set_up_queue(0, 16);
        machine.write(0x44, 0);
        machine.write(register, value);
        machine.write(0x44, 1);
        let failure = machine.try_write(0x70, 15).unwrap_err();
        assert!(explain(&failure).contains(message), "{failure}");
        assert!(failure.is_drivers_fault());
        assert_eq!((machine.read(0x70), machine.read(0x60)), (0x4f, 2));
        assert_eq!(machine.interrupts.0.load(Ordering::SeqCst), 1);
        assert!(machine.queues.lock().unwrap().is_empty());
        machine.write(0x70, 0x4f);
        assert_eq!(machine.read(0x70), 0x4f);
        machine.start(VERSION_1);
    }
}

#[test]
fn a_disk_that_opens_no_queue_is_the_hosts_fault() {
    let mut machine = Machine::new(Arc::new(ScriptedDisk::new(0)), 1);
    machine.negotiate(VERSION_1);
    machine.set_up_queue(0, 16);
    let failure = machine.try_write(0x70, 15).unwrap_err();
    assert!(!failure.is_drivers_fault() && explain(&failure).contains("no queue today"), "{failure}");
}

#[test]
fn configuration_space() {
    let disk = Arc::new(ScriptedDisk::new(4));
    disk.geometry.lock().unwrap().logical_block_bytes = 2048;
    let mut machine = Machine::new(disk.clone(), 3);
    let field = |machine: &Machine, offset: u64, length: usize| {
        let mut data = [0; 8];
        machine.transport.read(0x100 + offset, &mut data[..length]);
        u64::from_le_bytes(data)
    };
    let fields = [
        (0, 8, (1 << 20) / 512),
        (0, 4, (1 << 20) / 512),
        (4, 4, 0),
        (1, 1, 8),
        (12, 4, 14),
        (20, 4, 2048),
        (24, 1, 1),
        (25, 1, 0),
        (26, 2, 2),
        (28, 4, 32),
        (34, 2, 3),
        (36, 4, 1 << 22),
        (40, 4, 1),
        (44, 4, 4),
        (48, 4, 1 << 22),
        (52, 4, 1),
        (56, 1, 1),
        (56, 8, 1),
        (60, 4, 0),
        (u64::MAX - 0x200, 4, 0),
    ];
    for (offset, length, value) in fields {
        assert_eq!(field(&machine, offset, length), value, "{length} bytes at {offset}");
    }
    machine.write(0x100, 0);
    machine.start(ALL_FEATURES);
    assert_eq!(machine.read(0xfc), 0);
    disk.geometry.lock().unwrap().capacity_bytes = 2 << 20;
    disk.generation.store(1, Ordering::Relaxed);
    machine.transport.refresh_config();
    machine.transport.refresh_config();
    assert_eq!((machine.read(0xfc), machine.read(0x60), machine.read(0x100)), (1, 2, 4096));
}

#[test]
fn doorbells_ring_whoever_listens() {
    let mut machine = machine();
    machine.write(0x50, 0);
    assert_eq!(machine.transport.doorbells()[0].take(), 0, "nobody listens yet");
    machine.start(ALL_FEATURES);
    for index in [1, 1, 2, u32::MAX] {
        machine.write(0x50, index);
    }
    assert_eq!([0, 1].map(|index: usize| machine.transport.doorbells()[index].take()), [0, 2]);
}

/// Reset and stopping a queue wait for the thread that runs it, which completes what is in flight.
#[test]
fn reset_takes_the_queues_back() {
    let disk = Arc::new(ScriptedDisk::new(4));
    let mut machine = Machine::new(disk.clone(), 2);
    for round in 0..3 {
        let mut driver = machine.start(ALL_FEATURES);
        driver[0].request(0, 0, &[(DATA, 512, true)]);
        machine.write(0x50, 0);
        let queues = std::mem::take(&mut *machine.queues.lock().unwrap());
        let control = queues[0].control().clone();
        let thread = std::thread::spawn(move || serve(queues));
        let (state, end) = (disk.state.clone(), round);
        let finisher = std::thread::spawn(move || {
            while !control.is_stopping() {
                std::thread::yield_now();
            }
            state.finish(1, Err(RequestError::Os(end)));
        });
        while disk.state.log.lock().unwrap().len() <= round as usize {
            std::thread::yield_now();
        }
        if round == 1 {
            machine.write(0x30, 0);
            machine.write(0x44, 0);
            assert_eq!(machine.read(0x44), 0);
        } else {
            machine.write(0x70, 0);
            assert_eq!((machine.read(0x70), machine.read(0x60)), (0, 0));
        }
        assert_eq!((driver[0].take_used(), driver[0].get_status()), (Some((0, 0)), IOERR));
        machine.write(0x70, 0);
        thread.join().unwrap();
        finisher.join().unwrap();
        driver[0].memory = machine.memory.clone();
        driver.iter().for_each(|queue| queue.put16(queue.available + 2, 0));
        driver.iter().for_each(|queue| queue.put16(queue.used + 2, 0));
    }
    let counts = machine.transport.device().statistics()[0].counts();
    assert_eq!((counts.reads, counts.errors, counts.bytes_read), (3, 3, 0));
}
