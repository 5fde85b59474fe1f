//! What a descriptor is that a client has sent.

use rustix::fs::{FileType, fstat};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use std::os::fd::AsFd;

/// Whether this is a socket that can be sent to without waiting for anybody.
pub(super) fn is_unix_socket(descriptor: impl AsFd) -> bool {
    socket_domain(descriptor).is_ok_and(|family| family == AddressFamily::UNIX)
}

/// Whether this is a unix socket that carries a stream.
pub(crate) fn is_unix_stream(descriptor: impl AsFd) -> bool {
    is_unix_socket(&descriptor) && socket_type(descriptor) == Ok(SocketType::STREAM)
}

/// For people.
pub(super) fn kind_of(descriptor: impl AsFd) -> &'static str {
    match fstat(descriptor).map(|status| FileType::from_raw_mode(status.st_mode)) {
        Ok(FileType::Socket) => "another socket",
        Ok(FileType::RegularFile) => "a file",
        Ok(FileType::Directory) => "a directory",
        Ok(FileType::Fifo) => "a pipe",
        Ok(FileType::CharacterDevice | FileType::BlockDevice) => "a device",
        _ => "something else",
    }
}
