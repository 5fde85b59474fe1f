//! What is served, where to, and how.

use blockyard_block::specification::DiskSpecification;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A server.
#[derive(Debug)]
pub struct ServeOptions {
    /// What is served.
    pub disk: DiskSpecification,
    /// Where to.
    pub front: Front,
    /// How the process runs.
    pub running: Running,
}

/// Where the disk goes.
#[derive(Debug)]
pub enum Front {
    /// All of it, to the clients of a socket, one after another.
    Socket {
        /// The socket.
        path: PathBuf,
        /// Whether the first client is the last.
        once: bool,
        /// Who may connect; empty for the one who runs this.
        uids: Vec<u32>,
    },
    /// Partitions, each to a socket, all of which another process has.
    Partitions {
        /// How many there are.
        count: usize,
        /// What the other process is.
        door: Door,
        /// What is executed to be it: a program that calls [`stand_at_the_door`](crate::stand_at_the_door), with the
        /// same door. Its stdin is not to be set.
        command: Command,
    },
    /// All of it, as a file.
    Fuse(PathBuf),
}

/// Who stands at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Passes clients on to the driver.
    Mediator,
    /// Serves clients itself, from a session with the driver.
    Copier,
}

/// As people call it.
impl fmt::Display for Door {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Mediator => "mediator",
            Self::Copier => "copier",
        })
    }
}

/// How a process that serves runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// Virtqueues a client.
    pub queues: u16,
    /// I/O threads.
    pub threads: u16,
    /// CPUs of the I/O threads; empty leaves them to the kernel.
    pub cpus: Vec<usize>,
    /// Longest time to poll.
    pub poll: Duration,
    /// Where to answer Prometheus.
    pub metrics: Option<SocketAddr>,
}
