//! A program that is executed with a filter opens, connects and executes what it likes until its start is over. After
//! that, whatever it tries, it reaches nothing that it does not have.

use blockyard_confinement::program_filter::{
    AnsweredCalls, Executes, InReach, OwnProcesses, filter_program, keep_standard_descriptors_only, last_byte,
};
use libc::c_long;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::Pid;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

/// Becomes a filtered process, whose descriptor for whoever answers goes out on standard input.
fn filter(in_reach: InReach) -> io::Result<()> {
    keep_standard_descriptors_only()?;
    rustix::thread::set_no_new_privs(true)?;
    send_filter(Executes::Nothing, in_reach)
}

/// Installs the filters, and sends the descriptor.
fn send_filter(executes: Executes, in_reach: InReach) -> io::Result<()> {
    let listener = filter_program(executes, in_reach)?.ok_or(io::ErrorKind::Unsupported)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [listener.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(rustix::stdio::stdin(), &[IoSlice::new(&[1])], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// What a process sent with [`filter`].
fn receive_listener(line: &UnixStream) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(line, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
    let listener = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    listener.expect("this kernel asks nobody: seccomp(2), SECCOMP_FILTER_FLAG_NEW_LISTENER")
}

/// A shell with the filter, that does what it is sent line by line; the descriptor to let it start with.
fn filtered_shell() -> (Child, UnixStream, OwnedFd) {
    let (near, far) = UnixStream::pair().unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "while read -r line; do eval \"$line\"; done"]).env("PATH", "/usr/bin:/bin");
    shell.stdin(Stdio::from(OwnedFd::from(far))).stdout(Stdio::piped()).stderr(Stdio::null());
    // SAFETY: system calls, and memory of libc's, whose locks fork takes.
    unsafe { shell.pre_exec(|| filter(InReach::OwnProcesses)) };
    // `spawn` returns when the program runs, and for that somebody has to answer.
    let spawned = std::thread::spawn(move || shell.spawn());
    let listener = receive_listener(&near);
    let calls = AnsweredCalls::of_the_start(listener.try_clone().unwrap()).unwrap();
    let child = spawned.join().unwrap().unwrap();
    drop(calls);
    (child, near, listener)
}

/// What became of one system call: what it returned, or the error's number, negative.
fn call(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: what the arguments name is there while the call takes, and as long as the kernel takes it for.
    let returned = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if returned == -1 {
        -c_long::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    } else {
        returned
    }
}

/// A number that names memory to the kernel.
fn at<T>(memory: &T) -> c_long {
    std::ptr::from_ref(memory) as c_long
}

/// Processes that are nothing to one that is filtered.
#[derive(Clone, Copy)]
struct Others {
    /// The one that started it.
    parent: c_long,
    /// One of its session, and of another process group.
    neighbour: c_long,
}

/// Makes a child in a process group of its own, which ends with this process.
fn neighbour() -> c_long {
    let own = call(libc::SYS_getpid, [0; 6]);
    let child = call(libc::SYS_clone, [c_long::from(libc::SIGCHLD), 0, 0, 0, 0, 0]);
    if child == 0 {
        let (option, signal) = (c_long::from(libc::PR_SET_PDEATHSIG), c_long::from(libc::SIGKILL));
        call(libc::SYS_prctl, [option, signal, 0, 0, 0, 0]);
        // It may have ended before that.
        if call(libc::SYS_getppid, [0; 6]) != own {
            call(libc::SYS_exit_group, [0; 6]);
        }
        loop {
            call(libc::SYS_pause, [0; 6]);
        }
    }
    call(libc::SYS_setpgid, [child, child, 0, 0, 0, 0]);
    child
}

/// Runs `inside` in a process of its own, the first of a session, once its start is over; what it found.
fn from_inside<const N: usize>(
    in_reach: InReach,
    tasks_max: usize,
    inside: impl Fn(Others) -> [c_long; N] + Send + Sync + 'static,
) -> [c_long; N] {
    let (mut near, far) = UnixStream::pair().unwrap();
    let parent = c_long::from(std::process::id());
    let mut command = Command::new("/bin/true");
    command.stdin(Stdio::from(OwnedFd::from(far))).stdout(Stdio::null());
    let enter = move || {
        let session = rustix::process::setsid()?;
        let others = Others { parent, neighbour: neighbour() };
        filter(in_reach)?;
        let line = rustix::stdio::stdin();
        rustix::io::write(line, &session.as_raw_nonzero().get().to_ne_bytes())?;
        rustix::io::read(line, &mut [0])?;
        for found in inside(others) {
            rustix::io::write(line, &found.to_ne_bytes())?;
        }
        loop {
            call(libc::SYS_pause, [0; 6]);
        }
    };
    // SAFETY: system calls, and memory of libc's, whose locks fork takes.
    unsafe { command.pre_exec(enter) };
    // It returns when the process is killed, as it never executes anything.
    let spawned = std::thread::spawn(move || command.spawn().and_then(|mut child| child.wait()));
    let listener = receive_listener(&near);
    let mut found = [0; N];
    let mut session = [0; size_of::<i32>()];
    near.read_exact(&mut session).unwrap();
    let session = Pid::from_raw(i32::from_ne_bytes(session)).unwrap();
    let _calls = AnsweredCalls::judged(listener, OwnProcesses { group: session, tasks_max }).unwrap();
    near.write_all(&[0]).unwrap();
    for result in &mut found {
        let mut bytes = [0; size_of::<c_long>()];
        near.read_exact(&mut bytes).expect("it found something");
        *result = c_long::from_ne_bytes(bytes);
    }
    // With what it has made and left, or it would still seem to be about to be executed.
    rustix::process::kill_process_group(session, rustix::process::Signal::KILL).unwrap();
    assert_eq!(spawned.join().unwrap().unwrap().signal(), Some(libc::SIGKILL));
    found
}

#[test]
fn what_a_start_needs_is_refused_once_it_is_over() {
    let (mut child, mut line, listener) = filtered_shell();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |question: &str| {
        writeln!(line, "{question}").unwrap();
        answers.next().unwrap().unwrap()
    };
    let calls = AnsweredCalls::of_the_start(listener.try_clone().unwrap()).unwrap();
    assert_eq!(ask("if true < /etc/passwd; then echo open; else echo refused; fi"), "open");
    assert_eq!(ask("/bin/echo executed || echo refused"), "executed");
    // Of the filter that holds from the start.
    assert_eq!(ask("grep -c ^Seccomp:.2 /proc/self/status"), "1");
    assert_eq!(ask("mknod /tmp/blockyard-fifo p 2>/dev/null && echo made || echo refused"), "refused");
    drop(calls);
    let own = OwnProcesses { group: Pid::from_child(&child), tasks_max: 8 };
    let calls = AnsweredCalls::judged(listener, own).unwrap();
    assert_eq!(ask("if true < /etc/passwd; then echo open; else echo refused; fi"), "refused");
    assert_eq!(ask("/bin/echo executed || echo refused"), "refused");
    assert_eq!(ask("cd /etc && echo moved || echo refused"), "refused");
    // As when nobody answers any more.
    drop(calls);
    assert_eq!(ask("if true < /etc/passwd; then echo open; else echo refused; fi"), "refused");
    drop(line);
    assert!(child.wait().unwrap().code().is_some(), "it goes on, and ends by itself");
}

/// A unix socket's address.
fn address(path: &std::path::Path) -> libc::sockaddr_un {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_encoded_bytes()) {
        *to = *from as _;
    }
    address
}

/// Both ends of a pair of connected streams.
fn pair() -> ([i32; 2], c_long) {
    let mut ends = [-1; 2];
    let (unix, stream) = (c_long::from(libc::AF_UNIX), c_long::from(libc::SOCK_STREAM));
    let made = call(libc::SYS_socketpair, [unix, stream, 0, (&raw mut ends) as c_long, 0, 0]);
    (ends, made)
}

#[test]
fn a_socket_with_a_name_is_out_of_reach() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let hears = UnixDatagram::bind(&path).unwrap();
    let name = address(&path);
    let found = from_inside(InReach::OthersToo, 8, move |_| {
        let (unix, datagrams) = (c_long::from(libc::AF_UNIX), c_long::from(libc::SOCK_DGRAM));
        let ([end, _], paired) = pair();
        let (end, length) = (c_long::from(end), size_of_val(&name) as c_long);
        let mut part = libc::iovec { iov_base: std::ptr::from_ref(b"hello").cast_mut().cast(), iov_len: 5 };
        // SAFETY: all of its fields are numbers and addresses, which may be none.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_name, message.msg_namelen) = (std::ptr::from_ref(&name).cast_mut().cast(), length as u32);
        [
            paired,
            call(libc::SYS_socket, [unix, datagrams, 0, 0, 0, 0]),
            call(libc::SYS_socketpair, [unix, datagrams, 0, at(&[-1i32; 2]), 0, 0]),
            call(libc::SYS_sendto, [end, at(b"hello"), 5, 0, at(&name), length]),
            call(libc::SYS_sendmsg, [end, at(&message), 0, 0, 0, 0]),
            call(libc::SYS_connect, [end, at(&name), length, 0, 0, 0]),
            call(libc::SYS_bind, [end, at(&name), length, 0, 0, 0]),
        ]
    });
    let (refused, connected) = (-c_long::from(libc::EPERM), -c_long::from(libc::EISCONN));
    assert_eq!(found, [0, refused, refused, refused, connected, refused, refused]);
    hears.set_nonblocking(true).unwrap();
    assert_eq!(hears.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn other_processes_of_the_user_are_out_of_reach() {
    // Itself, and others, which would not notice signal 0.
    let inside = |Others { parent, neighbour }: Others| {
        let (own, ([end, _], _)) = (c_long::from(std::process::id()), pair());
        let (end, limit) = (c_long::from(end), [64u64; 2]);
        let child = call(libc::SYS_clone, [c_long::from(libc::SIGCHLD), 0, 0, 0, 0, 0]);
        if child == 0 {
            loop {
                call(libc::SYS_pause, [0; 6]);
            }
        }
        let files = c_long::from(libc::RLIMIT_NOFILE);
        [
            call(libc::SYS_kill, [parent, 0, 0, 0, 0, 0]),
            call(libc::SYS_kill, [-1, 0, 0, 0, 0, 0]),
            call(libc::SYS_kill, [-parent, 0, 0, 0, 0, 0]),
            call(libc::SYS_kill, [neighbour, 0, 0, 0, 0, 0]),
            call(libc::SYS_kill, [-neighbour, 0, 0, 0, 0, 0]),
            call(libc::SYS_tgkill, [parent, parent, 0, 0, 0, 0]),
            call(libc::SYS_tkill, [parent, 0, 0, 0, 0, 0]),
            call(libc::SYS_fcntl, [end, c_long::from(libc::F_SETOWN), parent, 0, 0, 0]),
            call(libc::SYS_fcntl, [end, F_SETOWN_EX, at(&[1i32, parent as i32]), 0, 0, 0]),
            call(libc::SYS_prlimit64, [parent, files, at(&limit), 0, 0, 0]),
            call(libc::SYS_prlimit64, [parent, files, 0, at(&limit), 0, 0]),
            call(libc::SYS_ptrace, [c_long::from(libc::PTRACE_ATTACH), parent, 0, 0, 0, 0]),
            call(libc::SYS_ptrace, [c_long::from(libc::PTRACE_SEIZE), parent, 0, 0, 0, 0]),
            call(libc::SYS_process_vm_readv, [parent, 0, 0, 0, 0, 0]),
            call(libc::SYS_pidfd_open, [parent, 0, 0, 0, 0, 0]),
            call(libc::SYS_setsid, [0; 6]),
            call(libc::SYS_setpgid, [0; 6]),
            // What is its own is not.
            call(libc::SYS_prlimit64, [0, files, 0, at(&limit), 0, 0]),
            call(libc::SYS_fcntl, [end, c_long::from(libc::F_SETOWN), own, 0, 0, 0]),
            call(libc::SYS_tgkill, [own, own, 0, 0, 0, 0]),
            call(libc::SYS_kill, [0, 0, 0, 0, 0, 0]),
            call(libc::SYS_kill, [child, c_long::from(libc::SIGKILL), 0, 0, 0, 0]),
            call(libc::SYS_wait4, [child, 0, 0, 0, 0, 0]) - child,
            call(libc::SYS_kill, [child, 0, 0, 0, 0, 0]),
        ]
    };
    let found = from_inside(InReach::OthersToo, 8, inside);
    let refused = -c_long::from(libc::EPERM);
    assert_eq!(found[..17], [refused; 17]);
    assert_eq!(found[17..], [0, 0, 0, 0, 0, 0, -c_long::from(libc::ESRCH)]);
}

/// `asm-generic/fcntl.h`.
const F_SETOWN_EX: c_long = 15;

#[test]
fn what_it_could_ask_the_kernel_for_besides_is_refused() {
    let found = from_inside(InReach::OwnProcesses, 8, |_| {
        let ([end, _], _) = pair();
        let (end, room) = (c_long::from(end), [0u64; 64]);
        let name = at(c"/etc/passwd".to_bytes_with_nul().first().unwrap());
        let ioctl = |request: c_long| call(libc::SYS_ioctl, [end, request, at(&room), 0, 0, 0]);
        let map = |flags: i32| call(libc::SYS_mmap, [0, 4096, 3, c_long::from(flags), -1, 0]);
        let here = c_long::from(libc::AT_FDCWD);
        [
            // Whether there is a file.
            call(libc::SYS_stat, [name, at(&room), 0, 0, 0, 0]),
            call(libc::SYS_newfstatat, [here, name, at(&room), 0, 0, 0]),
            call(libc::SYS_newfstatat, [here, name, at(&room), c_long::from(libc::AT_EMPTY_PATH), 0, 0]),
            call(libc::SYS_statx, [here, name, 0, 0xfff, at(&room), 0]),
            call(libc::SYS_access, [name, 0, 0, 0, 0, 0]),
            call(libc::SYS_open, [name, 0, 0, 0, 0, 0]),
            // The network's interfaces, a terminal's input, a file's flags.
            ioctl(libc::SIOCGIFCONF as c_long),
            ioctl(libc::SIOCSIFMTU as c_long),
            ioctl(libc::TIOCSTI as c_long),
            ioctl(libc::FS_IOC_GETFLAGS as c_long),
            // Memory that no limit counts.
            map(libc::MAP_SHARED | libc::MAP_ANONYMOUS),
            map(libc::MAP_SHARED_VALIDATE | libc::MAP_ANONYMOUS),
            map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_GROWSDOWN),
            call(libc::SYS_memfd_create, [name, 0, 0, 0, 0, 0]),
            // Namespaces, and other parts of the kernel.
            call(libc::SYS_clone, [c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD), 0, 0, 0, 0, 0]),
            call(libc::SYS_unshare, [c_long::from(libc::CLONE_NEWUSER), 0, 0, 0, 0, 0]),
            call(libc::SYS_prctl, [c_long::from(libc::PR_SET_DUMPABLE), 1, 0, 0, 0, 0]),
            call(libc::SYS_prctl, [c_long::from(libc::PR_SET_PTRACER), 1, 0, 0, 0, 0]),
            call(libc::SYS_io_uring_setup, [1, at(&room), 0, 0, 0, 0]),
            call(libc::SYS_bpf, [0; 6]),
            call(libc::SYS_keyctl, [0; 6]),
            call(libc::SYS_perf_event_open, [0; 6]),
            call(libc::SYS_userfaultfd, [0; 6]),
            call(libc::SYS_personality, [0; 6]),
        ]
    });
    assert_eq!(found, [-c_long::from(libc::EPERM); 24]);
}

#[test]
fn it_has_no_more_tasks_than_it_may_have() {
    let found = from_inside(InReach::OwnProcesses, 16, |_| {
        let mut made = 0;
        let child = || call(libc::SYS_clone, [c_long::from(libc::SIGCHLD), 0, 0, 0, 0, 0]);
        let failed = loop {
            match child() {
                0 => loop {
                    call(libc::SYS_pause, [0; 6]);
                },
                1.. => made += 1,
                error => break error,
            }
        };
        [made, failed]
    });
    assert_eq!(found, [15, -c_long::from(libc::EAGAIN)]);
}

/// An executable that ends with 42, or with 43 if it could open a file by its name.
fn static_program() -> Vec<u8> {
    const START: u64 = 0x40_0000;
    const HEADERS_BYTES: u16 = 64 + 56;
    let code = b"\xb8\x02\0\0\0\x48\x8d\x3d\x17\0\0\0\x31\xf6\x0f\x05\x48\x85\xc0\x0f\x99\xc0\x0f\xb6\xf8\x83\xc7\x2a\
        \xb8\x3c\0\0\0\x0f\x05/etc/passwd\0";
    let length = (usize::from(HEADERS_BYTES) + code.len()) as u64;
    // elf(5): the file's header, and one segment that is the file.
    let mut program = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    for number in [START + u64::from(HEADERS_BYTES), 64, 0] {
        program.extend(number.to_le_bytes());
    }
    program.extend(0u32.to_le_bytes());
    for number in [64u16, 56, 1, 64, 0, 0] {
        program.extend(number.to_le_bytes());
    }
    program.extend([1u32.to_le_bytes(), 5u32.to_le_bytes()].concat());
    for number in [0, START, START, length, length, 0x1000] {
        program.extend(number.to_le_bytes());
    }
    program.extend(code);
    program
}

/// As [`call`], with the error's number in the type of addresses.
fn call_unsigned(number: c_long, arguments: [u64; 6]) -> i64 {
    call(number, arguments.map(|argument| argument as c_long))
}

/// What calls return that execute programs, in a process with the filter whose start is over, and the status that it
/// ends with when it has executed a file that it has open.
fn executed(executes: Executes) -> ([i64; 8], Option<i32>) {
    const EMPTY: u64 = libc::AT_EMPTY_PATH as u64;
    let (mut near, far) = UnixStream::pair().unwrap();
    let mut child = Command::new("/bin/true");
    child.stdin(Stdio::from(OwnedFd::from(far))).stdout(Stdio::null());
    let program = static_program();
    let inside = move || {
        keep_standard_descriptors_only()?;
        let file = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::io::write(&file, &program)?;
        rustix::thread::set_no_new_privs(true)?;
        send_filter(executes, InReach::OwnProcesses)?;
        rustix::io::read(rustix::stdio::stdin(), &mut [0])?;
        let file = file.as_raw_fd() as u64;
        let last = last_byte();
        let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let fixed = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
        let no_file = u64::MAX;
        call_unsigned(libc::SYS_mmap, [last & !0xfff, 4096, writable, fixed, no_file, 0]);
        let arguments = [c"program".as_ptr() as u64, 0];
        let arguments = arguments.as_ptr() as u64;
        let (true_program, empty) = (c"/bin/true".as_ptr() as u64, c"".as_ptr() as u64);
        let last_byte = last as *mut u8;
        // SAFETY: the page has just been mapped.
        unsafe { last_byte.write_volatile(b'/') };
        let found = [
            // By name, as the path says in spite of the flag.
            call_unsigned(libc::SYS_execveat, [file, true_program, arguments, 0, EMPTY, 0]),
            call_unsigned(libc::SYS_execve, [true_program, arguments, 0, 0, 0, 0]),
            // No name has room at the only address that is let through, as nothing can follow there.
            call_unsigned(libc::SYS_execveat, [file, last, arguments, 0, EMPTY, 0]),
            call_unsigned(libc::SYS_mmap, [last + 1, 4096, writable, fixed, no_file, 0]),
            // An empty path elsewhere, that could become another, and other flags.
            call_unsigned(libc::SYS_execveat, [file, empty, arguments, 0, EMPTY, 0]),
            call_unsigned(libc::SYS_execveat, [file, last, arguments, 0, 0, 0]),
            // A filter that asks somebody, and questions about filters.
            call_unsigned(libc::SYS_seccomp, [1, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 0, 0, 0]),
            call_unsigned(libc::SYS_seccomp, [2, 0, empty, 0, 0, 0]),
        ];
        for number in found {
            rustix::io::write(rustix::stdio::stdin(), &number.to_ne_bytes())?;
        }
        // SAFETY: as above.
        unsafe { last_byte.write_volatile(0) };
        call_unsigned(libc::SYS_execveat, [file, last, arguments, 0, EMPTY, 0]);
        // SAFETY: nothing of this process is of use to anybody.
        unsafe { libc::_exit(1) }
    };
    // SAFETY: system calls, and memory of libc's, whose locks fork takes.
    unsafe { child.pre_exec(inside) };
    let spawned = std::thread::spawn(move || child.spawn().unwrap().wait().unwrap());
    drop(AnsweredCalls::of_the_start(receive_listener(&near)).unwrap());
    near.write_all(&[0]).unwrap();
    let found = std::array::from_fn(|_| {
        let mut bytes = [0; 8];
        near.read_exact(&mut bytes).unwrap();
        i64::from_ne_bytes(bytes)
    });
    (found, spawned.join().unwrap().code())
}

#[test]
fn a_program_that_goes_on_executing_executes_what_it_has_open_and_nothing_by_name() {
    let [refused, forbidden, nothing_there, no_room] =
        [libc::ENOSYS, libc::EPERM, libc::EFAULT, libc::ENOMEM].map(|error| -i64::from(error));
    let (found, status) = executed(Executes::Descriptors);
    assert_eq!(found, [refused, refused, nothing_there, no_room, refused, refused, forbidden, forbidden]);
    // It has the filter as well.
    assert_eq!(status, Some(42));
    let (found, status) = executed(Executes::Nothing);
    assert_eq!(found, [refused, refused, refused, no_room, refused, refused, forbidden, forbidden]);
    assert_eq!(status, Some(1));
}
