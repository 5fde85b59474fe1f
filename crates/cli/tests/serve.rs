//! `blockyard serve` as its user meets it: sockets, rights, what it shows, how it ends, what it refuses.

#[path = "serve/beginnings.rs"]
mod beginnings;
#[path = "serve/file.rs"]
mod file;
#[path = "serve/numbers.rs"]
mod numbers;
#[path = "serve/odd_clients.rs"]
mod odd_clients;
mod server;

use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryMap, Operation, Queue, Request, RequestError};
use blockyard_session::client::{SessionDisk, SessionOptions};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Resource, Rlimit, Signal, kill_process, prlimit};
use server::Server;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const BLOCKYARD: &str = env!("CARGO_BIN_EXE_blockyard");
const PATIENCE: Duration = Duration::from_secs(60);
/// It stays where the limit on locked memory cannot be raised.
const CAP_IPC_LOCK: u64 = 1 << 14;
const PARTITION_BYTES: u64 = 1 << 20;

fn image(directory: &TempDir) -> PathBuf {
    let image = directory.path().join("disk.img");
    File::create(&image).unwrap().set_len(8 << 20).unwrap();
    image
}

/// Two partitions of one MiB each, from one MiB on.
fn partitioned(directory: &TempDir) -> PathBuf {
    let image = image(directory);
    let mut sfdisk = Command::new("sfdisk").arg("--quiet").arg(&image).stdin(Stdio::piped()).spawn().unwrap();
    sfdisk.stdin.take().unwrap().write_all(b"label: dos\nsize=2048\nsize=2048\n").unwrap();
    assert!(sfdisk.wait().unwrap().success());
    image
}

fn connect(socket: &Path) -> SessionDisk {
    let start = Instant::now();
    loop {
        match SessionDisk::connect(socket, &SessionOptions::default()) {
            Ok(disk) => return disk,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// One request of 4 KiB of `byte`s.
fn perform(disk: &SessionDisk, operation: Operation, offset_bytes: u64, byte: u8) -> Result<(), RequestError> {
    let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
    let mut segments = Vec::new();
    assert!(memory.find(0, 4096, &mut segments));
    memory.slice(segments[0]).unwrap().copy_from(&[byte; 4096]);
    let mut queue = disk.open_queue(&memory, 1).unwrap();
    queue.push(&Request { operation, offset_bytes, segments: &segments, token: 0 }).unwrap();
    let mut completions = Vec::new();
    queue.drain(&mut completions).unwrap();
    completions[0].result
}

/// A queue, once it has read.
fn reading_queue(disk: &SessionDisk) -> io::Result<Box<dyn Queue>> {
    let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
    let mut segments = Vec::new();
    assert!(memory.find(0, 4096, &mut segments));
    let mut queue = disk.open_queue(&memory, 1)?;
    queue.push(&Request { operation: Operation::Read, offset_bytes: 0, segments: &segments, token: 0 }).unwrap();
    let mut completions = Vec::new();
    queue.drain(&mut completions)?;
    completions[0].result.map_err(|error| io::Error::other(error.to_string()))?;
    Ok(queue)
}

const WRITE: Operation = Operation::Write { force_unit_access: true };

/// Exit status and stderr of a `serve` that ends by itself.
fn refused(arguments: &[&OsStr]) -> (Option<i32>, String) {
    let output = Command::new(BLOCKYARD).arg("serve").args(arguments).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Starts a server of a file, and waits until the file is the disk.
fn serve_file(image: &Path, path: &Path, errors: &Path) -> std::process::Child {
    let mut command = Command::new(BLOCKYARD);
    command.arg("serve").arg(image).arg("--fuse").arg(path).stderr(File::create(errors).unwrap());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    while fs::metadata(path).map_or(0, |metadata| metadata.len()) != 8 << 20 {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}: {}", fs::read_to_string(errors).unwrap());
        assert!(start.elapsed() < PATIENCE, "the file does not appear");
        thread::sleep(Duration::from_millis(1));
    }
    child
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    for (arguments, word) in [
        (&["a.img"][..], "--socket"),
        (&["a.img", "--socket", "s", "--fuse", "f"], "cannot be used with"),
        (&["a.img", "--socket", "s", "--copying"], "--partition"),
        (&["a.img,colour=red", "--socket", "s"], "colour"),
        (&["a.img", "--partition", "p1.sock"], "N=SOCKET"),
        (&["a.img", "--partition", "0=p1.sock"], "count from 1"),
        (&["a.img", "--socket", "s", "--metrics", "0.0.0.0:9100"], "loopback"),
        (&["a.img", "--fuse", "f", "--threads", "2"], "cannot be used with"),
        (&["a.img", "--socket", "s", "--queues", "0"], "0"),
        (&["a.img", "--socket", "s", "--cpus", "x"], "list of CPUs"),
    ] {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        let (code, message) = refused(&arguments);
        assert!(code == Some(2) && message.contains(word), "{arguments:?}: {code:?} {message}");
    }
}

#[test]
fn what_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let (code, message) = refused(&["/nonexistent/disk.img".as_ref(), "--socket".as_ref(), socket.as_os_str()]);
    assert!(code == Some(1) && message.contains("/nonexistent/disk.img"), "{message}");
    assert!(!socket.exists());
    let image = image(&directory);
    let export = format!("5={}", socket.display());
    let (code, message) = refused(&[image.as_os_str(), "--partition".as_ref(), export.as_ref()]);
    assert!(code == Some(1) && message.contains("partition"), "{message}");
    assert!(!socket.exists());
}

#[test]
fn a_socket_is_the_users_own_and_serves_one_client_after_another() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket) = (image(&directory), directory.path().join("s"));
    let server = Server::start(&[image.as_os_str(), "--socket".as_ref(), socket.as_os_str()], &socket);
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let first = connect(&socket);
    perform(&first, WRITE, 0, 1).unwrap();
    assert!(SessionDisk::connect(&socket, &SessionOptions::default()).is_err(), "a second client is refused");
    perform(&first, WRITE, 4096, 2).unwrap();
    drop(first);
    perform(&connect(&socket), WRITE, 8192, 3).unwrap();
    server.stop();
    assert!(!socket.exists());
    let contents = fs::read(&image).unwrap();
    assert_eq!([contents[0], contents[4096], contents[8192]], [1, 2, 3]);
}

/// In a user namespace that has no number for its client.
#[test]
fn a_client_that_may_be_anybody_is_served_as_long_as_the_socket_is_its_owner_s_alone() {
    if !Command::new("unshare").args(["--user", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("no user namespace for this user: not tried");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("disk.sock");
    let mut command = Command::new("unshare");
    command.args(["--user", BLOCKYARD, "serve", "null:1M", "--socket"]).arg(&socket);
    let server = Server::spawn(&mut command, &socket);
    drop(connect(&socket));
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let refusal = SessionDisk::connect(&socket, &SessionOptions { reconnect: Duration::ZERO, ..Default::default() });
    assert!(refusal.is_err());
    fs::set_permissions(&socket, Permissions::from_mode(0o600)).unwrap();
    drop(connect(&socket));
    server.stop();
}

#[test]
fn a_stale_socket_is_replaced_and_anything_else_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket) = (image(&directory), directory.path().join("s"));
    let arguments = [image.as_os_str(), "--socket".as_ref(), socket.as_os_str()];
    fs::write(&socket, "precious").unwrap();
    let (code, message) = refused(&arguments);
    assert!(code == Some(1) && message.contains(socket.to_str().unwrap()), "{message}");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let (code, message) = refused(&arguments);
    assert!(code == Some(1) && message.contains(socket.to_str().unwrap()), "{message}");
    drop(listener);
    let server = Server::start(&arguments, &socket);
    drop(connect(&socket));
    server.stop();
}

/// Whatever threads an image has, or a session of its own.
#[test]
fn a_server_is_confined_once_it_serves() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket) = (image(&directory), directory.path().join("s"));
    let qcow2 = directory.path().join("disk.qcow2");
    assert!(Command::new(BLOCKYARD).args(["image", "convert"]).arg(&image).arg(&qcow2).status().unwrap().success());
    for image in [&image, &qcow2] {
        let server = Server::start(&[image.as_os_str(), "--socket".as_ref(), socket.as_os_str()], &socket);
        // It stays: its thread must not end while the threads are looked at.
        let client = connect(&socket);
        let tasks = format!("/proc/{}/task", server.id().as_raw_nonzero());
        for task in fs::read_dir(tasks).unwrap() {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
            for set in ["CapPrm:", "CapEff:"] {
                let kept = status.lines().find_map(|line| line.strip_prefix(set)).unwrap().trim();
                assert_eq!(u64::from_str_radix(kept, 16).unwrap() & !CAP_IPC_LOCK, 0, "{status}");
            }
        }
        drop(client);
        server.stop();
        assert!(!socket.exists());
    }
}

/// A server has what it opened itself, and nothing that whoever started it forgot to close.
#[test]
fn a_server_keeps_no_descriptors_that_it_inherits() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let forgotten = directory.path().join("forgotten");
    File::create(&forgotten).unwrap();
    let image = partitioned(&directory);
    let export = format!("1={}", socket.display());
    for front in [[OsStr::new("--socket"), socket.as_os_str()], ["--partition".as_ref(), export.as_ref()]] {
        let mut command = Command::new("sh");
        command.args(["-c", "exec 7<\"$1\" 9>>\"$1\"; shift; exec \"$@\"", "sh"]).arg(&forgotten);
        command.arg(BLOCKYARD).arg("serve").arg(&image).args(front);
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while !server::listens(&socket) {
            assert!(start.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "it does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        let of_group = |pid: u32| {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            let children = children.split_whitespace().map(|child| child.parse().unwrap()).collect::<Vec<u32>>();
            children.into_iter().chain([pid]).collect::<Vec<_>>()
        };
        let has_it = |pid: &u32| {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
            descriptors
                .map(|descriptor| fs::read_link(descriptor.unwrap().path()))
                .any(|link| link.is_ok_and(|link| link == forgotten))
        };
        // A process that was just made may not have come to close it.
        while of_group(child.id()).iter().any(has_it) {
            assert!(start.elapsed() < PATIENCE, "a process keeps what it inherited");
            thread::sleep(Duration::from_millis(5));
        }
        kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn once_is_for_one_client() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket) = (image(&directory), directory.path().join("s"));
    let mut command = Command::new(BLOCKYARD);
    let mut child = command.arg("serve").arg(&image).arg("--socket").arg(&socket).arg("--once").spawn().unwrap();
    drop(connect(&socket));
    assert!(child.wait().unwrap().success());
    assert!(!socket.exists());
}

#[test]
fn a_partition_is_all_that_its_client_reaches_and_only_to_read_unless_it_may_write() {
    for copying in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let image = partitioned(&directory);
        let sockets = [1, 2].map(|number| directory.path().join(format!("p{number}")));
        let exports = [format!("1={}", sockets[0].display()), format!("2={},rw", sockets[1].display())];
        let mut arguments = vec![image.as_os_str(), "--partition".as_ref(), exports[0].as_ref()];
        arguments.extend(["--partition".as_ref(), exports[1].as_ref()] as [&OsStr; 2]);
        arguments.extend(copying.then_some(OsStr::new("--copying")));
        let before = fs::read(&image).unwrap();
        let server = Server::start(&arguments, &sockets[1]);
        let (read_only, writable) = (connect(&sockets[0]), connect(&sockets[1]));
        assert!(read_only.geometry().read_only && !writable.geometry().read_only);
        assert_eq!([&read_only, &writable].map(|disk| disk.geometry().capacity_bytes), [PARTITION_BYTES; 2]);
        assert!(perform(&read_only, WRITE, 0, 7).is_err());
        assert!(perform(&writable, WRITE, PARTITION_BYTES, 7).is_err());
        perform(&writable, WRITE, 0, 7).unwrap();
        perform(&writable, WRITE, PARTITION_BYTES - 4096, 8).unwrap();
        drop((read_only, writable));
        server.stop();
        assert!(sockets.iter().all(|socket| !socket.exists()), "copying: {copying}");
        let mut expected = before;
        let second = 2 * PARTITION_BYTES as usize;
        expected[second..second + 4096].fill(7);
        expected[second + PARTITION_BYTES as usize - 4096..second + PARTITION_BYTES as usize].fill(8);
        assert!(fs::read(&image).unwrap() == expected, "copying: {copying}");
    }
}

/// Rings are made before there are clients: each has its own, and its further connections have some more.
#[test]
fn a_client_leaves_others_their_rings() {
    const QUEUES: usize = 4;
    const FURTHER_QUEUES: usize = 28;
    let directory = tempfile::tempdir().unwrap();
    let disk = format!("{},engine=uring", partitioned(&directory).display());
    let sockets = [1, 2].map(|number| directory.path().join(format!("p{number}")));
    let exports = [1, 2].map(|number| format!("{number}={}", sockets[number - 1].display()));
    let queues = QUEUES.to_string();
    let words = [&disk, "--queues", &queues, "--partition", &exports[0], "--partition", &exports[1]];
    let server = Server::start(&words.map(OsStr::new), &sockets[1]);
    let options = SessionOptions { is_passed_on: true, ..SessionOptions::default() };
    // What the first one takes it keeps.
    let clients = sockets.each_ref().map(|socket| {
        let first = SessionDisk::connect(socket, &options).unwrap();
        let mut further = Vec::new();
        loop {
            let disk = SessionDisk::from_stream(first.add_connection().unwrap(), "further", &options).unwrap();
            match [reading_queue(&disk), reading_queue(&disk)] {
                [Ok(one), Ok(other)] => further.push((disk, one, other)),
                _ => break,
            }
        }
        assert_eq!(2 * further.len(), FURTHER_QUEUES);
        let own: Vec<_> = (0..QUEUES).map(|_| reading_queue(&first).unwrap()).collect();
        (first, own, further)
    });
    drop(clients);
    server.stop();
}

/// Waits until a server has said something on what was made its stderr.
fn says(errors: &Path, what: &str) {
    let start = Instant::now();
    while !fs::read_to_string(errors).unwrap().contains(what) {
        assert!(start.elapsed() < PATIENCE, "{}", fs::read_to_string(errors).unwrap());
        thread::sleep(Duration::from_millis(5));
    }
}
