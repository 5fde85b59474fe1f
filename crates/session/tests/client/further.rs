//! Further connections of a client's, with the session server.

use crate::rig::{Client, WRITE, pattern};
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{Disk, Operation, RequestError};
use blockyard_session::client::{SessionDisk, SessionError, SessionOptions};
use blockyard_session::open::{OpenOptions, open_disk};
use blockyard_session::server::{EndReason, Export, Server, ServerOptions, Session};
use std::num::NonZeroU32;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many a client may have.
const FURTHER_MAX: usize = 64;

fn disk(name: &str) -> Arc<dyn Disk> {
    open_disk(&name.parse::<DiskSpecification>().unwrap(), &OpenOptions::default()).unwrap().disk
}

/// A client that passes its disk on, its session, and the server.
fn first(disk: &Arc<dyn Disk>) -> (SessionDisk, Session, Server) {
    let server = Server::start(&ServerOptions { threads: 2, ..ServerOptions::default() }).unwrap();
    let disk = Arc::clone(disk);
    let export = Export { name: "disk".into(), disk, queues: 2, weight: NonZeroU32::MIN, is_alone: true };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let session = server.attach(theirs, export).unwrap();
    let options = SessionOptions { is_passed_on: true, ..SessionOptions::default() };
    (SessionDisk::from_stream(ours, "first", &options).unwrap(), session, server)
}

fn further(first: &SessionDisk) -> SessionDisk {
    let options = SessionOptions { is_passed_on: true, ..SessionOptions::default() };
    SessionDisk::from_stream(first.add_connection().unwrap(), "further", &options).unwrap()
}

#[test]
fn all_of_a_clients_connections_have_the_same_disk_and_are_counted_together() {
    let memory = disk("mem:1M");
    let (first, session, _server) = first(&memory);
    assert!(first.takes_further() && first.is_alone());
    let all: Vec<_> = (0..3).map(|_| further(&first)).collect();
    for further in &all {
        assert!(!further.takes_further(), "they are the first one's alone to ask for");
        assert!(!further.is_alone(), "the others change it, too");
        assert_eq!(further.geometry(), first.geometry());
        assert!(further.queue_count() > first.queue_count(), "a process has more threads than a machine has queues");
    }
    let bytes = pattern(4096, 7);
    let mut clients: Vec<_> = all.iter().map(|disk| Client::new(disk, 4)).collect();
    clients.iter_mut().zip(0..).for_each(|(client, place)| client.write(place * 4096, &bytes));
    drop(clients.pop());
    for client in &mut clients {
        (0..3).for_each(|place| assert!(client.read(place * 4096, 4096) == bytes));
    }
    let counts = first.further_counts().unwrap();
    assert_eq!((counts.writes, counts.bytes_written, counts.reads, counts.write_errors), (3, 3 * 4096, 6, 0));
    let seen = session.statistics().counts;
    assert_eq!((seen.writes, seen.reads), (3, 6), "the session is all of the client's");
    // A connection that is over has been counted.
    drop((clients, all));
    assert_eq!(first.further_counts().unwrap().writes, 3);
}

/// Whoever comes next finds what others had under way, who are gone or go on.
#[test]
fn what_was_available_is_done_when_it_is_settled() {
    let (first, _session, _server) = first(&disk("mem:1M,latency=30ms"));
    let all = [(); 2].map(|()| further(&first));
    let mut clients = all.each_ref().map(|disk| Client::new(disk, 8));
    for (client, start) in clients.iter_mut().zip([0, 8]) {
        let segments = client.segments(0, 512);
        (start..start + 8).for_each(|place| client.push(WRITE, place * 512, &segments, place));
        client.queue.submit().unwrap();
    }
    first.settle_further();
    assert_eq!(first.further_counts().unwrap().writes, 16);
    for client in &mut clients {
        let mut completions = Vec::with_capacity(8);
        client.queue.reap(&mut completions);
        assert_eq!(completions.len(), 8, "nothing is left to wait for");
    }
    // Nobody waits where there is nothing, or nobody.
    first.settle_further();
    drop((clients, all));
    first.settle_further();
}

/// What was available is done, as on the first itself.
#[test]
fn they_end_with_the_first() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let (first, session, _server) = first(&disk(&format!("file:{},latency=30ms", file.path().display())));
    let further = further(&first);
    let mut client = Client::new(&further, 8);
    let bytes = pattern(512, 9);
    client.poke(0, &bytes);
    let segments = client.segments(0, 512);
    (0..8).for_each(|place| client.push(WRITE, place * 512, &segments, place));
    client.queue.submit().unwrap();
    drop(first);
    assert_eq!(*session.wait(), EndReason::Disconnected);
    assert!(std::fs::read(file.path()).unwrap().starts_with(&bytes.repeat(8)));
    client.drain();
    assert_eq!(client.perform(Operation::Flush, 0, &[]), Err(RequestError::Os(libc::ENOTCONN)));
}

#[test]
fn there_are_so_many_and_no_more() {
    let (first, session, _server) = first(&disk("mem:1M"));
    let mut all: Vec<_> = (0..FURTHER_MAX).map(|_| first.add_connection().unwrap()).collect();
    let refused = first.add_connection().unwrap_err();
    assert!(matches!(refused, SessionError::Refused { .. }), "{refused}");
    drop(all.pop());
    let start = Instant::now();
    while first.add_connection().is_err() {
        assert!(start.elapsed() < Duration::from_secs(120), "the one that has left keeps its place");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(session.end_reason().is_none());
    session.revoke();
    session.wait();
}

/// Who is at a door is told so, and does not take it for a server that is away.
#[test]
fn who_gets_none_is_told() {
    let (first, _session, _server) = first(&disk("mem:1M"));
    let all: Vec<_> = (0..FURTHER_MAX).map(|_| first.add_connection().unwrap()).collect();
    let directory = tempfile::tempdir().unwrap();
    let door = directory.path().join("door");
    let listener = UnixListener::bind(&door).unwrap();
    let options = SessionOptions { is_at_door: true, ..SessionOptions::default() };
    std::thread::scope(|scope| {
        let passing = scope.spawn(|| first.pass_on(listener.accept().unwrap().0));
        let refused = SessionDisk::connect(&door, &options).unwrap_err();
        assert!(matches!(refused, SessionError::Refused { .. }), "{refused}");
        passing.join().unwrap().unwrap();
    });
    drop(all);
}

/// Who does not say that the disk is passed on is not told of any of it: each server is then as good as another.
#[test]
fn who_does_not_ask_is_offered_nothing() {
    let server = Server::start(&ServerOptions::default()).unwrap();
    let export =
        Export { name: "disk".into(), disk: disk("mem:1M"), queues: 1, weight: NonZeroU32::MIN, is_alone: true };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let _session = server.attach(theirs, export).unwrap();
    let disk = SessionDisk::from_stream(ours, "disk", &SessionOptions::default()).unwrap();
    assert!(!disk.is_alone() && !disk.takes_further());
    for refused in [disk.add_connection().unwrap_err(), disk.further_counts().unwrap_err()] {
        assert!(matches!(refused, SessionError::Refused { .. }), "{refused}");
    }
    let mut client = Client::new(&disk, 1);
    client.perform(Operation::Flush, 0, &[]).unwrap();
}
