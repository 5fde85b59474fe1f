//! The session client against the session server.

use crate::data::random_requests;
use crate::rig::{Client, all_ways};
use crate::verify::verify;
use blockyard_block::{Disk, MemoryDisk, Operation, RequestError};
use blockyard_session::client::{SessionDisk, SessionOptions};
use blockyard_session::server::{Export, Server, ServerOptions};
use std::num::NonZeroU32;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SHARE: usize = 2 << 20;

fn export(disk: &Arc<MemoryDisk>, queues: u16) -> Export {
    Export {
        name: "memory".into(),
        disk: Arc::clone(disk) as Arc<dyn Disk>,
        queues,
        weight: NonZeroU32::MIN,
        is_alone: false,
    }
}

fn read_all(disk: &dyn Disk, length: usize) -> Vec<u8> {
    let memory = crate::rig::memory();
    let queue = disk.open_queue(&memory, 1).unwrap();
    Client { memory, queue }.read(0, length)
}

#[test]
fn many_requests_on_several_queues_do_what_a_vector_does() {
    for options in all_ways() {
        let memory = Arc::new(MemoryDisk::new(3 * SHARE as u64, 512).unwrap());
        let server = Server::start(&ServerOptions { threads: 2, ..ServerOptions::default() }).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let session = server.attach(theirs, export(&memory, 3)).unwrap();
        let disk = SessionDisk::from_stream(ours, "memory", &options).unwrap();
        assert_eq!(disk.queue_count(), 3);
        let shares = std::thread::scope(|scope| {
            let disk = &disk;
            let threads: Vec<_> =
                (0..3).map(|queue| scope.spawn(move || random_requests(disk, queue * SHARE, SHARE, 9))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        drop(disk);
        session.wait();
        assert!(read_all(&*memory, 3 * SHARE) == shares.concat());
    }
}

/// Whoever reaps until all is there, and never sleeps, needs nobody who wakes it.
#[test]
fn who_does_not_sleep_is_not_rung_for() {
    const REQUESTS: u64 = 20_000;
    let disk = Arc::new(MemoryDisk::new(SHARE as u64, 512).unwrap());
    let server = Server::start(&ServerOptions::default()).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let session = server.attach(theirs, export(&disk, 1)).unwrap();
    let disk = SessionDisk::from_stream(ours, "memory", &SessionOptions::default()).unwrap();
    let mut client = Client::new(&disk, 64);
    let segments = client.segments(0, 512);
    let mut completions = Vec::with_capacity(64);
    let (mut pushed, mut reaped) = (0, 0);
    while reaped < REQUESTS {
        while pushed < REQUESTS && client.queue.in_flight() < 64 {
            client.push(Operation::Read, pushed % 1000 * 512, &segments, pushed);
            pushed += 1;
        }
        client.queue.submit().unwrap();
        client.queue.reap(&mut completions);
        reaped += completions.drain(..).count() as u64;
        std::thread::yield_now();
    }
    // The first is rung for where nobody has said anything yet.
    assert!(session.statistics().counts.interrupts <= 1, "{:?}", session.statistics().counts);
}

/// The server ends the session under a writer that verifies, again and again.
#[test]
fn requests_survive_sessions_that_the_server_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let memory = Arc::new(MemoryDisk::new(2 * SHARE as u64, 512).unwrap());
    let server = Server::start(&ServerOptions::default()).unwrap();
    let accept = || server.attach(listener.accept().unwrap().0, export(&memory, 2)).unwrap();
    let options = SessionOptions { reconnect: Duration::from_secs(300), ..SessionOptions::default() };
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let models = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| SessionDisk::connect(&path, &options).unwrap());
        let mut session = accept();
        let disk = Arc::new(connecting.join().unwrap());
        let writers: Vec<_> = (0..2)
            .map(|index| {
                let (disk, stop, done) = (Arc::clone(&disk), &stop, &done);
                scope.spawn(move || verify(&disk, index * SHARE, SHARE, stop, done))
            })
            .collect();
        for round in 0..20 {
            let wanted = done.load(Ordering::Relaxed) + 50 + 20 * round;
            let patience = Instant::now() + Duration::from_secs(120);
            while done.load(Ordering::Relaxed) < wanted {
                assert!(Instant::now() < patience, "no request completes any more: {:?}", disk.failure());
                std::thread::sleep(Duration::from_micros(200));
            }
            session.revoke();
            session.wait();
            session = accept();
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(read_all(&*memory, 2 * SHARE) == models.concat());
}

/// Another server may be one beside which others change the disk: that is no successor of one beside which nobody does.
#[test]
fn a_client_that_was_alone_stays_so_or_has_no_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let memory = Arc::new(MemoryDisk::new(SHARE as u64, 512).unwrap());
    let server = Server::start(&ServerOptions::default()).unwrap();
    let accept = |is_alone| {
        let export = Export { is_alone, ..export(&memory, 2) };
        server.attach(listener.accept().unwrap().0, export).unwrap()
    };
    let reconnect = Duration::from_secs(300);
    let options = SessionOptions { reconnect, is_passed_on: true, ..SessionOptions::default() };
    std::thread::scope(|scope| {
        for is_alone in [false, true] {
            let connecting = scope.spawn(|| SessionDisk::connect(&path, &options).unwrap());
            let first = accept(is_alone);
            let disk = connecting.join().unwrap();
            assert_eq!(disk.is_alone(), is_alone);
            let before = disk.incarnation();
            first.revoke();
            let second = accept(is_alone);
            let mut client = Client::new(&disk, 1);
            client.perform(Operation::Flush, 0, &[]).unwrap();
            assert!(disk.is_alone() == is_alone && disk.incarnation() != before);
            second.revoke();
            let third = accept(!is_alone);
            let flushed = client.perform(Operation::Flush, 0, &[]);
            let failure = disk.failure().unwrap_or_default();
            if is_alone {
                assert_eq!(flushed, Err(RequestError::Os(libc::ENOTCONN)));
                assert!(failure.contains("it lacks features that it had"), "{failure}");
            } else {
                assert_eq!(flushed, Ok(()), "{failure}");
                assert!(!disk.is_alone(), "what was not said at first is not relied on");
            }
            drop((client, disk, third));
        }
    });
}
