//! What is agreed with the kernel when a file is mounted.

use super::buffers::TRANSFER_BYTES_MAX;
use super::message::{Init, Limits, Reply, init_flag};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{read, retry_on_intr, write};
use std::io;
use std::os::fd::OwnedFd;

/// Requests that the kernel sends without somebody waiting for each: read-ahead and asynchronous direct I/O. Its own
/// default of 12 would be the depth that programs get.
const BACKGROUND_MAX: u16 = 512;

/// Wanted if the kernel has it. Reads of a file need not wait for each other, and transfers are longer than the 128 KiB
/// of old; `O_TRUNC` comes with the open, where it can be told from truncate(2); asynchronous direct I/O stays
/// asynchronous; what is mapped stays coherent with what is read directly.
///
/// Not wanted: the write-back cache. A write is on its way to the disk before write(2) returns, so a disk error reaches
/// the program that made it, a server that is killed loses nothing that was written, and other users of the same disk
/// (a session, a second file) see it. Programs that want fewer, larger requests make them, or map the file.
const WANTED: u64 = init_flag::ASYNC_READ
    | init_flag::BIG_WRITES
    | init_flag::MAX_PAGES
    | init_flag::ATOMIC_O_TRUNC
    | init_flag::ASYNC_DIO
    | init_flag::DIRECT_IO_ALLOW_MMAP;

/// The least room that the kernel accepts for a message (FUSE_MIN_READ_BUFFER).
const MESSAGE_ROOM_BYTES: usize = 8192;

/// Answers the kernel's first message, after which the device is read from without blocking.
pub(super) fn negotiate(device: &OwnedFd) -> io::Result<()> {
    let mut bytes = [0; MESSAGE_ROOM_BYTES];
    let length = retry_on_intr(|| read(device, &mut bytes))?;
    let init = Init::parse(&bytes[..length]);
    let init = init.ok_or_else(|| io::Error::other("the kernel does not begin with FUSE 7.23 or later"))?;
    let limits = Limits { background: BACKGROUND_MAX, write_bytes: TRANSFER_BYTES_MAX };
    let mut reply = Reply::agreed(&init, WANTED, &limits);
    let reply = reply.bytes(init.unique);
    retry_on_intr(|| write(device, reply))?;
    Ok(fcntl_setfl(device, fcntl_getfl(device)? | OFlags::NONBLOCK)?)
}
