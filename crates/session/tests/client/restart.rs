//! Servers that are killed under load and started again.

use crate::rig::{Client, Rig, WRITE};
use crate::server::{QemuStorageDaemon, Running};
use crate::verify::survive_restarts;
use blockyard_block::{Disk, Operation, RequestError, explain};
use blockyard_session::client::{SessionDisk, SessionOptions};
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
