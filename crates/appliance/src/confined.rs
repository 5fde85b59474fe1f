//! What the kernel's process says of itself before it becomes the kernel: that it will, and how far it is shut in.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, send, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

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
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = self.listener.iter().map(AsFd::as_fd).collect();
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        sendmsg(rustix::stdio::stdin(), &[IoSlice::new(&[byte])], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
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
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        match recvmsg(line, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags) {
            Ok(received) if received.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        match byte[0] {
            BECOMES => return Ok(Some(Self::Becomes)),
            REFUSES => return Ok(Some(Self::Refuses)),
            _ => {}
        }
        let descriptors = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let listener = descriptors.flatten().next();
        let is = |flag| byte[0] & flag != 0;
        let (namespaces, landlock, filtered, quiet) = (is(NAMESPACES), is(LANDLOCK), is(FILTERED), is(QUIET));
        let confined = Confined { namespaces, landlock, filtered, quiet, sealed: is(SEALED) };
        Ok(Some(Self::Start(LineStart { confined, listener })))
    }
}

fn send_byte(byte: u8) -> io::Result<()> {
    send(rustix::stdio::stdin(), &[byte], SendFlags::NOSIGNAL)?;
    Ok(())
}
