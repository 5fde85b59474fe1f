//! Why a session cannot be had, or has ended.

use blockyard_block::{Remedy, explain};
use blockyard_virtqueue::DeviceError;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why there is no session, or no queue of it. Each names the socket, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no such socket, or nobody behind it.
    #[error("nobody listens on {socket}: {}", Remedy::StartServer, socket = .0)]
    NobodyListens(Arc<str>),
    /// The socket's or a directory's mode is against it.
    #[error("no permission to connect to {socket}: run as the user who serves it, or {}", Remedy::LetUsersIn, socket = .0)]
    Permission(Arc<str>),
    /// The path names something else.
    #[error("{0} is not a stream socket: name the socket that a disk server listens on")]
    NotASocket(Arc<str>),
    /// The name is longer than a socket's may be.
    #[error("{0} is too long for a socket's name: use a shorter path, 107 bytes at most")]
    NameTooLong(Arc<str>),
    /// Whoever listens does not speak vhost-user, or not as its specification says.
    #[error("{socket} does not speak vhost-user as it should: {detail}; is it a vhost-user-blk server's socket?")]
    Protocol {
        /// The socket's path, or what a connection that was taken over is called.
        socket: Arc<str>,
        /// What was wrong.
        detail: String,
    },
    /// A vhost-user server, but of something else, or of a disk that cannot be.
    #[error("{socket} serves no usable block device: {detail}")]
    NoBlockDevice {
        /// The socket's path, or what a connection that was taken over is called.
        socket: Arc<str>,
        /// What is missing or impossible.
        detail: String,
    },
    /// No answer to a control message.
    #[error("the server on {socket} does not answer ({patience:?}): it hangs, or serves another client")]
    NoAnswer {
        /// The socket's path, or what a connection that was taken over is called.
        socket: Arc<str>,
        /// How long it had: `SessionOptions::patience`.
        patience: Duration,
    },
    /// This process was to end, and the server got nowhere with what it owed.
    #[error("the server on {socket} owes answers and has given none for {patience:?}: it is waited for no longer")]
    Stalled {
        /// The socket's path, or what a connection that was taken over is called.
        socket: Arc<str>,
        /// How long it had.
        patience: Duration,
    },
    /// The server went away.
    #[error("the server on {0} closed the connection: it has another client, or has ended: see what it says")]
    Closed(Arc<str>),
    /// The server refused something that it must be able to do.
    #[error("the server on {socket} refused {request}: see what it says")]
    Refused {
        /// The socket's path, or what a connection that was taken over is called.
        socket: Arc<str>,
        /// The control message.
        request: &'static str,
    },
    /// The server wrote impossible things into a virtqueue.
    #[error("the server on {socket} broke a virtqueue: {error}; it is not to be trusted")]
    Virtqueue {
        /// The socket's path, or what a connection that was taken over is called.
        socket: Arc<str>,
        /// What it wrote.
        error: DeviceError,
    },
    /// The server came back with another disk.
    #[error("the server on {socket} came back with another disk: {detail}")]
    Changed {
        /// The socket's path, or what a connection that was taken over is called.
        socket: Arc<str>,
        /// What is less than before.
        detail: String,
    },
    /// All virtqueues are in use.
    #[error("the server on {socket} has {}: {}", all_in_use(*queues), Remedy::MoreQueues)]
    NoQueue {
        /// The socket's path, or what a connection that was taken over is called.
        socket: Arc<str>,
        /// How many it has.
        queues: u16,
    },
    /// The server maps no more memory.
    #[error("the server on {socket} maps {slots} memory regions and all are in use: open fewer queues")]
    NoMemorySlot {
        /// The socket's path, or what a connection that was taken over is called.
        socket: Arc<str>,
        /// How many it maps.
        slots: usize,
    },
    /// It was not there in time after it had gone.
    #[error("the server on {socket} did not come back within {patience:?}")]
    Gone {
        /// The socket's path, or what a connection that was taken over is called.
        socket: Arc<str>,
        /// How long it had: `SessionOptions::reconnect`.
        patience: Duration,
        /// What the last attempt met.
        #[source]
        last: Box<SessionError>,
    },
    /// The session had ended before.
    #[error("{0}")]
    Ended(Arc<str>),
    /// The connection is lost at the moment.
    #[error("the server on {0} is away, and waited for")]
    Away(Arc<str>),
    /// The operating system refused something.
    #[error("no session with {socket}")]
    Os {
        /// The socket's path, or what a connection that was taken over is called.
        socket: Arc<str>,
        /// What it said.
        #[source]
        error: io::Error,
    },
}

impl SessionError {
    /// Whether the same server, started again, may do better.
    pub(super) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::NobodyListens(_) | Self::NoAnswer { .. } | Self::Closed(_) | Self::Away(_) | Self::Os { .. }
        )
    }

    /// Whether it is this process that has not enough of something.
    pub(super) fn is_own_shortage(&self) -> bool {
        let Self::Os { error, .. } = self else { return false };
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = cause {
            let of_system = error.downcast_ref::<io::Error>();
            if let Some(errno) = of_system.and_then(io::Error::raw_os_error) {
                return matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM);
            }
            cause = match of_system.and_then(io::Error::get_ref) {
                Some(within) => Some(within),
                None => error.source(),
            };
        }
        false
    }
}

fn all_in_use(queues: u16) -> String {
    match queues {
        1 => "one virtqueue, which is in use".to_owned(),
        _ => format!("{queues} virtqueues and all are in use"),
    }
}

impl From<SessionError> for io::Error {
    /// Such an error is printed by itself, wherever a disk's may be: it says all.
    /// Its kind says whether there is not enough of something.
    fn from(error: SessionError) -> Self {
        let is_shortage = error.is_own_shortage() || matches!(error, SessionError::NoQueue { .. });
        let kind = if is_shortage { io::ErrorKind::OutOfMemory } else { io::ErrorKind::Other };
        Self::new(kind, explain(&error))
    }
}
