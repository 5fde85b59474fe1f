//! The socket between mediator and driver: datagrams that arrive whole, in order, with descriptors.

use super::message::DATAGRAM_BYTES_MAX;
use crate::server::is_unix_stream;
use crate::spare_descriptors::SpareDescriptors;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

/// A control socket: one end for the driver, one for the mediator.
///
/// # Errors
/// When the system gives none.
pub fn control_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// An end of it.
pub(super) struct ControlSocket {
    socket: OwnedFd,
    /// Room for what comes with a datagram, and for one more than may.
    spare: RefCell<SpareDescriptors>,
}

/// What arrived.
pub(super) struct Datagram {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptor: Option<OwnedFd>,
    /// There was one, and this process or the system can have no more.
    pub(super) lost: bool,
}

/// What there was to receive.
pub(super) enum Received {
    Datagram(Datagram),
    /// Nothing yet.
    Nothing,
    /// There may be something, but this process can have no more descriptors for now.
    NoRoom,
    /// The other side is gone.
    End,
}

/// Whether to wait for the other side.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    Wait,
    Never,
}

impl ControlSocket {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, spare: RefCell::new(SpareDescriptors::new(2)) }
    }

    /// Sends a datagram; false when the other side has not read enough of the earlier ones and `patience` is
    /// [`Patience::Never`].
    ///
    /// # Errors
    /// When the other side is gone (`BrokenPipe`, `ConnectionReset`) or the system fails.
    pub(super) fn send(
        &self,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        patience: Patience,
    ) -> io::Result<bool> {
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let pushed = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
            debug_assert!(pushed, "there is space for one");
        }
        let wait = if patience == Patience::Never { SendFlags::DONTWAIT } else { SendFlags::empty() };
        loop {
            match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL | wait) {
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Receives a datagram. The descriptor that may come with it is a unix stream socket: what else does is closed,
    /// where nobody waits for that.
    ///
    /// # Errors
    /// `InvalidData` for a datagram that is too long or comes with anything else, and the system's own.
    pub(super) fn receive(&self, patience: Patience) -> io::Result<Received> {
        // One byte more than a datagram may have, so that one too long is seen as such.
        let mut bytes = vec![0; DATAGRAM_BYTES_MAX + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut receive = |wait| {
            let flags = RecvFlags::CMSG_CLOEXEC | wait;
            recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)
        };
        let received = loop {
            let received = match patience {
                Patience::Wait => receive(RecvFlags::empty()),
                Patience::Never => match self.spare.borrow_mut().receive(|| receive(RecvFlags::DONTWAIT)) {
                    Some(received) => received,
                    None => return Ok(Received::NoRoom),
                },
            };
            match received {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::CONNRESET) => return Ok(Received::End),
                Err(errno) => return Err(errno.into()),
            }
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let are_all = !received.flags.contains(ReturnFlags::CTRUNC);
        let lost = !are_all && descriptors.is_empty();
        if !are_all && !lost || descriptors.len() > 1 || !descriptors.iter().all(is_unix_stream) {
            close_elsewhere(descriptors);
            return invalid("a datagram with more or other descriptors than one unix stream socket");
        }
        if received.bytes == 0 {
            return Ok(Received::End);
        }
        if received.flags.contains(ReturnFlags::TRUNC) || received.bytes > DATAGRAM_BYTES_MAX {
            return invalid("a datagram that is too long");
        }
        bytes.truncate(received.bytes);
        Ok(Received::Datagram(Datagram { bytes, descriptor: descriptors.pop(), lost }))
    }
}

/// Closes descriptors in a thread, as that may take for ever (a TCP socket that lingers, a file on a FUSE file system).
fn close_elsewhere(descriptors: Vec<OwnedFd>) {
    let _ = thread::Builder::new().name("closer".into()).spawn(move || drop(descriptors));
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
