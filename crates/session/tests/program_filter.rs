//! A program that is executed with a filter opens, connects and executes what it likes until its start is over.

use blockyard_session::program_filter::{StartCalls, filter_program, keep_standard_descriptors_only};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

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
            let listener = filter_program()?.ok_or(io::ErrorKind::Unsupported)?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let descriptors = [listener.as_fd()];
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
            sendmsg(rustix::stdio::stdin(), &[IoSlice::new(&[1])], &mut ancillary, SendFlags::empty())?;
            Ok(())
        });
    }
    // `spawn` returns when the program runs, and for that somebody has to answer.
    let spawned = std::thread::spawn(move || shell.spawn());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&near, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
    let listener = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let listener = listener.expect("this kernel asks nobody: seccomp(2), SECCOMP_FILTER_FLAG_NEW_LISTENER");
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
