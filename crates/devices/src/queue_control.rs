//! Taking a queue back from the thread that runs it.

use blockyard_block::EventFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The other end of a queue that a thread owns: asks the thread to stop it, and waits until it is gone.
///
/// The thread sees [`IoQueue::is_stopping`](crate::IoQueue::is_stopping) after its doorbell rang, and drops the queue;
/// the drop completes what is in flight and lets go of the disk before [`QueueControl::wait_until_gone`] returns.
#[derive(Debug)]
pub struct QueueControl {
    doorbell: Arc<EventFd>,
    stopping: AtomicBool,
    gone: Mutex<bool>,
    changed: Condvar,
}

impl QueueControl {
    /// The control of a queue whose owner waits on `doorbell`.
    pub fn new(doorbell: Arc<EventFd>) -> Arc<Self> {
        let stopping = AtomicBool::new(false);
        Arc::new(Self { doorbell, stopping, gone: Mutex::new(false), changed: Condvar::new() })
    }

    /// Asks the owner to drop the queue and wakes it.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Nobody reads a doorbell, and one that whoever rings it has filled can be rung no more.
        self.doorbell.take();
        self.doorbell.ring();
    }

    /// Whether the owner was asked to drop the queue.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Waits until the queue was dropped. Must not be called by the thread that owns it.
    pub fn wait_until_gone(&self) {
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(gone, |gone| !*gone).unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn doorbell(&self) -> &Arc<EventFd> {
        &self.doorbell
    }
}

/// Part of a queue, and the last of it to be dropped: then the queue is gone.
#[derive(Debug)]
pub(crate) struct GoneWhenDropped(pub(crate) Arc<QueueControl>);

impl Drop for GoneWhenDropped {
    fn drop(&mut self) {
        *self.0.gone.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}
