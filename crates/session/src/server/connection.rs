//! The stream that control messages come and go on.

use super::client_descriptor::{ClientDescriptor, Closer};
use super::doorkeeper::{DATAGRAM_BYTES_MAX, Door, Doorkeeper, REFUSED};
use super::message::{Header, MessageError, PAYLOAD_BYTES_MAX, Request};
use crate::spare_descriptors::SpareDescriptors;
use crate::vhost_user::{HEADER_BYTES, TABLE_REGIONS_MAX};
use rustix::cmsg_space;
use rustix::io::{Errno, IoSlice, IoSliceMut, ioctl_fionbio};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// A client's stream. Neither end ever makes us wait: a message is put together as its bytes come.
pub(super) struct Connection {
    stream: ClientDescriptor,
    /// Where messages come in if another process receives them.
    door: Option<Door>,
    closer: Closer,
    spare: Arc<Mutex<SpareDescriptors>>,
    buffer: Box<[u8; HEADER_BYTES + PAYLOAD_BYTES_MAX]>,
    /// Bytes of the next message that are in the buffer.
    filled: usize,
    descriptors: Vec<ClientDescriptor>,
}

/// Why no more messages come.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionEnd {
    #[error("the client has closed the connection")]
    Closed,
    #[error("the client has closed the connection in the middle of a message")]
    HalfMessage,
    #[error("a message came with more than {TABLE_REGIONS_MAX} descriptors")]
    TooManyDescriptors,
    #[error("this process can have no more descriptors (ulimit -n)")]
    NoDescriptors,
    #[error("{0}")]
    Refused(String),
    #[error("the client does not read its replies")]
    RepliesNotRead,
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("the connection broke")]
    Io(#[from] io::Error),
}

impl Connection {
    pub(super) fn new(
        stream: impl Into<OwnedFd>,
        doorkeeper: Option<&Doorkeeper>,
        closer: Closer,
        spare: Arc<Mutex<SpareDescriptors>>,
    ) -> io::Result<Self> {
        let stream = closer.keep(stream);
        ioctl_fionbio(&stream, true)?;
        let door = doorkeeper.map(|doorkeeper| doorkeeper.receive_from(&stream)).transpose()?;
        if let Some(door) = &door {
            closer.await_process(door.messages.try_clone()?);
        }
        let buffer = Box::new([0; HEADER_BYTES + PAYLOAD_BYTES_MAX]);
        Ok(Self { stream, door, closer, spare, buffer, filled: 0, descriptors: Vec::new() })
    }

    /// The client's stream, if that it hung up could be heard of before what it said.
    pub(super) fn watched_for_its_end(&self) -> Option<BorrowedFd<'_>> {
        self.door.is_some().then(|| self.stream.as_fd())
    }

    /// Whether the client has to wait until something of what it gave is closed.
    pub(super) fn closer_is_behind(&self) -> bool {
        self.closer.is_behind()
    }

    /// The next message, if all of it has come.
    pub(super) fn receive(&mut self) -> Result<Option<(Header, Request)>, ConnectionEnd> {
        loop {
            if self.filled < HEADER_BYTES {
                if !self.read_up_to(HEADER_BYTES)? {
                    return Ok(None);
                }
                continue;
            }
            let mut bytes = [0; HEADER_BYTES];
            bytes.copy_from_slice(&self.buffer[..HEADER_BYTES]);
            let header = Header::parse(&bytes)?;
            let end = HEADER_BYTES + header.payload_bytes;
            if self.filled == end {
                self.filled = 0;
                let descriptors = std::mem::take(&mut self.descriptors);
                let request = Request::parse(&header, &self.buffer[HEADER_BYTES..end], descriptors)?;
                return Ok(Some((header, request)));
            }
            if !self.read_up_to(end)? {
                return Ok(None);
            }
        }
    }

    /// Reads what there is of the message's first `end` bytes, and the descriptors with them. False: nothing now.
    fn read_up_to(&mut self, end: usize) -> Result<bool, ConnectionEnd> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(TABLE_REGIONS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut kind = [0];
        let receive = || match &self.door {
            None => {
                let mut into = [IoSliceMut::new(&mut self.buffer[self.filled..end])];
                recvmsg(&self.stream, &mut into, &mut control, flags)
            }
            // A whole message, or what there will be of it.
            Some(door) => {
                let mut into = [IoSliceMut::new(&mut kind), IoSliceMut::new(&mut self.buffer[self.filled..])];
                recvmsg(&door.messages, &mut into, &mut control, flags)
            }
        };
        let received = self.spare.lock().unwrap_or_else(PoisonError::into_inner).receive(receive);
        let received = match received.ok_or(ConnectionEnd::NoDescriptors)? {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(Errno::CONNRESET) => return Err(self.end()),
            Err(errno) => return Err(io::Error::from(errno).into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors.map(|descriptor| self.closer.keep(descriptor)));
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) || self.descriptors.len() > TABLE_REGIONS_MAX {
            return Err(ConnectionEnd::TooManyDescriptors);
        }
        if received.bytes == 0 {
            return Err(self.end());
        }
        let bytes = received.bytes - usize::from(self.door.is_some());
        if kind == [REFUSED] {
            let why = String::from_utf8_lossy(&self.buffer[self.filled..self.filled + bytes]);
            return Err(ConnectionEnd::Refused(why.into_owned()));
        }
        self.filled += bytes;
        Ok(true)
    }

    fn end(&self) -> ConnectionEnd {
        if self.filled == 0 { ConnectionEnd::Closed } else { ConnectionEnd::HalfMessage }
    }

    /// Sends a reply, with a descriptor if there is one.
    pub(super) fn send(&self, reply: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), ConnectionEnd> {
        match send_now(&self.stream, reply, descriptor) {
            // A stream takes a part when it has no room for all: the client has not read replies for a long time.
            Ok(sent) if sent == reply.len() => Ok(()),
            Ok(_) | Err(Errno::AGAIN) => Err(ConnectionEnd::RepliesNotRead),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(ConnectionEnd::Closed),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Lets the client know that the session is over.
    pub(super) fn shut_down(&self) {
        // A client that is gone already need not know.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
    }
}

/// Sends without waiting and without a signal when nobody reads.
pub(crate) fn send_now(
    socket: impl AsFd,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.as_slice();
    if !descriptors.is_empty() {
        // There is room for one.
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags))
}

/// Readable when there is a message, or when there will be no more.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.door.as_ref().map_or_else(|| self.stream.as_fd(), |door| door.messages.as_fd())
    }
}

const _: () = assert!(DATAGRAM_BYTES_MAX == 1 + HEADER_BYTES + PAYLOAD_BYTES_MAX);
