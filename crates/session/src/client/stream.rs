//! The control socket: vhost-user messages, each with a time limit.
//!
//! The `vhost` crate's front end takes EAGAIN for "try again at once": with a time limit on the socket it would spin
//! for ever on a server that does not answer, and without one it would sleep for ever. So this is our own.

use super::SessionError;
use crate::server::is_unix_stream;
use crate::vhost_user::{HEADER_BYTES, TABLE_REGIONS_MAX, VERSION, VERSION_MASK, code};
use blockyard_block::{EventFd, FileIdentity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, recv, recvmsg, sendmsg, shutdown,
    socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait between two attempts while a server's queue of connections is full.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);

/// Why a message did not get through.
#[derive(Debug)]
pub(super) enum StreamError {
    /// The other side is gone.
    Closed,
    /// The time is over.
    Late,
    /// The session ends.
    Stopped,
    /// The other side does not give what was asked for.
    Refused,
    /// The other side said something impossible.
    Garbage(String),
    Os(Errno),
}

impl StreamError {
    pub(super) fn into_session_error(self, socket: &Arc<str>, patience: Duration) -> SessionError {
        let socket = Arc::clone(socket);
        match self {
            Self::Closed | Self::Stopped => SessionError::Closed(socket),
            Self::Late => SessionError::NoAnswer { socket, patience },
            Self::Refused => SessionError::Refused { socket, request: code::name(code::ADD_CONNECTION) },
            Self::Garbage(detail) => SessionError::Protocol { socket, detail },
            Self::Os(errno) => SessionError::Os { socket, error: errno.into() },
        }
    }
}

impl From<Errno> for StreamError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Self::Closed,
            errno => Self::Os(errno),
        }
    }
}

/// A message's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) request: u32,
    pub(super) flags: u32,
    pub(super) body_bytes: usize,
}

/// A connected stream socket, and the event that ends every wait on it.
#[derive(Debug)]
pub(super) struct Stream {
    socket: OwnedFd,
    /// Which file that is.
    identity: FileIdentity,
    stop: Arc<EventFd>,
}

impl Stream {
    /// Connects to `path`, whose name for messages is `name`.
    pub(super) fn connect(
        path: &Path,
        name: &Arc<str>,
        patience: Duration,
        stop: &Arc<EventFd>,
    ) -> Result<Self, SessionError> {
        let os = |errno: Errno| SessionError::Os { socket: Arc::clone(name), error: errno.into() };
        let address = SocketAddrUnix::new(path).map_err(|errno| match errno {
            Errno::NAMETOOLONG => SessionError::NameTooLong(Arc::clone(name)),
            errno => os(errno),
        })?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(os)?;
        let identity = FileIdentity::of_open(&socket).map_err(os)?;
        let stream = Self { socket, identity, stop: Arc::clone(stop) };
        let deadline = Instant::now() + patience;
        loop {
            match connect(&stream.socket, &address) {
                Ok(()) => return Ok(stream),
                Err(Errno::INTR) => {}
                // The server's queue of connections is full.
                Err(Errno::AGAIN) if Instant::now() < deadline => {
                    let pause = stream.wait(PollFlags::empty(), Instant::now() + CONNECT_PAUSE);
                    if matches!(pause, Err(StreamError::Stopped)) {
                        return Err(SessionError::Closed(Arc::clone(name)));
                    }
                }
                Err(errno) => return Err(connect_error(errno, path, name, patience)),
            }
        }
    }

    /// Another stream, which the other side gives and nothing else; or it says a word without one, if there is none.
    pub(super) fn receive_stream(&self, deadline: Instant) -> Result<Self, StreamError> {
        self.check_own()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut byte = [0];
        let socket = loop {
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags) {
                Ok(message) if message.bytes == 0 => return Err(StreamError::Closed),
                Ok(_) => {
                    break ancillary.drain().find_map(|message| match message {
                        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                        _ => None,
                    });
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, deadline)?,
                Err(errno) => return Err(errno.into()),
            }
        };
        let socket = socket.ok_or(StreamError::Refused)?;
        if !is_unix_stream(&socket) {
            return Err(StreamError::Garbage("no stream".to_owned()));
        }
        let taken = Self::from_socket(socket.into(), &self.stop);
        taken.map_err(|error| StreamError::Os(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }

    /// Takes over a connected socket.
    pub(super) fn from_socket(socket: UnixStream, stop: &Arc<EventFd>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { identity: FileIdentity::of_open(&socket)?, socket: socket.into(), stop: Arc::clone(stop) })
    }

    /// Whether the descriptor is still its own, and no other file has its number.
    pub(super) fn is_own(&self) -> bool {
        self.identity.is_of(&self.socket)
    }

    /// Refuses a descriptor that is not its own any more.
    fn check_own(&self) -> Result<(), StreamError> {
        if self.is_own() { Ok(()) } else { Err(StreamError::Closed) }
    }

    /// Makes both sides see the end of the connection.
    pub(super) fn shut_down(&self) {
        if self.is_own() {
            // It fails when it is at its end already.
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }

    /// Sends a message, and descriptors with its first byte.
    pub(super) fn send(
        &self,
        request: u32,
        flags: u32,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), StreamError> {
        self.check_own()?;
        let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
        for word in [request, flags, body.len() as u32] {
            message.extend(word.to_ne_bytes());
        }
        message.extend(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TABLE_REGIONS_MAX))];
        let mut sent = 0;
        while sent < message.len() {
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if sent == 0 && !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
                return Err(StreamError::Os(Errno::TOOBIG));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.socket, &[IoSlice::new(&message[sent..])], &mut ancillary, flags) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Receives a message into `body`. Descriptors that come with it are nobody's: the kernel closes them, because no
    /// room was given for them.
    pub(super) fn receive(&self, body: &mut [u8], deadline: Instant) -> Result<Header, StreamError> {
        self.check_own()?;
        let mut header = [0; HEADER_BYTES];
        self.fill(&mut header, deadline)?;
        let word = |index: usize| u32::from_ne_bytes(std::array::from_fn(|byte| header[4 * index + byte]));
        let (request, flags, size) = (word(0), word(1), word(2));
        if flags & VERSION_MASK != VERSION {
            return Err(StreamError::Garbage(format!("a message of version {}, not 1", flags & VERSION_MASK)));
        }
        match usize::try_from(size).ok().and_then(|size| body.get_mut(..size)) {
            Some(body) => self.fill(body, deadline)?,
            None => return Err(StreamError::Garbage(format!("a message {request} of {size} bytes"))),
        }
        Ok(Header { request, flags, body_bytes: size as usize })
    }

    fn fill(&self, buffer: &mut [u8], deadline: Instant) -> Result<(), StreamError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match recv(&self.socket, &mut buffer[filled..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(StreamError::Closed),
                Ok((count, _)) => filled += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, deadline)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Waits until the socket is ready, however slowly the other side gets there: the deadline is the whole message's.
    fn wait(&self, events: PollFlags, deadline: Instant) -> Result<(), StreamError> {
        let mut fds = [PollFd::new(&self.socket, events), PollFd::new(&*self.stop, PollFlags::IN)];
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(StreamError::Late);
        }
        match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) if !fds[1].revents().is_empty() => Err(StreamError::Stopped),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn connect_error(errno: Errno, path: &Path, name: &Arc<str>, patience: Duration) -> SessionError {
    let socket = Arc::clone(name);
    // The kernel refuses the connection to what is no socket, too. A server that starts anew takes the old socket away
    // meanwhile.
    let is_other = || path.metadata().is_ok_and(|metadata| !metadata.file_type().is_socket());
    match errno {
        Errno::NOENT => SessionError::NobodyListens(socket),
        Errno::CONNREFUSED if !is_other() => SessionError::NobodyListens(socket),
        Errno::CONNREFUSED | Errno::PROTOTYPE | Errno::NOTDIR => SessionError::NotASocket(socket),
        Errno::ACCESS | Errno::PERM => SessionError::Permission(socket),
        Errno::AGAIN => SessionError::NoAnswer { socket, patience },
        errno => SessionError::Os { socket, error: errno.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::dup2;
    use std::io::Read;

    /// A program that closes all descriptors past libc may have a socket of its own there then.
    #[test]
    fn another_socket_with_its_number_is_left_alone() {
        let [(ours, _server), (mut theirs, other)] = [(); 2].map(|()| UnixStream::pair().unwrap());
        let stop = Arc::new(EventFd::new().unwrap());
        let mut stream = Stream::from_socket(ours, &stop).unwrap();
        dup2(&other, &mut stream.socket).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        assert!(matches!(stream.send(1, VERSION, &[7; 8], &[], deadline), Err(StreamError::Closed)));
        assert!(matches!(stream.receive(&mut [0; 8], deadline), Err(StreamError::Closed)));
        stream.shut_down();
        theirs.set_nonblocking(true).unwrap();
        let found = theirs.read(&mut [0; 64]).unwrap_err();
        assert_eq!(found.kind(), io::ErrorKind::WouldBlock, "neither a message nor an end came");
    }
}
