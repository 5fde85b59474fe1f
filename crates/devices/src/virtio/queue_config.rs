//! What a driver says about a virtqueue before it uses it.

use super::{FailureCause, SplitRing};
use blockyard_block::{MemoryMap, SharedWords, Word};
use std::sync::atomic::AtomicU16;

/// A split virtqueue as its driver set it up (virtio 1.2 §2.7): unchecked until [`QueueConfig::ring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Entries. As wide as the register it comes from, so that a bad value is not cut into a good one.
    pub size: u32,
    /// Guest-physical address of the descriptor table: 16 bytes an entry, aligned to 16.
    pub descriptor_table: u64,
    /// Guest-physical address of the available ring: 6 bytes and 2 an entry, aligned to 2.
    pub available_ring: u64,
    /// Guest-physical address of the used ring: 6 bytes and 8 an entry, aligned to 4.
    pub used_ring: u64,
}

impl QueueConfig {
    /// A queue of `size` entries that is nowhere yet.
    pub fn new(size: u16) -> Self {
        Self { size: size.into(), descriptor_table: 0, available_ring: 0, used_ring: 0 }
    }

    /// Checks the queue against `size_max`, the specification's alignments and the guest's memory, and gives the
    /// device's side of it, ready to be used from its start. Each part has to lie in one region of memory, and not at
    /// address zero, which is what an unset register says.
    ///
    /// # Errors
    /// With what is wrong; it is the driver's fault.
    pub fn ring(&self, size_max: u16, memory: &MemoryMap, event_index: bool) -> Result<SplitRing, FailureCause> {
        let ring = self.ring_anywhere(size_max, memory, event_index)?;
        match [self.descriptor_table, self.available_ring, self.used_ring].contains(&0) {
            true => Err(FailureCause::QueueUnset),
            false => Ok(ring),
        }
    }

    /// As [`QueueConfig::ring`], for a driver that says where its queue is without registers: zero is an address.
    ///
    /// # Errors
    /// As [`QueueConfig::ring`].
    pub fn ring_anywhere(
        &self,
        size_max: u16,
        memory: &MemoryMap,
        event_index: bool,
    ) -> Result<SplitRing, FailureCause> {
        let bad_size = FailureCause::QueueSize { size: self.size, max: size_max };
        let Ok(size) = u16::try_from(self.size) else { return Err(bad_size) };
        if !size.is_power_of_two() || size > size_max {
            return Err(bad_size);
        }
        let entries = usize::from(size);
        let table = Part { name: "descriptor table", address: self.descriptor_table, length_bytes: 16 * entries };
        let available = Part { name: "available ring", address: self.available_ring, length_bytes: 6 + 2 * entries };
        let used = Part { name: "used ring", address: self.used_ring, length_bytes: 6 + 8 * entries };
        for (part, alignment) in [(&table, 16), (&available, 2), (&used, 4)] {
            if !part.address.is_multiple_of(alignment) {
                return Err(FailureCause::QueueAlignment { part: part.name, address: part.address, alignment });
            }
        }
        Ok(SplitRing {
            size,
            event_index,
            descriptors: table.words(memory)?,
            available: available.words(memory)?,
            used: used.words(memory)?,
            used_elements: used.words(memory)?,
            next_available: 0,
            used_index: 0,
            signalled: Some(0),
        })
    }
}

/// A part of a virtqueue.
struct Part {
    name: &'static str,
    address: u64,
    length_bytes: usize,
}

impl Part {
    /// As many whole words as there are.
    fn words<T: Word>(&self, memory: &MemoryMap) -> Result<SharedWords<T>, FailureCause> {
        let &Self { name: part, address, length_bytes } = self;
        let outside = FailureCause::QueueOutsideMemory { part, address, length_bytes: length_bytes as u64 };
        let whole = memory.words::<AtomicU16>(address, length_bytes / 2);
        let words = whole.and_then(|_| memory.keep_words(address, length_bytes / size_of::<T>()));
        words.ok_or(outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: QueueConfig =
        QueueConfig { size: 256, descriptor_table: 0x1000, available_ring: 0x2000, used_ring: 0x3000 };

    fn refused(change: impl FnOnce(&mut QueueConfig)) -> String {
        let memory = MemoryMap::allocate(&[(0, 0x10000)]).unwrap();
        let mut config = GOOD;
        change(&mut config);
        config.ring(256, &memory, true).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_good_queue() {
        let memory = MemoryMap::allocate(&[(0, 0x10000)]).unwrap();
        let ring = GOOD.ring(256, &memory, true).unwrap();
        assert_eq!((ring.size(), ring.next_available(), ring.has_available()), (256, 0, false));
        memory.write_byte(0x2002, 2);
        memory.write_byte(0x2006, 9);
        assert_eq!((ring.available().unwrap(), ring.descriptors().len()), (2, 512));
    }

    #[test]
    fn bad_queues_are_named() {
        for size in [0, 3, 255, 512, 0x1_0100, u32::MAX] {
            assert!(refused(|config| config.size = size).contains(&format!("queue size of {size},")));
        }
        assert!(
            refused(|config| config.descriptor_table = 0x1008).contains("descriptor table at 0x1008 is not aligned")
        );
        assert!(refused(|config| config.available_ring = 0x2001).contains("available ring at 0x2001 is not aligned"));
        assert!(refused(|config| config.used_ring = 0x3002).contains("used ring at 0x3002 is not aligned"));
        assert!(
            refused(|config| config.descriptor_table = 0xf010).contains("(4096 bytes) is not in the guest's memory")
        );
        assert!(refused(|config| config.available_ring = 0).contains("has not said where"));
        assert!(refused(|config| config.used_ring = u64::MAX - 3).contains("used ring"));
    }
}
