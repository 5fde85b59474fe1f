//! virtio-blk's configuration space (virtio 1.2, section 5.2.4), judged.

use super::limits::{Limits, SECTOR_BYTES};
use blockyard_block::Geometry;
use blockyard_block::limits::{LOGICAL_BLOCK_MAX_BYTES, SEGMENTS_MAX};
use virtio_bindings::virtio_blk as blk;

/// Largest exponent of physical over logical blocks that is believed.
const PHYSICAL_BLOCK_EXPONENT_MAX: u8 = 12;

/// The configuration space as the server showed it: any bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockConfig {
    bytes: [u8; Self::BYTES],
    features: u64,
}

impl BlockConfig {
    /// Bytes of it up to the last field that is used here, and what follows it.
    pub(super) const BYTES: usize = 60;

    /// The space of a device with whom `features` were negotiated: fields of other features mean nothing.
    pub(super) fn new(bytes: [u8; Self::BYTES], features: u64) -> Self {
        Self { bytes, features }
    }

    fn has(&self, feature: u32) -> bool {
        self.features & 1 << feature != 0
    }

    fn u8(&self, offset: usize) -> u8 {
        self.bytes[offset]
    }

    fn u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes(std::array::from_fn(|index| self.bytes[offset + index]))
    }

    fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|index| self.bytes[offset + index]))
    }

    fn capacity_sectors(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|index| self.bytes[index]))
    }

    /// Virtqueues that the device says it has.
    pub(super) fn queues(&self) -> u16 {
        if self.has(blk::VIRTIO_BLK_F_MQ) { self.u16(34).max(1) } else { 1 }
    }

    /// What the device takes.
    ///
    /// # Errors
    /// When it takes less than a block at once.
    pub(super) fn limits(&self) -> Result<Limits, String> {
        let limits = Limits {
            // Without the feature one may be sure of one segment only; Linux, too, takes none for one.
            segments_max: if self.has(blk::VIRTIO_BLK_F_SEG_MAX) { self.u32(12).max(1) } else { 1 },
            // qemu-storage-daemon has the feature and says 0.
            segment_bytes_max: match self.u32(8) {
                most @ 1.. if self.has(blk::VIRTIO_BLK_F_SIZE_MAX) => most,
                _ => u32::MAX,
            },
            discard_bytes_max: if self.has(blk::VIRTIO_BLK_F_DISCARD) { self.whole_blocks(36) } else { 0 },
            zeroes_bytes_max: if self.has(blk::VIRTIO_BLK_F_WRITE_ZEROES) { self.whole_blocks(48) } else { 0 },
            zeroes_may_unmap: self.u8(56) == 1,
            flush: self.has(blk::VIRTIO_BLK_F_FLUSH),
        };
        let most = u64::from(limits.segments_max) * u64::from(limits.segment_bytes_max);
        if most < u64::from(self.logical_block_bytes()) {
            return Err(format!("it takes {most} bytes at once, less than a block"));
        }
        Ok(limits)
    }

    /// Sectors in the field at `offset`, in bytes of whole blocks.
    fn whole_blocks(&self, offset: usize) -> u64 {
        let block_bytes = u64::from(self.logical_block_bytes().max(1));
        let bytes = u64::from(self.u32(offset)) * SECTOR_BYTES;
        bytes - bytes % block_bytes
    }

    fn logical_block_bytes(&self) -> u32 {
        if self.has(blk::VIRTIO_BLK_F_BLK_SIZE) { self.u32(20) } else { SECTOR_BYTES as u32 }
    }

    /// What the disk is.
    ///
    /// # Errors
    /// When there can be no such disk.
    pub(super) fn geometry(&self) -> Result<Geometry, String> {
        let logical_block_bytes = self.logical_block_bytes();
        if !logical_block_bytes.is_power_of_two()
            || !(SECTOR_BYTES as u32..=LOGICAL_BLOCK_MAX_BYTES).contains(&logical_block_bytes)
        {
            return Err(format!("its blocks have {logical_block_bytes} bytes, not a power of two from 512 to 65536"));
        }
        let sectors = self.capacity_sectors();
        let capacity_bytes = sectors
            .checked_mul(SECTOR_BYTES)
            .filter(|&bytes| i64::try_from(bytes).is_ok())
            .map(|bytes| bytes - bytes % u64::from(logical_block_bytes));
        let capacity_bytes = match capacity_bytes {
            Some(0) => return Err("it holds no block".to_owned()),
            Some(bytes) => bytes,
            None => return Err(format!("it claims {sectors} sectors, more than a disk can have")),
        };
        let topology = self.has(blk::VIRTIO_BLK_F_TOPOLOGY);
        let exponent = if topology && self.u8(24) <= PHYSICAL_BLOCK_EXPONENT_MAX { self.u8(24) } else { 0 };
        let optimal_blocks = if topology { self.u32(28) } else { 0 };
        let limits = self.limits()?;
        let read_only = self.has(blk::VIRTIO_BLK_F_RO);
        Ok(Geometry {
            capacity_bytes,
            logical_block_bytes,
            physical_block_bytes: logical_block_bytes << exponent,
            optimal_io_bytes: optimal_blocks.checked_mul(logical_block_bytes).unwrap_or(0),
            // Larger requests are split, and memory is copied where the server does not take it as it lies.
            segments_max: SEGMENTS_MAX,
            transfer_bytes_max: u64::MAX,
            memory_align_bytes: 1,
            read_only,
            discard: limits.discard_bytes_max > 0 && !read_only,
            write_zeroes: limits.zeroes_bytes_max > 0 && !read_only,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: u64 = 1 << blk::VIRTIO_BLK_F_SIZE_MAX
        | 1 << blk::VIRTIO_BLK_F_SEG_MAX
        | 1 << blk::VIRTIO_BLK_F_BLK_SIZE
        | 1 << blk::VIRTIO_BLK_F_TOPOLOGY
        | 1 << blk::VIRTIO_BLK_F_MQ
        | 1 << blk::VIRTIO_BLK_F_DISCARD
        | 1 << blk::VIRTIO_BLK_F_WRITE_ZEROES;

    fn config(fields: &[(usize, u32)], features: u64) -> BlockConfig {
        let mut bytes = [0; BlockConfig::BYTES];
        bytes[..8].copy_from_slice(&2048_u64.to_le_bytes());
        bytes[8..12].copy_from_slice(&65536_u32.to_le_bytes());
        bytes[20..24].copy_from_slice(&4096_u32.to_le_bytes());
        for (offset, value) in fields {
            bytes[*offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        }
        BlockConfig::new(bytes, features)
    }

    #[test]
    fn a_good_configuration_is_taken_as_it_is() {
        let config = config(&[(12, 126), (24, 3 | 8 << 16), (28, 16), (34, 4), (36, 100), (48, 64)], EVERYTHING);
        let geometry = config.geometry().unwrap();
        assert_eq!((geometry.capacity_bytes, geometry.logical_block_bytes), (1 << 20, 4096));
        assert_eq!((geometry.physical_block_bytes, geometry.optimal_io_bytes), (32768, 65536));
        assert!(geometry.discard && geometry.write_zeroes && !geometry.read_only);
        let limits = config.limits().unwrap();
        assert_eq!((limits.segments_max, limits.segment_bytes_max), (126, 65536));
        assert_eq!((limits.discard_bytes_max, limits.zeroes_bytes_max), (49152, 32768), "whole blocks");
        assert_eq!(config.queues(), 4);
    }

    #[test]
    fn fields_without_their_feature_mean_nothing() {
        let config = config(&[(20, 7), (24, u32::MAX), (28, u32::MAX), (34, 9), (36, 100)], 0);
        let geometry = config.geometry().unwrap();
        assert_eq!((geometry.logical_block_bytes, geometry.physical_block_bytes), (512, 512));
        assert_eq!((geometry.optimal_io_bytes, geometry.discard, geometry.write_zeroes), (0, false, false));
        assert_eq!(config.limits().unwrap().segments_max, 1);
        assert_eq!(config.queues(), 1);
    }

    #[test]
    fn lies_are_refused_or_mean_the_least() {
        for block_bytes in [0, 1, 511, 513, 3 << 10, 1 << 17, u32::MAX] {
            assert!(config(&[(20, block_bytes)], EVERYTHING).geometry().unwrap_err().contains("power of two"));
        }
        assert!(config(&[(0, 0)], EVERYTHING).geometry().unwrap_err().contains("no block"));
        assert!(config(&[(0, 7)], EVERYTHING).geometry().unwrap_err().contains("no block"));
        assert!(config(&[(4, u32::MAX)], EVERYTHING).geometry().unwrap_err().contains("more than a disk"));
        assert!(config(&[(8, 4095), (12, 0)], EVERYTHING).geometry().unwrap_err().contains("less than a block"));
        let least = config(&[(24, 0xff), (28, u32::MAX)], EVERYTHING).geometry().unwrap();
        assert_eq!((least.physical_block_bytes, least.optimal_io_bytes), (4096, 0));
        assert!(!least.discard, "the most that it discards at once is nothing");
        assert_eq!(config(&[(34, 0)], EVERYTHING).queues(), 1);
    }
}
