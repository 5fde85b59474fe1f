//! A session, as others see it.

use super::group::SessionGroup;
use super::settling::Settling;
use super::statistics::SessionStatistics;
use blockyard_block::EventFd;
use blockyard_devices::virtio::QueueStatistics;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::{fmt, mem};

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The client has closed the connection, between two messages.
    Disconnected,
    /// [`Session::revoke`].
    Revoked,
    /// The client did what it must not, which the sentence says.
    Client(String),
    /// The disk or the system failed us, which the sentence says.
    Server(String),
}

impl fmt::Display for EndReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected => formatter.write_str("the client has disconnected"),
            Self::Revoked => formatter.write_str("it was revoked"),
            Self::Client(fault) | Self::Server(fault) => formatter.write_str(fault),
        }
    }
}

/// A client's session: a handle. Dropping it revokes the session.
#[derive(Debug)]
pub struct Session {
    pub(super) shared: Arc<Shared>,
}

impl Session {
    /// The export's name.
    pub fn name(&self) -> &Arc<str> {
        &self.shared.name
    }

    /// What the session has done until now, further connections of its client included. Stops nobody.
    pub fn statistics(&self) -> SessionStatistics {
        let mut all = SessionStatistics::of(&self.shared.queues);
        all.add(&self.shared.further.statistics());
        all
    }

    /// Ends the session: takes nothing more from the client, answers what is in flight, and closes the connection. Does
    /// not wait for that; [`Session::ended`] tells of it.
    pub fn revoke(&self) {
        self.shared.revoke();
        self.shared.wake.ring();
    }

    /// Waits until all is done that the client had made available before this was called, or the session is over. The
    /// client goes on meanwhile.
    pub fn settle(&self) {
        let (settled, done) = mpsc::channel();
        lock(&self.shared.settling).push(settled);
        self.shared.wake.ring();
        if self.end_reason().is_none() {
            // Nothing is sent: it is over when nobody would.
            let _: Result<(), _> = done.recv();
        }
    }

    /// An event that is readable from when the session is over: then nothing of it touches the disk or the client's
    /// memory.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.shared.ended.as_fd()
    }

    /// Why it is over; `None` while it is not.
    pub fn end_reason(&self) -> Option<&EndReason> {
        self.shared.end.get()
    }

    /// Waits until it is over, and says why.
    pub fn wait(&self) -> &EndReason {
        self.shared.end.wait()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.revoke();
    }
}

/// What a session's control thread, the threads that run its queues, and its handle have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) name: Arc<str>,
    /// One for each queue, over all of the session.
    pub(super) queues: Vec<Arc<QueueStatistics>>,
    /// Wakes the control thread.
    pub(super) wake: EventFd,
    revoked: AtomicBool,
    failure: Mutex<Option<EndReason>>,
    /// Those who wait for what is available to be done: until these are dropped.
    settling: Mutex<Vec<mpsc::Sender<()>>>,
    /// Further connections of the client's, and what of them is waited for.
    pub(super) further: SessionGroup,
    pub(super) settling_further: Settling,
    ended: EventFd,
    end: OnceLock<EndReason>,
}

impl Shared {
    pub(super) fn new(name: Arc<str>, queues: u16) -> std::io::Result<Self> {
        Ok(Self {
            name,
            queues: (0..queues).map(|_| Arc::default()).collect(),
            wake: EventFd::new()?,
            revoked: AtomicBool::new(false),
            failure: Mutex::new(None),
            settling: Mutex::default(),
            further: SessionGroup::default(),
            settling_further: Settling::default(),
            ended: EventFd::new()?,
            end: OnceLock::new(),
        })
    }

    /// A thread that runs a queue cannot go on. The first reason counts.
    pub(super) fn fail(&self, reason: EndReason) {
        lock(&self.failure).get_or_insert(reason);
        self.wake.ring();
    }

    /// Nobody waits for what the session has begun any more.
    pub(super) fn revoke(&self) {
        self.revoked.store(true, Ordering::SeqCst);
        self.further.revoke();
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::SeqCst)
    }

    /// Why the control thread shall end the session, if it shall.
    pub(super) fn shall_end(&self) -> Option<EndReason> {
        let failure = lock(&self.failure).clone();
        failure.or_else(|| self.is_revoked().then_some(EndReason::Revoked))
    }

    /// Those who wait for what is available to be done, until they are dropped.
    pub(super) fn take_settling(&self) -> Vec<mpsc::Sender<()>> {
        mem::take(&mut lock(&self.settling))
    }

    pub(super) fn end(&self, reason: EndReason) {
        let _ = self.end.set(reason);
        self.ended.ring();
        drop(self.take_settling());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
