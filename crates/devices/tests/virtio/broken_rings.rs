//! Rings and chains that cannot be followed.

use crate::driver::*;
use crate::scripted_disk::ScriptedDisk;
use blockyard_block::{MemoryDisk, explain};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn start(features: u64) -> (Machine, DriverQueue) {
    let mut machine = Machine::new(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()), 1);
    let queue = machine.start(features).remove(0);
    queue.header(HEADER, 0, 0);
    queue.put(STATUS, [0xee]);
    (machine, queue)
}

/// The device stops, says so to the driver and to the VMM, and comes back with a reset.
fn assert_broken(mut machine: Machine, mut queue: DriverQueue, message: &str) {
    let failure = machine.run().unwrap_err();
    assert_eq!(explain(&failure), format!("virtio device test, queue 0: {message}"));
    assert!(failure.is_drivers_fault());
    assert_eq!((machine.read(0x70), machine.read(0x60)), (0x4f, 2));
    let statistics = machine.transport.device().statistics()[0].clone();
    assert_eq!(statistics.first_fault(), Some(&*explain(&failure)));
    queue.request(0, 0, &[(DATA, 512, true)]);
    machine.run().unwrap();
    assert_eq!(queue.take_used(), None, "a broken queue takes nothing");
    assert_eq!(statistics.counts().reads, 0);
    machine.queues.lock().unwrap().clear();
    machine.write(0x70, 0);
    let mut queue = machine.start(ALL_FEATURES).remove(0);
    queue.put16(queue.available + 2, 0);
    queue.put16(queue.used + 2, 0);
    queue.request(0, 0, &[(DATA, 512, true)]);
    machine.run().unwrap();
    assert_eq!((queue.take_used(), queue.get_status()), (Some((0, 513)), OK), "as new after a reset");
}

#[test]
fn the_available_index_jumps() {
    let (machine, queue) = start(ALL_FEATURES);
    queue.put16(queue.available + 2, 17);
    assert_broken(machine, queue, "the available index moved by 17, but the queue holds 16");
    let (machine, queue) = start(ALL_FEATURES);
    queue.put16(queue.available + 2, u16::MAX);
    assert_broken(machine, queue, "the available index moved by 65535, but the queue holds 16");
}

#[test]
fn chains_without_a_place_for_a_status() {
    let (machine, mut queue) = start(ALL_FEATURES);
    queue.publish(16);
    assert_broken(machine, queue, "descriptor index 16 is outside the table of 16");
    let (machine, mut queue) = start(ALL_FEATURES);
    queue.descriptor_at(queue.table, HEADER, 16, NEXT, 0xffff);
    queue.publish(0);
    assert_broken(machine, queue, "descriptor index 65535 is outside the table of 16");
    let (machine, mut queue) = start(ALL_FEATURES);
    queue.descriptor_at(queue.table, HEADER, 16, NEXT, 0);
    queue.publish(0);
    assert_broken(machine, queue, "a descriptor chain loops: it goes on after 16 descriptors, all that its table has");
    let (machine, mut queue) = start(ALL_FEATURES);
    queue.descriptor_at(queue.table, MEMORY_BYTES, 32, INDIRECT_TABLE, 0);
    queue.publish(0);
    assert_broken(machine, queue, "a descriptor at 0x400000 is not in the guest's memory");
    let (machine, mut queue) = start(ALL_FEATURES);
    queue.descriptor_at(queue.table, HEADER, 17, INDIRECT_TABLE, 0);
    queue.publish(0);
    assert_broken(machine, queue, "an indirect table of 17 bytes");
    let (machine, mut queue) = start(VERSION_1);
    queue.descriptor_at(queue.table, HEADER, 16, INDIRECT_TABLE, 0);
    queue.publish(0);
    assert_broken(machine, queue, "an indirect descriptor, but VIRTIO_F_INDIRECT_DESC was not negotiated");
}

/// Where a status can be put, the chain fails and the device goes on.
#[test]
fn chains_with_a_place_for_a_status() {
    for (next, message) in [(0, "a descriptor chain loops"), (16, "descriptor index 16 is outside")] {
        let (machine, mut queue) = start(ALL_FEATURES);
        queue.chain_at(0, &[(HEADER, 16, false), (DATA, 512, true), (STATUS, 1, true)]);
        queue.descriptor_at(queue.table + 32, STATUS, 1, WRITE | NEXT, next);
        queue.publish(0);
        machine.run().unwrap();
        assert_eq!((queue.take_used(), queue.get_status()), (Some((0, 0)), IOERR));
        let statistics = &machine.transport.device().statistics()[0];
        let fault = statistics.first_fault().unwrap();
        assert!(fault.starts_with("virtio device test, queue 0: ") && fault.contains(message), "{fault}");
        assert_eq!((statistics.counts().errors, statistics.counts().reads), (1, 0));
        assert_eq!(machine.read(0x70), 15);
    }
    // Nothing to be read is in memory, and the chain never ends.
    let (machine, mut queue) = start(ALL_FEATURES);
    queue.descriptor_at(queue.table, MEMORY_BYTES, 16, NEXT, 0);
    queue.publish(0);
    assert_broken(machine, queue, "a descriptor chain loops: it goes on after 16 descriptors, all that its table has");
}

/// A chain of `length` descriptors in an indirect table at an odd address, whose status is in its last one: a read, of
/// which each buffer could be taken for the place of the status, or a write.
fn publish_indirect(queue: &mut DriverQueue, request_type: u32, length: usize) {
    let table = 0x9_0001;
    queue.header(HEADER, request_type, 0);
    let mut buffers = vec![(DATA, 512, request_type == 0); length];
    buffers[0] = (HEADER, 16, false);
    buffers[length - 1] = (STATUS, 1, true);
    queue.table_at(table, 0, &buffers);
    queue.descriptor_at(queue.table, table, 16 * length as u32, INDIRECT_TABLE, 0);
    queue.publish(0);
}

#[test]
fn chains_longer_than_any_may_be() {
    for request_type in [0, 1] {
        let (machine, mut queue) = start(ALL_FEATURES);
        publish_indirect(&mut queue, request_type, 1024);
        machine.run().unwrap();
        let written = if request_type == 0 { 1022 * 512 + 1 } else { 1 };
        assert_eq!((queue.take_used(), queue.get_status()), (Some((0, written)), OK));
        for length in [1025, 65535] {
            let (machine, mut queue) = start(ALL_FEATURES);
            publish_indirect(&mut queue, request_type, length);
            assert_broken(
                machine,
                queue,
                "a descriptor chain goes on after 1024 descriptors, the most that one may have",
            );
        }
    }
}

#[test]
fn absurd_lengths() {
    // 4 GiB in all are not allowed; what was seen of the chain has no status that could be written.
    let (machine, mut queue) = start(ALL_FEATURES);
    queue.chain_at(0, &[(HEADER, 16, false), (DATA, u32::MAX - 16, true), (DATA, 512, true), (STATUS, 1, true)]);
    queue.publish(0);
    assert_broken(machine, queue, "a descriptor chain is longer than 4 GiB");
    // A little less is, but it is not all memory.
    let (machine, mut queue) = start(ALL_FEATURES);
    queue.chain_at(0, &[(HEADER, 16, false), (DATA, u32::MAX - 17, true), (STATUS, 1, true)]);
    queue.publish(0);
    machine.run().unwrap();
    assert_eq!((queue.take_used(), queue.get_status()), (Some((0, 0)), IOERR));
}

#[test]
fn a_broken_disk_is_not_the_drivers_fault() {
    let disk = Arc::new(ScriptedDisk::new(4));
    let mut machine = Machine::new(disk.clone(), 1);
    let mut queue = machine.start(ALL_FEATURES).remove(0);
    disk.state.broken.store(1, Ordering::Relaxed);
    queue.request(0, 0, &[(DATA, 512, true)]);
    let failure = machine.run().unwrap_err();
    assert!(!failure.is_drivers_fault());
    assert_eq!(explain(&failure), "virtio device test, queue 0: it cannot be served: the backend broke");
    assert_eq!(machine.read(0x70), 0x4f);
    disk.state.finish(1, Ok(()));
}
