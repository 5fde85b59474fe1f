//! What a virtio-blk device offers and the configuration space that says so (virtio 1.2 §5.2.3, §5.2.4).

use super::block_request::{RANGE_SECTORS_MAX, SECTOR_BYTES};
use blockyard_block::Geometry;
use virtio_bindings::virtio_blk as blk;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// Bytes of the configuration space: up to and including write_zeroes_may_unmap and what pads it.
pub const CONFIG_BYTES: usize = 60;

/// The configuration space for a disk with queues of `queue_size` entries, at least 3: fields of features that are not
/// offered are filled in all the same.
pub fn block_config(geometry: &Geometry, queues: u16, queue_size: u16) -> [u8; CONFIG_BYTES] {
    let logical = geometry.logical_block_bytes.max(1);
    let blocks_per_physical = (geometry.physical_block_bytes / logical).max(1);
    let mut config = [0; CONFIG_BYTES];
    let mut put = |offset: usize, field: &[u8]| config[offset..offset + field.len()].copy_from_slice(field);
    let sectors_per_block = (u64::from(logical) / SECTOR_BYTES) as u32;
    put(0, &(geometry.capacity_bytes / SECTOR_BYTES).to_le_bytes());
    put(12, &segments_max(geometry, queue_size).to_le_bytes());
    put(20, &logical.to_le_bytes());
    // topology: physical_block_exp, alignment_offset, min_io_size, opt_io_size; the sizes in logical blocks.
    put(24, &[blocks_per_physical.ilog2() as u8, 0]);
    put(26, &u16::try_from(blocks_per_physical).unwrap_or(u16::MAX).to_le_bytes());
    put(28, &(geometry.optimal_io_bytes / logical).to_le_bytes());
    put(34, &queues.to_le_bytes());
    // A range of whole blocks, whatever their size: both are powers of two.
    put(36, &RANGE_SECTORS_MAX.to_le_bytes());
    put(40, &1u32.to_le_bytes());
    put(44, &sectors_per_block.to_le_bytes());
    put(48, &RANGE_SECTORS_MAX.to_le_bytes());
    put(52, &1u32.to_le_bytes());
    put(56, &[u8::from(geometry.discard)]);
    config
}

/// What a device on such a disk offers, bit n for feature n.
pub fn block_features(geometry: &Geometry, queues: u16) -> u64 {
    let always = [
        blk::VIRTIO_BLK_F_SEG_MAX,
        blk::VIRTIO_BLK_F_BLK_SIZE,
        blk::VIRTIO_BLK_F_FLUSH,
        blk::VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_F_VERSION_1,
    ];
    let sometimes = [
        (geometry.read_only, blk::VIRTIO_BLK_F_RO),
        (queues > 1, blk::VIRTIO_BLK_F_MQ),
        (geometry.discard && !geometry.read_only, blk::VIRTIO_BLK_F_DISCARD),
        (geometry.write_zeroes && !geometry.read_only, blk::VIRTIO_BLK_F_WRITE_ZEROES),
    ];
    let sometimes = sometimes.into_iter().filter_map(|(offered, feature)| offered.then_some(feature));
    always.into_iter().chain(sometimes).fold(0, |features, feature| features | 1 << feature)
}

/// Data segments of a request: header and status take two of the descriptors that a chain may have (§2.7.5.3.1).
fn segments_max(geometry: &Geometry, queue_size: u16) -> u32 {
    geometry.segments_max.clamp(1, u32::from(queue_size).saturating_sub(2).max(1))
}
