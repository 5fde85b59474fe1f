//! The descriptors by which client and server ring each other.

use super::connection::send_now;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Reads of a socket at a time.
const DRAINS_MAX: usize = 16;

/// A client's eventfd, or the socket that User-Mode Linux uses in place of one. What else a descriptor may be could make us wait,
/// or do something when it is written to.
#[derive(Debug)]
pub(super) struct EventDescriptor {
    descriptor: OwnedFd,
    socket: bool,
}

impl EventDescriptor {
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = match FileType::from_raw_mode(fstat(&descriptor)?.st_mode) {
            FileType::Socket => true,
            // An eventfd's file has no type, as no anonymous inode's has; of those, only an eventfd can be written to.
            FileType::Unknown => false,
            other => return Err(io::Error::other(format!("an event must be an eventfd or a socket, not {other:?}"))),
        };
        if !socket {
            // Whether we wait is the file's choice, not a write's. The client shares it; other servers do this, too.
            let flags = fcntl_getfl(&descriptor)?;
            fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        }
        Ok(Self { descriptor, socket })
    }

    /// Rings. Nothing to be done when that fails: then it is readable already, or nobody listens.
    pub(super) fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        if self.socket {
            let _ = send_now(&self.descriptor, &one, None);
        } else {
            let _ = rustix::io::retry_on_intr(|| rustix::io::write(&self.descriptor, &one));
        }
    }

    /// Takes rings off a socket, whose buffer would be full some day. An eventfd only counts them.
    pub(super) fn drain(&self) {
        let mut bytes = [0; 256];
        // What comes faster than this makes it readable again.
        for _ in 0..if self.socket { DRAINS_MAX } else { 0 } {
            match recv(&self.descriptor, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((256, _)) => {}
                _ => break,
            }
        }
    }
}

impl AsFd for EventDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
