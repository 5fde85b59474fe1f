//! A virtqueue, between the queue that owns it and the session: what each wants to know of the other.

use super::options::SessionOptions;
use super::ring::{Ring, RingShape};
use blockyard_block::{EventFd, Geometry};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A virtqueue, between the queue that owns it and the session.
#[derive(Debug)]
pub(super) struct Vring {
    pub(super) index: u16,
    pub(super) shape: RingShape,
    /// The server rings it for completions, the session for news. The same for as long as the queue lives.
    pub(super) call: EventFd,
    /// Changes with every piece of news: what a queue looks at per batch.
    pub(super) epoch: AtomicU32,
    news: Mutex<News>,
    /// Requests that were completed, and those that are not: kept by the queue, looked at by the session.
    pub(super) completed: AtomicU64,
    pub(super) in_flight: AtomicUsize,
}

/// What a queue has not heard of yet.
#[derive(Debug, Default)]
pub(super) struct News {
    /// The disk is another.
    pub(super) geometry: Option<Geometry>,
    /// There is a new server, with an empty ring.
    pub(super) fresh: Option<FreshRing>,
    /// There will be no server any more.
    pub(super) ended: bool,
}

/// A ring that a server has been given, and how to notify it.
#[derive(Debug)]
pub(super) struct FreshRing {
    pub(super) ring: Ring,
    pub(super) kick: Arc<EventFd>,
}

impl Vring {
    pub(super) fn new(index: u16, shape: RingShape, options: &SessionOptions) -> io::Result<Self> {
        Ok(Self {
            index,
            shape,
            call: options.new_event()?,
            epoch: AtomicU32::new(0),
            news: Mutex::default(),
            completed: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
        })
    }

    pub(super) fn take_news(&self) -> News {
        std::mem::take(&mut lock(&self.news))
    }

    pub(super) fn tell(&self, change: impl FnOnce(&mut News)) {
        change(&mut lock(&self.news));
        self.epoch.fetch_add(1, Ordering::Release);
        // One that the server has filled may be one to wait for.
        self.call.take();
        self.call.ring();
    }
}

/// A lock that a thread panicked with holds nothing that is half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
