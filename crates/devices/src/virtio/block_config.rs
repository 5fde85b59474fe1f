//! The configuration space of virtio-blk (virtio 1.2 §5.2.4).

use super::block_request::{RANGE_SECTORS_MAX, SECTOR_BYTES};
use blockyard_block::Geometry;

/// Up to and including write_zeroes_may_unmap and what pads it.
pub(crate) const CONFIG_BYTES: usize = 60;

/// The configuration space for a disk: fields of features that are not offered are filled in all the same.
pub(crate) fn config(geometry: &Geometry, queues: u16, segments_max: u32) -> [u8; CONFIG_BYTES] {
    let logical = geometry.logical_block_bytes.max(1);
    let blocks_per_physical = (geometry.physical_block_bytes / logical).max(1);
    let mut config = [0; CONFIG_BYTES];
    let mut put = |offset: usize, field: &[u8]| config[offset..offset + field.len()].copy_from_slice(field);
    let sectors_per_block = (u64::from(logical) / SECTOR_BYTES) as u32;
    put(0, &(geometry.capacity_bytes / SECTOR_BYTES).to_le_bytes());
    put(12, &segments_max.to_le_bytes());
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
