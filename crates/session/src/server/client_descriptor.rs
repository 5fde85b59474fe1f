//! Descriptors that a client has given us, closed where nobody waits for it.
//!
//! Closing one may take as long as its giver likes: a TCP socket with SO_LINGER waits until its peer has read, and a unix socket may have
//! one in its queue. So each goes to a thread of its session that does nothing else.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

/// Sessions that a server has, and those that are over and whose descriptors are not closed yet. With so many, nobody new is served:
/// clients that come and leave something behind, again and again, get no further.
const CLOSERS_MAX: usize = 256;

/// Closes a session's descriptors, in a thread that ends after the last.
#[derive(Clone, Debug)]
pub(super) struct Closer(mpsc::Sender<OwnedFd>);

impl Closer {
    /// `closers` counts those of all sessions.
    pub(super) fn start(closers: &Arc<AtomicUsize>) -> io::Result<Self> {
        let counted = Counted::new(closers)?;
        let (sender, descriptors) = mpsc::channel();
        let close = move || {
            descriptors.iter().for_each(drop::<OwnedFd>);
            drop(counted);
        };
        thread::Builder::new().name("closer".into()).spawn(close)?;
        Ok(Self(sender))
    }

    /// Takes a descriptor over.
    pub(super) fn keep(&self, descriptor: impl Into<OwnedFd>) -> ClientDescriptor {
        ClientDescriptor { descriptor: Some(descriptor.into()), closer: self.clone() }
    }
}

/// One thread that may hang, counted.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(closers: &Arc<AtomicUsize>) -> io::Result<Self> {
        let counted = Self(Arc::clone(closers));
        match closers.fetch_add(1, Ordering::Relaxed) < CLOSERS_MAX {
            true => Ok(counted),
            false => Err(io::Error::other("what earlier clients left behind is not closed yet")),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client's descriptor. Dropped, it is closed by its session's [`Closer`].
#[derive(Debug)]
pub(super) struct ClientDescriptor {
    /// `None` only while it is dropped or given away.
    descriptor: Option<OwnedFd>,
    closer: Closer,
}

impl ClientDescriptor {
    /// The descriptor, which whoever takes it closes.
    pub(super) fn into_inner(mut self) -> OwnedFd {
        self.descriptor.take().expect("it is there until it is dropped")
    }
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
            let _ = self.closer.0.send(descriptor);
        }
    }
}
