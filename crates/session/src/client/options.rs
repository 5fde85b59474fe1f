//! How a session is held.

use super::connection::is_readable;
use blockyard_block::EventFd;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a session is held.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Some: data are always copied through a buffer of this many bytes a queue (at least four of the disk's blocks,
    /// and 16 KiB), so the server never sees the requests' own memory. None: the server maps that memory, and nothing
    /// is copied; where it maps no more regions, data are copied through [`IO_BUFFER_BYTES`].
    pub io_buffer_bytes: Option<u64>,
    /// How long a server that went away is waited for. Zero: its end fails every request at once.
    pub reconnect: Duration,
    /// How long the server has to answer a control message.
    pub patience: Duration,
    /// Readable while this process is asked to end. Then a server that owes something and gets nowhere for twice
    /// [`patience`](Self::patience), or twice [`PATIENCE`] if that is shorter, is waited for no longer, and one that
    /// went away, no longer than that: the session ends, and all requests with it. Never, where there is none.
    pub ending: Option<Arc<EventFd>>,
    /// This is a library in somebody else's program, which may close the session's descriptors by their numbers and
    /// open files there. Then each is looked at before it is used, the session ends where one is gone, and no queue
    /// sleeps for long at a time.
    pub is_guest: bool,
    /// The disk is passed on to others, any number of them. The last virtqueue that the server has left is used by all
    /// queues that are opened from then on, until others are free again (not where [`is_guest`](Self::is_guest) is
    /// set); whether nobody else changes the disk is known, and there are further connections to it, where the server
    /// says so.
    pub is_passed_on: bool,
    /// Who listens on the path gives each a further connection of its own instead of serving it.
    pub is_at_door: bool,
    /// Counts the system calls by which queues wake the server, and wait for it.
    pub calls: Option<&'static AtomicU64>,
    /// Longest time that a wait looks at the virtqueue before it sleeps. It sleeps at once where looking has not paid
    /// lately, and always where the process has one CPU only. Zero: always.
    pub poll: Duration,
}

/// [`SessionOptions::patience`] where nothing else is said.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a queue's I/O buffer where nothing else is said.
pub const IO_BUFFER_BYTES: u64 = 4 << 20;
/// The largest I/O buffer.
pub const IO_BUFFER_BYTES_MAX: u64 = 1 << 30;

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            io_buffer_bytes: None,
            reconnect: Duration::ZERO,
            patience: PATIENCE,
            ending: None,
            is_guest: false,
            is_passed_on: false,
            is_at_door: false,
            calls: None,
            poll: Duration::from_micros(50),
        }
    }
}

impl SessionOptions {
    /// An event of the session's.
    pub(super) fn new_event(&self) -> io::Result<EventFd> {
        if self.is_guest { EventFd::guarded() } else { EventFd::new() }
    }

    /// Counts a use of an event of the session's.
    pub(super) fn count_use(&self) {
        self.count_calls(1 + u64::from(self.is_guest));
    }

    pub(super) fn count_calls(&self, calls: u64) {
        if let Some(counter) = self.calls {
            counter.fetch_add(calls, Ordering::Relaxed);
        }
    }

    /// Whether this process is asked to end.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| is_readable(ending.as_fd()))
    }

    /// How long a server may then get nowhere.
    pub(super) fn ending_patience(&self) -> Duration {
        2 * self.patience.min(PATIENCE)
    }
}
