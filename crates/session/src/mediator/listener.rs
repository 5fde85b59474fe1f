//! A socket that clients connect to.

use rustix::fs::{AtFlags, CWD, Mode, chmod, chownat};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use rustix::process::{Uid, geteuid};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted; a socket has one client.
const BACKLOG: i32 = 8;

/// A socket file, 0600, that is gone when this is dropped.
pub(super) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode: another one at the path is not ours to remove.
    file: (u64, u64),
    uids: Vec<u32>,
}

/// What came in.
pub(super) enum Accepted {
    /// A client that may.
    Client(UnixStream),
    /// Somebody who may not, and who it was; disconnected.
    Stranger(u32),
    /// Nobody, after all.
    Nobody,
}

impl Listener {
    /// Makes the socket. A stale one of the same user's, that nobody listens on, is replaced. Users who may connect are
    /// `uids`, or this process's own if there are none; if there is one other, and this is root, the socket is theirs.
    ///
    /// # Errors
    /// When there is something at `path` that is in use or no socket, or the socket cannot be made.
    pub(super) fn bind(path: &Path, uids: &[u32]) -> io::Result<Self> {
        remove_stale(path)?;
        let address = SocketAddrUnix::new(path)?;
        let socket = stream_socket()?;
        bind(&socket, &address)?;
        let metadata = fs::symlink_metadata(path)?;
        let uids = if uids.is_empty() { vec![geteuid().as_raw()] } else { uids.to_vec() };
        let listener = Self { socket, path: path.into(), file: (metadata.dev(), metadata.ino()), uids };
        // Nobody gets in before listen: until then they are refused.
        chmod(path, Mode::RUSR | Mode::WUSR)?;
        listener.give_to_its_user()?;
        listen(&listener.socket, BACKLOG)?;
        Ok(listener)
    }

    fn give_to_its_user(&self) -> io::Result<()> {
        match self.uids[..] {
            [uid] if geteuid().is_root() && uid != geteuid().as_raw() => {
                Ok(chownat(CWD, &self.path, Some(Uid::from_raw(uid)), None, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            _ => Ok(()),
        }
    }

    /// Takes a connection that waits.
    ///
    /// # Errors
    /// When the system has no descriptor or memory for it; it keeps waiting.
    pub(super) fn accept(&self) -> io::Result<Accepted> {
        let stream = match accept_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok(stream) => UnixStream::from(stream),
            Err(errno) if matches!(errno.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {
                return Ok(Accepted::Nobody);
            }
            Err(errno) => return Err(errno.into()),
        };
        let uid = socket_peercred(&stream)?.uid.as_raw();
        Ok(if self.uids.contains(&uid) { Accepted::Client(stream) } else { Accepted::Stranger(uid) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let still_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.file);
        if still_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn stream_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Removes what a killed process left: a socket of this user's that refuses connections.
fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let in_the_way = |why: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, why.to_owned()));
    if !metadata.file_type().is_socket() {
        return in_the_way("there is a file that is no socket: remove it or take another path");
    }
    if metadata.uid() != geteuid().as_raw() && !geteuid().is_root() {
        return in_the_way("there is another user's socket: take another path");
    }
    match connect(stream_socket()?, &SocketAddrUnix::new(path)?) {
        Err(errno) if errno.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => in_the_way("another process listens there"),
    }
}
