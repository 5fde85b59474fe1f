//! What the kernel's process says of itself before it becomes the kernel: that it will, and how far it is shut in. And
//! what it is given meanwhile, where the kernel is a program: that program, open.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, send, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How far an appliance is shut in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confined {
    /// It has namespaces of its own: processes, network, files.
    pub namespaces: bool,
    /// Landlock keeps it from files that are not its own.
    pub landlock: bool,
    /// It has the system calls that it needs, no others.
    pub filtered: bool,
    /// It can send signals to no processes but its own.
    pub quiet: bool,
    /// Since before it looked at a disk it can open no file, connect to nothing and execute nothing.
    pub sealed: bool,
}

impl Confined {
    /// Whether something keeps what an image may do to the guest from all that this user reaches. Landlock alone keeps
    /// files from it, but not the sockets that programs have in directories.
    pub fn is_enough(self) -> bool {
        self.namespaces || self.sealed
    }
}

const NAMESPACES: u8 = 1;
const LANDLOCK: u8 = 2;
const FILTERED: u8 = 4;
const QUIET: u8 = 8;
const SEALED: u8 = 16;
/// No flags: what comes before them.
const BECOMES: u8 = 0xfe;
const REFUSES: u8 = 0xff;

/// What is said on the serial line before the kernel has it, a byte each.
#[derive(Debug)]
pub(crate) enum LineWord {
    /// The first word: the process that was started is about to become the kernel.
    Becomes,
    /// It is not, and wanted an appliance of its own instead.
    Refuses,
    /// The last word.
    Start(LineStart),
}

/// How far the process is shut in, with the descriptor of [`blockyard_confinement::program_filter::AnsweredCalls`].
#[derive(Debug)]
pub(crate) struct LineStart {
    pub(crate) confined: Confined,
    pub(crate) listener: Option<OwnedFd>,
}

impl LineStart {
    /// Sends it on standard input, which is the serial line.
    pub(crate) fn send(&self) -> io::Result<()> {
        let Confined { namespaces, landlock, filtered, quiet, sealed } = self.confined;
        let walls = [(namespaces, NAMESPACES), (landlock, LANDLOCK), (filtered, FILTERED)];
        let flags = [(quiet, QUIET), (sealed, SEALED)].into_iter().chain(walls);
        let byte = flags.filter(|(is_set, _)| *is_set).fold(0, |byte, (_, flag)| byte | flag);
        send_with(rustix::stdio::stdin(), byte, self.listener.as_ref().map(AsFd::as_fd))
    }
}

impl LineWord {
    /// Says [`LineWord::Becomes`] on standard input.
    pub(crate) fn say_becomes() -> io::Result<()> {
        send_byte(BECOMES)
    }

    /// Says [`LineWord::Refuses`] there.
    pub(crate) fn say_refuses() -> io::Result<()> {
        send_byte(REFUSES)
    }

    /// Receives a word, if one has come. This is before the guest runs: it is our own program's.
    pub(crate) fn receive(line: impl AsFd) -> io::Result<Option<Self>> {
        let (byte, listener) = match receive_with(line, RecvFlags::DONTWAIT) {
            Ok((BECOMES, _)) => return Ok(Some(Self::Becomes)),
            Ok((REFUSES, _)) => return Ok(Some(Self::Refuses)),
            Ok(received) => received,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let is = |flag| byte & flag != 0;
        let (namespaces, landlock, filtered, quiet) = (is(NAMESPACES), is(LANDLOCK), is(FILTERED), is(QUIET));
        let confined = Confined { namespaces, landlock, filtered, quiet, sealed: is(SEALED) };
        Ok(Some(Self::Start(LineStart { confined, listener })))
    }
}

/// Gives the process whose line this is the program that it is to become.
pub(crate) fn give_program(line: impl AsFd, program: impl AsFd) -> io::Result<()> {
    send_with(line.as_fd(), BECOMES, Some(program.as_fd()))
}

/// Waits on standard input for the program that this process is to become.
pub(crate) fn receive_program() -> io::Result<OwnedFd> {
    let (_, program) = receive_with(rustix::stdio::stdin(), RecvFlags::empty())?;
    program.ok_or_else(|| io::Error::other("a word without the kernel's program"))
}

fn send_with(line: BorrowedFd<'_>, byte: u8, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if let Some(descriptor) = &descriptor {
        ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
    }
    sendmsg(line, &[IoSlice::new(&[byte])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive_with(line: impl AsFd, flags: RecvFlags) -> io::Result<(u8, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = recvmsg(line, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptor = descriptors.flatten().next();
    Ok((byte[0], descriptor))
}

fn send_byte(byte: u8) -> io::Result<()> {
    send(rustix::stdio::stdin(), &[byte], SendFlags::NOSIGNAL)?;
    Ok(())
}
