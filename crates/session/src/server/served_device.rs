//! What a session serves: a virtio device, a disk or another kind.

use super::Export;
use blockyard_block::{Disk, MemoryMap, RingQuota};
use blockyard_devices::virtio::{
    BlockVirtqueue, BlockVirtqueueParts, FailureCause, InFlightRecord, QueueNotifier, QueueStatistics, SERIAL_BYTES,
    ServedQueue, SplitRing, block_config, block_features,
};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A kind of virtio device that a client may use over a session.
pub trait ServedDevice: Send + Sync {
    /// The features it offers, bit n for feature n.
    fn features(&self) -> u64;

    /// Virtqueues that the client may use.
    fn queues(&self) -> u16;

    /// Its configuration space, as it is now.
    fn config(&self) -> Vec<u8>;

    /// Becomes readable when the configuration may have changed; `None` if it never does.
    fn change_event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// What a further connection of its client's serves, if there may be any.
    fn further(&self) -> Option<Arc<dyn ServedDevice>> {
        None
    }

    /// Whether nobody but the client changes what it has behind it, for as long as the session goes on.
    fn is_alone(&self) -> bool {
        false
    }

    /// Whether its queues keep a record of requests in flight, so that another server can take over.
    fn takes_over(&self) -> bool {
        false
    }

    /// Opens a queue that the client has set up.
    ///
    /// # Errors
    /// [`FailureCause::Backend`] when what is behind the device cannot serve it, else what the client did.
    fn open_queue(&self, parts: ServedQueueParts) -> Result<Box<dyn ServedQueue>, FailureCause>;
}

/// What a queue is made of.
pub struct ServedQueueParts {
    /// The session's name, for messages.
    pub device: Arc<str>,
    /// The queue's index.
    pub index: u16,
    /// The device's side of the rings, checked.
    pub ring: SplitRing,
    /// The client's memory.
    pub memory: MemoryMap,
    /// Features negotiated, bit n for feature n.
    pub features: u64,
    /// How the queue reaches the client.
    pub notifier: Arc<dyn QueueNotifier>,
    /// Where the queue counts.
    pub statistics: Arc<QueueStatistics>,
    /// Where the client keeps what is in flight, if it does; only of a device that [takes
    /// over](ServedDevice::takes_over).
    pub in_flight: Option<InFlightRecord>,
}

/// The size of queue that the number of segments in a disk's configuration space is for. The client chooses its size
/// later; this is the default of QEMU, and others' are larger.
const QUEUE_SIZE_USUAL: u16 = 128;

/// Queues of a process that shares a disk with others, at least: eight for its threads, and some for what nobody waits
/// for.
pub const PROCESS_QUEUES: u16 = 12;

/// A disk as virtio-blk.
pub(super) struct ServedDisk {
    disk: Arc<dyn Disk>,
    queues: u16,
    is_alone: bool,
    serial: [u8; SERIAL_BYTES],
    /// What all further connections of its client have together.
    quota: Arc<RingQuota>,
    is_further: bool,
}

impl ServedDisk {
    pub(super) fn new(export: &Export) -> Self {
        let mut serial = [0; SERIAL_BYTES];
        serial.iter_mut().zip(export.name.bytes()).for_each(|(to, from)| *to = from);
        let Export { queues, is_alone, .. } = *export;
        Self { disk: Arc::clone(&export.disk), queues, is_alone, serial, quota: Arc::default(), is_further: false }
    }
}

impl ServedDevice for ServedDisk {
    fn features(&self) -> u64 {
        block_features(&self.disk.geometry(), self.queues)
    }

    fn queues(&self) -> u16 {
        self.queues
    }

    fn config(&self) -> Vec<u8> {
        block_config(&self.disk.geometry(), self.queues, QUEUE_SIZE_USUAL).to_vec()
    }

    fn change_event(&self) -> Option<BorrowedFd<'_>> {
        self.disk.change_event()
    }

    fn further(&self) -> Option<Arc<dyn ServedDevice>> {
        let (disk, quota, serial) = (Arc::clone(&self.disk), Arc::clone(&self.quota), self.serial);
        let queues = self.queues.max(PROCESS_QUEUES);
        Some(Arc::new(Self { disk, queues, is_alone: false, serial, quota, is_further: true }))
    }

    fn is_alone(&self) -> bool {
        self.is_alone
    }

    fn takes_over(&self) -> bool {
        true
    }

    fn open_queue(&self, parts: ServedQueueParts) -> Result<Box<dyn ServedQueue>, FailureCause> {
        let ServedQueueParts { device, index, ring, memory, features, notifier, statistics, in_flight } = parts;
        let (disk, serial) = (Arc::clone(&self.disk), self.serial);
        let parts = BlockVirtqueueParts {
            device,
            index,
            ring,
            memory,
            disk,
            features,
            serial,
            notifier,
            statistics,
            in_flight,
        };
        let open = || BlockVirtqueue::open(parts);
        // The first connection's queues are few, and count on their rings.
        let queue = if self.is_further { self.quota.apply(open) } else { open() };
        Ok(Box::new(queue?))
    }
}
