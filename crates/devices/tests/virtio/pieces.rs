//! Requests that are longer than a disk is given at once.

use crate::driver::*;
use crate::scripted_disk::ScriptedDisk;
use blockyard_block::{Disk, MemoryDisk, MemoryMap, Operation, RequestError};
use blockyard_devices::virtio::{BlockQueue, Limit};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vm_memory::{Bytes, GuestAddress};

const IN: u32 = 0;
const OUT: u32 = 1;
const WRITE_ZEROES_REQUEST: u32 = 13;

const MIB: u64 = 1 << 20;
/// The most of a read or write that a disk is given at once.
const PIECE: u64 = 2 * MIB;
/// A piece at a time.
const ONE: Limit = Limit { requests: 16, cost_bytes: 1, pairs: false };

fn with_queue<T>(machine: &Machine, act: impl FnOnce(&mut BlockQueue) -> T) -> T {
    act(&mut machine.queues.lock().unwrap()[0])
}

/// A queue with a read of 3.5 pieces from 1 MiB on, on a disk that carries so many at once.
fn long_read(depth: usize) -> (Machine, DriverQueue, Arc<ScriptedDisk>) {
    let disk = Arc::new(ScriptedDisk::new(depth));
    disk.geometry.lock().unwrap().capacity_bytes = 1 << 40;
    let mut machine = Machine::new(disk.clone(), 1);
    let mut queue = machine.start(ALL_FEATURES).remove(0);
    queue.request(IN, MIB / 512, &[(DATA, MIB as u32, true); 7]);
    (machine, queue, disk)
}

/// (offset, length) in MiB of what the disk was given.
fn given(disk: &ScriptedDisk) -> Vec<(u64, u64)> {
    disk.state.log.lock().unwrap().iter().map(|(_, offset, length, _)| (offset / MIB, length / MIB)).collect()
}

const PIECES: [(u64, u64); 4] = [(1, 1), (2, 2), (4, 2), (6, 2)];

#[test]
fn a_long_request_is_answered_once_when_all_its_pieces_are_done() {
    for depth in [1, 2, 3, 8] {
        let (machine, mut queue, disk) = long_read(depth);
        let mut rounds = 0;
        while queue.get_status() == 0xee {
            machine.run().unwrap();
            assert!(given(&disk).len() <= PIECES.len() && rounds < 10, "depth {depth}");
            // The newest first.
            disk.state.finish(1, Ok(()));
            rounds += 1;
        }
        assert_eq!(given(&disk), PIECES, "depth {depth}");
        assert_eq!((queue.take_used(), queue.take_used()), (Some((0, 7 * MIB as u32 + 1)), None), "depth {depth}");
        assert_eq!(queue.get_status(), OK);
        let counts = machine.transport.device().statistics()[0].counts();
        assert_eq!((counts.reads, counts.bytes_read, counts.errors), (1, 7 * MIB, 0));
        // And the token is free again, once.
        queue.request(IN, 0, &[(DATA, 512, true)]);
        machine.run().unwrap();
        assert_eq!(with_queue(&machine, |queue| queue.in_flight()), 1);
        disk.state.finish(1, Ok(()));
        machine.run().unwrap();
        assert_eq!(queue.take_used(), Some((0, 513)));
    }
}

/// What a thread takes at a turn, and has in flight, is bounded whatever a driver asks for.
#[test]
fn a_turn_takes_a_piece_and_the_next_goes_on() {
    let (machine, mut queue, disk) = long_read(8);
    for pieces in 1..=PIECES.len() {
        assert_eq!(with_queue(&machine, |queue| queue.process_up_to(ONE)).unwrap(), 1);
        assert_eq!(given(&disk), PIECES[..pieces]);
        assert_eq!(with_queue(&machine, |queue| queue.in_flight()), pieces);
        // Before it waits, it hears that there is more.
        assert_eq!(with_queue(&machine, |queue| queue.arm()), pieces < PIECES.len());
    }
    assert_eq!(with_queue(&machine, |queue| queue.process_up_to(ONE)).unwrap(), 0);
    assert_eq!(queue.take_used(), None);
    disk.state.finish(4, Ok(()));
    machine.run().unwrap();
    assert_eq!((queue.take_used(), queue.get_status()), (Some((0, 7 * MIB as u32 + 1)), OK));
}

#[test]
fn a_piece_that_fails_ends_the_request() {
    let (machine, mut queue, disk) = long_read(2);
    machine.run().unwrap();
    assert_eq!(given(&disk), PIECES[..2]);
    disk.state.finish(1, Err(RequestError::Os(5)));
    machine.run().unwrap();
    assert_eq!((given(&disk).len(), queue.take_used()), (2, None), "what the disk has may still be written to");
    disk.state.finish(1, Ok(()));
    machine.run().unwrap();
    assert_eq!((given(&disk).len(), queue.take_used(), queue.get_status()), (2, Some((0, 0)), IOERR));
    let counts = machine.transport.device().statistics()[0].counts();
    assert_eq!((counts.reads, counts.bytes_read, counts.errors), (1, 0, 1));
}

/// A disk that has said how much it carries takes so much; one that does not is no reason to end.
#[test]
fn a_piece_that_is_refused_ends_the_request() {
    for takes in 0..PIECES.len() {
        let (machine, mut queue, disk) = long_read(8);
        disk.state.takes.store(takes, Ordering::Relaxed);
        machine.run().unwrap();
        disk.state.finish(takes, Ok(()));
        machine.run().unwrap();
        assert_eq!((given(&disk).len(), queue.take_used(), queue.take_used()), (takes, Some((0, 0)), None));
        assert_eq!(queue.get_status(), IOERR);
        assert_eq!(with_queue(&machine, |queue| queue.in_flight()), 0);
    }
}

/// Whoever takes a queue back waits for what the disk has, not for what a driver has asked for.
#[test]
fn a_queue_that_stops_does_not_go_on_with_it() {
    let (mut machine, mut queue, disk) = long_read(8);
    with_queue(&machine, |queue| queue.process_up_to(ONE)).unwrap();
    disk.state.finish(1, Ok(()));
    machine.queues.lock().unwrap()[0].control().stop();
    assert!(with_queue(&machine, |queue| queue.is_stopping()));
    // Completes what is done, and takes nothing.
    with_queue(&machine, |queue| queue.process()).unwrap();
    assert_eq!((given(&disk).len(), queue.take_used()), (1, None));
    machine.queues.lock().unwrap().clear();
    machine.write(0x70, 0);
    assert_eq!((given(&disk).len(), queue.take_used(), queue.get_status()), (1, None, 0xee));
}

#[test]
fn zeroes_are_written_in_larger_pieces() {
    let disk = Arc::new(ScriptedDisk::new(8));
    disk.geometry.lock().unwrap().capacity_bytes = 1 << 40;
    let mut machine = Machine::new(disk.clone(), 1);
    let mut queue = machine.start(ALL_FEATURES).remove(0);
    let mut range = [0; 16];
    range[..8].copy_from_slice(&(3 * MIB / 512).to_le_bytes());
    range[8..12].copy_from_slice(&(200 * MIB as u32 / 512).to_le_bytes());
    queue.put(DATA, range);
    queue.request(WRITE_ZEROES_REQUEST, 0, &[(DATA, 16, false)]);
    machine.run().unwrap();
    while queue.get_status() == 0xee {
        disk.state.finish(8, Ok(()));
        machine.run().unwrap();
    }
    assert_eq!(given(&disk), [(3, 61), (64, 64), (128, 64), (192, 11)]);
    let zeroes = |operation: &Operation| matches!(operation, Operation::WriteZeroes { .. });
    assert!(disk.state.log.lock().unwrap().iter().all(|(operation, ..)| zeroes(operation)));
    assert_eq!((queue.take_used(), queue.get_status()), (Some((0, 1)), OK));
}

/// Any cut of memory into segments, any place on the disk: every byte is where it belongs.
#[test]
fn no_byte_is_lost_where_pieces_meet() {
    const MEMORY: u64 = 32 * MIB;
    const FROM: u64 = 8 * MIB;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = move |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    let disk = Arc::new(MemoryDisk::new(32 * MIB, 512).unwrap());
    let seam = (FROM + 5 * MIB + 77) as usize;
    let memory = MemoryMap::allocate(&[(0, seam), (seam as u64, MEMORY as usize - seam)]).unwrap();
    let mut machine = Machine::with_memory(disk as Arc<dyn Disk>, memory.clone(), 1, QUEUE_SIZE);
    let mut queue = machine.start(ALL_FEATURES).remove(0);
    for _ in 0..12 {
        let sectors = PIECE / 512 + below(4 * PIECE / 512);
        let first = below(32 * MIB / 512 - sectors);
        let bytes: Vec<u8> = (0..sectors * 512).map(|index| ((index * 7) ^ (index >> 9) ^ first) as u8).collect();
        // Descriptors that end anywhere.
        let mut cuts: Vec<_> = (0..below(9)).map(|_| below(sectors * 512)).chain([0, sectors * 512]).collect();
        cuts.sort_unstable();
        let buffers = |from: u64, writable| -> Vec<_> {
            cuts.windows(2).map(|cut| (from + cut[0], (cut[1] - cut[0]) as u32, writable)).collect()
        };
        memory.guest_memory().write_slice(&bytes, GuestAddress(FROM)).unwrap();
        queue.request(OUT, first, &buffers(FROM, false));
        machine.run().unwrap();
        assert_eq!((queue.take_used(), queue.get_status()), (Some((0, 1)), OK));
        let to = FROM + 11 * MIB + below(512);
        queue.request(IN, first, &buffers(to, true));
        machine.run().unwrap();
        assert_eq!((queue.take_used(), queue.get_status()), (Some((0, bytes.len() as u32 + 1)), OK));
        let mut read = vec![0; bytes.len()];
        memory.guest_memory().read_slice(&mut read, GuestAddress(to)).unwrap();
        assert!(read == bytes, "{sectors} sectors from {first}, cut at {cuts:?}");
    }
}
