//! How much is asked of a disk at once, and who is bounded by whom.
//!
//! A disk takes requests of any length unless its geometry says otherwise, so the bound lies with those who ask. A
//! queue has [`QUEUE_DEPTH_MAX`] requests in flight, whoever asks. A guest, or a client of a server, may ask for much
//! in each: for as many segments as a virtqueue has descriptors, [`SEGMENTS_MAX`], and for 4 GiB. So whoever takes
//! requests out of a virtqueue gives the disk long ones in pieces of [`PIECE_BYTES_MAX`], and no more while it has
//! [`IN_FLIGHT_BYTES_MAX`] to do; a thread that serves several clients, far less. Who makes requests of his own asks
//! for [`REQUEST_BYTES_MAX`] in one: the client of a session cuts what is longer into such pieces, and a benchmark has
//! nothing that is longer. What is asked of a mounted file is shorter still, as the kernel makes it so. Each of these
//! lengths is whole blocks, of whatever size up to [`LOGICAL_BLOCK_MAX_BYTES`] a disk has them.

use std::io;

/// Most requests a queue carries at once; [`Disk::open_queue`](crate::Disk::open_queue) takes a larger depth as this
/// one.
pub const QUEUE_DEPTH_MAX: usize = 1024;

/// [`Geometry::segments_max`](crate::Geometry::segments_max) of a disk that takes any number: virtio's largest
/// virtqueue, so no guest asks for more.
pub const SEGMENTS_MAX: u32 = 32768;

/// Once a disk has this much of a virtqueue to do, it is given no more until something has completed: whoever stops the
/// virtqueue waits for that and for one piece, whatever the driver has asked for.
pub const IN_FLIGHT_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of one read or write of a virtqueue's that a disk is given at once: it gets what is longer in such
/// pieces, so that nobody else waits for all of it. What moves no data, as a discard, it gets in pieces of
/// [`IN_FLIGHT_BYTES_MAX`].
pub const PIECE_BYTES_MAX: u64 = 2 << 20;

/// Most bytes that who makes requests of his own reads or writes in one.
pub const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// Of requests this long, a disk may do two at a time although it has one thread: so long ones come in twos from who
/// gives it few at once. Two CPUs copy this much, to or from the page cache, sooner than one, whatever it costs to tell
/// the other.
pub const SHARED_BYTES_MIN: u64 = 512 << 10;

/// Smallest logical block of a disk.
pub const LOGICAL_BLOCK_MIN_BYTES: u32 = 512;
/// Largest logical block of a disk.
pub const LOGICAL_BLOCK_MAX_BYTES: u32 = 65536;

// A request of ours alone never fills more than a virtqueue may have under way, and is whole blocks.
const _: () = assert!(REQUEST_BYTES_MAX <= IN_FLIGHT_BYTES_MAX);
// Pieces are whole blocks, and pairs of them do not fill it.
const _: () = assert!(PIECE_BYTES_MAX.is_multiple_of(LOGICAL_BLOCK_MAX_BYTES as u64));
const _: () = assert!(SHARED_BYTES_MIN <= PIECE_BYTES_MAX && 2 * PIECE_BYTES_MAX < IN_FLIGHT_BYTES_MAX);
const _: () = assert!(REQUEST_BYTES_MAX.is_multiple_of(LOGICAL_BLOCK_MAX_BYTES as u64));
const _: () = assert!(LOGICAL_BLOCK_MAX_BYTES.is_multiple_of(LOGICAL_BLOCK_MIN_BYTES));
// Segments have 32 bits.
const _: () = assert!(REQUEST_BYTES_MAX <= u32::MAX as u64);

/// How many requests a queue carries that is asked for `depth`.
///
/// # Errors
/// When that is none.
pub(crate) fn checked_depth(depth: usize) -> io::Result<usize> {
    match depth {
        0 => Err(io::Error::new(io::ErrorKind::InvalidInput, "a queue carries at least one request")),
        depth => Ok(depth.min(QUEUE_DEPTH_MAX)),
    }
}
