//! `Disk` and `Queue`: the interface between whoever wants blocks and whoever has them.

use crate::{Completion, MemoryMap, Operation, Request, RequestError};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What a disk is, and what requests it takes. Others complete with an error: those that [`Geometry::check`] refuses
/// with its error, and those that are not aligned ([`Geometry::check_alignment`]), too long or in too many segments,
/// unless the disk can carry them out as they are. It does not make them suit, as [`crate::layers::AlignedDisk`] does.
/// Fixed for as long as [`Disk::generation`] stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the disk: a multiple of `logical_block_bytes`.
    pub capacity_bytes: u64,
    /// Smallest unit that may be addressed: a power of two, at least 512.
    pub logical_block_bytes: u32,
    /// Smallest unit that is written without reading first: a power of two, at least `logical_block_bytes`.
    pub physical_block_bytes: u32,
    /// Request length the disk likes best; zero when it does not care.
    pub optimal_io_bytes: u32,
    /// Most segments a request may have.
    pub segments_max: u32,
    /// Most bytes a read or a write may have, never less than a block: a multiple of `logical_block_bytes`. `u64::MAX`
    /// when any number will do.
    pub transfer_bytes_max: u64,
    /// What every segment's address in memory and length must be a multiple of: a power of two, 1 when anything will
    /// do.
    pub memory_align_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether [`crate::Operation::Discard`] does anything.
    pub discard: bool,
    /// Whether [`crate::Operation::WriteZeroes`] is cheaper than writing zeros.
    pub write_zeroes: bool,
}

impl Geometry {
    /// Whether a request's operation and range suit the disk. Its segments are for the queue to check, and how they are
    /// aligned for [`Geometry::check_alignment`].
    ///
    /// # Errors
    /// [`RequestError::ReadOnly`] for a change to a read-only disk, [`RequestError::OutOfRange`] for a range that
    /// does not lie within the disk.
    pub fn check(&self, request: &Request<'_>) -> Result<(), RequestError> {
        let changes = !matches!(request.operation, Operation::Read | Operation::Flush);
        if changes && self.read_only {
            return Err(RequestError::ReadOnly);
        }
        match request.offset_bytes.checked_add(request.length_bytes()) {
            Some(end) if end <= self.capacity_bytes => Ok(()),
            _ if request.operation == Operation::Flush => Ok(()),
            _ => Err(RequestError::OutOfRange),
        }
    }

    /// Whether a request is of whole logical blocks, and of memory that is aligned as the disk wants it. Memory is told
    /// by its offsets in regions, which start on pages.
    ///
    /// # Errors
    /// [`RequestError::Unaligned`] when it is not.
    pub fn check_alignment(&self, request: &Request<'_>) -> Result<(), RequestError> {
        if request.operation == Operation::Flush {
            return Ok(());
        }
        // All of these are powers of two, and a division costs more than the rest.
        let within = |unit_bytes: u32| u64::from(unit_bytes).wrapping_sub(1);
        let in_memory = within(self.memory_align_bytes);
        let on_disk = (request.offset_bytes | request.length_bytes()) & within(self.logical_block_bytes) == 0;
        let mut segments = request.segments.iter();
        let aligned = on_disk
            && segments.all(|segment| (segment.offset_bytes | u64::from(segment.length_bytes)) & in_memory == 0);
        if aligned { Ok(()) } else { Err(RequestError::Unaligned) }
    }

    /// Whether `range` may be asked of [`Disk::extents`]: it is not empty, and lies within the disk.
    ///
    /// # Errors
    /// A sentence when it may not.
    pub fn check_extent_range(&self, range: &Range<u64>) -> io::Result<()> {
        if range.start < range.end && range.end <= self.capacity_bytes {
            return Ok(());
        }
        let message = format!("no range {}..{} on a disk of {} bytes", range.start, range.end, self.capacity_bytes);
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

/// What a range of a disk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Bytes that must be read to be known.
    Data,
    /// Zeros, with storage behind them.
    Zero,
    /// Zeros, with nothing behind them.
    Hole,
}

/// A range of a disk of one [`ExtentKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it starts.
    pub offset_bytes: u64,
    /// How long it is; never zero.
    pub length_bytes: u64,
    /// What it holds.
    pub kind: ExtentKind,
}

/// A disk: a backend, or a layer around another disk.
pub trait Disk: Send + Sync {
    /// What the disk is now.
    fn geometry(&self) -> Geometry;

    /// A number that changes whenever [`Disk::geometry`] does.
    fn generation(&self) -> u64 {
        0
    }

    /// An event that becomes readable when [`Disk::generation`] changed; `None` if it never does.
    fn change_event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The first extent of `range`: starts at `range.start`, ends at or before `range.end`. [`crate::walk_extents`]
    /// asks again from the end of each answer. A disk that cannot tell says [`ExtentKind::Data`] for all of it.
    ///
    /// # Errors
    /// When the disk cannot be asked, or the range is empty or reaches outside it.
    fn extents(&self, range: Range<u64>) -> io::Result<Extent>;

    /// Opens a queue that carries up to `depth` requests at once, whose segments lie in `memory`. A disk may carry
    /// fewer: [`Queue::depth`] says how many.
    ///
    /// # Errors
    /// When `depth` is zero or the backend's means (rings, threads, descriptors) cannot be had.
    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>>;
}

/// Why a request was not taken. The queue is as it was before the push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// As many requests are in flight as the queue carries: reap first.
    #[error("the queue is full")]
    Full,
}

/// A way to a disk that belongs to one thread.
///
/// Push requests, submit them in one batch, reap completions. Requests in flight run in any order. Dropping a queue
/// drains it first: the memory map is never written to after its queue is gone.
///
/// # Getting on without [`Queue::wait`]
///
/// A thread with many queues sleeps on their completion events in a poll of its own, and never calls `wait`. So `wait`
/// may sleep and do what `submit` and `reap` do, but nothing may depend on it:
///
/// - `submit` and `reap` do everything that can be done at once: pieces that found no room, the next step of a
///   read-modify-write, requests whose time has come.
/// - A queue without an event (`None`) has carried out everything when `submit` returns: one `reap` brings all of it.
/// - A queue with an event keeps the same descriptor for as long as it lives. After a `reap` that appended nothing, the
///   event becomes readable as soon as `submit` and `reap` have anything to do: a completion to show, or a step towards
///   one, such as a piece that came back, or a time that came. Neither a push nor a submit takes that back. It may be
///   readable for nothing.
/// - After a `reap` that appended something, it need not become readable: who sleeps reaps until nothing comes.
/// - What went wrong inside `reap`, which cannot say so, makes the event readable, and the next `submit` says it.
///
/// A layer that joins the event of a queue below with others of its own owes the same: when its own `reap` appends
/// nothing, the last `reap` below appended nothing either.
pub trait Queue: Send {
    /// How many requests it carries at once.
    fn depth(&self) -> usize;

    /// Requests pushed and not yet reaped.
    fn in_flight(&self) -> usize;

    /// Takes a request. A request that is wrong in itself (a segment outside the memory map, a range outside the disk,
    /// a write to a read-only disk) is taken too, and completes with that error.
    ///
    /// # Errors
    /// [`QueueError::Full`] when `depth` requests are in flight.
    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError>;

    /// Hands everything pushed to the backend.
    ///
    /// # Errors
    /// When the backend itself is broken; requests it did not take stay pushed.
    fn submit(&mut self) -> io::Result<()>;

    /// Appends the completions that are ready to `completions`, which has room reserved for `depth` of them.
    fn reap(&mut self, completions: &mut Vec<Completion>);

    /// A descriptor that polls readable when a completion may be ready; `None` when completions are always ready
    /// as soon as `submit` returns. What it promises is said [above](Queue#getting-on-without-queuewait).
    fn completion_event(&self) -> Option<BorrowedFd<'_>>;

    /// Waits until a completion may be ready, one of `events` is readable, or `timeout` has passed; `None` waits for
    /// ever. A signal ends the wait early, without an error. A thread with several queues passes the others'
    /// [`Queue::completion_event`]s in `events`.
    ///
    /// # Errors
    /// When the wait itself fails.
    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()>;

    /// Submits what was pushed, waits for all of it, and appends the completions.
    ///
    /// # Errors
    /// When the backend itself is broken.
    fn drain(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.submit()?;
        self.reap(completions);
        while self.in_flight() > 0 {
            self.wait(&[], None)?;
            self.submit()?;
            self.reap(completions);
        }
        Ok(())
    }
}
