//! The driver: the available ring in, the used ring out.

use crate::descriptor::{self, Chain, ChainError};
use crate::rings::{Rings, RingsError, available_words, used_words};
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::fence;

/// The available ring's words: flags, index, entries, used_event (section 2.7.6).
const FLAGS: usize = 0;
const INDEX: usize = 1;
const ENTRIES: usize = 2;
/// In the available ring's flags: the device need not interrupt. In the used ring's: the driver need not notify.
const SUPPRESSED: u16 = 1;
/// The end of the list of free descriptors.
const NONE: u16 = u16::MAX;

/// The driver's side of a virtqueue of at most `N` descriptors. `T` is what the driver knows a request by.
#[derive(Debug)]
pub struct DriverQueue<'memory, const N: usize, T = u32> {
    rings: Rings<'memory>,
    event_idx: bool,
    /// For each descriptor the one after it, in its chain or in the free list.
    next: [u16; N],
    /// For each descriptor that is a chain's head: what is in flight there.
    in_flight: [Option<InFlight<T>>; N],
    free_head: u16,
    free_count: u16,
    in_flight_count: u16,
    /// The available index with everything added.
    available: u16,
    /// The available index as the device was last shown it.
    published: u16,
    /// The used index as far as it has been popped.
    popped: u16,
    /// The used index as the device was last seen to have it.
    used: u16,
    /// What the device did wrong: nothing more is read from it.
    broken: Option<DeviceError>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight<T> {
    token: T,
    descriptors: u16,
    writable_bytes: u64,
}

/// A chain that the device is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used<T> {
    /// What the chain was added with.
    pub token: T,
    /// Bytes that the device says it wrote: never more than the chain's writable buffers have.
    pub length: u32,
}

/// Why a chain cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// There are not enough free descriptors now: pop some.
    Full,
    /// It is not a chain.
    Chain(ChainError),
}

impl fmt::Display for AddError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => formatter.write_str("the virtqueue is full"),
            Self::Chain(error) => error.fmt(formatter),
        }
    }
}

impl core::error::Error for AddError {}

impl From<ChainError> for AddError {
    fn from(error: ChainError) -> Self {
        Self::Chain(error)
    }
}

/// What a device did against the specification. The queue is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The used index moved by more than there are chains in flight.
    UsedIndex {
        /// By how much.
        moved: u16,
        /// Chains in flight.
        in_flight: u16,
    },
    /// A used chain's id is not a descriptor of the queue.
    UsedIdOutside(u32),
    /// A used chain's id is not that of a chain in flight.
    UsedIdNotInFlight(u16),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UsedIndex { moved, in_flight } => {
                write!(formatter, "the device used {moved} requests of {in_flight} in flight")
            }
            Self::UsedIdOutside(id) => write!(formatter, "the device used descriptor {id}, which does not exist"),
            Self::UsedIdNotInFlight(id) => write!(formatter, "the device used descriptor {id}, which is not in flight"),
        }
    }
}

impl core::error::Error for DeviceError {}

impl<'memory, const N: usize, T: Copy> DriverQueue<'memory, N, T> {
    /// An empty virtqueue in `rings`, which it writes to: the device must not use them yet. `event_idx` says whether
    /// the device has accepted VIRTIO_F_EVENT_IDX. The device need not interrupt until told so.
    ///
    /// # Errors
    /// When the rings have more than `N` descriptors.
    pub fn new(rings: Rings<'memory>, event_idx: bool) -> Result<Self, RingsError> {
        let size = rings.size();
        if usize::from(size) > N {
            return Err(RingsError::Size(size));
        }
        for word in &rings.available[..available_words(size)] {
            word.store(0, Relaxed);
        }
        for word in &rings.used[..used_words(size)] {
            word.store(0, Relaxed);
        }
        let queue = Self {
            rings,
            event_idx,
            next: core::array::from_fn(|index| if index + 1 < usize::from(size) { index as u16 + 1 } else { NONE }),
            in_flight: [None; N],
            free_head: 0,
            free_count: size,
            in_flight_count: 0,
            available: 0,
            published: 0,
            popped: 0,
            used: 0,
            broken: None,
        };
        queue.disable_interrupts();
        Ok(queue)
    }

    /// Free descriptors.
    pub const fn free(&self) -> u16 {
        self.free_count
    }

    /// Chains added and not popped.
    pub const fn in_flight(&self) -> u16 {
        self.in_flight_count
    }

    /// What the chains that were added and not popped are known by, in no order.
    pub fn tokens(&self) -> impl Iterator<Item = T> {
        self.in_flight.iter().flatten().map(|in_flight| in_flight.token)
    }

    /// Adds a chain, known by `token`. The device sees it after [`Self::publish`].
    ///
    /// # Errors
    /// When there is no room, or it is not a chain. Nothing has changed then.
    pub fn add(&mut self, token: T, chain: &Chain<'_>) -> Result<(), AddError> {
        let head = self.free_head;
        let (descriptors, writable_bytes) = match chain {
            Chain::Direct(buffers) => {
                let writable_bytes = descriptor::check(buffers)?;
                if buffers.len() > usize::from(self.rings.size) {
                    return Err(ChainError::TooLong.into());
                }
                if buffers.len() > usize::from(self.free_count) {
                    return Err(AddError::Full);
                }
                let mut index = head;
                for (position, buffer) in buffers.iter().enumerate() {
                    let following = self.next[usize::from(index)];
                    let next = (position + 1 < buffers.len()).then_some(following);
                    descriptor::write(self.descriptor(index), buffer, next);
                    index = following;
                }
                self.free_head = index;
                (buffers.len() as u16, writable_bytes)
            }
            Chain::Indirect(table) => {
                if self.free_count == 0 {
                    return Err(AddError::Full);
                }
                descriptor::write_indirect(self.descriptor(head), table);
                self.free_head = self.next[usize::from(head)];
                (1, table.writable_bytes)
            }
        };
        self.free_count -= descriptors;
        self.in_flight_count += 1;
        self.in_flight[usize::from(head)] = Some(InFlight { token, descriptors, writable_bytes });
        let entry = ENTRIES + usize::from(self.available & (self.rings.size - 1));
        self.rings.available[entry].store(head.to_le(), Relaxed);
        self.available = self.available.wrapping_add(1);
        Ok(())
    }

    /// Shows the device what was added, and says whether it wants to be notified of it (section 2.7.13).
    #[must_use = "a device that is not notified may never look"]
    pub fn publish(&mut self) -> bool {
        let (before, now) = (self.published, self.available);
        if before == now {
            return false;
        }
        self.rings.available[INDEX].store(now.to_le(), Release);
        self.published = now;
        // The index must be visible before the device's wish is read: else the device could go to sleep between the
        // two.
        fence(SeqCst);
        if self.event_idx {
            let event = u16::from_le(self.rings.used[used_words(self.rings.size) - 1].load(Relaxed));
            // Whether the device's event lies among what was published (section 2.7.10).
            now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
        } else {
            u16::from_le(self.rings.used[FLAGS].load(Relaxed)) & SUPPRESSED == 0
        }
    }

    /// Whether [`Self::pop_used`] has something to say. Costs one read of shared memory at most.
    pub fn has_used(&self) -> bool {
        self.broken.is_some()
            || self.popped != self.used
            || u16::from_le(self.rings.used[INDEX].load(Relaxed)) != self.popped
    }

    /// Takes back a chain that the device is done with, if there is one.
    ///
    /// # Errors
    /// When the device did something against the specification; from then on always.
    pub fn pop_used(&mut self) -> Result<Option<Used<T>>, DeviceError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let result = self.pop();
        self.broken = result.as_ref().err().copied();
        result
    }

    fn pop(&mut self) -> Result<Option<Used<T>>, DeviceError> {
        if self.popped == self.used {
            // What the device wrote before its index, entries and data, is visible after this.
            let used = u16::from_le(self.rings.used[INDEX].load(Acquire));
            let moved = used.wrapping_sub(self.popped);
            if moved == 0 {
                return Ok(None);
            }
            let visible = self.in_flight_count - self.available.wrapping_sub(self.published);
            if moved > visible {
                return Err(DeviceError::UsedIndex { moved, in_flight: visible });
            }
            self.used = used;
        }
        let entry = ENTRIES + 4 * usize::from(self.popped & (self.rings.size - 1));
        let (id, length) = (self.used_word(entry), self.used_word(entry + 2));
        let Some(slot) = self.in_flight[..usize::from(self.rings.size)].get_mut(id as usize) else {
            return Err(DeviceError::UsedIdOutside(id));
        };
        let Some(in_flight) = slot.take() else {
            return Err(DeviceError::UsedIdNotInFlight(id as u16));
        };
        self.release(id as u16, in_flight.descriptors);
        self.popped = self.popped.wrapping_add(1);
        let length = u64::from(length).min(in_flight.writable_bytes) as u32;
        Ok(Some(Used { token: in_flight.token, length }))
    }

    /// Asks for an interrupt when the device uses the next chain. Returns whether it has used one already, in which
    /// case there may be no interrupt: pop it, and ask again.
    #[must_use = "there may be no interrupt for what is used already"]
    pub fn enable_interrupts(&self) -> bool {
        self.enable_interrupt_after(1)
    }

    /// Asks for an interrupt when the device has used another `count` chains, or all in flight if they are fewer.
    /// Returns whether it has already, in which case there may be no interrupt. Without EVENT_IDX a count above 1
    /// counts as 1.
    #[must_use = "there may be no interrupt for what is used already"]
    pub fn enable_interrupt_after(&self, count: u16) -> bool {
        let count = if self.event_idx { count.min(self.in_flight_count).max(1) } else { 1 };
        if self.event_idx {
            self.set_used_event(self.popped.wrapping_add(count - 1));
        } else {
            self.rings.available[FLAGS].store(0, Relaxed);
        }
        // The wish must be visible before the index is read: else the device could use a chain between the two unseen.
        fence(SeqCst);
        let used = u16::from_le(self.rings.used[INDEX].load(Relaxed));
        used.wrapping_sub(self.popped) >= count
    }

    /// Tells the device that it need not interrupt. It still may. With EVENT_IDX this holds for some 32,000 chains: a
    /// driver that stays busy says it again from time to time, or puts up with an interrupt.
    pub fn disable_interrupts(&self) {
        if self.event_idx {
            // As far from the used index as can be: nothing means "never", and an index just passed could still be one
            // that the device is about to compare.
            self.set_used_event(self.popped.wrapping_add(0x8000));
        } else {
            self.rings.available[FLAGS].store(SUPPRESSED.to_le(), Relaxed);
        }
    }

    fn set_used_event(&self, index: u16) {
        self.rings.available[available_words(self.rings.size) - 1].store(index.to_le(), Relaxed);
    }

    /// A 4-byte number in the used ring. Its halves are each read once; a device that changes them now only lies to
    /// itself.
    fn used_word(&self, word: usize) -> u32 {
        let half = |word: usize| u32::from(u16::from_le(self.rings.used[word].load(Relaxed)));
        half(word) | half(word + 1) << 16
    }

    fn descriptor(&self, index: u16) -> &[core::sync::atomic::AtomicU64] {
        &self.rings.descriptors[2 * usize::from(index)..2 * usize::from(index) + 2]
    }

    /// Puts a chain of `count` descriptors back into the free list.
    fn release(&mut self, head: u16, count: u16) {
        let mut last = head;
        for _ in 1..count {
            last = self.next[usize::from(last)];
        }
        self.next[usize::from(last)] = self.free_head;
        self.free_head = head;
        self.free_count += count;
        self.in_flight_count -= 1;
    }
}

#[cfg(test)]
mod tests;
