//! Descriptors that a client has given us, closed where nobody waits for it.
//!
//! Closing one may take as long as its giver likes: a TCP socket with SO_LINGER waits until its peer has read, and a
//! unix socket may have one in its queue. So each goes to a thread of its session that does nothing else.

use super::session::Shared;
use blockyard_block::wait_ready;
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread;

/// Sessions that a user has, and those that are over and of which something is left: descriptors that are not closed
/// yet, a process that still looks at one. With so many, nobody of that user is served: clients that come and leave
/// something behind, again and again, get no further.
const CLOSERS_MAX: usize = 256;

/// Descriptors of one session that wait to be closed. With so many, nothing more is heard from its client.
pub(super) const UNCLOSED_MAX: usize = 64;

/// Threads that close what clients gave us, and what they have before them.
#[derive(Debug)]
pub(super) struct Closers {
    users: Mutex<BTreeMap<u32, User>>,
    /// Descriptors that wait to be closed, of all sessions of a user. With so many, nobody of that user comes in.
    unclosed_max: usize,
}

/// What there is of one user's.
#[derive(Clone, Debug, Default)]
struct User {
    sessions: Arc<AtomicUsize>,
    unclosed: Arc<AtomicUsize>,
}

impl Closers {
    /// For a process that may have so many descriptors.
    pub(super) fn new(descriptors: usize) -> Self {
        // Of many clients that go at once, something waits for a moment.
        Self { users: Mutex::default(), unclosed_max: (descriptors / 4).clamp(UNCLOSED_MAX, 4096) }
    }

    /// One for a client of that user's. A session that waits for it is woken.
    pub(super) fn start(&self, user: u32, session: &Arc<Shared>) -> io::Result<Closer> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = users.entry(user).or_default().clone();
        let (sessions, unclosed) = (of_user.sessions.load(Ordering::Relaxed), of_user.unclosed.load(Ordering::Relaxed));
        if sessions >= CLOSERS_MAX || unclosed >= self.unclosed_max {
            let why = format!(
                "what earlier clients left behind is not closed yet (of user {user}: {sessions} sessions, {unclosed} descriptors)"
            );
            return Err(io::Error::other(why));
        }
        Closer::start(of_user, Arc::downgrade(session))
    }
}

/// Closes a session's descriptors, in a thread that ends after the last.
#[derive(Clone, Debug)]
pub(super) struct Closer {
    sender: mpsc::Sender<Left>,
    unclosed: Arc<AtomicUsize>,
    unclosed_of_user: Arc<AtomicUsize>,
}

/// What a session leaves.
#[derive(Debug)]
enum Left {
    /// It is closed.
    Descriptor(OwnedFd, [Counted; 2]),
    /// The other end is a process's, whose end is waited for.
    Process(OwnedFd),
}

impl Closer {
    fn start(of_user: User, session: Weak<Shared>) -> io::Result<Self> {
        let (sender, left) = mpsc::channel();
        let unclosed = Arc::new(AtomicUsize::new(0));
        let session_counted = Counted::new(&of_user.sessions);
        let of_session = Arc::clone(&unclosed);
        let close = move || {
            let mut processes = Vec::new();
            for left in left {
                match left {
                    Left::Descriptor(descriptor, counted) => {
                        drop(descriptor);
                        let was_behind = of_session.load(Ordering::Relaxed) >= UNCLOSED_MAX;
                        drop(counted);
                        if let (true, Some(session)) = (was_behind, session.upgrade()) {
                            session.wake.ring();
                        }
                    }
                    Left::Process(process) => processes.push(process),
                }
            }
            for process in processes {
                // Readable or not: that it is closed shows all the same.
                let _ = wait_ready(&mut [PollFd::new(&process, PollFlags::empty())], None);
            }
            drop(session_counted);
        };
        thread::Builder::new().name("closer".into()).spawn(close)?;
        Ok(Self { sender, unclosed, unclosed_of_user: of_user.unclosed })
    }

    /// Takes a descriptor over.
    pub(super) fn keep(&self, descriptor: impl Into<OwnedFd>) -> ClientDescriptor {
        ClientDescriptor { descriptor: Some(descriptor.into()), closer: self.clone() }
    }

    /// Whether the client has to wait until something of what it gave is closed.
    pub(super) fn is_behind(&self) -> bool {
        self.unclosed.load(Ordering::Relaxed) >= UNCLOSED_MAX
    }

    /// When all is closed, waits for the process that has the other end of this socket. The session counts until then.
    pub(super) fn await_process(&self, socket: OwnedFd) {
        // The thread is there for as long as somebody can send to it.
        let _ = self.sender.send(Left::Process(socket));
    }

    fn close(&self, descriptor: OwnedFd) {
        let counted = [&self.unclosed, &self.unclosed_of_user].map(Counted::new);
        let _ = self.sender.send(Left::Descriptor(descriptor, counted));
    }
}

/// Something that may hang, counted.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(super) fn new(threads: &Arc<AtomicUsize>) -> Self {
        threads.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(threads))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client's descriptor, whatever it is: to be looked at and used where it is. Dropped, it is closed by its session's
/// [`Closer`], and in no other way.
#[derive(Debug)]
pub(super) struct ClientDescriptor {
    /// `None` only while it is dropped.
    descriptor: Option<OwnedFd>,
    closer: Closer,
}

impl AsFd for ClientDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for ClientDescriptor {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take() {
            self.closer.close(descriptor);
        }
    }
}
