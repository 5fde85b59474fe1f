//! Servers that are killed under load and started again.

use crate::rig::{Client, Rig, WRITE};
use crate::server::{QemuStorageDaemon, Running};
use crate::verify::survive_restarts;
use blockyard_block::{Disk, Operation, RequestError, explain};
use blockyard_session::client::{SessionDisk, SessionOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest that something may take that waits for nobody, on a machine with much else to do: less than a server is
/// waited for.
const AT_ONCE: Duration = Duration::from_secs(120);

#[test]
fn requests_survive_a_server_that_is_killed() {
    survive_restarts(&QemuStorageDaemon, 2, 2, 12, None);
}

#[test]
fn copied_requests_survive_a_server_that_is_killed() {
    survive_restarts(&QemuStorageDaemon, 1, 1, 8, Some(64 << 10));
}

#[test]
fn requests_of_queues_that_share_virtqueues_survive_a_server_that_is_killed() {
    survive_restarts(&QemuStorageDaemon, 4, 1, 8, None);
    survive_restarts(&QemuStorageDaemon, 4, 2, 4, Some(64 << 10));
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
    assert!(start.elapsed() < AT_ONCE);
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
    let segments = client.segments(0, 512);
    // Its time begins when it is seen to be gone, which may be while it is still waited for here.
    let start = Instant::now();
    rig.server.kill();
    assert_eq!(client.perform(WRITE, 0, &segments), Err(RequestError::Os(libc::ENOTCONN)));
    assert!(start.elapsed() >= options.reconnect, "it had its time");
    let failure = rig.disk.failure().unwrap();
    assert!(failure.contains("did not come back within 300ms"), "{failure}");
    assert!(failure.contains("is its server running?"), "{failure}");
}

#[test]
fn a_server_that_comes_back_with_another_disk_is_refused() {
    let options = SessionOptions { reconnect: Duration::from_secs(300), ..SessionOptions::default() };
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
    let options = SessionOptions { reconnect: Duration::from_secs(300), ..SessionOptions::default() };
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
    let options = SessionOptions { reconnect: Duration::from_secs(600), ..SessionOptions::default() };
    let mut rig = Rig::new(&[0; 1 << 20], 1, &options);
    let mut client = Client::new(&rig.disk, 4);
    rig.server.kill();
    let segments = client.segments(0, 512);
    client.push(WRITE, 0, &segments, 1);
    client.queue.submit().unwrap();
    let start = Instant::now();
    drop(client);
    drop(rig);
    assert!(start.elapsed() < AT_ONCE);
}

/// Whoever comes while there is no server waits for the next one, as requests do.
#[test]
fn a_queue_that_is_opened_while_the_server_is_away_is_the_next_ones() {
    let options =
        SessionOptions { reconnect: Duration::from_secs(600), is_passed_on: true, ..SessionOptions::default() };
    let mut rig = Rig::new(&[0; 1 << 20], 1, &options);
    let first = Client::new(&rig.disk, 1);
    let away = rig.disk.incarnation();
    rig.server.kill();
    while rig.disk.incarnation() == away {
        std::thread::sleep(Duration::from_millis(1));
    }
    // It shares the only virtqueue.
    let (opened, _server) = std::thread::scope(|scope| {
        let opened = scope.spawn(|| Client::try_new(&rig.disk, 1).map(drop));
        let server = Running::start(&QemuStorageDaemon, &rig.image, &rig.server.socket, 1);
        (opened.join().unwrap(), server)
    });
    opened.unwrap();
    drop(first);
    Client::new(&rig.disk, 1).write(0, &[1; 512]);
}

/// What nothing can come of any more keeps nobody awake who sleeps on it.
#[test]
fn nobody_is_woken_for_ever_where_a_server_has_gone() {
    let ended = SessionOptions::default();
    let away = SessionOptions { reconnect: Duration::from_secs(600), ..SessionOptions::default() };
    for options in [ended, away] {
        let mut rig = Rig::new(&[0; 1 << 20], 1, &options);
        let mut client = Client::new(&rig.disk, 4);
        client.write(0, &[1; 512]);
        let before = rig.disk.incarnation();
        rig.server.kill();
        while rig.disk.incarnation() == before || (options.reconnect.is_zero() && rig.disk.failure().is_none()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut completions = Vec::with_capacity(4);
        // It may ring a moment later than the session says so.
        let deadline = Instant::now() + AT_ONCE;
        let mut quiet = 0;
        while quiet < 3 {
            let event = client.queue.completion_event().unwrap().as_fd().try_clone_to_owned().unwrap();
            client.queue.reap(&mut completions);
            let mut event = [PollFd::new(&event, PollFlags::IN)];
            let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            quiet = if poll(&mut event, Some(&pause)).unwrap() == 0 { quiet + 1 } else { 0 };
            assert!(Instant::now() < deadline, "{options:?}");
        }
    }
}

#[test]
fn wrong_paths_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let say = |path: &Path| explain(&SessionDisk::connect(path, &SessionOptions::default()).unwrap_err());
    let missing = directory.path().join("missing.sock");
    assert!(say(&missing).ends_with("missing.sock: is its server running?"));
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
