//! The device's side of a split virtqueue (virtio 1.2 §2.7).
//!
//! Ours rather than the virtio-queue crate's, because that one shows the driver each used element by itself and looks
//! each ring access up in the memory map: a batch costs one read of the available index and one write of the used one
//! here, and what a vhost-user session must record of requests in flight needs the batch as such.

use super::FailureCause;
use blockyard_block::SharedWords;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, fence};

/// Words of the available ring, of 16 bits: flags, index, entries, used_event (§2.7.6).
const FLAGS: usize = 0;
const INDEX: usize = 1;
const ENTRIES: usize = 2;
/// In the available ring's flags: the driver wants no notification. In the used ring's: neither does the device.
const SUPPRESSED: u16 = 1;

/// A virtqueue whose parts are known to lie in the driver's memory. Made by [`super::QueueConfig::ring`].
#[derive(Debug)]
pub struct SplitRing {
    pub(super) size: u16,
    pub(super) event_index: bool,
    pub(super) descriptors: SharedWords<AtomicU64>,
    pub(super) available: SharedWords<AtomicU16>,
    pub(super) used: SharedWords<AtomicU16>,
    /// The used ring again, for its elements: the first is at word 1, and each has an id and a length.
    pub(super) used_elements: SharedWords<AtomicU32>,
    pub(super) next_available: u16,
    /// The used index with everything used.
    pub(super) used_index: u16,
    /// The used index as the driver was last notified of it, or not for not wanting it; `None` when
    /// nobody knows.
    pub(super) signalled: Option<u16>,
}

impl SplitRing {
    /// Entries.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The index in the available ring that is taken next.
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Goes on where another device stopped: at `next_available` of the available ring, and wherever the used ring
    /// says.
    pub fn resume(&mut self, next_available: u16) {
        self.next_available = next_available;
        self.used_index = u16::from_le(self.used[INDEX].load(Acquire));
        self.signalled = None;
    }

    /// Where the used ring was when the last batch was published.
    pub(crate) fn used_index(&self) -> u16 {
        self.used_index
    }

    pub(crate) fn descriptors(&self) -> &[AtomicU64] {
        &self.descriptors
    }

    fn available_index(&self) -> u16 {
        u16::from_le(self.available[INDEX].load(Acquire))
    }

    /// Whether the driver has made something available. One read of shared memory.
    pub(crate) fn has_available(&self) -> bool {
        self.available_index() != self.next_available
    }

    /// How many chains may be taken now.
    pub(crate) fn available(&self) -> Result<u16, FailureCause> {
        let moved = self.available_index().wrapping_sub(self.next_available);
        if moved > self.size {
            return Err(FailureCause::AvailableIndex { moved, size: self.size });
        }
        Ok(moved)
    }

    /// Takes a chain: its head, unchecked. One of those that are [`SplitRing::available`].
    pub(crate) fn take(&mut self) -> u16 {
        let entry = ENTRIES + usize::from(self.next_available & (self.size - 1));
        self.next_available = self.next_available.wrapping_add(1);
        u16::from_le(self.available[entry].load(Relaxed))
    }

    /// Puts a chain into the used ring. The driver sees it after [`SplitRing::publish`].
    pub(crate) fn push_used(&mut self, head: u16, bytes: u32) {
        let element = 1 + 2 * usize::from(self.used_index & (self.size - 1));
        self.used_elements[element].store(u32::from(head).to_le(), Relaxed);
        self.used_elements[element + 1].store(bytes.to_le(), Relaxed);
        self.used_index = self.used_index.wrapping_add(1);
    }

    /// Shows the driver all that was used, and what was written for it before.
    pub(crate) fn publish(&self) {
        self.used[INDEX].store(self.used_index.to_le(), Release);
    }

    /// Whether the driver wants a notification of what was published since it was last asked.
    pub(crate) fn driver_wants_notification(&mut self) -> bool {
        // The used index must be visible before the driver's wish is read: else it could go to sleep between the two.
        fence(SeqCst);
        let (now, before) = (self.used_index, self.signalled.replace(self.used_index));
        if !self.event_index {
            return u16::from_le(self.available[FLAGS].load(Relaxed)) & SUPPRESSED == 0;
        }
        // Whether the driver's event lies among what was used (§2.7.10).
        before.is_none_or(|before| now.wrapping_sub(self.used_event()).wrapping_sub(1) < now.wrapping_sub(before))
    }

    fn used_event(&self) -> u16 {
        u16::from_le(self.available[ENTRIES + usize::from(self.size)].load(Relaxed))
    }

    /// Makes the driver notify of what it makes available from now on. Whether something came in between.
    pub(crate) fn enable_notification(&self) -> bool {
        if self.event_index {
            // avail_event, behind the elements (§2.7.8).
            let avail_event = &self.used[ENTRIES + 4 * usize::from(self.size)];
            avail_event.store(self.next_available.to_le(), Relaxed);
        } else {
            self.used[FLAGS].store(0, Relaxed);
        }
        // The wish must be visible before the index is read: else the driver could add something between the two
        // unseen.
        fence(SeqCst);
        self.has_available()
    }

    /// Tells the driver that it need not notify. With EVENT_IDX the index that was asked for last stays behind, which
    /// says so.
    pub(crate) fn disable_notification(&self) {
        if !self.event_index {
            self.used[FLAGS].store(SUPPRESSED.to_le(), Relaxed);
        }
    }
}
