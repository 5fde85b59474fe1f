//! A virtqueue of virtio-blk with a doorbell, run by the thread that owns it.

use super::block_virtqueue::{BlockVirtqueue, BlockVirtqueueParts};
use super::{DeviceFailure, FailureCause};
use crate::queue_control::GoneWhenDropped;
use crate::{IoQueue, IoQueueFailure, Limit, QueueControl};
use blockyard_block::EventFd;
use blockyard_block::limits::IN_FLIGHT_BYTES_MAX;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A virtqueue of virtio-blk on a queue of a disk. Owned by one thread, which calls [`BlockQueue::process`] until there
/// is no more progress, then [`BlockQueue::arm`], then waits: as [`QueueSet`](crate::QueueSet) does.
///
/// Nothing is allocated per request. Dropping a queue completes what is in flight first.
pub struct BlockQueue {
    queue: BlockVirtqueue,
    size: u16,
    /// Last, so that all the rest is gone when it says so.
    control: GoneWhenDropped,
}

impl BlockQueue {
    /// Opens the virtqueue; `doorbell` becomes readable when the driver rings it.
    ///
    /// # Errors
    /// As [`BlockVirtqueue::open`].
    pub fn open(parts: BlockVirtqueueParts, doorbell: Arc<EventFd>) -> Result<Self, FailureCause> {
        let size = parts.ring.size();
        let queue = BlockVirtqueue::open(parts)?;
        Ok(Self { queue, size, control: GoneWhenDropped(QueueControl::new(doorbell)) })
    }

    /// Which of its device's queues this is.
    pub fn index(&self) -> u16 {
        self.queue.index()
    }

    /// The descriptor that becomes readable when the driver, or [`QueueControl::stop`], rings.
    pub fn doorbell(&self) -> &Arc<EventFd> {
        self.control.0.doorbell()
    }

    /// The descriptor that becomes readable when the disk may have completed something; `None` for a disk that
    /// completes everything within [`BlockQueue::process`].
    pub fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.queue.completion_event()
    }

    /// How another thread takes the queue back.
    pub fn control(&self) -> &Arc<QueueControl> {
        &self.control.0
    }

    /// Whether the owner shall drop the queue.
    pub fn is_stopping(&self) -> bool {
        self.control.0.is_stopping()
    }

    /// Requests, and pieces of long ones, that the disk has.
    pub fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    /// Does what can be done without waiting: completes what the disk has done, hands it what the driver made
    /// available, and notifies the driver if it wants that. Whether it did anything: if so, there may be more.
    ///
    /// A disk that carries one request at a time has each request completed, and the driver notified, before the next.
    ///
    /// # Errors
    /// When the ring or the disk is broken. The driver has been told (DEVICE_NEEDS_RESET); the queue takes no more
    /// requests and is best dropped.
    pub fn process(&mut self) -> Result<bool, DeviceFailure> {
        let limit = Limit { requests: self.size, cost_bytes: IN_FLIGHT_BYTES_MAX, pairs: false };
        Ok(self.process_up_to(limit)? > 0)
    }

    /// As [`BlockQueue::process`], but takes no more from the driver than `limit`: for a thread that serves several
    /// queues in turn. How many requests, and pieces of long ones, were begun, or at least completed.
    ///
    /// # Errors
    /// As [`BlockQueue::process`].
    pub fn process_up_to(&mut self, mut limit: Limit) -> Result<u32, DeviceFailure> {
        let mut done = 0;
        let room_bytes = IN_FLIGHT_BYTES_MAX.saturating_sub(self.queue.in_flight_cost_bytes());
        limit.cost_bytes = limit.cost_bytes.min(room_bytes);
        loop {
            if self.is_stopping() {
                limit.requests = 0;
            }
            let pass = self.queue.pass(limit);
            // Also after a fault: what was answered before it is the driver's.
            if self.queue.unsignalled() > 0 {
                self.queue.notify();
            }
            let pass = pass?;
            if !pass.progress() {
                return Ok(done);
            }
            done += u32::from(pass.begun).max(1);
            limit.requests -= pass.begun;
            limit.cost_bytes = limit.cost_bytes.saturating_sub(pass.cost_bytes);
        }
    }

    /// Makes the driver ring the doorbell for what it makes available from now on, after [`BlockQueue::process`] found
    /// nothing more. Whether to process again instead of waiting: something came in between, or the queue shall stop.
    pub fn arm(&mut self) -> bool {
        // What waits for room is taken when a completion comes, not before.
        self.is_stopping() || self.queue.arm() && self.queue.in_flight_cost_bytes() < IN_FLIGHT_BYTES_MAX
    }
}

impl IoQueue for BlockQueue {
    fn index(&self) -> u16 {
        self.index()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping()
    }

    fn process_up_to(&mut self, limit: Limit) -> Result<u32, IoQueueFailure> {
        Ok(self.process_up_to(limit)?)
    }

    fn arm(&mut self) -> bool {
        self.arm()
    }

    fn doorbell(&self) -> &Arc<EventFd> {
        self.doorbell()
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.completion_event()
    }

    fn count_doorbell(&self) {
        self.queue.count_doorbell();
    }
}
