//! The thread that keeps a session: sees a server's end, waits for the next one, and hands its rings to the queues.

use super::connection::Connection;
use super::error::SessionError;
use super::link::{Link, Progress};
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

/// How often to look how far the server is once this process is asked to end.
const LOOK: Duration = Duration::from_millis(200);

/// What the server does once this process is asked to end.
#[derive(Default)]
struct Last {
    /// When something was done last, or nothing was to be done, and what had been done by then.
    moved: Option<(Instant, Progress)>,
}

impl Last {
    fn is_watched(&self) -> bool {
        self.moved.is_some()
    }

    /// Whether the server got nowhere for as long as it may.
    fn is_stalled(&mut self, link: &Link) -> bool {
        if !link.options.is_ending() {
            self.moved = None;
            return false;
        }
        let now = link.progress();
        match self.moved {
            // Whoever converses with it all the time gets nowhere, either.
            Some((since, before)) if now.is_none_or(|now| now.in_flight > 0 && now.completed == before.completed) => {
                since.elapsed() > link.options.ending_patience()
            }
            _ => {
                let none = Progress { completed: 0, in_flight: 0 };
                self.moved = Some((Instant::now(), now.unwrap_or(none)));
                false
            }
        }
    }
}

/// Why the keeper stopped watching.
enum Ended {
    /// The session is dropped.
    Dropped,
    /// The connection is at its end, or of no use.
    Lost(Option<SessionError>),
    /// The program that this is in has closed the session's descriptors.
    Closed,
}

/// Whether what one of these was is no longer open. Waiting for it would end at once, time and again.
fn is_one_closed(fds: &[PollFd<'_>]) -> bool {
    fds.iter().any(|fd| fd.revents().contains(PollFlags::NVAL))
}

fn keep(link: &Link) {
    let mut lost_at = Instant::now();
    let mut lasted = true;
    while let Some(connection) = link.connection() {
        let (since, before) = (Instant::now(), link.completed());
        let error = match watch(link, &connection) {
            Ended::Dropped => return,
            Ended::Lost(error) => error,
            Ended::Closed => {
                // Its number may be another file's by now, and is not to be closed.
                std::mem::forget(connection);
                let error = Errno::BADF.into();
                return link.end(explain(&SessionError::Os { socket: Arc::clone(&link.name), error }).into());
            }
        };
        link.free_kicks();
        drop(connection);
        lasted |= since.elapsed() >= LASTED || link.completed() != before;
        if std::mem::take(&mut lasted) {
            lost_at = Instant::now();
        }
        let Some(error) = recover(link, error, lost_at) else { continue };
        link.end(error);
        free_until_the_end(link);
        return;
    }
}

/// Where this process is to end, no queue waits in vain, whatever the last server does with the events that it has.
fn free_until_the_end(link: &Link) {
    let Some(ending) = &link.options.ending else { return };
    loop {
        let is_ending = link.options.is_ending();
        let mut fds = [PollFd::new(&*link.stop, PollFlags::IN), PollFd::new(&**ending, PollFlags::IN)];
        let timeout = is_ending.then_some(LOOK).and_then(|look| Timespec::try_from(look).ok());
        let fds = &mut fds[..if is_ending { 1 } else { 2 }];
        if poll(fds, timeout.as_ref()).is_ok_and(|_| !fds[0].revents().is_empty() || is_one_closed(fds)) {
            return;
        }
        link.free_kicks();
        link.tell_again();
    }
}

/// Watches a connection until it ends.
fn watch(link: &Link, connection: &Connection) -> Ended {
    let mut channel_open = true;
    let mut last = Last::default();
    loop {
        let none = || PollFd::new(&*link.stop, PollFlags::empty());
        let mut fds = [
            PollFd::new(&*link.stop, PollFlags::IN),
            // Answers are read by whoever asked: only the end counts here.
            PollFd::new(connection, PollFlags::RDHUP),
            none(),
            none(),
        ];
        let channel = connection.backend().filter(|_| channel_open);
        if let Some(channel) = channel {
            fds[2] = PollFd::from_borrowed_fd(channel, PollFlags::IN);
        }
        let timeout = last.is_watched().then_some(LOOK).and_then(|look| Timespec::try_from(look).ok());
        if let (Some(ending), None) = (&link.options.ending, &timeout) {
            fds[3] = PollFd::new(&**ending, PollFlags::IN);
        }
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => continue,
            Err(errno) => {
                let socket = Arc::clone(&link.name);
                return Ended::Lost(Some(SessionError::Os { socket, error: errno.into() }));
            }
            Ok(_) => {}
        }
        // What was waited for may be at its end, too.
        if is_one_closed(&fds) || link.options.is_guest && !connection.is_own() {
            return Ended::Closed;
        }
        if !fds[0].revents().is_empty() {
            return Ended::Dropped;
        }
        if !fds[1].revents().is_empty() {
            return Ended::Lost(None);
        }
        if last.is_stalled(link) {
            connection.shut_down();
            let (socket, patience) = (Arc::clone(&link.name), link.options.ending_patience());
            return Ended::Lost(Some(SessionError::Stalled { socket, patience }));
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
    // Once this process is asked to end, no longer than this.
    let mut asked: Option<Instant> = None;
    loop {
        let error = match connect(link) {
            Ok((connection, offer)) => match link.resume(connection, &offer) {
                Ok(()) => return None,
                Err(error) => error,
            },
            Err(error) => error,
        };
        // The server comes back, and whoever is at its door does not.
        let is_over = link.options.is_at_door && matches!(error, SessionError::NobodyListens(_));
        // Others may have been there first that are gone in a moment.
        let is_full = link.options.is_at_door && matches!(error, SessionError::Refused { .. });
        if is_over || !error.may_pass() && !is_full {
            return Some(explain(&error).into());
        }
        if link.options.is_ending() {
            asked.get_or_insert_with(Instant::now);
        }
        let deadline = asked.map_or(deadline, |asked| deadline.min(asked + link.options.ending_patience()));
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
    let mut connection = Connection::open(path, &link.name, &link.options, &link.stop)?;
    let offer = Offer::negotiate(&mut connection, &link.stop, link.options.is_passed_on, Some(&link.offer()))?;
    Ok((connection, offer))
}
