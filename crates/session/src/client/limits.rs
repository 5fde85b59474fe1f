//! What a server takes in one request of its virtqueue.

/// virtio-blk's unit of place and length.
pub(super) const SECTOR_BYTES: u64 = 512;

/// What a server takes in one request of its virtqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Most segments of data: at least one.
    pub(super) segments_max: u32,
    /// Most bytes in a segment.
    pub(super) segment_bytes_max: u32,
    /// Most bytes in a discard: whole blocks, zero when it does none.
    pub(super) discard_bytes_max: u64,
    /// The same of write-zeroes.
    pub(super) zeroes_bytes_max: u64,
    /// Whether write-zeroes may give storage back.
    pub(super) zeroes_may_unmap: bool,
    /// Whether there is anything to flush.
    pub(super) flush: bool,
}

impl Limits {
    /// Whether a server with these limits takes all that one with `others` took.
    pub(super) fn include(&self, others: &Self) -> bool {
        self.segments_max >= others.segments_max
            && self.segment_bytes_max >= others.segment_bytes_max
            && self.discard_bytes_max >= others.discard_bytes_max
            && self.zeroes_bytes_max >= others.zeroes_bytes_max
            && self.zeroes_may_unmap >= others.zeroes_may_unmap
            && self.flush >= others.flush
    }
}
