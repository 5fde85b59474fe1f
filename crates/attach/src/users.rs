//! Which processes use a disk: have transferred something, and may do so again.
//!
//! Each has a stream (`crates/posix/src/users.rs`), on which it says that it is about to begin, and waits for an
//! answer; and later that it has ended. One that is gone has ended, too. While there is one alone, it may go on before
//! what it writes is carried out: nobody else sees that it is not. So the next one is answered once that has been told,
//! and all is done that was not waited for.

use crate::Sessions;
use crate::server_counts::INTERVAL;
use blockyard_block::{EventFd, wait_ready};
use blockyard_session::server::Session;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

/// What is said, and answered.
const ENTER: u8 = b'+';
const LEAVE: u8 = b'-';
const ENTERED: u8 = b'!';
/// How long to wait for whatever the system has not enough of.
const PAUSE: Duration = Duration::from_millis(10);

/// A process that may use the disk.
struct User {
    stream: UnixStream,
    uses: bool,
}

/// Where processes come to a disk.
pub(crate) struct Listeners {
    /// For a session.
    pub(crate) sessions: UnixListener,
    /// For a connection to the disk's own server, if that takes any.
    pub(crate) door: Option<UnixListener>,
    /// To say whether they use it, if anybody wants to know.
    pub(crate) users: Option<UnixListener>,
    /// Nobody is let in any more, from when it is readable.
    pub(crate) is_over: Arc<EventFd>,
    /// Whether a server of the disk's own is asked now and then what it has done.
    pub(crate) counts: bool,
}

impl Listeners {
    /// Lets processes in, and hears them, until it is over: `serve` gives one a session. A process has its session
    /// before it is a user, and so it is known here.
    pub(crate) fn listen(&self, sessions: &Sessions, serve: impl Fn(UnixStream) -> Option<Session>) {
        let (mut users, mut asked) = (Vec::new(), Instant::now());
        loop {
            let Ok(Ready { is_over, session, door, user, heard }) = self.wait(&users) else {
                thread::sleep(PAUSE);
                continue;
            };
            if self.counts && (door || asked.elapsed() >= INTERVAL) {
                sessions.counts_elsewhere();
                asked = Instant::now();
            }
            if is_over {
                return;
            }
            // From the last on, as one that is gone is taken out.
            heard.iter().rev().for_each(|&index| hear(&mut users, index, sessions));
            if !heard.is_empty() && users.iter().filter(|user| user.uses).count() < 2 {
                sessions.end_sharing();
            }
            if session {
                let comes = accept(&self.sessions).and_then(&serve);
                comes.into_iter().for_each(|session| sessions.here.add(session));
            }
            if door {
                let comes = self.door.as_ref().and_then(accept);
                comes.iter().for_each(|stream| sessions.pass_on(stream));
            }
            if user {
                users.extend(self.users.as_ref().and_then(accept).map(|stream| User { stream, uses: false }));
            }
        }
    }

    /// Waits until somebody comes or says something.
    fn wait(&self, users: &[User]) -> io::Result<Ready> {
        let readable = |file| PollFd::from_borrowed_fd(file, PollFlags::IN);
        let listeners = [Some(&self.sessions), self.door.as_ref(), self.users.as_ref()].into_iter().flatten();
        let listeners = listeners.map(UnixListener::as_fd);
        let streams = users.iter().map(|user| user.stream.as_fd());
        let is_over = [self.is_over.as_fd()].into_iter();
        let mut all: Vec<_> = is_over.chain(listeners).chain(streams).map(readable).collect();
        wait_ready(&mut all, self.counts.then_some(INTERVAL))?;
        let mut ready = all.iter().map(|one| !one.revents().is_empty());
        let mut is_next = || ready.next().unwrap_or(false);
        let (is_over, session) = (is_next(), is_next());
        let (door, user) = (self.door.is_some() && is_next(), self.users.is_some() && is_next());
        let heard = ready.enumerate().filter(|(_, is_ready)| *is_ready).map(|(index, _)| index).collect();
        Ok(Ready { is_over, session, door, user, heard })
    }
}

/// Who comes, for a session here or elsewhere, or to say whether it uses the disk, and which users say something.
struct Ready {
    is_over: bool,
    session: bool,
    door: bool,
    user: bool,
    heard: Vec<usize>,
}

/// Whoever has come, unless the system has not enough of something.
fn accept(listener: &UnixListener) -> Option<UnixStream> {
    let accepted = listener.accept();
    if accepted.is_err() {
        thread::sleep(PAUSE);
    }
    accepted.ok().map(|(stream, _)| stream)
}

/// Hears what a user says: that it has ended, that it is about to begin, or both. Whoever says anything else, or more
/// without waiting for the answer, is heard no more: each beginning has others wait.
fn hear(users: &mut Vec<User>, index: usize, sessions: &Sessions) {
    let mut words = [0; 4];
    let heard = match recv(&users[index].stream, &mut words[..], RecvFlags::DONTWAIT) {
        Ok((_, count)) => words.get(..count).unwrap_or(&[]),
        Err(Errno::AGAIN | Errno::INTR) => return,
        Err(_) => &[],
    };
    let enters = match (users[index].uses, heard) {
        (true, [LEAVE]) => false,
        (true, [LEAVE, ENTER]) | (false, [ENTER]) => true,
        _ => {
            users.swap_remove(index);
            return;
        }
    };
    users[index].uses = enters;
    if enters {
        let others = users.iter().enumerate().any(|(other, user)| other != index && user.uses);
        // Whoever has not taken earlier answers is not waited for.
        let answered = sessions
            .make_room(others)
            .and_then(|()| Ok(send(&users[index].stream, &[ENTERED], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?));
        if answered.is_err() {
            users.swap_remove(index);
        }
    }
}
