//! A program that is executed with a filter opens, connects and executes what it likes until its start is over.

use blockyard_session::program_filter::{
    Executes, StartCalls, filter_program, keep_standard_descriptors_only, last_byte,
};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Sends the descriptor of a filter on standard input.
fn send_listener(listener: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [listener.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(rustix::stdio::stdin(), &[IoSlice::new(&[1])], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// What a process sent with [`send_listener`].
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
fn filtered_shell() -> (std::process::Child, UnixStream, OwnedFd) {
    let (near, far) = UnixStream::pair().unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "while read -r line; do eval \"$line\"; done"]).env("PATH", "/usr/bin:/bin");
    shell.stdin(Stdio::from(OwnedFd::from(far))).stdout(Stdio::piped()).stderr(Stdio::null());
    // SAFETY: system calls, and memory of libc's, whose locks fork takes.
    unsafe {
        shell.pre_exec(|| {
            keep_standard_descriptors_only()?;
            rustix::thread::set_no_new_privs(true)?;
            let listener = filter_program(Executes::Nothing)?.ok_or(io::ErrorKind::Unsupported)?;
            send_listener(&listener)
        });
    }
    // `spawn` returns when the program runs, and for that somebody has to answer.
    let spawned = std::thread::spawn(move || shell.spawn());
    let listener = receive_listener(&near);
    let calls = StartCalls::new(listener.try_clone().unwrap()).unwrap();
    let child = spawned.join().unwrap().unwrap();
    drop(calls);
    (child, near, listener)
}

#[test]
fn what_a_start_needs_is_refused_once_it_is_over() {
    let (mut child, mut line, listener) = filtered_shell();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |question: &str| {
        writeln!(line, "{question}").unwrap();
        answers.next().unwrap().unwrap()
    };
    let calls = StartCalls::new(listener).unwrap();
    assert_eq!(ask("if true < /etc/passwd; then echo open; else echo refused; fi"), "open");
    assert_eq!(ask("/bin/echo executed || echo refused"), "executed");
    // Of the filter that holds from the start.
    assert_eq!(ask("grep -c ^Seccomp:.2 /proc/self/status"), "1");
    assert_eq!(ask("mknod /tmp/blockyard-fifo p 2>/dev/null && echo made || echo refused"), "refused");
    drop(calls);
    assert_eq!(ask("if true < /etc/passwd; then echo open; else echo refused; fi"), "refused");
    assert_eq!(ask("/bin/echo executed || echo refused"), "refused");
    assert_eq!(ask("cd /etc && echo moved || echo refused"), "refused");
    drop(line);
    assert!(child.wait().unwrap().code().is_some(), "it goes on, and ends by itself");
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

/// What became of one system call: what it returned, or the error's number, negative.
fn call(number: libc::c_long, arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: what the arguments name is there, or the call is to fail.
    let returned = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if returned == -1 { -i64::from(io::Error::last_os_error().raw_os_error().unwrap()) } else { returned }
}

/// What calls return that execute programs, in a process with the filter whose start is over, and the status that it ends with when it
/// has executed a file that it has open.
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
        send_listener(&filter_program(executes)?.ok_or(io::ErrorKind::Unsupported)?)?;
        rustix::io::read(rustix::stdio::stdin(), &mut [0])?;
        let file = file.as_raw_fd() as u64;
        let last = last_byte();
        let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let fixed = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
        let no_file = u64::MAX;
        call(libc::SYS_mmap, [last & !0xfff, 4096, writable, fixed, no_file, 0]);
        let arguments = [c"program".as_ptr() as u64, 0];
        let arguments = arguments.as_ptr() as u64;
        let (true_program, empty) = (c"/bin/true".as_ptr() as u64, c"".as_ptr() as u64);
        let last_byte = last as *mut u8;
        // SAFETY: the page has just been mapped.
        unsafe { last_byte.write_volatile(b'/') };
        let found = [
            // By name, as the path says in spite of the flag.
            call(libc::SYS_execveat, [file, true_program, arguments, 0, EMPTY, 0]),
            call(libc::SYS_execve, [true_program, arguments, 0, 0, 0, 0]),
            // No name has room at the only address that is let through, as nothing can follow there.
            call(libc::SYS_execveat, [file, last, arguments, 0, EMPTY, 0]),
            call(libc::SYS_mmap, [last + 1, 4096, writable, fixed, no_file, 0]),
            // An empty path elsewhere, that could become another, and other flags.
            call(libc::SYS_execveat, [file, empty, arguments, 0, EMPTY, 0]),
            call(libc::SYS_execveat, [file, last, arguments, 0, 0, 0]),
            // A filter that asks somebody, and questions about filters.
            call(libc::SYS_seccomp, [1, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 0, 0, 0]),
            call(libc::SYS_seccomp, [2, 0, empty, 0, 0, 0]),
        ];
        for number in found {
            rustix::io::write(rustix::stdio::stdin(), &number.to_ne_bytes())?;
        }
        // SAFETY: as above.
        unsafe { last_byte.write_volatile(0) };
        call(libc::SYS_execveat, [file, last, arguments, 0, EMPTY, 0]);
        // SAFETY: nothing of this process is of use to anybody.
        unsafe { libc::_exit(1) }
    };
    // SAFETY: system calls, and memory of libc's, whose locks fork takes.
    unsafe { child.pre_exec(inside) };
    let spawned = std::thread::spawn(move || child.spawn().unwrap().wait().unwrap());
    drop(StartCalls::new(receive_listener(&near)).unwrap());
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
