//! The process that starts those that decompress.
//!
//! A file is decompressed when its turn comes, and whoever reads it can start no process any more by then: it has shut
//! itself in. So one that has not does that. It looks at nothing: what it is sent is a byte, the file, and where its
//! contents go.

use super::decompressor::ends_with;
use super::{COMMAND, START, Started};
use blockyard_block::Compression;
use blockyard_confinement::Inherited;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, wait};
use rustix::stdio::stdin;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// What is in the pipe between who decompresses and who reads that.
const PIPE_BYTES: usize = 1 << 20;

/// A word of either side: a byte, and this many descriptors at most.
const DESCRIPTORS_MAX: usize = 3;

/// What is answered: the process that was started comes with it, if it was.
const ANSWER: u8 = b'!';

/// This process's own.
static STARTER: Mutex<Option<UnixStream>> = Mutex::new(None);

/// Starts the one that starts others, unless there is one.
pub(super) fn prepare() -> io::Result<()> {
    let mut starter = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    if starter.is_none() {
        let (ours, theirs) = UnixStream::pair()?;
        command(&[START])
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            // Ctrl-C is for the one who reads: this one ends when nobody does.
            .process_group(0)
            .spawn()
            .map_err(|error| not_started(&error))?;
        *starter = Some(ours);
    }
    Ok(())
}

/// Has somebody decompress a file.
pub(super) fn start(input: &File, compression: Compression) -> io::Result<Started> {
    let starter = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(starter) = &*starter else { return Err(not_started(&Errno::NOTCONN.into())) };
    let [(output, takes_output), (failure, takes_failure)] =
        [pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?];
    // Less will do.
    let _ = fcntl_setpipe_size(&output, PIPE_BYTES);
    let which = Compression::ALL.iter().position(|known| *known == compression).unwrap_or_default();
    send(starter, which as u8, &[input.as_fd(), takes_output.as_fd(), takes_failure.as_fd()])?;
    let answered = receive(starter)?.and_then(|(_, descriptors)| descriptors.into_iter().next());
    let ends = answered.ok_or_else(|| not_started(&Errno::AGAIN.into()))?;
    Ok(Started { output: output.into(), failure: failure.into(), ends })
}

/// The life of that process: starts others until nobody can ask for one any more. It ends with the process `parent`.
///
/// # Errors
/// What the system refused.
pub fn start_decompressors(parent: u32) -> io::Result<()> {
    if !ends_with(parent)? {
        return Ok(());
    }
    Inherited::take()?.close();
    let asked = UnixStream::from(stdin().try_clone_to_owned()?);
    while let Some((which, descriptors)) = receive(&asked)? {
        // Nobody else waits for those that have ended.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let (Some(compression), Ok([input, output, failure])) =
            (Compression::ALL.get(usize::from(which)), <[OwnedFd; 3]>::try_from(descriptors))
        else {
            break;
        };
        let child = command(&[compression.word()]).stdin(input).stdout(output).stderr(failure).spawn();
        let ends = child.and_then(|child| Ok(pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?));
        let ends: Vec<_> = ends.iter().map(AsFd::as_fd).collect();
        send(&asked, ANSWER, &ends)?;
    }
    Ok(())
}

/// This program, with nothing of this process but what it is given.
fn command(words: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(COMMAND).args(words).arg(std::process::id().to_string()).env_clear().current_dir("/");
    command
}

fn not_started(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("a process to decompress it cannot be started: {error}"))
}

fn send(stream: &UnixStream, byte: u8, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::NOBUFS.into());
    }
    retry_on_intr(|| sendmsg(stream, &[IoSlice::new(&[byte])], &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// A byte with what came with it; `None` when there is nobody any more.
fn receive(stream: &UnixStream) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received =
        retry_on_intr(|| recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    Ok((received.bytes > 0).then_some((byte[0], descriptors)))
}
