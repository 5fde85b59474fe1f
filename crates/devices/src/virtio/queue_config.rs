//! What a driver says about a virtqueue before it uses it.

use super::FailureCause;
use blockyard_block::MemoryMap;
use virtio_queue::{Queue, QueueT};
use vm_memory::{GuestAddress, GuestMemory, Permissions};

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

    /// Checks the queue against `size_max`, the specification's alignments and the guest's memory, and gives the device's
    /// side of it, ready to be used.
    ///
    /// # Errors
    /// With what is wrong; it is the driver's fault.
    pub fn ring(&self, size_max: u16, memory: &MemoryMap, event_index: bool) -> Result<Queue, FailureCause> {
        let bad_size = FailureCause::QueueSize { size: self.size, max: size_max };
        let Ok(size) = u16::try_from(self.size) else { return Err(bad_size) };
        if !size.is_power_of_two() || size > size_max {
            return Err(bad_size);
        }
        let entries = u64::from(size);
        let parts = [
            ("descriptor table", self.descriptor_table, 16, 16 * entries, Permissions::Read),
            ("available ring", self.available_ring, 2, 6 + 2 * entries, Permissions::Read),
            ("used ring", self.used_ring, 4, 6 + 8 * entries, Permissions::Write),
        ];
        for (part, address, alignment, length_bytes, access) in parts {
            if !address.is_multiple_of(alignment) {
                return Err(FailureCause::QueueAlignment { part, address, alignment });
            }
            // Address zero is what an unset register says; virtio-queue takes it for "not set" too.
            let inside = memory.guest_memory().check_range(GuestAddress(address), length_bytes as usize, access);
            if address == 0 || !inside {
                return Err(FailureCause::QueueOutsideMemory { part, address, length_bytes });
            }
        }
        let mut ring = Queue::new(size).map_err(FailureCause::Ring)?;
        ring.try_set_desc_table_address(GuestAddress(self.descriptor_table)).map_err(FailureCause::Ring)?;
        ring.try_set_avail_ring_address(GuestAddress(self.available_ring)).map_err(FailureCause::Ring)?;
        ring.try_set_used_ring_address(GuestAddress(self.used_ring)).map_err(FailureCause::Ring)?;
        ring.set_event_idx(event_index);
        ring.set_ready(true);
        Ok(ring)
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
        assert!(ring.is_valid(memory.guest_memory()) && ring.event_idx_enabled() && ring.size() == 256);
        assert_eq!((ring.desc_table(), ring.avail_ring(), ring.used_ring()), (0x1000, 0x2000, 0x3000));
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
        assert!(refused(|config| config.available_ring = 0).contains("available ring at 0x0"));
        assert!(refused(|config| config.used_ring = u64::MAX - 3).contains("used ring"));
    }
}
