//! What every layer has in common: what it does not say itself, the disk below says.

use crate::{Completion, Disk, Extent, Geometry, MemoryMap, Queue, QueueError, Request};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A disk around a disk: whatever implements this is a [`Disk`]. A layer writes only what it changes.
///
/// [`Disk::generation`] and [`Disk::change_event`] are always those of the disk below, because a layer's geometry
/// changes with that of the disk below and not otherwise.
///
/// Write `impl layer::DiskLayer for …` rather than importing the trait: with both traits in scope each method has two
/// meanings. Inside that block they are, so it says `Disk::geometry(self)`.
pub trait DiskLayer: Send + Sync {
    /// The disk below.
    fn below(&self) -> &dyn Disk;

    /// [`Disk::geometry`].
    fn geometry(&self) -> Geometry {
        self.below().geometry()
    }

    /// [`Disk::extents`].
    ///
    /// # Errors
    /// As there.
    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.below().extents(range)
    }

    /// [`Disk::open_queue`].
    ///
    /// # Errors
    /// As there.
    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.below().open_queue(memory, depth)
    }
}

impl<L: DiskLayer> Disk for L {
    fn geometry(&self) -> Geometry {
        DiskLayer::geometry(self)
    }

    fn generation(&self) -> u64 {
        self.below().generation()
    }

    fn change_event(&self) -> Option<BorrowedFd<'_>> {
        self.below().change_event()
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        DiskLayer::extents(self, range)
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        DiskLayer::open_queue(self, memory, depth)
    }
}

/// A queue around one queue: whatever implements this is a [`Queue`], as deep as the one below. A layer writes only
/// what it changes; each method stands for that of [`Queue`] with the same name, and costs one call through a table, as
/// without this.
///
/// A layer whose `reap` may keep what came from below, and append nothing, reaps below again until nothing comes: else
/// the event below need not become readable ([`Queue`] says why).
pub trait QueueLayer: Send {
    /// The queue below.
    fn below(&self) -> &dyn Queue;

    /// The queue below, to use.
    fn below_mut(&mut self) -> &mut dyn Queue;

    /// [`Queue::in_flight`].
    fn in_flight(&self) -> usize {
        self.below().in_flight()
    }

    /// [`Queue::push`].
    ///
    /// # Errors
    /// As there.
    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        self.below_mut().push(request)
    }

    /// [`Queue::submit`].
    ///
    /// # Errors
    /// As there.
    fn submit(&mut self) -> io::Result<()> {
        self.below_mut().submit()
    }

    /// [`Queue::reap`].
    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.below_mut().reap(completions);
    }

    /// [`Queue::completion_event`].
    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.below().completion_event()
    }

    /// [`Queue::wait`].
    ///
    /// # Errors
    /// As there.
    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        self.below_mut().wait(events, timeout)
    }
}

impl<L: QueueLayer> Queue for L {
    fn depth(&self) -> usize {
        self.below().depth()
    }

    fn in_flight(&self) -> usize {
        QueueLayer::in_flight(self)
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        QueueLayer::push(self, request)
    }

    fn submit(&mut self) -> io::Result<()> {
        QueueLayer::submit(self)
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        QueueLayer::reap(self, completions);
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        QueueLayer::completion_event(self)
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        QueueLayer::wait(self, events, timeout)
    }
}
