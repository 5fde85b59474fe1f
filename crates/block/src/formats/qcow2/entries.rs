//! What an entry of a table is: QEMU's docs/interop/qcow2.txt, "Cluster mapping".

/// Where an entry of an L1 or an L2 table leads.
pub(super) const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
/// What it leads to is its alone, and may be written in place.
pub(super) const COPIED: u64 = 1 << 63;
/// Of an L2 table: the cluster is compressed.
pub(super) const COMPRESSED: u64 = 1 << 62;
/// The same: the cluster reads as zeros, wherever it lies.
pub(super) const ZERO: u64 = 1;

/// Bits that must be zero, of an entry of an L1 table, of an L2 table. In a refcount table they make the offset one
/// that no cluster has.
pub(super) const L1_RESERVED: u64 = 0x7f00_0000_0000_01ff;
pub(super) const L2_RESERVED: u64 = 0x3f00_0000_0000_01fe;

/// The entries of a table, or of a part of one.
pub(super) fn entries_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks().0.iter().map(|&entry| u64::from_be_bytes(entry))
}
