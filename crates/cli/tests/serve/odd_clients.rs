//! Clients that do wrong, or leave too soon.

use super::*;

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
