//! A queue of a session, as the thread that runs it has it.

use super::coalescing::{Coalescing, Decision, Held};
use super::event_descriptor::{Call, Kick};
use super::session::{EndReason, Shared};
use blockyard_block::explain;
use blockyard_devices::virtio::{DeviceFailure, FailureCause, Limit, Pass, QueueNotifier, ServedQueue};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

/// How a queue says that its driver wants a notification: the task then rings whatever the client gave last. Set and
/// taken by one thread.
#[derive(Debug, Default)]
pub(super) struct Wish(AtomicBool);

impl Wish {
    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

impl QueueNotifier for Wish {
    fn notify_used(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The session ends, which says more.
    fn needs_reset(&self) {}
}

/// Where a queue stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Behind what it has taken.
    Now,
    /// Behind what its driver has made available.
    BehindAvailable,
}

/// A queue with all that its thread needs to run it.
pub(super) struct Task {
    pub(super) id: u64,
    /// `None` once the disk's queue broke: then nothing is in flight any more.
    queue: Option<Box<dyn ServedQueue>>,
    next_available: u16,
    kick: Kick,
    call: Option<Call>,
    wish: Arc<Wish>,
    coalescing: Coalescing,
    session: Arc<Shared>,
    /// Takes nothing more; whoever waits for it to be drained hears where it stopped.
    stopping: Option<mpsc::Sender<u16>>,
    failed: bool,
}

impl Task {
    /// A task for `queue`, whose notifier is `wish`.
    pub(super) fn new(
        id: u64,
        queue: Box<dyn ServedQueue>,
        wish: Arc<Wish>,
        kick: Kick,
        call: Option<Call>,
        session: Arc<Shared>,
    ) -> Self {
        let next_available = queue.next_available();
        let coalescing = Coalescing::default();
        let (stopping, failed) = (None, false);
        Self { id, queue: Some(queue), next_available, kick, call, wish, coalescing, session, stopping, failed }
    }

    pub(super) fn kick(&self) -> &Kick {
        &self.kick
    }

    pub(super) fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref()?.completion_event()
    }

    /// The driver has rung.
    pub(super) fn kicked(&self) {
        if let Some(queue) = &self.queue {
            queue.count_doorbell();
        }
    }

    /// Requests that the disk has, and what they cost.
    pub(super) fn in_flight(&self) -> (usize, u64) {
        self.queue.as_ref().map_or((0, 0), |queue| queue.in_flight())
    }

    /// Whether it would take something if it might.
    pub(super) fn has_more(&self) -> bool {
        !self.failed && self.queue.as_ref().is_some_and(|queue| queue.has_more())
    }

    /// Does what can be done without waiting, and takes at most so much from the driver.
    pub(super) fn pass(&mut self, now_ns: u64, limit: Limit) -> Pass {
        let Some(queue) = &mut self.queue else { return Pass::default() };
        let limit = if self.failed { Limit::NOTHING } else { limit };
        if self.failed || self.stopping.is_some() && self.session.is_revoked() {
            queue.close();
            queue.abandon_rest();
        }
        let pass = match queue.pass(limit) {
            Ok(pass) => pass,
            Err(failure) => return self.fail(&failure),
        };
        if pass.progress() {
            self.coalescing.active(now_ns, pass.taken);
            self.check_memory();
        }
        pass
    }

    /// Ends the session if its memory is not what it was.
    fn check_memory(&mut self) {
        if !self.failed && self.queue.as_ref().is_some_and(|queue| !queue.memory_is_intact()) {
            self.failed = true;
            let fault = "the client's memory was cut short while it was in use".to_owned();
            self.session.fail(EndReason::Client(fault));
        }
    }

    fn fail(&mut self, failure: &DeviceFailure) -> Pass {
        // Rings that are zeros of a sudden look like lies.
        self.check_memory();
        self.failed = true;
        let reason = if failure.is_drivers_fault() { EndReason::Client } else { EndReason::Server };
        self.session.fail(reason(explain(failure)));
        if matches!(failure.cause, FailureCause::Backend(_)) {
            // It would not drain. Dropped, it lets go of the memory.
            self.next_available = self.queue.take().map_or(0, |queue| queue.next_available());
        }
        Pass::default()
    }

    /// Nobody would hear of it: the session cannot go on.
    pub(super) fn fail_to_start(&mut self, error: &std::io::Error) {
        self.failed = true;
        self.session.fail(EndReason::Server(format!("a queue cannot be waited for: {error}")));
    }

    /// Notifies the driver if it is time to; when to look again.
    pub(super) fn notify(&mut self, now_ns: u64) -> Option<u64> {
        let queue = self.queue.as_ref()?;
        if !queue.may_hold_notifications() {
            if queue.unsignalled() > 0 {
                self.notify_now();
            }
            return None;
        }
        let disk_latency_ns = (queue.in_flight().0 > 0).then(|| queue.recent_latency_ns());
        match self.coalescing.decide(now_ns, Held { count: queue.unsignalled(), disk_latency_ns }) {
            Decision::Nothing => None,
            Decision::HoldUntil(until_ns) => Some(until_ns),
            Decision::Notify => {
                self.notify_now();
                None
            }
        }
    }

    fn notify_now(&mut self) {
        let Some(queue) = &mut self.queue else { return };
        queue.notify();
        if self.wish.take()
            && let Some(call) = &self.call
        {
            call.ring();
        }
    }

    /// The driver shall ring from now on. Whether there is something already.
    pub(super) fn arm(&mut self) -> bool {
        self.check_memory();
        let failed = self.failed;
        self.queue.as_mut().is_some_and(|queue| !failed && queue.arm())
    }

    /// Rings this from now on: once now, as what was rung before may not have been heard.
    pub(super) fn set_call(&mut self, call: Option<Call>) {
        self.call = call;
        if let Some(call) = &self.call {
            call.ring();
        }
    }

    /// Takes nothing more, or what is available and then nothing more; `reply` hears where it stopped once it is
    /// drained. What it has begun it ends, unless the session is over.
    pub(super) fn stop(&mut self, stop: Stop, reply: mpsc::Sender<u16>) {
        match (&mut self.queue, stop) {
            (Some(queue), Stop::Now) => queue.close(),
            (Some(queue), Stop::BehindAvailable) => queue.close_behind_available(),
            (None, _) => {}
        }
        self.stopping = Some(reply);
    }

    /// Whether it was to stop and has.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopping.is_some() && self.queue.as_ref().is_none_or(|queue| queue.is_drained())
    }

    /// Lets go of everything, then says so.
    pub(super) fn finish(mut self) {
        if self.queue.as_ref().is_some_and(|queue| queue.unsignalled() > 0) {
            self.notify_now();
        }
        if let Some(queue) = self.queue.take() {
            self.next_available = queue.next_available();
        }
        if let Some(reply) = self.stopping.take() {
            // Nobody waits any more when the session's thread is gone.
            let _ = reply.send(self.next_available);
        }
    }
}
