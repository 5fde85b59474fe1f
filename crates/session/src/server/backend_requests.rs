//! The socket on which the server speaks first (VHOST_USER_SET_BACKEND_REQ_FD): to say that the configuration changed.

use super::client_descriptor::ClientDescriptor;
use super::connection::send_now;
use super::descriptor_kind::is_unix_stream;
use super::message;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The socket, and what there was no room to say. A client that is slow to read hears of several changes at once, but
/// of the last one for certain.
#[derive(Debug)]
pub(super) struct BackendRequests {
    socket: ClientDescriptor,
    owes_change: bool,
}

impl BackendRequests {
    pub(super) fn new(socket: ClientDescriptor) -> io::Result<Self> {
        if !is_unix_stream(&socket) {
            return Err(io::Error::other("what the server shall speak on is not a unix stream socket"));
        }
        Ok(Self { socket, owes_change: false })
    }

    /// The configuration changed.
    pub(super) fn config_changed(&mut self) {
        self.owes_change = true;
        self.speak();
    }

    /// Says what there was no room to say, if there is now: to be called when the socket becomes writable.
    pub(super) fn speak(&mut self) {
        // So short a message goes whole or not at all. Whoever has closed the other end wants to hear nothing.
        if self.owes_change {
            self.owes_change = matches!(send_now(&self.socket, &message::config_change(), None), Err(Errno::AGAIN));
        }
    }
}

impl AsFd for BackendRequests {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
