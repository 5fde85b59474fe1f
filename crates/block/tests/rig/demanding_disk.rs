//! A disk that takes only what its geometry allows, carries requests out in any order, at any time, and whose event
//! tells no more than [`Queue`] promises.

use super::random::Random;
use blockyard_block::layers::layer;
use blockyard_block::{
    Completion, Disk, Geometry, MemoryMap, Operation, Queue, QueueError, Request, RequestError, SEGMENTS_MAX, Segment,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Demands {
    pub(crate) block_bytes: u32,
    pub(crate) transfer_bytes_max: u64,
    pub(crate) segments_max: u32,
    pub(crate) memory_align_bytes: u32,
    pub(crate) depth: usize,
}

impl Demands {
    /// What a disk without demands has.
    pub(crate) const NONE: Self = Self {
        block_bytes: 512,
        transfer_bytes_max: u64::MAX,
        segments_max: SEGMENTS_MAX,
        memory_align_bytes: 1,
        depth: 16,
    };
}

pub(crate) struct DemandingDisk {
    inner: Arc<dyn Disk>,
    demands: Demands,
    seed: AtomicU64,
}

impl DemandingDisk {
    pub(crate) fn new(inner: Arc<dyn Disk>, demands: Demands, seed: u64) -> Self {
        Self { inner, demands, seed: AtomicU64::new(seed) }
    }
}

impl layer::DiskLayer for DemandingDisk {
    fn below(&self) -> &dyn Disk {
        &*self.inner
    }

    fn geometry(&self) -> Geometry {
        let Demands { block_bytes, transfer_bytes_max, segments_max, memory_align_bytes, .. } = self.demands;
        Geometry {
            logical_block_bytes: block_bytes,
            physical_block_bytes: block_bytes,
            transfer_bytes_max,
            segments_max,
            memory_align_bytes,
            ..self.inner.geometry()
        }
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(DemandingQueue {
            geometry: Disk::geometry(self),
            depth: depth.min(self.demands.depth),
            inner: self.inner.open_queue(memory, 1)?,
            random: Random::new(self.seed.fetch_add(1, Ordering::Relaxed)),
            pushed: Vec::new(),
            submitted: Vec::new(),
            ended: Vec::new(),
            armed: false,
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        }))
    }
}

struct Kept {
    operation: Operation,
    offset_bytes: u64,
    segments: Vec<Segment>,
    token: u64,
}

/// Carries out and completes some of what was submitted, in any order, whenever it is reaped: a write may have
/// reached the disk long before it completes.
struct DemandingQueue {
    geometry: Geometry,
    depth: usize,
    inner: Box<dyn Queue>,
    random: Random,
    pushed: Vec<Kept>,
    submitted: Vec<Kept>,
    ended: Vec<Completion>,
    /// The last reap brought nothing: the event tells of what there is to do. Else it tells nothing, as that of a
    /// session.
    armed: bool,
    event: OwnedFd,
}

impl DemandingQueue {
    fn check(&self, request: &Request<'_>) {
        let Geometry { logical_block_bytes, transfer_bytes_max, segments_max, memory_align_bytes, .. } = self.geometry;
        let aligned = |bytes: u64, unit: u32| bytes.is_multiple_of(u64::from(unit));
        let length_bytes = request.length_bytes();
        let on_disk = aligned(request.offset_bytes, logical_block_bytes) && aligned(length_bytes, logical_block_bytes);
        let in_memory = request.segments.iter().all(|segment| {
            aligned(segment.offset_bytes, memory_align_bytes)
                && aligned(u64::from(segment.length_bytes), memory_align_bytes)
        });
        let few = request.segments.len() <= segments_max as usize;
        let short = request.segments.is_empty() || length_bytes <= transfer_bytes_max;
        assert!(on_disk && in_memory && few && short, "{request:?} on a disk of {:?}", self.geometry);
    }

    /// Tells that there is something to do, if somebody wants to know.
    fn signal(&self) {
        if self.armed && self.submitted.len() + self.ended.len() > 0 {
            rustix::io::write(&self.event, &1u64.to_ne_bytes()).unwrap();
        }
    }

    fn carry_out(&mut self, request: &Kept) -> Result<(), RequestError> {
        let Kept { operation, offset_bytes, segments, token } = request;
        let request = Request { operation: *operation, offset_bytes: *offset_bytes, segments, token: *token };
        self.inner.push(&request).unwrap();
        let mut completions = Vec::new();
        self.inner.drain(&mut completions).unwrap();
        completions[0].result
    }
}

impl Queue for DemandingQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.pushed.len() + self.submitted.len() + self.ended.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        if self.in_flight() == self.depth {
            return Err(QueueError::Full);
        }
        self.check(request);
        let Request { operation, offset_bytes, segments, token } = *request;
        self.pushed.push(Kept { operation, offset_bytes, segments: segments.to_vec(), token });
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.submitted.append(&mut self.pushed);
        self.signal();
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        while !self.submitted.is_empty() && self.random.below(3) > 0 {
            let next = self.random.below(self.submitted.len() as u64) as usize;
            let request = self.submitted.swap_remove(next);
            let result = self.carry_out(&request);
            self.ended.push(Completion { token: request.token, result });
        }
        while !self.ended.is_empty() && self.random.below(3) > 0 {
            completions.push(self.ended.swap_remove(self.random.below(self.ended.len() as u64) as usize));
        }
        self.armed = completions.len() == before;
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        self.signal();
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        self.armed = true;
        self.signal();
        let timeout = timeout.map(|timeout| Timespec::try_from(timeout).unwrap());
        let mut fds = vec![PollFd::new(&self.event, PollFlags::IN)];
        fds.extend(events.iter().map(|event| PollFd::from_borrowed_fd(*event, PollFlags::IN)));
        poll(&mut fds, timeout.as_ref())?;
        Ok(())
    }
}

impl Drop for DemandingQueue {
    fn drop(&mut self) {
        // A test that fails says why by itself.
        let left = self.submitted.len() + self.ended.len();
        assert!(left == 0 || std::thread::panicking(), "a queue was dropped before its {left} requests ended");
    }
}
