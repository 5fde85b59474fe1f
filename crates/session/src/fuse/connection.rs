//! What is agreed with the kernel when a file is mounted.

use super::buffers::TRANSFER_BYTES_MAX;
use fuser::{Config, Filesystem, InitFlags, KernelConfig, Request, Session, SessionACL};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Requests that the kernel sends without somebody waiting for each: read-ahead and asynchronous direct I/O. Its own
/// default of 12 would be the depth that programs get.
const BACKGROUND_MAX: u16 = 512;

/// Wanted if the kernel has it. `O_TRUNC` comes with the open, where it can be told from truncate(2); asynchronous
/// direct I/O stays asynchronous; what is mapped stays coherent with what is read directly.
///
/// Not wanted: the write-back cache. A write is on its way to the disk before write(2) returns, so a disk error reaches
/// the program that made it, a server that is killed loses nothing that was written, and other users of the same disk
/// (a session, a second file) see it. Programs that want fewer, larger requests make them, or map the file.
const WANTED: [InitFlags; 3] =
    [InitFlags::FUSE_ATOMIC_O_TRUNC, InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP];

/// fuser's part: it negotiates, and its session keeps the connection open. Requests are read by our workers, because
/// its dispatcher would copy every payload and hand every request to another thread.
pub(super) struct Negotiation;

impl Filesystem for Negotiation {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            // An older kernel does without.
            let _ = config.add_capabilities(flag);
        }
        // Each gives back what it was, or what would have been possible: these always are.
        let _ = config.set_max_write(TRANSFER_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        Ok(())
    }
}

/// Answers the kernel's first message and gives the session, and the device for workers to read from without blocking.
pub(super) fn negotiate(device: OwnedFd) -> io::Result<(Session<Negotiation>, OwnedFd)> {
    // Whom the kernel lets in is decided by the mount's options; fuser's own check is for its dispatcher.
    let session = Session::from_fd(Negotiation, device, SessionACL::All, Config::default())?;
    let device = session.as_fd().try_clone_to_owned()?;
    fcntl_setfl(&device, fcntl_getfl(&device)? | OFlags::NONBLOCK)?;
    Ok((session, device))
}
