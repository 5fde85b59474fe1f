//! `blockyard serve` as its user meets it: sockets, rights, what it shows, how it ends, what it refuses.

mod server;

use blockyard_block::{Disk, MemoryMap, Operation, Queue, Request, RequestError};
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

/// An address that is free, of those that nobody else takes ports of.
fn free_address(host: &str) -> SocketAddr {
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap()
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until a server has said something on what was made its stderr.
fn says(errors: &Path, what: &str) {
    let start = Instant::now();
    while !fs::read_to_string(errors).unwrap().contains(what) {
        assert!(start.elapsed() < PATIENCE, "{}", fs::read_to_string(errors).unwrap());
        thread::sleep(Duration::from_millis(5));
    }
}

/// A connection by hand, once the client before has gone.
fn connect_raw(socket: &Path) -> UnixStream {
    let start = Instant::now();
    loop {
        let mut client = UnixStream::connect(socket).unwrap();
        // GET_FEATURES: who is turned away gets no answer.
        let asked = client.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        if asked.and_then(|()| client.read_exact(&mut [0; 20])).is_ok() {
            return client;
        }
        assert!(start.elapsed() < PATIENCE, "nobody is let in");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a vhost-user message with a descriptor.
fn send(client: &UnixStream, request: u32, payload: &[u64], descriptor: BorrowedFd<'_>) {
    pass(client, &message(request, 0, payload), descriptor);
}

fn message(request: u32, flags: u32, payload: &[u64]) -> Vec<u8> {
    let header = [request, 1 | flags, 8 * payload.len() as u32];
    let header = header.iter().flat_map(|word| word.to_ne_bytes());
    header.chain(payload.iter().flat_map(|word| word.to_ne_bytes())).collect()
}

fn pass(socket: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) {
    try_to_pass(socket, bytes, descriptor).unwrap();
}

fn try_to_pass(socket: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// A unix socket whose close waits for an hour: in its queue lies the last descriptor of a TCP connection that has to
/// send what nobody reads. And who does not read.
fn lingering_socket() -> (UnixStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Not much memory each.
    set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let mut tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    set_socket_send_buffer_size(&tcp, 4096).unwrap();
    let reader = listener.accept().unwrap().0;
    tcp.set_nonblocking(true).unwrap();
    while tcp.write(&[0; 65536]).is_ok() {}
    tcp.set_nonblocking(false).unwrap();
    set_socket_linger(&tcp, Some(Duration::from_secs(3600))).unwrap();
    let (given, ours) = UnixStream::pair().unwrap();
    pass(&ours, &[0], tcp.as_fd());
    (given, reader)
}

const SET_MEM_TABLE: u32 = 5;
const SET_VRING_CALL: u32 = 13;

/// Closing what this client gave takes an hour: nobody else waits for that, nor does the server's end.
#[test]
fn a_client_that_leaves_what_cannot_be_closed_keeps_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket) = (image(&directory), directory.path().join("s"));
    let server = Server::start(&[image.as_os_str(), "--socket".as_ref(), socket.as_os_str()], &socket);
    let client = connect_raw(&socket);
    let (given, _reader) = lingering_socket();
    send(&client, SET_VRING_CALL, &[0], given.as_fd());
    drop((given, client));
    perform(&connect(&socket), WRITE, 0, 1).unwrap();
    server.stop();
}

/// The same of one that is turned away: all of it is in its connection's queue, which goes with the connection.
#[test]
fn a_client_that_is_turned_away_keeps_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket) = (image(&directory), directory.path().join("s"));
    let server = Server::start(&[image.as_os_str(), "--socket".as_ref(), socket.as_os_str()], &socket);
    let disk = connect(&socket);
    // It finds all of it when it goes on.
    server.suspend();
    let second = UnixStream::connect(&socket).unwrap();
    let (given, _reader) = lingering_socket();
    pass(&second, &[0], given.as_fd());
    drop((given, second));
    kill_process(server.id(), Signal::CONT).unwrap();
    // It is gone, and the third hears that it is turned away, too.
    let third = UnixStream::connect(&socket).unwrap();
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!((&third).read(&mut [0]).unwrap(), 0);
    perform(&disk, WRITE, 0, 1).unwrap();
    server.stop();
}

/// Whoever was to read what a server says has stopped to.
#[test]
fn a_server_that_nobody_listens_to_serves_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket) = (image(&directory), directory.path().join("s"));
    let (_reader, errors) = rustix::pipe::pipe().unwrap();
    let flags = fcntl_getfl(&errors).unwrap();
    fcntl_setfl(&errors, flags | OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&errors, b"\n").is_ok() {}
    fcntl_setfl(&errors, flags).unwrap();
    let mut command = Command::new(BLOCKYARD);
    command.arg("serve").arg(&image).arg("--socket").arg(&socket).stderr(errors);
    let server = Server::spawn(&mut command, &socket);
    perform(&connect(&socket), WRITE, 0, 1).unwrap();
    kill_process(server.id(), Signal::USR1).unwrap();
    perform(&connect(&socket), WRITE, 0, 2).unwrap();
    server.stop();
}

/// How much a server says is not its clients' to decide, but how often something happened is to be read.
#[test]
fn what_clients_do_again_and_again_is_said_with_its_number() {
    const CLIENTS: usize = 300;
    let directory = tempfile::tempdir().unwrap();
    let (image, socket, errors) = (image(&directory), directory.path().join("s"), directory.path().join("errors"));
    let mut command = Command::new(BLOCKYARD);
    command.arg("serve").arg(&image).arg("--socket").arg(&socket).stderr(File::create(&errors).unwrap());
    let start = Instant::now();
    let server = Server::spawn(&mut command, &socket);
    (0..CLIENTS).for_each(|_| drop(connect_raw(&socket)));
    // The last one is gone.
    drop(connect_raw(&socket));
    server.stop();
    let seconds = start.elapsed().as_secs() as usize;
    let said = fs::read_to_string(&errors).unwrap();
    let ends: Vec<_> = said.lines().filter(|line| line.contains("the session is over")).collect();
    assert!(ends.len() <= 16 + seconds + 2, "{} lines in {seconds} s", ends.len());
    let more = ends.iter().filter_map(|line| line.split_once(" (and ")?.1.split(' ').next()?.parse::<usize>().ok());
    let counted = ends.len() + more.sum::<usize>();
    assert!((CLIENTS..=CLIENTS + 1).contains(&counted), "{counted}: {said}");
}

/// An acknowledged message with a descriptor: whether it was done; `None` if the server hung up.
fn acknowledged(client: &mut UnixStream, request: u32, payload: &[u64], descriptor: BorrowedFd<'_>) -> Option<bool> {
    const NEED_REPLY: u32 = 8;
    try_to_pass(client, &message(request, NEED_REPLY, payload), descriptor).ok()?;
    let mut reply = [0; 20];
    client.read_exact(&mut reply).ok()?;
    Some(reply[12..] == [0; 8])
}

/// A server that can have no more descriptors turns clients away, and goes on: in the mediator's eyes as well.
#[test]
fn a_client_that_takes_all_descriptors_keeps_nobody_for_ever() {
    const SET_PROTOCOL_FEATURES: u32 = 16;
    const REPLY_ACK: u64 = 1 << 3;
    let directory = tempfile::tempdir().unwrap();
    let image = partitioned(&directory);
    let sockets = [1, 2].map(|number| directory.path().join(format!("p{number}")));
    let exports = [format!("1={}", sockets[0].display()), format!("2={},rw", sockets[1].display())];
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 256; exec \"$@\"", "sh", BLOCKYARD, "serve"]).arg(&image);
    command.args(exports.iter().flat_map(|export| ["--partition", export]));
    let server = Server::spawn(&mut command, &sockets[1]);
    let process = format!("/proc/{}", server.id().as_raw_nonzero());
    let limits = fs::read_to_string(format!("{process}/limits")).unwrap();
    let files: Vec<_> =
        limits.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert_eq!(files[3], files[4], "as many as it may have at most");
    let mut hostile = connect_raw(&sockets[0]);
    hostile.write_all(&message(SET_PROTOCOL_FEATURES, 0, &[REPLY_ACK])).unwrap();
    let open = || fs::read_dir(format!("{process}/fd")).unwrap().count() as u64;
    let most = open() + 20;
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    prlimit(Some(server.id()), Resource::Nofile, limit).unwrap();
    // Behind one that cannot be closed, all others wait to be.
    let (given, reader) = lingering_socket();
    send(&hostile, SET_VRING_CALL, &[0], given.as_fd());
    drop(given);
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    while open() < most && acknowledged(&mut hostile, SET_VRING_CALL, &[0], event.as_fd()) == Some(true) {}
    assert!(SessionDisk::connect(&sockets[1], &SessionOptions::default()).is_err());
    drop((hostile, reader));
    perform(&connect(&sockets[1]), WRITE, 0, 1).unwrap();
    drop(connect(&sockets[0]));
    server.stop();
}

/// Clients of a user who has left too much behind are turned away, with connections that cannot be closed either:
/// nobody is given up for that.
#[test]
fn clients_that_are_turned_away_do_not_cost_the_mediator() {
    let directory = tempfile::tempdir().unwrap();
    let (image, errors) = (partitioned(&directory), directory.path().join("errors"));
    let sockets = [1, 2].map(|number| directory.path().join(format!("p{number}")));
    let mut command = Command::new("sh");
    // A quarter of that is what may be left.
    command.args(["-c", "ulimit -n 1024; exec \"$@\"", "sh", BLOCKYARD, "serve"]).arg(&image);
    command.arg("--partition").arg(format!("1={}", sockets[0].display()));
    command.arg("--partition").arg(format!("2={},rw", sockets[1].display()));
    let server = Server::spawn(command.stderr(File::create(&errors).unwrap()), &sockets[1]);
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let mut readers = Vec::new();
    for _ in 0..4 {
        let mut client = connect_raw(&sockets[0]);
        let (given, reader) = lingering_socket();
        send(&client, SET_VRING_CALL, &[0], given.as_fd());
        // Before it is replaced, so that it is not the last.
        drop(given);
        (0..62).for_each(|_| send(&client, SET_VRING_CALL, &[0], event.as_fd()));
        // All of that was heard.
        client.write_all(&message(1, 0, &[])).unwrap();
        client.read_exact(&mut [0; 20]).unwrap();
        readers.push(reader);
    }
    let start = Instant::now();
    while fs::read_to_string(&errors).unwrap().matches("the session is over").count() < 4 {
        assert!(start.elapsed() < PATIENCE, "a session goes on");
        thread::sleep(Duration::from_millis(5));
    }
    let refused = "the driver refused a client: what earlier clients left behind is not closed yet";
    let is_mediator = |process: &rustix::process::Pid| {
        let words = fs::read_to_string(format!("/proc/{}/cmdline", process.as_raw_nonzero())).unwrap();
        words.contains("serve-partitions")
    };
    let mediator = children(server.id()).into_iter().find(is_mediator).unwrap();
    // As many as may be open at once in either process, each time as many as may wait.
    for _ in 0..4 {
        kill_process(mediator, Signal::STOP).unwrap();
        let connect = |_| {
            let client = UnixStream::connect(&sockets[0]).unwrap();
            let (given, reader) = lingering_socket();
            pass(&client, &[0], given.as_fd());
            (client, reader)
        };
        let (clients, more): (Vec<_>, Vec<_>) = (0..16).map(connect).unzip();
        readers.extend(more);
        kill_process(mediator, Signal::CONT).unwrap();
        for client in &clients {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            assert!(!matches!((&*client).read(&mut [0]), Ok(1..)));
        }
    }
    assert!(SessionDisk::connect(&sockets[1], &SessionOptions::default()).is_err());
    says(&errors, refused);
    drop(readers);
    perform(&connect(&sockets[1]), WRITE, 0, 1).unwrap();
    drop(connect(&sockets[0]));
    server.stop();
    let said = fs::read_to_string(&errors).unwrap();
    assert!(!said.contains("new ones cannot come"), "{said}");
}

/// A client that comes and goes before anybody has looked at it: those that follow are served.
#[test]
fn a_client_that_is_gone_before_it_is_received_keeps_nobody_out() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket, errors) = (image(&directory), directory.path().join("s"), directory.path().join("errors"));
    let mut command = Command::new(BLOCKYARD);
    command.arg("serve").arg(&image).arg("--socket").arg(&socket).stderr(File::create(&errors).unwrap());
    let mut server = command.spawn().unwrap();
    says(&errors, "is served on");
    let id = rustix::process::Pid::from_child(&server);
    let doorkeeper = children(id)[0];
    kill_process(doorkeeper, Signal::STOP).unwrap();
    drop(UnixStream::connect(&socket).unwrap());
    says(&errors, "the session is over");
    kill_process(doorkeeper, Signal::CONT).unwrap();
    perform(&connect(&socket), WRITE, 0, 1).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    all_end(&[doorkeeper]);
}

/// The processes that a process has made and that are there.
fn children(pid: rustix::process::Pid) -> Vec<rustix::process::Pid> {
    let list = fs::read_to_string(format!("/proc/{0}/task/{0}/children", pid.as_raw_nonzero())).unwrap();
    list.split_whitespace().filter_map(|child| rustix::process::Pid::from_raw(child.parse().unwrap())).collect()
}

/// Waits until none of these processes is there.
fn all_end(processes: &[rustix::process::Pid]) {
    let start = Instant::now();
    let is_there = |process: &rustix::process::Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
        // One that has ended may have nobody who waits for it.
        stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with('Z'))
    };
    while processes.iter().any(is_there) {
        assert!(start.elapsed() < PATIENCE, "one of {processes:?} does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whoever has a file of a FUSE file system that does not answer can neither look at it nor close it. It ends all the
/// same, with its session.
#[test]
fn a_file_system_that_does_not_answer_keeps_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket, path) = (image(&directory), directory.path().join("s"), directory.path().join("file"));
    let memory = directory.path().join("memory.img");
    File::create(&memory).unwrap().set_len(8 << 20).unwrap();
    let mut file_system = serve_file(&memory, &path, &directory.path().join("errors"));
    let file_system_id = rustix::process::Pid::from_child(&file_system);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let server = Server::start(&[image.as_os_str(), "--socket".as_ref(), socket.as_os_str()], &socket);
    kill_process(file_system_id, Signal::STOP).unwrap();
    let doorkeeper = children(server.id())[0];
    let hostile = connect_raw(&socket);
    send(&hostile, SET_MEM_TABLE, &[1, 0, 4096, 0, 0], file.as_fd());
    let holding = children(doorkeeper);
    assert_eq!(holding.len(), 1);
    drop(hostile);
    perform(&connect(&socket), WRITE, 0, 1).unwrap();
    all_end(&holding);
    // The next one is there when the server is to end.
    let hostile = connect_raw(&socket);
    send(&hostile, SET_MEM_TABLE, &[1, 0, 4096, 0, 0], file.as_fd());
    let holding = children(doorkeeper);
    server.stop();
    all_end(&holding);
    all_end(&[doorkeeper]);
    // And the next when the server is killed.
    let mut server = Command::new(BLOCKYARD).arg("serve").arg(&image).arg("--socket").arg(&socket).spawn().unwrap();
    let start = Instant::now();
    while !server::listens(&socket) {
        assert!(start.elapsed() < PATIENCE, "it does not listen");
        thread::sleep(Duration::from_millis(5));
    }
    let doorkeeper = children(rustix::process::Pid::from_child(&server))[0];
    let hostile = connect_raw(&socket);
    send(&hostile, SET_MEM_TABLE, &[1, 0, 4096, 0, 0], file.as_fd());
    let holding = children(doorkeeper);
    server.kill().unwrap();
    server.wait().unwrap();
    all_end(&holding);
    all_end(&[doorkeeper]);
    drop(hostile);
    assert!(file_system.try_wait().unwrap().is_none());
    kill_process(file_system_id, Signal::CONT).unwrap();
    drop(file);
    kill_process(file_system_id, Signal::TERM).unwrap();
    assert!(file_system.wait().unwrap().success());
}

/// A file that another process's memory may not lie in is refused with a remedy, by the process that receives it.
#[test]
fn what_a_client_may_not_send_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket, errors) = (image(&directory), directory.path().join("s"), directory.path().join("errors"));
    let mut command = Command::new(BLOCKYARD);
    command.arg("serve").arg(&image).arg("--socket").arg(&socket).stderr(File::create(&errors).unwrap());
    let mut child = command.spawn().unwrap();
    says(&errors, "is served on");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let (sysfs, null) = (File::open("/sys/kernel/uevent_seqnum").unwrap(), File::open("/dev/null").unwrap());
    for (descriptor, kind) in [(sysfs.as_fd(), "a file"), (null.as_fd(), "a device"), (tcp.as_fd(), "another socket")] {
        drop(connect(&socket));
        let client = connect_raw(&socket);
        send(&client, SET_MEM_TABLE, &[1, 0, 4096, 0, 0], descriptor);
        says(&errors, &format!("the client has sent {kind}, and not an eventfd"));
    }
    assert!(fs::read_to_string(&errors).unwrap().contains("TMPDIR=/dev/shm"));
    kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_disk_that_is_a_file_has_numbers_too() {
    let directory = tempfile::tempdir().unwrap();
    let (image, file, errors) = (image(&directory), directory.path().join("file"), directory.path().join("errors"));
    let address = free_address("127.77.3.2");
    let mut command = Command::new(BLOCKYARD);
    command.arg("serve").arg(&image).arg("--fuse").arg(&file).args(["--metrics", &address.to_string()]);
    let mut child = command.stderr(File::create(&errors).unwrap()).spawn().unwrap();
    says(&errors, "is the file");
    let disk = File::options().write(true).open(&file).unwrap();
    disk.write_all_at(&[1; 4096], 8192).unwrap();
    disk.sync_all().unwrap();
    drop(disk);
    let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.contains("operation=\"write\"} 4096\n"), "{answer}");
    let pid = rustix::process::Pid::from_child(&child);
    kill_process(pid, Signal::USR1).unwrap();
    says(&errors, "1 × write, 4.00 KiB");
    kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn numbers_are_to_be_had_over_http_and_by_signal() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket, errors) = (image(&directory), directory.path().join("s"), directory.path().join("errors"));
    let address = free_address("127.77.3.1");
    let mut command = Command::new(BLOCKYARD);
    command.arg("serve").arg(&image).arg("--socket").arg(&socket).args(["--metrics", &address.to_string()]);
    let mut child = command.stderr(File::create(&errors).unwrap()).spawn().unwrap();
    let disk = connect(&socket);
    perform(&disk, WRITE, 0, 1).unwrap();
    let ask = |request: &str| ask(address, request);
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("operation=\"write\"} 4096\n"), "{answer}");
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let pid = rustix::process::Pid::from_child(&child);
    kill_process(pid, Signal::USR1).unwrap();
    says(&errors, "1 × write, 4.00 KiB");
    // Who has left has done what it did, and the next one's requests come to that.
    drop(disk);
    says(&errors, "the session is over");
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.contains("operation=\"write\"} 4096\n"), "{answer}");
    let disk = connect(&socket);
    perform(&disk, WRITE, 0, 1).unwrap();
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.contains("operation=\"write\"} 8192\n"), "{answer}");
    kill_process(pid, Signal::USR1).unwrap();
    says(&errors, "2 × write, 8.00 KiB");
    kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn who_asks_for_numbers_slowly_keeps_nobody_from_them() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket) = (image(&directory), directory.path().join("s"));
    let address = free_address("127.77.3.3");
    let metrics = address.to_string();
    let arguments =
        [image.as_os_str(), "--socket".as_ref(), socket.as_os_str(), "--metrics".as_ref(), metrics.as_ref()];
    let server = Server::start(&arguments, &socket);
    thread::scope(|scope| {
        // Each says a letter now and then, and never all; more of them than are answered at once.
        let slow: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
        let ask_slowly = |mut stream: TcpStream| {
            let start = Instant::now();
            while stream.write_all(b"G").is_ok() {
                assert!(start.elapsed() < PATIENCE, "a client has as much time as it likes");
                thread::sleep(Duration::from_millis(100));
            }
        };
        // All of them are left at some time, though none was silent for long.
        let slow: Vec<_> = slow.into_iter().map(|stream| scope.spawn(move || ask_slowly(stream))).collect();
        let answer = ask(address, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        slow.into_iter().for_each(|thread| thread.join().unwrap());
    });
    server.stop();
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
fn a_server_whose_file_was_taken_away_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (image, path, errors) = (image(&directory), directory.path().join("file"), directory.path().join("errors"));
    let mut child = serve_file(&image, &path, &errors);
    assert!(Command::new("umount").arg(&path).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let said = fs::read_to_string(&errors).unwrap();
    assert!(said.contains("somebody else has unmounted it"), "{said}");
}

/// What a killed server left to take its file away does not take its successor's, however the two meet.
#[test]
fn a_file_outlives_the_end_of_its_killed_predecessor() {
    let directory = tempfile::tempdir().unwrap();
    let (image, path, errors) = (image(&directory), directory.path().join("file"), directory.path().join("errors"));
    // It is there before, so that nobody removes it.
    File::create(&path).unwrap();
    let mut child = serve_file(&image, &path, &errors);
    for _ in 0..20 {
        // Open, so that taking it away takes a while.
        let open = File::options().read(true).open(&path).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = Command::new("umount").arg("-l").arg(&path).stderr(Stdio::null()).status().unwrap();
        child = serve_file(&image, &path, &errors);
        drop(open);
    }
    // Longer than an unmounter tries.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(fs::metadata(&path).unwrap().len(), 8 << 20);
    assert!(child.try_wait().unwrap().is_none());
    kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_disk_is_a_file_until_the_server_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (image, path) = (image(&directory), directory.path().join("file"));
    let mut command = Command::new(BLOCKYARD);
    let mut child = command.arg("serve").arg(&image).arg("--fuse").arg(&path).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while fs::metadata(&path).map_or(0, |metadata| metadata.len()) != 8 << 20 {
        assert!(start.elapsed() < PATIENCE, "the file does not appear");
        thread::sleep(Duration::from_millis(5));
    }
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"an odd number of bytes", 4095).unwrap();
    file.sync_all().unwrap();
    drop(file);
    kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!path.exists());
    assert_eq!(&fs::read(&image).unwrap()[4095..4117], b"an odd number of bytes");
}
