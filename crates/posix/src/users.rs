//! Whether this process uses a disk: it has transferred something, and may do so again, as it has descriptors of it or
//! requests under way.
//!
//! Whoever serves a disk for several processes alone (`crates/attach/src/users.rs`) has to know which of them do: one
//! that is the only one writes behind ([`Behind`](crate::behind::Behind)). One that opens the disk and asks for its
//! size is none of them. So there is a word to be said, and an answer to be waited for, before the first transfer, and
//! another word when the last descriptor is closed.
//!
//! Both are system calls alone, on a socket that is made with the connection: a signal handler may read and close.

use crate::connection;
use crate::errno::Errno;
use crate::names::NAMES_MAX;
use crate::signals::{self, Busy};
use blockyard_block::FileIdentity;
use blockyard_session::client::PATIENCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What the socket is called, behind the name of the disk's.
pub(crate) const ENDING: &str = ".users";
/// What is said on it. The answer to the first is one byte.
const ENTER: u8 = b'+';
const LEAVE: u8 = b'-';

/// Of a disk's state: whether this process uses it, or is about to begin or to end.
const USES: u64 = 1;
const CHANGES: u64 = 2;
const PHASE: u64 = USES | CHANGES;
/// Above it, one for each description that descriptors are open on, and one for each request that nobody waits for.
const DESCRIPTION: u64 = 1 << 8;
const REQUEST: u64 = 1 << 40;
/// How long to look again whether another thread has changed the phase.
const PAUSE: Duration = Duration::from_millis(1);

/// How long an answer is waited for by a process that is asked to end, and how often it looks whether it still is.
const ENDING_PATIENCE: Duration = PATIENCE.saturating_mul(2);
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

static STATES: [AtomicU64; NAMES_MAX] = [const { AtomicU64::new(0) }; NAMES_MAX];

/// The socket, and which file that is: a program may close it past libc, and have another one of its number.
#[derive(Debug)]
pub(crate) struct Users {
    socket: UnixStream,
    identity: FileIdentity,
}

impl Users {
    pub(crate) fn connect(path: &Path) -> Result<Self, Errno> {
        let socket = UnixStream::connect(path)?;
        Ok(Self { identity: FileIdentity::of_open(&socket)?, socket })
    }

    /// Says that this process is to be a user, and waits until all is done that others have not waited for: not for
    /// long, once it is asked to end.
    pub(crate) fn enter(&self) -> Result<(), Errno> {
        self.say(ENTER)?;
        self.wait_for_answer()?;
        let mut answer = [0];
        match retry_on_intr(|| recv(&self.socket, &mut answer[..], RecvFlags::empty())) {
            Ok((_, 1)) => Ok(()),
            // Nobody serves the disk any more.
            _ => Err(Errno(libc::EIO)),
        }
    }

    /// Waits until there is something to be received.
    fn wait_for_answer(&self) -> Result<(), Errno> {
        let ending = signals::known_ending();
        let readable = |file| PollFd::from_borrowed_fd(file, PollFlags::IN);
        let mut asked: Option<Instant> = None;
        loop {
            let mut events = [readable(self.socket.as_fd()), readable(ending.map_or(self.socket.as_fd(), AsFd::as_fd))];
            let (count, timeout) = if asked.is_none() { (2, None) } else { (1, Some(&LOOK)) };
            match poll(&mut events[..count], timeout) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return Err(Errno(libc::EIO)),
                Ok(_) if !events[0].revents().is_empty() => return Ok(()),
                Ok(_) => {}
            }
            // Its signals may have been answered meanwhile.
            asked = signals::is_ending().then(|| asked.unwrap_or_else(Instant::now));
            if asked.is_some_and(|asked| asked.elapsed() > ENDING_PATIENCE) {
                return Err(Errno(libc::EIO));
            }
        }
    }

    /// Leaves without a word, as a process that is killed: what it has made available may not be done.
    fn hang_up(&self) -> Result<(), Errno> {
        if self.identity.is_of(&self.socket) { Ok(shutdown(&self.socket, Shutdown::Both)?) } else { Ok(()) }
    }

    fn say(&self, word: u8) -> Result<(), Errno> {
        if !self.identity.is_of(&self.socket) {
            return Err(Errno(libc::EIO));
        }
        let said = retry_on_intr(|| send(&self.socket, &[word], SendFlags::NOSIGNAL));
        said.map(drop).map_err(|_| Errno(libc::EIO))
    }
}

/// Sees to it that this process is a user of a disk, of which it has a descriptor, or a request.
pub(crate) fn enter(number: usize, users: &Users) -> Result<(), Errno> {
    let state = STATES.get(number).ok_or(Errno(libc::EBADF))?;
    loop {
        let now = state.load(Ordering::Acquire);
        match now & PHASE {
            USES => return Ok(()),
            0 if state.compare_exchange(now, now | CHANGES, Ordering::AcqRel, Ordering::Relaxed).is_ok() => {
                let entered = users.enter();
                state.fetch_sub(if entered.is_ok() { CHANGES - USES } else { CHANGES }, Ordering::AcqRel);
                return entered;
            }
            0 => {}
            _ => thread::sleep(PAUSE),
        }
    }
}

/// There is another description of a disk's.
pub(crate) fn description_opened(number: usize) {
    more(number, DESCRIPTION);
}

/// There is one less.
pub(crate) fn description_closed(number: usize) {
    less(number, DESCRIPTION);
}

/// A request that nobody waits for.
#[derive(Debug)]
pub(crate) struct UnderWay(usize);

impl UnderWay {
    pub(crate) fn new(number: usize) -> Self {
        more(number, REQUEST);
        Self(number)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        less(self.0, REQUEST);
    }
}

fn more(number: usize, what: u64) {
    if let Some(state) = STATES.get(number) {
        state.fetch_add(what, Ordering::AcqRel);
    }
}

/// The last of all ends this process's use of the disk.
fn less(number: usize, what: u64) {
    let _busy = Busy::enter();
    let Some(state) = STATES.get(number) else { return };
    if state.fetch_sub(what, Ordering::AcqRel) - what != USES {
        return;
    }
    // Unless another thread has opened it meanwhile.
    let Some(connection) = connection::there(number) else { return };
    if state.compare_exchange(USES, CHANGES, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        connection.behind.wait_for(connection, 0..connection.geometry.capacity_bytes);
        if let Some(users) = &connection.users {
            // If nobody hears it, nobody serves the disk.
            let _ = if connection.has_ended() { users.hang_up() } else { users.say(LEAVE) };
        }
        state.fetch_sub(CHANGES, Ordering::AcqRel);
    }
}

/// In a child: it has not begun anything, and its descriptions are counted anew.
pub(crate) fn forget_all() {
    STATES.iter().for_each(|state| state.store(0, Ordering::Release));
}
