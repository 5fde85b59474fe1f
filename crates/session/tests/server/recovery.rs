//! A server that dies, and one that takes its place.

use crate::client::*;
use crate::slow_disk::SlowDisk;
use blockyard_block::{MemoryMap, Operation};
use blockyard_session::server::{Server, Session};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const WRITE: Operation = Operation::Write { force_unit_access: false };

/// The area's description and its file.
type Kept = (Vec<u8>, OwnedFd);

/// GET_INFLIGHT_FD and SET_INFLIGHT_FD.
fn track(client: &Client, kept: Option<Kept>) -> Kept {
    let (area, file) = kept.unwrap_or_else(|| {
        let mut question = vec![0; 24];
        question[16..18].copy_from_slice(&1u16.to_ne_bytes());
        question[18..20].copy_from_slice(&QUEUE_SIZE.to_ne_bytes());
        client.send(31, &question, &[]);
        let (area, file) = client.receive(31).unwrap();
        assert_eq!(area.len(), 24);
        assert_eq!(area[..8], (16 + 16 * u64::from(QUEUE_SIZE)).next_multiple_of(64).to_ne_bytes());
        (area, file.unwrap())
    });
    client.send(32, &area, &[file.as_fd()]);
    (area, file)
}

/// What a dead server leaves: memory, and the record as it is while requests are in flight.
fn copy_of(memory: &MemoryMap) -> MemoryMap {
    let copy = MemoryMap::allocate(&[(GUEST, MEMORY_BYTES as usize)]).unwrap();
    let words = |map: &MemoryMap| map.keep_words::<AtomicU64>(GUEST, MEMORY_BYTES as usize / 8).unwrap();
    let (from, to) = (words(memory), words(&copy));
    from.iter().zip(to.iter()).for_each(|(from, to)| to.store(from.load(Ordering::SeqCst), Ordering::SeqCst));
    copy
}

fn copy_of_file(file: &OwnedFd) -> OwnedFd {
    let length = rustix::fs::fstat(file).unwrap().st_size as usize;
    let mut bytes = vec![0; length];
    assert_eq!(rustix::io::pread(file, &mut bytes, 0), Ok(length));
    let copy = rustix::fs::memfd_create("kept", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(rustix::io::write(&copy, &bytes), Ok(length));
    copy
}

/// A client whose server died at this moment, and that has found another with this disk.
fn taken_over(server: &Server, client: &Client, disk: &SlowDisk, kept: &Kept) -> (Client, Session, Kept) {
    let (area, file) = (kept.0.clone(), copy_of_file(&kept.1));
    let memory = copy_of(&client.memory);
    let (next, session) = Client::connect_with(server, export(Arc::new(disk.clone()), 1, 1), memory);
    next.negotiate();
    next.share_memory();
    let kept = track(&next, Some((area, file)));
    // As QEMU has it when nobody could say: only the used ring is known.
    next.start_queue(0, 0);
    next.synchronize();
    (next, session, kept)
}

fn used_index(client: &Client) -> u16 {
    let [_, _, used] = Client::ring_offsets(0);
    client.memory.words::<AtomicU16>(GUEST + used + 2, 1).unwrap()[0].load(Ordering::SeqCst)
}

/// Heads that were used from `from` on.
fn used_heads(client: &Client, from: u16) -> Vec<u32> {
    let [_, _, used] = Client::ring_offsets(0);
    let elements = client.memory.words::<AtomicU32>(GUEST + used + 4, 2 * QUEUE_SIZE as usize).unwrap();
    (from..used_index(client)).map(|index| elements[2 * (index % QUEUE_SIZE) as usize].load(Ordering::SeqCst)).collect()
}

#[test]
fn what_was_in_flight_is_done_again_in_order_and_answered_once() {
    let server = server(Duration::from_micros(200));
    let disk = SlowDisk::new(0);
    let (client, _session) = Client::connect(&server, export(Arc::new(disk.clone()), 1, 1));
    client.negotiate();
    client.share_memory();
    let kept = track(&client, None);
    client.start_queue(0, 0);
    client.synchronize();
    let mut driver = client.driver(0);
    (0..7).for_each(|round| assert_eq!(driver.run(OUT, round, 0x80_0000, 512), 0));
    disk.hold(true);
    for slot in [4, 1, 7, 2] {
        driver.add(slot, OUT, 100 + u64::from(slot), 0x80_0000, 512);
    }
    driver.publish();
    wait_for(|| disk.log().len() == 11);
    assert_eq!(used_index(&client), 7);

    let next_disk = SlowDisk::new(0);
    let (next, _next_session, next_kept) = taken_over(&server, &client, &next_disk, &kept);
    wait_for(|| used_index(&next) == 11);
    let again: Vec<_> = next_disk.log();
    assert_eq!(
        again,
        [4, 1, 7, 2].map(|slot| (WRITE, 512 * (100 + slot), 512)),
        "in the order in which they were taken"
    );
    let mut heads = used_heads(&next, 7);
    heads.sort_unstable();
    heads.dedup();
    assert_eq!(heads.len(), 4, "each once");
    assert!(readable(&next.call[0], TIMEOUT));
    // Another life on, there is nothing to be done again.
    let third_disk = SlowDisk::new(0);
    let (third, third_session, _) = taken_over(&server, &next, &third_disk, &next_kept);
    assert!(readable(&third.call[0], TIMEOUT), "a server that died may not have told of the last");
    third.synchronize();
    assert_eq!((third_disk.log(), used_index(&third), third_session.end_reason()), (Vec::new(), 11, None));
    disk.hold(false);
}
