//! A thread's queues: what wakes it, and what it then knows.

use crate::driver::*;
use blockyard_block::{EventFd, MemoryDisk};
use blockyard_devices::virtio::BlockQueue;
use blockyard_devices::{Heard, QueueSet, Round};
use std::sync::Arc;

const RANG: Heard = Heard { own: false, doorbell: true };

fn set_of(machine: &Machine, own: &EventFd) -> QueueSet<BlockQueue> {
    let mut set = QueueSet::new(own).unwrap();
    machine.queues.lock().unwrap().drain(..).for_each(|queue| set.push(queue).unwrap());
    set
}

fn round(set: &mut QueueSet<BlockQueue>) -> Round {
    set.round(LIMIT, |failure| panic!("{failure}"))
}

#[test]
fn doorbells_and_the_threads_own_event_end_a_wait() {
    let mut machine = Machine::new(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()), 2);
    let mut driver = machine.start(ALL_FEATURES);
    let own = EventFd::new().unwrap();
    let mut set = set_of(&machine, &own);
    for times in 1..=2 {
        driver[1].request(0, 0, &[(DATA, 512, true)]);
        machine.write(0x50, 1);
        assert_eq!(set.wait().unwrap(), RANG);
        assert_eq!((round(&mut set), set.arm()), (Round { queues: 1, done: 1 }, false));
        assert_eq!((driver[1].take_used(), driver[1].get_status()), (Some((0, 513)), OK));
        let counts = machine.transport.device().statistics().iter().map(|queue| queue.counts().doorbells);
        assert_eq!(counts.collect::<Vec<_>>(), [0, times]);
    }
    own.ring();
    assert_eq!(set.wait().unwrap(), Heard { own: true, doorbell: false });
}

/// Who rings is a guest, which may hold the eventfd itself.
#[test]
fn a_queue_whose_doorbell_was_filled_is_stopped_all_the_same() {
    let mut machine = Machine::new(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()), 1);
    machine.start(ALL_FEATURES);
    let control = machine.queues.lock().unwrap()[0].control().clone();
    let mut set = set_of(&machine, &EventFd::new().unwrap());
    rustix::io::write(&*machine.transport.doorbells()[0], &(u64::MAX - 1).to_ne_bytes()).unwrap();
    assert_eq!(set.wait().unwrap(), RANG);
    assert_eq!((round(&mut set), set.arm()), (Round::default(), false));
    control.stop();
    assert_eq!(set.wait().unwrap(), RANG);
    assert_eq!((round(&mut set), set.is_empty()), (Round::default(), true));
    control.wait_until_gone();
}
