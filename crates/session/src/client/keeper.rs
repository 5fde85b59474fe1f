//! The thread that keeps a session: sees a server's end, waits for the next one, and hands its rings to the queues.

use super::connection::Connection;
use super::error::SessionError;
use super::link::Link;
use super::offer::Offer;
use blockyard_block::explain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pauses between two attempts to find a server: they double.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// A server that lasted as long, or completed a request, counts as back. One that does neither uses up the same time
/// again and again.
const LASTED: Duration = Duration::from_secs(1);

/// A session's owner: the thread ends, and the connection with it, when this is dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) link: Arc<Link>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(super) fn start(link: Link) -> std::io::Result<Self> {
        let link = Arc::new(link);
        let kept = Arc::clone(&link);
        let thread = std::thread::Builder::new().name("blockyard-session".to_owned()).spawn(move || keep(&kept))?;
        Ok(Self { link, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.link.stop.ring();
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, it has ended.
            let _ = thread.join();
        }
    }
}

/// Why the keeper stopped watching.
enum Ended {
    /// The session is dropped.
    Dropped,
    /// The connection is at its end, or of no use.
    Lost(Option<SessionError>),
}

fn keep(link: &Link) {
    let mut lost_at = Instant::now();
    let mut lasted = true;
    while let Some(connection) = link.connection() {
        let (since, before) = (Instant::now(), link.completed());
        let Ended::Lost(error) = watch(link, &connection) else { return };
        drop(connection);
        lasted |= since.elapsed() >= LASTED || link.completed() != before;
        if std::mem::take(&mut lasted) {
            lost_at = Instant::now();
        }
        let Some(error) = recover(link, error, lost_at) else { continue };
        link.end(error);
        return;
    }
}

/// Watches a connection until it ends.
fn watch(link: &Link, connection: &Connection) -> Ended {
    let mut channel_open = true;
    loop {
        let mut fds = [
            PollFd::new(&*link.stop, PollFlags::IN),
            // Answers are read by whoever asked: only the end counts here.
            PollFd::new(connection, PollFlags::RDHUP),
            PollFd::new(&*link.stop, PollFlags::IN),
        ];
        let channel = connection.backend().filter(|_| channel_open);
        if let Some(channel) = channel {
            fds[2] = PollFd::from_borrowed_fd(channel, PollFlags::IN);
        }
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            Err(errno) => {
                let socket = Arc::clone(&link.name);
                return Ended::Lost(Some(SessionError::Os { socket, error: errno.into() }));
            }
            Ok(_) => {}
        }
        if !fds[0].revents().is_empty() {
            return Ended::Dropped;
        }
        if !fds[1].revents().is_empty() {
            return Ended::Lost(None);
        }
        if channel.is_some() && !fds[2].revents().is_empty() {
            match connection.serve_backend() {
                Ok(false) => {}
                Ok(true) => {
                    if let Err(error) = link.refresh(connection) {
                        connection.shut_down();
                        return Ended::Lost(Some(error));
                    }
                }
                // A server without it can still serve.
                Err(_) => channel_open = false,
            }
        }
    }
}

/// Finds a server again. Otherwise, why the session is at its end.
fn recover(link: &Link, error: Option<SessionError>, lost_at: Instant) -> Option<Arc<str>> {
    let given_up = link.disconnect();
    let error = error.unwrap_or_else(|| SessionError::Closed(Arc::clone(&link.name)));
    let (may_pass, reason) = match given_up {
        Some(given_up) => (given_up.may_pass, given_up.reason),
        None => (error.may_pass(), explain(&error).into()),
    };
    if !may_pass || link.path.is_none() || link.options.reconnect.is_zero() {
        return Some(reason);
    }
    let deadline = lost_at + link.options.reconnect;
    let gone = |last: SessionError| {
        let (socket, patience) = (Arc::clone(&link.name), link.options.reconnect);
        Some(explain(&SessionError::Gone { socket, patience, last: Box::new(last) }).into())
    };
    // It comes, and goes before it has done anything.
    if Instant::now() >= deadline {
        return gone(error);
    }
    let mut pause = PAUSE_MIN;
    loop {
        let error = match connect(link) {
            Ok((connection, offer)) => match link.resume(connection, &offer) {
                Ok(()) => return None,
                Err(error) => error,
            },
            Err(error) => error,
        };
        if !error.may_pass() {
            return Some(explain(&error).into());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return gone(error);
        }
        let mut fds = [PollFd::new(&*link.stop, PollFlags::IN)];
        // At the end of its time it is asked once more.
        if poll(&mut fds, Timespec::try_from(pause.min(left)).ok().as_ref()).is_ok_and(|count| count > 0) {
            return Some(reason);
        }
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

fn connect(link: &Link) -> Result<(Connection, Offer), SessionError> {
    let path = link.path.as_ref().ok_or_else(|| SessionError::Closed(Arc::clone(&link.name)))?;
    let mut connection = Connection::open(path, &link.name, link.options.patience, &link.stop)?;
    let offer = Offer::negotiate(&mut connection, &link.stop, Some(&link.offer()))?;
    Ok((connection, offer))
}
