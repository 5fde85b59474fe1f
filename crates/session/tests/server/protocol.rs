//! Control messages.

use crate::client::*;
use blockyard_block::EventFd;
use blockyard_block::{Disk, Extent, Geometry, MemoryDisk, MemoryMap, Queue};
use blockyard_session::server::EndReason;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn disk() -> Arc<dyn Disk> {
    Arc::new(MemoryDisk::new(1 << 20, 4096).unwrap())
}

#[test]
fn what_is_offered() {
    let server = server(Duration::ZERO);
    let (client, _session) = Client::connect(&server, export(disk(), 3, 1));
    let features = client.ask(1, &[]);
    // SEG_MAX, BLK_SIZE, FLUSH, TOPOLOGY, MQ, INDIRECT_DESC, EVENT_IDX, PROTOCOL_FEATURES, VERSION_1.
    for bit in [2, 6, 9, 10, 12, 28, 29, 30, 32] {
        assert!(features & 1 << bit != 0, "feature {bit}");
    }
    // RO, and logging of dirty memory.
    assert_eq!(features & (1 << 5 | 1 << 26), 0);
    // Of ours, that there may be further connections, and not that nobody else changes the disk.
    assert_eq!(features >> 62, 1);
    // MQ, REPLY_ACK, BACKEND_REQ, CONFIG, INFLIGHT_SHMFD, RESET_DEVICE, CONFIGURE_MEM_SLOTS, STATUS.
    assert_eq!(client.ask(15, &[]), 1 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 15 | 1 << 16);
    assert_eq!((client.ask(17, &[]), client.ask(36, &[])), (3, 32));
    client.send(24, &[&halves(&[0, 64, 0])[..], &[0; 64]].concat(), &[]);
    let (config, _) = client.receive(24).unwrap();
    assert_eq!(config.len(), 12 + 64, "as long as was asked for, though the space ends before");
    assert_eq!(config[12..20], (2048u64).to_le_bytes(), "capacity in sectors");
    assert_eq!(config[12 + 20..12 + 24], 4096u32.to_le_bytes(), "block size");
    assert_eq!(config[12 + 34..12 + 36], 3u16.to_le_bytes(), "queues");
}

#[test]
fn replies_where_they_are_wanted() {
    let server = server(Duration::ZERO);
    let (client, session) = Client::connect(&server, export(disk(), 1, 1));
    // Nobody negotiated replies yet, so the next is to what comes after.
    client.send_with(999, NEED_REPLY, &[1, 2, 3], &[]);
    client.negotiate();
    assert_eq!(client.acknowledged(999, &[], &[]), 1, "unknown");
    assert_eq!(client.acknowledged(6, &words(&[4096, 0]), &[]), 1, "logging");
    assert_eq!(client.acknowledged(25, &halves(&[32, 1, 0, 0]), &[]), 1, "nothing in the configuration is writable");
    client.send(999, &[], &[]);
    assert_eq!(client.ask(40, &[]), 0);
    client.send(39, &words(&[15]), &[]);
    assert_eq!(client.ask(40, &[]), 15);
    // A change that is refused and that the client would not hear of ends it.
    client.send(25, &halves(&[32, 1, 0, 0]), &[]);
    assert_eq!(end(&session), EndReason::Client("nothing in the configuration can be written".into()));
}

#[test]
fn a_queue_goes_on_where_it_stopped() {
    let server = server(Duration::from_micros(200));
    let (client, _session) = Client::start(&server, export(disk(), 1, 1));
    let mut driver = client.driver(0);
    for round in 1..=5u32 {
        (0..3).for_each(|_| assert_eq!(driver.run(OUT, 8, 0x80_0000, 4096), 0));
        client.send(11, &halves(&[0, 0]), &[]);
        let (base, _) = client.receive(11).unwrap();
        assert_eq!(base, halves(&[0, 4 * round - 1]));
        driver.add(0, OUT, 8, 0x80_0000, 4096);
        driver.publish();
        client.kick[0].ring();
        assert_eq!(driver.next(Duration::from_millis(20)), None, "it has stopped");
        client.send(12, &words(&[0]), &[client.kick[0].as_fd()]);
        assert_eq!(driver.next(TIMEOUT), Some(0), "what came meanwhile is done when it starts");
    }
}

#[test]
fn memory_may_come_and_go_while_queues_run() {
    let server = server(Duration::from_micros(200));
    let (client, _session) = Client::start(&server, export(disk(), 1, 1));
    let mut driver = client.driver(0);
    let more = MemoryMap::allocate(&[(0x8000_0000, 1 << 20)]).unwrap();
    let (address, length, file, _) = more.shared_regions().unwrap().next().unwrap();
    let region = words(&[0, address, length, USER + MEMORY_BYTES, 0]);
    let there = address - GUEST;
    assert_eq!(driver.run(IN, 0, there, 4096), 1, "not there yet");
    assert_eq!(client.acknowledged(37, &region, &[file.as_fd()]), 0);
    assert_eq!(driver.run(IN, 0, there, 4096), 0);
    assert_eq!(client.acknowledged(37, &region, &[file.as_fd()]), 1, "it overlaps itself");
    assert_eq!(driver.run(IN, 0, there, 4096), 0, "and all is as it was");
    assert_eq!(client.acknowledged(38, &region, &[]), 0);
    assert_eq!(driver.run(IN, 0, there, 4096), 1, "gone");
    assert_eq!(client.acknowledged(38, &region, &[]), 1);
    assert_eq!(driver.run(IN, 0, 0x80_0000, 4096), 0);
}

/// User-Mode Linux has sockets for events.
#[test]
fn a_call_may_be_a_socket() {
    let server = server(Duration::from_micros(20));
    let (client, _session) = Client::connect(&server, export(disk(), 1, 1));
    client.negotiate();
    client.share_memory();
    client.start_queue(0, 0);
    let (call, their_call) = UnixStream::pair().unwrap();
    client.send(13, &words(&[0]), &[their_call.as_fd()]);
    client.synchronize();
    let mut driver = client.driver(0);
    for _ in 0..100 {
        driver.add(0, IN, 0, 0x80_0000, 4096);
        assert!(!driver.queue.enable_interrupts());
        if driver.queue.publish() {
            client.kick[0].ring();
        }
        let mut is_done = false;
        // A call may be one more of the request before.
        while !is_done {
            assert!(readable(&call, TIMEOUT));
            rustix::io::read(&call, &mut [0u8; 64]).unwrap();
            while driver.queue.pop_used().unwrap().is_some() {
                is_done = true;
            }
        }
    }
}

/// A call may be changed at any time, and none may be.
#[test]
fn calls_change_while_the_queue_runs() {
    let server = server(Duration::from_micros(200));
    let (mut client, _session) = Client::start(&server, export(disk(), 1, 1));
    for _ in 0..20 {
        client.call[0] = EventFd::new().unwrap();
        client.send(13, &words(&[0]), &[client.call[0].as_fd()]);
    }
    client.synchronize();
    let mut driver = client.driver(0);
    assert_eq!(driver.run(IN, 0, 0x80_0000, 4096), 0);
    client.send(13, &words(&[0x100]), &[]);
    client.synchronize();
    driver.add(0, IN, 0, 0x80_0000, 4096);
    driver.publish();
    while driver.queue.pop_used().unwrap().is_none() {
        std::thread::yield_now();
    }
}

#[test]
fn a_reset_stops_everything() {
    for (request, payload) in [(4, vec![]), (34, vec![]), (39, words(&[0]))] {
        let server = server(Duration::from_micros(200));
        let (client, _session) = Client::start(&server, export(disk(), 1, 1));
        let mut driver = client.driver(0);
        assert_eq!(driver.run(IN, 0, 0x80_0000, 4096), 0);
        client.send(request, &payload, &[]);
        client.synchronize();
        driver.add(0, IN, 0, 0x80_0000, 4096);
        driver.publish();
        client.kick[0].ring();
        assert_eq!(driver.next(Duration::from_millis(20)), None);
        let mut driver = client.driver(0);
        client.start_queue(0, 0);
        client.synchronize();
        assert_eq!(driver.run(IN, 0, 0x80_0000, 4096), 0);
    }
}

/// A disk that grows.
struct Growing {
    disk: MemoryDisk,
    grown: AtomicU64,
    event: EventFd,
}

impl Growing {
    fn new() -> Arc<Self> {
        let disk = MemoryDisk::new(1 << 20, 512).unwrap();
        Arc::new(Self { disk, grown: AtomicU64::new(0), event: EventFd::new().unwrap() })
    }
}

impl Disk for Growing {
    fn geometry(&self) -> Geometry {
        let geometry = self.disk.geometry();
        Geometry { capacity_bytes: (geometry.capacity_bytes / 2) << self.grown.load(Ordering::SeqCst), ..geometry }
    }

    fn generation(&self) -> u64 {
        self.grown.load(Ordering::SeqCst)
    }

    fn change_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.disk.extents(range)
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.disk.open_queue(memory, depth)
    }
}

#[test]
fn a_disk_that_grows_is_told_of() {
    let disk = Growing::new();
    let server = server(Duration::ZERO);
    let (client, _session) = Client::start(&server, export(disk.clone(), 1, 1));
    let mut driver = client.driver(0);
    assert_eq!(driver.run(IN, 1024, 0x80_0000, 512), 1);
    let (ours, theirs) = UnixStream::pair().unwrap();
    client.send(21, &[], &[theirs.as_fd()]);
    client.synchronize();
    drop(theirs);
    disk.grown.store(1, Ordering::SeqCst);
    disk.event.ring();
    assert!(readable(&ours, TIMEOUT));
    let mut message = [0; 12];
    assert_eq!(rustix::io::read(&ours, &mut message), Ok(12));
    assert_eq!(message[..], halves(&[2, 1, 0])[..]);
    client.send(24, &[&halves(&[0, 8, 0])[..], &[0; 8]].concat(), &[]);
    assert_eq!(client.receive(24).unwrap().0[12..], 2048u64.to_le_bytes());
    assert_eq!(driver.run(IN, 1024, 0x80_0000, 512), 0);
    assert!(!readable(&ours, Duration::from_millis(20)), "once, and the connection stays");
}

#[test]
fn a_change_that_there_is_no_room_to_tell_of_is_told_later() {
    let disk = Growing::new();
    let server = server(Duration::ZERO);
    let (client, _session) = Client::start(&server, export(disk.clone(), 1, 1));
    let (ours, theirs) = UnixStream::pair().unwrap();
    client.send(21, &[], &[theirs.as_fd()]);
    client.synchronize();
    let stuff = |length| {
        let mut sent = 0;
        while let Ok(more) = rustix::net::send(&theirs, &vec![7; length], rustix::net::SendFlags::DONTWAIT) {
            sent += more;
        }
        sent
    };
    let sent = stuff(4096) + stuff(1);
    disk.grown.store(1, Ordering::SeqCst);
    disk.event.ring();
    let asked = || {
        client.send(24, &[&halves(&[0, 8, 0])[..], &[0; 8]].concat(), &[]);
        client.receive(24).unwrap().0[12..] == 2048u64.to_le_bytes()
    };
    wait_for(asked);

    let mut found = Vec::new();
    ours.set_read_timeout(Some(TIMEOUT)).unwrap();
    while found.len() < sent + 12 {
        let mut some = [0; 65536];
        let length = (&ours).read(&mut some).unwrap();
        found.extend_from_slice(&some[..length]);
    }
    assert_eq!(found[sent..], halves(&[2, 1, 0])[..]);
    assert!(!readable(&ours, Duration::from_millis(20)), "once");
}

/// Logging is not offered: SET_LOG_BASE with its descriptor is a question all the same, the rest is not.
#[test]
fn logging_is_answered_with_no() {
    let server = server(Duration::ZERO);
    let (client, session) = Client::start(&server, export(disk(), 1, 1));
    let log = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    client.send(6, &words(&[4096, 0]), &[log.as_fd()]);
    assert_eq!(client.receive(6).unwrap().0, words(&[1]));
    client.send(6, &words(&[4096]), &[]);
    assert_eq!(client.acknowledged(6, &words(&[4096, 0]), &[log.as_fd()]), 1, "once");
    assert_eq!(client.acknowledged(6, &words(&[4096]), &[]), 1);
    client.send(7, &[], &[log.as_fd()]);
    assert_eq!(client.acknowledged(7, &[], &[log.as_fd()]), 1);
    assert_eq!(client.driver(0).run(IN, 0, 0x80_0000, 4096), 0);
    assert!(session.end_reason().is_none());
}

#[test]
fn a_revoked_session_ends_in_order() {
    let server = server(Duration::from_micros(200));
    let (client, session) = Client::start(&server, export(disk(), 1, 1));
    assert_eq!(client.driver(0).run(IN, 0, 0x80_0000, 4096), 0);
    assert!(session.end_reason().is_none());
    session.revoke();
    assert_eq!(end(&session), EndReason::Revoked);
    assert!(client.receive(0).is_none(), "the connection is closed");
}
