//! How much of a driver's work is taken at a time.

/// What a request without bytes, or with few, counts as: finding and answering it costs about as much as moving this.
pub const REQUEST_COST_BYTES_MIN: u64 = 4096;

/// How much of a driver's work a queue takes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Requests at most, where each piece of a long one counts.
    pub requests: u16,
    /// Bytes, counting at least [`REQUEST_COST_BYTES_MIN`] for each request, and more for one of many small buffers:
    /// none is begun once they are used up, and the last one, or the last piece of a long one, may exceed them.
    pub cost_bytes: u64,
    /// Whether one more is begun after a first that is
    /// [`SHARED_BYTES_MIN`](blockyard_block::limits::SHARED_BYTES_MIN) long, whatever is used up: the disk may do both
    /// at a time.
    pub pairs: bool,
}

impl Limit {
    /// Takes nothing: what is in flight is completed.
    pub const NOTHING: Self = Self { requests: 0, cost_bytes: 0, pairs: false };
}
