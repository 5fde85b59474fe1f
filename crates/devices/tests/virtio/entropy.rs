//! The entropy device.

use crate::driver::*;
use blockyard_block::{Woken, explain, wait_readable};
use blockyard_devices::virtio::{EntropyDevice, EntropyQueue};
use blockyard_devices::{IoQueue, Limit};
use std::sync::atomic::Ordering;
use vm_memory::{Bytes, GuestAddress};

const TURN: Limit = Limit { requests: 1000, cost_bytes: u64::MAX, pairs: false };

fn machine() -> (Machine<EntropyDevice, EntropyQueue>, DriverQueue) {
    let mut machine = Machine::with_entropy(memory());
    assert_eq!((machine.read(8), machine.offered()), (4, VERSION_1 | INDIRECT | EVENT_IDX));
    let queue = machine.start(VERSION_1).remove(0);
    (machine, queue)
}

fn process(machine: &Machine<EntropyDevice, EntropyQueue>) -> bool {
    machine.queues.lock().unwrap()[0].process_up_to(TURN).unwrap() > 0
}

fn bytes_at(queue: &DriverQueue, address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    queue.memory.guest_memory().read_slice(&mut bytes, GuestAddress(address)).unwrap();
    bytes
}

#[test]
fn buffers_are_filled_as_far_as_a_request_may_be() {
    let (machine, mut queue) = machine();
    // A part that the device may not write is passed over, and the last is more than there is.
    queue.chain_at(0, &[(DATA, 100, true), (DATA + 0x1000, 50, false), (SEAM - 60, 0x1000, true)]);
    queue.publish(0);
    assert!(process(&machine) && !process(&machine));
    assert_eq!((queue.take_used(), machine.interrupts.0.load(Ordering::SeqCst)), (Some((0, 256)), 1));
    let places = [(DATA, 100), (DATA + 100, 100), (DATA + 0x1000, 50), (SEAM - 60, 156), (SEAM + 96, 100)];
    let is_zero = |&(address, length): &(u64, usize)| bytes_at(&queue, address, length).iter().all(|&byte| byte == 0);
    assert_eq!(places.each_ref().map(is_zero), [false, true, true, false, true]);
    let (first, second) = (bytes_at(&queue, DATA, 100), bytes_at(&queue, SEAM - 60, 100));
    assert_ne!(first, second);
}

#[test]
fn a_driver_that_always_wants_more_is_made_to_wait() {
    let (mut machine, mut queue) = machine();
    queue.chain_at(0, &[(DATA, 4096, true)]);
    // Once a period's worth is asked for within a period.
    let mut answered = 0;
    loop {
        queue.publish(0);
        if !process(&machine) {
            break;
        }
        answered += 1;
    }
    // The host sees to it when it goes on, no doorbell.
    let mut queues = machine.queues.lock().unwrap();
    assert!(!queues[0].arm());
    assert_eq!(queues[0].process_up_to(TURN).unwrap(), 0);
    assert_eq!(wait_readable(queues[0].completion_event(), &[], None).unwrap(), Woken::Own);
    assert_eq!(queues[0].process_up_to(TURN).unwrap(), 1, "what it asked for meanwhile");
    drop(queues);
    while queue.take_used().is_some() {
        answered -= 1;
    }
    assert_eq!(answered, -1, "and that was all");
    machine.queues.lock().unwrap().clear();
    machine.write(0x70, 0);
    machine.start(VERSION_1);
}

#[test]
fn a_buffer_outside_memory_needs_a_reset() {
    let (machine, mut queue) = machine();
    queue.chain_at(0, &[(MEMORY_BYTES - 8, 16, true)]);
    queue.publish(0);
    let failure = machine.queues.lock().unwrap()[0].process_up_to(TURN).unwrap_err();
    assert!(failure.is_drivers_fault());
    assert!(explain(&failure).starts_with("virtio device test, queue 0: a descriptor at 0x3ffff8"), "{failure}");
    assert_eq!(machine.read(0x70), 0x4f);
}
