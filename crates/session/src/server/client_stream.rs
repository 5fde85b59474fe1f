//! A client's connection, until somebody serves it.

use super::client_descriptor::Counted;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// A client's connection that nobody serves. What the client has sent already may be descriptors whose closing takes as
/// long as it likes, and they go with the connection; so, dropped, it is closed in a thread of its own.
#[derive(Debug)]
pub struct ClientStream {
    /// `None` only while it is dropped or given away.
    stream: Option<UnixStream>,
    departures: Departures,
    /// Whether somebody else has it, too, until they hear that it is closed here.
    is_held: bool,
}

/// Connections that are being closed, and that nobody served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Departures(Arc<AtomicUsize>);

/// How long who lets go of a connection that somebody else has waits for its close: it takes no time.
const HELD_CLOSE: Duration = Duration::from_millis(250);

/// With so many, nobody new is let in.
const DEPARTURES_MAX: usize = 64;

impl Departures {
    /// Whether those who come next have to wait until some of them are gone.
    pub(crate) fn are_too_many(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= DEPARTURES_MAX
    }

    /// As many as there may be, until what this returns is dropped.
    #[cfg(test)]
    pub(crate) fn too_many(&self) -> Vec<impl Drop + use<>> {
        (0..DEPARTURES_MAX).map(|_| Counted::new(&self.0)).collect()
    }

    /// A connection that is one of them if nobody serves it.
    pub(crate) fn arrival(&self, stream: impl Into<UnixStream>) -> ClientStream {
        self.stream(stream, false)
    }

    /// As [`Departures::arrival`], of a connection that whoever passed it on has, too, until they hear that nobody
    /// serves it. So closing it takes no time, and they, to whom it is a client, are the last to do so. Should they not
    /// have it, it is one of these.
    pub(crate) fn held_arrival(&self, stream: impl Into<UnixStream>) -> ClientStream {
        self.stream(stream, true)
    }

    fn stream(&self, stream: impl Into<UnixStream>, is_held: bool) -> ClientStream {
        ClientStream { stream: Some(stream.into()), departures: self.clone(), is_held }
    }
}

impl ClientStream {
    /// The connection, which whoever takes it closes.
    pub fn into_inner(mut self) -> UnixStream {
        self.stream.take().expect("it is there until it is dropped")
    }
}

/// For one whose client the caller trusts.
impl From<UnixStream> for ClientStream {
    fn from(stream: UnixStream) -> Self {
        Departures::default().arrival(stream)
    }
}

impl From<ClientStream> for OwnedFd {
    fn from(stream: ClientStream) -> Self {
        stream.into_inner().into()
    }
}

impl AsFd for ClientStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        let counted = Counted::new(&self.departures.0);
        let (closing, closed) = mpsc::channel::<()>();
        let close = move || {
            drop(stream);
            drop(counted);
            drop(closing);
        };
        // Without a thread to be had, it is closed here.
        let _ = thread::Builder::new().name("closer".into()).spawn(close);
        if self.is_held {
            // Nothing is sent: it ends.
            let _ = closed.recv_timeout(HELD_CLOSE);
        }
    }
}
