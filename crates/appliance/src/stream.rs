//! Streams as disks: what comes out of a reader, and what goes into a writer, each byte once and in order.

mod board;
mod sink;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use board::Outside;
pub use sink::StreamSink;
pub use source::StreamSource;

use blockyard_block::{Geometry, SEGMENTS_MAX};
use blockyard_protocol::stream::{MARK_BYTES, TRANSFER_DISK_BYTES};

/// What a stream is as a disk.
fn geometry(read_only: bool) -> Geometry {
    Geometry {
        capacity_bytes: TRANSFER_DISK_BYTES,
        logical_block_bytes: MARK_BYTES as u32,
        physical_block_bytes: MARK_BYTES as u32,
        optimal_io_bytes: 0,
        segments_max: SEGMENTS_MAX,
        transfer_bytes_max: u64::MAX,
        memory_align_bytes: 1,
        read_only,
        discard: false,
        write_zeroes: false,
    }
}
