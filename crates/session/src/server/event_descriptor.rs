//! The descriptors by which client and server ring each other.
//!
//! The client has them, too, and does with them what it likes: nothing that is done to one here may wait for it.

use super::client_descriptor::ClientDescriptor;
use super::connection::send_now;
use super::descriptor_kind::{is_unix_socket, kind_of};
use super::ringer::{LateRinger, Ringer};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// What a client rings: an eventfd, which only has to be waited for. Of other descriptors some would have to be read,
/// and who else reads them could make that wait; an epoll could have us search what the client put into it.
#[derive(Clone, Debug)]
pub(super) struct Kick(Arc<ClientDescriptor>);

impl Kick {
    pub(super) fn new(descriptor: ClientDescriptor, ringer: &LateRinger) -> io::Result<Self> {
        match ringer.is_eventfd(descriptor.as_fd())? {
            true => Ok(Self(Arc::new(descriptor))),
            false => Err(io::Error::other(format!("a kick must be an eventfd, not {}", kind_of(&descriptor)))),
        }
    }
}

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What a client hears: its eventfd, or the unix socket that User-Mode Linux uses in place of one.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Eventfd(Arc<ClientDescriptor>, Arc<Ringer>),
    /// Sending to other families' sockets may wait for who else is sending, whatever is said about waiting.
    UnixSocket(Arc<ClientDescriptor>),
}

impl Call {
    pub(super) fn new(descriptor: ClientDescriptor, ringer: &LateRinger) -> io::Result<Self> {
        if ringer.is_eventfd(descriptor.as_fd())? {
            Ok(Self::Eventfd(Arc::new(descriptor), ringer.get()?))
        } else if is_unix_socket(&descriptor) {
            Ok(Self::UnixSocket(Arc::new(descriptor)))
        } else {
            let found = kind_of(&descriptor);
            Err(io::Error::other(format!("a call must be an eventfd or a unix socket, not {found}")))
        }
    }

    /// Rings. Nothing to be done when that fails: then it is readable already, or nobody listens.
    pub(super) fn ring(&self) {
        match self {
            Self::Eventfd(descriptor, ringer) => ringer.ring(descriptor.as_fd()),
            Self::UnixSocket(descriptor) => drop(send_now(&**descriptor, &1u64.to_ne_bytes(), None)),
        }
    }
}
