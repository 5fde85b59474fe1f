//! A virtqueue as a thread of a vhost-user server sees it, whatever its device is.

use super::{BlockVirtqueue, DeviceFailure, Limit, Pass};
use std::os::fd::BorrowedFd;

/// A virtqueue that one thread owns and runs: it calls [`ServedQueue::pass`] and [`ServedQueue::notify`] as it sees
/// fit, and [`ServedQueue::arm`] before it waits.
pub trait ServedQueue: Send {
    /// Does what can be done without waiting for others, up to `limit`, and shows the driver what was done. Does not
    /// notify it.
    ///
    /// # Errors
    /// When the ring or what is behind it is broken: the queue takes nothing more.
    fn pass(&mut self, limit: Limit) -> Result<Pass, DeviceFailure>;

    /// Notifies the driver of what was used, if it wants to know.
    fn notify(&mut self);

    /// Makes the driver ring for what it makes available from now on. Whether something came in between.
    fn arm(&mut self) -> bool;

    /// Requests answered that the driver was not notified of, nor found not to want to be.
    fn unsignalled(&self) -> u32;

    /// Whether it may pay to hold a notification back, as the driver goes on without it: requests are many at a time,
    /// and nobody waits for a single one.
    fn may_hold_notifications(&self) -> bool {
        true
    }

    /// Whether there is something to begin that there is room for.
    fn has_more(&self) -> bool;

    /// Takes nothing more.
    fn close(&mut self);

    /// Takes what the driver has made available until now, where nobody need hear of it, and nothing more.
    fn close_behind_available(&mut self) {
        self.close();
    }

    /// Where the device is in the available ring.
    fn next_available(&self) -> u16;

    /// Whether the driver's memory is what it was.
    fn memory_is_intact(&self) -> bool;

    /// The driver has rung.
    fn count_doorbell(&self);

    /// Becomes readable when something may have completed; `None` for a queue that completes everything in its pass.
    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Requests that were begun and are not answered, and what they cost.
    fn in_flight(&self) -> (usize, u64) {
        (0, 0)
    }

    /// How long requests took lately, on average.
    fn recent_latency_ns(&self) -> u64 {
        0
    }

    /// Goes on with nothing that is not in flight.
    fn abandon_rest(&mut self) {}

    /// Whether nothing of this queue is under way.
    fn is_drained(&self) -> bool {
        true
    }
}

impl ServedQueue for BlockVirtqueue {
    fn pass(&mut self, limit: Limit) -> Result<Pass, DeviceFailure> {
        self.pass(limit)
    }

    fn notify(&mut self) {
        self.notify();
    }

    fn arm(&mut self) -> bool {
        self.arm()
    }

    fn unsignalled(&self) -> u32 {
        self.unsignalled()
    }

    fn has_more(&self) -> bool {
        self.has_more()
    }

    fn close(&mut self) {
        self.close();
    }

    fn close_behind_available(&mut self) {
        self.close_behind_available();
    }

    fn next_available(&self) -> u16 {
        self.next_available()
    }

    fn memory_is_intact(&self) -> bool {
        self.memory_is_intact()
    }

    fn count_doorbell(&self) {
        self.count_doorbell();
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.completion_event()
    }

    fn in_flight(&self) -> (usize, u64) {
        (self.in_flight(), self.in_flight_cost_bytes())
    }

    fn recent_latency_ns(&self) -> u64 {
        self.recent_latency_ns()
    }

    fn abandon_rest(&mut self) {
        self.abandon_rest();
    }

    fn is_drained(&self) -> bool {
        self.is_drained()
    }
}
