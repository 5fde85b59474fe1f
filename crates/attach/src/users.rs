//! Which processes use a disk: have transferred something, and may do so again.
//!
//! Each has a stream (`crates/posix/src/users.rs`), on which it says that it is about to begin, and waits for an
//! answer; and later that it has ended. One that is gone has ended, too. While there is one alone, it may go on before
//! what it writes is carried out: nobody else sees that it is not. So the next one is answered once that has been told,
//! and all is done that was not waited for. That is waited for by a thread of its own: those who come meanwhile have
//! their sessions at once.

use crate::Sessions;
use crate::server_counts::INTERVAL;
use blockyard_block::{EventFd, wait_ready};
use blockyard_session::server::Session;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::mem::take;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

/// What is said, and answered.
const ENTER: u8 = b'+';
const LEAVE: u8 = b'-';
const ENTERED: u8 = b'!';
/// How long to wait for whatever the system has not enough of.
const PAUSE: Duration = Duration::from_millis(10);

/// What a process does with the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Nothing,
    /// It is about to begin, and waits for the answer.
    Waits,
    Uses,
}

/// A process that may use the disk.
struct User {
    stream: Arc<UnixStream>,
    phase: Phase,
}

/// Those of a disk.
#[derive(Default)]
struct Users {
    all: Vec<User>,
    /// One that used it has gone without a word: what it had under way may not be done.
    has_lost: bool,
    /// A thread waits for what is to be done before those that wait are answered. There is one at most.
    is_settling: bool,
}

/// What the thread that listens and the one that waits have in common.
struct Door {
    sessions: Arc<Sessions>,
    users: Mutex<Users>,
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
    pub(crate) fn listen(&self, sessions: Arc<Sessions>, serve: impl Fn(UnixStream) -> Option<Session>) {
        let (door, mut asked) = (Arc::new(Door { sessions, users: Mutex::default() }), Instant::now());
        let sessions = &door.sessions;
        loop {
            let streams = door.streams();
            let Ok(ready) = self.wait(&streams) else {
                thread::sleep(PAUSE);
                continue;
            };
            if self.counts && (ready.door || asked.elapsed() >= INTERVAL) {
                sessions.counts_elsewhere();
                asked = Instant::now();
            }
            if ready.is_over {
                return;
            }
            door.hear(&ready.heard);
            if ready.session {
                let comes = accept(&self.sessions).and_then(&serve);
                comes.into_iter().for_each(|session| sessions.here.add(session));
            }
            if ready.door {
                let comes = self.door.as_ref().and_then(accept);
                comes.iter().for_each(|stream| sessions.pass_on(stream));
            }
            if ready.user {
                door.users().all.extend(
                    self.users
                        .as_ref()
                        .and_then(accept)
                        .map(|stream| User { stream: Arc::new(stream), phase: Phase::Nothing }),
                );
            }
        }
    }

    /// Waits until somebody comes or says something.
    fn wait(&self, streams: &[Arc<UnixStream>]) -> io::Result<Ready> {
        let readable = |file| PollFd::from_borrowed_fd(file, PollFlags::IN);
        let listeners = [Some(&self.sessions), self.door.as_ref(), self.users.as_ref()].into_iter().flatten();
        let listeners = listeners.map(UnixListener::as_fd);
        let streams = streams.iter().map(|stream| stream.as_fd());
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

impl Door {
    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of all users, in their order.
    fn streams(&self) -> Vec<Arc<UnixStream>> {
        self.users().all.iter().map(|user| Arc::clone(&user.stream)).collect()
    }

    /// Hears what users say, by their places, and sees to it that those are answered that are about to begin.
    fn hear(self: &Arc<Self>, ready: &[usize]) {
        if ready.is_empty() {
            return;
        }
        let mut users = self.users();
        // From the last on, as one that is gone is taken out.
        ready.iter().rev().for_each(|&index| users.hear(index));
        let count = users.all.iter().filter(|user| user.phase != Phase::Nothing).count();
        if self.sessions.set_shared(count > 1).is_err() && count > 1 {
            // Others would not wait for what they write.
            users.all.retain(|user| user.phase != Phase::Waits);
        }
        let waits = users.all.iter().any(|user| user.phase == Phase::Waits);
        if !waits || users.is_settling {
            return;
        }
        if count == 1 && !users.has_lost {
            return users.answer(&[]);
        }
        users.is_settling = true;
        drop(users);
        let waiting = Arc::clone(self);
        // Without a thread, those who come wait, too.
        let begun = thread::Builder::new().name("attach".to_owned()).spawn(move || waiting.answer_all());
        if begun.is_err() {
            self.answer_all();
        }
    }

    /// Answers those that wait, once they find the disk as others have left it.
    fn answer_all(&self) {
        loop {
            let (waiting, is_first, has_lost) = {
                let mut users = self.users();
                let in_phase = |phase| users.all.iter().filter(move |user| user.phase == phase);
                let waiting: Vec<_> = in_phase(Phase::Waits).map(|user| Arc::clone(&user.stream)).collect();
                let is_first = in_phase(Phase::Uses).next().is_none();
                users.is_settling = !waiting.is_empty();
                if !users.is_settling {
                    return;
                }
                (waiting, is_first, take(&mut users.has_lost))
            };
            // Nobody else begins meanwhile.
            self.sessions.make_room(is_first, has_lost);
            self.users().answer(&waiting);
        }
    }
}

impl Users {
    /// Answers those that wait of these, or the only one.
    fn answer(&mut self, streams: &[Arc<UnixStream>]) {
        let is_one = |user: &User| streams.is_empty() || streams.iter().any(|stream| Arc::ptr_eq(stream, &user.stream));
        for user in self.all.iter_mut().filter(|user| user.phase == Phase::Waits && is_one(user)) {
            user.phase = Phase::Uses;
            // Who has not taken earlier answers is not waited for.
            if send(&user.stream, &[ENTERED], SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_err() {
                // It is heard no more then; if that fails, it is gone already.
                let _ = user.stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Hears what a user says: that it has ended, that it is about to begin, or both. Whoever says anything else, or
    /// more without waiting for the answer, is heard no more: each beginning has others wait.
    fn hear(&mut self, index: usize) {
        let Some(user) = self.all.get_mut(index) else { return };
        let mut words = [0; 4];
        let heard = match recv(&user.stream, &mut words[..], RecvFlags::DONTWAIT) {
            Ok((_, count)) => words.get(..count).unwrap_or(&[]),
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => &[],
        };
        user.phase = match (user.phase, heard) {
            (Phase::Uses, [LEAVE]) => Phase::Nothing,
            (Phase::Uses, [LEAVE, ENTER]) | (Phase::Nothing, [ENTER]) => Phase::Waits,
            (phase, _) => {
                self.has_lost |= phase == Phase::Uses;
                self.all.swap_remove(index);
                return;
            }
        };
    }
}
