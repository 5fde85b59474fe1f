//! What an I/O thread serves: a device's queue on a queue of a disk.

use crate::Limit;
use crate::ahci::PortFailure;
use crate::virtio::DeviceFailure;
use blockyard_block::EventFd;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A device's queue on a queue of a disk. Owned by one thread, which calls [`IoQueue::process_up_to`] until there is no
/// more progress, then [`IoQueue::arm`], then waits: as [`QueueSet`](crate::QueueSet) does.
///
/// Nothing is allocated per request. Dropping a queue completes what is in flight first.
pub trait IoQueue: Send {
    /// Which of its device's queues this is.
    fn index(&self) -> u16;

    /// Whether the owner shall drop the queue.
    fn is_stopping(&self) -> bool;

    /// Does what can be done without waiting, taking no more from the driver than `limit`. How many requests, and
    /// pieces of long ones, were begun, or at least completed: if any, there may be more.
    ///
    /// # Errors
    /// When the queue or the disk is broken. The driver has been told; the queue takes no more requests and is best
    /// dropped.
    fn process_up_to(&mut self, limit: Limit) -> Result<u32, IoQueueFailure>;

    /// Makes the driver ring the doorbell from now on, after [`IoQueue::process_up_to`] found nothing more. Whether to
    /// process again instead of waiting: something came in between, or the queue shall stop.
    fn arm(&mut self) -> bool;

    /// The descriptor that becomes readable when the driver rings, or the queue shall stop.
    fn doorbell(&self) -> &Arc<EventFd>;

    /// The descriptor that becomes readable when the disk may have completed something; `None` for a disk that
    /// completes everything while the queue processes.
    fn completion_event(&self) -> Option<BorrowedFd<'_>>;

    /// Counts that the doorbell was heard. Nobody reads it.
    fn count_doorbell(&self);
}

/// Why an [`IoQueue`] takes no more requests. Prints as what it is made of.
#[derive(Debug, thiserror::Error)]
pub enum IoQueueFailure {
    /// Of a virtio device.
    #[error(transparent)]
    Virtio(#[from] DeviceFailure),
    /// Of a port of an AHCI controller.
    #[error(transparent)]
    Ahci(#[from] PortFailure),
}

impl IoQueueFailure {
    /// Whether the guest's driver is to blame, rather than the host.
    pub fn is_drivers_fault(&self) -> bool {
        match self {
            Self::Virtio(failure) => failure.is_drivers_fault(),
            Self::Ahci(_) => false,
        }
    }
}

impl<Q: IoQueue + ?Sized> IoQueue for Box<Q> {
    fn index(&self) -> u16 {
        (**self).index()
    }

    fn is_stopping(&self) -> bool {
        (**self).is_stopping()
    }

    fn process_up_to(&mut self, limit: Limit) -> Result<u32, IoQueueFailure> {
        (**self).process_up_to(limit)
    }

    fn arm(&mut self) -> bool {
        (**self).arm()
    }

    fn doorbell(&self) -> &Arc<EventFd> {
        (**self).doorbell()
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        (**self).completion_event()
    }

    fn count_doorbell(&self) {
        (**self).count_doorbell();
    }
}
