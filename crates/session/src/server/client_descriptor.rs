//! Descriptors that a client has given us, closed where nobody waits for it.
//!
//! Closing one may take as long as its giver likes: a TCP socket with SO_LINGER waits until its peer has read, and a unix socket may have
//! one in its queue. So each goes to a thread of its session that does nothing else.

use blockyard_block::wait_ready;
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

/// Sessions that a user has, and those that are over and of which something is left: descriptors that are not closed yet, a process that still looks
/// at one. With so many, nobody of that user is served: clients that come and leave something behind, again and again, get no further.
const CLOSERS_MAX: usize = 256;

/// How many closers there are for each user's clients.
#[derive(Debug, Default)]
pub(super) struct Closers(Mutex<BTreeMap<u32, Arc<AtomicUsize>>>);

impl Closers {
    /// One for a client of that user's.
    pub(super) fn start(&self, user: u32) -> io::Result<Closer> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let closers = users.entry(user).or_default();
        if closers.load(Ordering::Relaxed) >= CLOSERS_MAX {
            let why =
                format!("what earlier clients left behind is not closed yet (of user {user}, {CLOSERS_MAX} times)");
            return Err(io::Error::other(why));
        }
        Closer::start(Counted::new(closers))
    }
}

/// Closes a session's descriptors, in a thread that ends after the last.
#[derive(Clone, Debug)]
pub(super) struct Closer(mpsc::Sender<Left>);

/// What a session leaves.
#[derive(Debug)]
enum Left {
    /// It is closed.
    Descriptor(OwnedFd),
    /// The other end is a process's, whose end is waited for.
    Process(OwnedFd),
}

impl Closer {
    fn start(counted: Counted) -> io::Result<Self> {
        let (sender, left) = mpsc::channel();
        let close = move || {
            let mut processes = Vec::new();
            for left in left {
                match left {
                    Left::Descriptor(descriptor) => drop(descriptor),
                    Left::Process(process) => processes.push(process),
                }
            }
            for process in processes {
                // Readable or not: that it is closed shows all the same.
                let _ = wait_ready(&mut [PollFd::new(&process, PollFlags::empty())], None);
            }
            drop(counted);
        };
        thread::Builder::new().name("closer".into()).spawn(close)?;
        Ok(Self(sender))
    }

    /// Takes a descriptor over.
    pub(super) fn keep(&self, descriptor: impl Into<OwnedFd>) -> ClientDescriptor {
        ClientDescriptor { descriptor: Some(descriptor.into()), closer: self.clone() }
    }

    /// When all is closed, waits for the process that has the other end of this socket. The session counts until then.
    pub(super) fn await_process(&self, socket: OwnedFd) {
        // The thread is there for as long as somebody can send to it.
        let _ = self.0.send(Left::Process(socket));
    }
}

/// One thread that may hang, counted.
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

/// A client's descriptor, whatever it is: to be looked at and used where it is. Dropped, it is closed by its session's [`Closer`], and in no
/// other way.
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
            // The thread is there for as long as somebody can send to it.
            let _ = self.closer.0.send(Left::Descriptor(descriptor));
        }
    }
}
