//! A layer that remembers why the first request failed, and how busy the disk is.
//!
//! The guest learns only what virtio-blk can say: "I/O error". The user wants to know that the disk is full. And a
//! guest that waits for a slow disk must not be taken for one that does nothing.

use super::layer;
use crate::{Completion, Disk, MemoryMap, Queue, QueueError, Request, RequestError};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A disk, and what its queues are up to.
pub struct WatchedDisk {
    disk: Arc<dyn Disk>,
    activity: Arc<Activity>,
}

#[derive(Default)]
struct Activity {
    first_error: OnceLock<RequestError>,
    taken: AtomicU64,
    bytes_taken: AtomicU64,
    completed: AtomicU64,
}

/// What a disk has been given to do, and how much of it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Requests taken.
    pub taken: u64,
    /// Bytes of the disk that those touch.
    pub bytes_taken: u64,
    /// Requests completed.
    pub completed: u64,
}

impl Work {
    /// Whether there was something to do and nothing got done.
    pub fn is_stuck_since(&self, before: Self) -> bool {
        self.taken > self.completed && self.completed == before.completed
    }
}

impl WatchedDisk {
    /// Watches `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, activity: Arc::default() }
    }

    /// Why the first request that failed did.
    pub fn first_error(&self) -> Option<RequestError> {
        self.activity.first_error.get().copied()
    }

    /// What there was to do, and what was done.
    pub fn work(&self) -> Work {
        let completed = self.activity.completed.load(Ordering::Relaxed);
        Work {
            taken: self.activity.taken.load(Ordering::Relaxed),
            bytes_taken: self.activity.bytes_taken.load(Ordering::Relaxed),
            completed,
        }
    }
}

impl layer::DiskLayer for WatchedDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.disk.open_queue(memory, depth)?;
        Ok(Box::new(WatchedQueue { queue, activity: Arc::clone(&self.activity) }))
    }
}

struct WatchedQueue {
    queue: Box<dyn Queue>,
    activity: Arc<Activity>,
}

impl layer::QueueLayer for WatchedQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        self.queue.push(request)?;
        self.activity.taken.fetch_add(1, Ordering::Relaxed);
        self.activity.bytes_taken.fetch_add(request.length_bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.queue.reap(completions);
        self.activity.completed.fetch_add((completions.len() - before) as u64, Ordering::Relaxed);
        if let Some(error) = completions[before..].iter().find_map(|completion| completion.result.err()) {
            // Only the first counts.
            let _ = self.activity.first_error.set(error);
        }
    }
}
