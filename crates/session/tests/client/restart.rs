//! Servers that are killed under load and started again.

use crate::rig::{Client, Random, Rig, WRITE, pattern};
use crate::server::{QemuStorageDaemon, Running, Server};
use blockyard_block::{Disk, Operation, RequestError};
use blockyard_session::client::{SessionDisk, SessionOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Kills the server `restarts` times, each after some more requests of writers that verify, and starts it again.
pub(crate) fn survive_restarts(server: &dyn Server, queues: u16, restarts: u32, io_buffer_bytes: Option<u64>) {
    const SHARE: usize = 2 << 20;
    let directory = tempfile::tempdir().unwrap();
    let (image, socket) = (directory.path().join("disk.img"), directory.path().join("disk.sock"));
    std::fs::write(&image, vec![0; SHARE * usize::from(queues)]).unwrap();
    let mut running = Running::start(server, &image, &socket, queues);
    let options = SessionOptions { reconnect: Duration::from_secs(30), io_buffer_bytes, ..SessionOptions::default() };
    let disk = running.connect(&options);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let models = std::thread::scope(|scope| {
        let (disk, stop, done) = (&disk, &stop, &done);
        let writers: Vec<_> = (0..usize::from(queues))
            .map(|index| scope.spawn(move || verify(disk, index * SHARE, SHARE, stop, done)))
            .collect();
        let mut random = Random(restarts.into());
        for _ in 0..restarts {
            let wanted = done.load(Ordering::Relaxed) + 20 + random.below(300);
            let patience = Instant::now() + Duration::from_secs(30);
            while done.load(Ordering::Relaxed) < wanted && !writers.iter().any(|writer| writer.is_finished()) {
                assert!(Instant::now() < patience, "no request completes any more: {:?}", disk.failure());
                std::thread::sleep(Duration::from_micros(200));
            }
            running.kill();
            running = Running::start(server, &image, &socket, queues);
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    drop(disk);
    drop(running);
    assert!(std::fs::read(&image).unwrap() == models.concat(), "what was flushed is there");
}

/// Writes and reads a share of the disk, several requests at once, until told to stop. Every request completes once, and what is read is
/// what was written last. What the share must contain in the end.
pub(crate) fn verify(disk: &SessionDisk, start: usize, length: usize, stop: &AtomicBool, done: &AtomicU64) -> Vec<u8> {
    const DEPTH: usize = 16;
    const BYTES: usize = 16384;
    let mut client = Client::new(disk, DEPTH);
    let share = length / DEPTH;
    let mut model = vec![0; length];
    let mut expected: Vec<Option<usize>> = vec![None; DEPTH];
    let mut in_flight = [false; DEPTH];
    let mut random = Random(start as u64 + 1);
    let mut completions = Vec::with_capacity(DEPTH);
    while !stop.load(Ordering::Relaxed) || in_flight.contains(&true) {
        for slot in 0..DEPTH {
            if in_flight[slot] || stop.load(Ordering::Relaxed) {
                continue;
            }
            let offset = slot * share + 512 * random.below((share - BYTES) as u64 / 512) as usize;
            let address = (slot * BYTES) as u64;
            let segments = client.segments(address, BYTES);
            let at = (start + offset) as u64;
            match random.below(8) {
                0 => client.push(Operation::Flush, 0, &[], slot as u64),
                1..5 => {
                    let data = pattern(BYTES, random.next());
                    client.poke(address, &data);
                    model[offset..offset + BYTES].copy_from_slice(&data);
                    client.push(WRITE, at, &segments, slot as u64);
                }
                _ => {
                    expected[slot] = Some(offset);
                    client.poke(address, &[0xee; BYTES]);
                    client.push(Operation::Read, at, &segments, slot as u64);
                }
            }
            in_flight[slot] = true;
        }
        client.queue.submit().unwrap();
        client.queue.wait(&[], Some(Duration::from_secs(40))).unwrap();
        client.queue.reap(&mut completions);
        for completion in completions.drain(..) {
            let slot = completion.token as usize;
            assert!(std::mem::take(&mut in_flight[slot]), "completed once");
            assert_eq!(completion.result, Ok(()), "{:?}", disk.failure());
            if let Some(offset) = expected[slot].take() {
                assert!(client.peek((slot * BYTES) as u64, BYTES) == model[offset..offset + BYTES], "read at {offset}");
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    client.perform(Operation::Flush, 0, &[]).unwrap();
    model
}

#[test]
fn requests_survive_a_server_that_is_killed() {
    survive_restarts(&QemuStorageDaemon, 2, 12, None);
}

#[test]
fn copied_requests_survive_a_server_that_is_killed() {
    survive_restarts(&QemuStorageDaemon, 1, 8, Some(64 << 10));
}

#[test]
fn without_reconnect_a_killed_server_fails_everything_at_once() {
    let mut rig = Rig::new(&[0; 1 << 20], 1, &SessionOptions::default());
    let mut client = Client::new(&rig.disk, 4);
    rig.server.kill();
    let segments = client.segments(0, 512);
    let start = Instant::now();
    assert_eq!(client.perform(WRITE, 0, &segments), Err(RequestError::Os(libc::ENOTCONN)));
    assert_eq!(client.perform(Operation::Flush, 0, &[]), Err(RequestError::Os(libc::ENOTCONN)));
    assert!(start.elapsed() < Duration::from_secs(3));
    let failure = rig.disk.failure().unwrap();
    assert!(failure.contains("disk.sock closed the connection"), "{failure}");
    let error = rig.disk.open_queue(&client.memory, 1).err().unwrap().to_string();
    assert_eq!(error, *failure);
}

#[test]
fn a_server_that_does_not_come_back_in_time_fails_everything() {
    let options = SessionOptions { reconnect: Duration::from_millis(300), ..SessionOptions::default() };
    let mut rig = Rig::new(&[0; 1 << 20], 1, &options);
    let mut client = Client::new(&rig.disk, 4);
    rig.server.kill();
    let segments = client.segments(0, 512);
    let start = Instant::now();
    assert_eq!(client.perform(WRITE, 0, &segments), Err(RequestError::Os(libc::ENOTCONN)));
    assert!(start.elapsed() >= Duration::from_millis(200), "it had its time");
    let failure = rig.disk.failure().unwrap();
    assert!(failure.contains("did not come back within 300ms"), "{failure}");
    assert!(failure.contains("is `blockyard serve` running?"), "{failure}");
}

#[test]
fn a_server_that_comes_back_with_another_disk_is_refused() {
    let options = SessionOptions { reconnect: Duration::from_secs(20), ..SessionOptions::default() };
    let mut rig = Rig::new(&[0; 1 << 20], 2, &options);
    let mut client = Client::new(&rig.disk, 4);
    rig.server.kill();
    let smaller = rig.directory.path().join("smaller.img");
    std::fs::write(&smaller, [0; 4096]).unwrap();
    let _server = Running::start(&QemuStorageDaemon, &smaller, &rig.server.socket, 2);
    let segments = client.segments(0, 512);
    assert_eq!(client.perform(WRITE, 0, &segments), Err(RequestError::Os(libc::ENOTCONN)));
    let failure = rig.disk.failure().unwrap();
    assert!(failure.contains("another disk: it is smaller"), "{failure}");
}

#[test]
fn a_disk_that_grew_meanwhile_says_so() {
    let options = SessionOptions { reconnect: Duration::from_secs(20), ..SessionOptions::default() };
    let mut rig = Rig::new(&[0; 1 << 20], 1, &options);
    let mut client = Client::new(&rig.disk, 4);
    assert_eq!(rig.disk.generation(), 0);
    rig.server.kill();
    std::fs::write(&rig.image, vec![0; 2 << 20]).unwrap();
    let _server = Running::start(&QemuStorageDaemon, &rig.image, &rig.server.socket, 1);
    client.write(0, &[1; 512]);
    assert_eq!((rig.disk.generation(), rig.disk.geometry().capacity_bytes), (1, 2 << 20));
    client.write((2 << 20) - 512, &[2; 512]);
}

#[test]
fn a_queue_can_be_dropped_while_the_server_is_away() {
    let options = SessionOptions { reconnect: Duration::from_secs(60), ..SessionOptions::default() };
    let mut rig = Rig::new(&[0; 1 << 20], 1, &options);
    let mut client = Client::new(&rig.disk, 4);
    rig.server.kill();
    let segments = client.segments(0, 512);
    client.push(WRITE, 0, &segments, 1);
    client.queue.submit().unwrap();
    let start = Instant::now();
    drop(client);
    drop(rig);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn wrong_paths_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let say = |path: &Path| SessionDisk::connect(path, &SessionOptions::default()).unwrap_err().to_string();
    let missing = directory.path().join("missing.sock");
    assert!(say(&missing).ends_with("missing.sock: is `blockyard serve` running?"));
    let stale = directory.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(say(&stale).contains("nobody listens"));
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(say(&file).contains("is not a stream socket"));
    let datagrams = directory.path().join("datagrams");
    let _socket = std::os::unix::net::UnixDatagram::bind(&datagrams).unwrap();
    assert!(say(&datagrams).contains("is not a stream socket"));
    assert!(say(Path::new(&"x".repeat(200))).contains("too long"));
}
