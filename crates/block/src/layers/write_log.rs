//! A record of everything that was written to a disk, and what the disk may hold after a power cut.

mod replay;
#[cfg(test)]
mod tests;

use super::layer;
use super::slots::Slots;
use crate::{Completion, Disk, MemoryMap, Operation, Queue, QueueError, Request};
pub use replay::{Image, Replay};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vm_memory::VolatileSlice;
use vm_memory::bitmap::BitmapSlice;

/// A disk whose changes go into a [`WriteLog`]: put it right above the storage, below what is to be tested. For tests:
/// it keeps all data in memory, and takes a lock per request.
pub struct WriteLogDisk {
    disk: Arc<dyn Disk>,
    log: Arc<WriteLog>,
    /// Where it lies in a log of several disks.
    range: Range<u64>,
}

impl WriteLogDisk {
    /// Logs what `disk` is told from now on.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, log: Arc::default(), range: 0..u64::MAX }
    }

    /// The log.
    pub fn log(&self) -> &Arc<WriteLog> {
        &self.log
    }
}

/// What a [`WriteLogDisk`] was told, in order: when each write, zeroing, discard and flush was issued, with its data as
/// they were then, and when the requester was told that it is complete.
#[derive(Debug, Default)]
pub struct WriteLog {
    events: Mutex<Vec<Event>>,
}

#[derive(Clone, Debug)]
enum Event {
    Issued(Change),
    Completed {
        /// Index of the event that issued it.
        issued: usize,
        succeeded: bool,
    },
}

#[derive(Clone, Debug)]
enum Change {
    Write {
        offset_bytes: u64,
        data: Arc<[u8]>,
        force_unit_access: bool,
    },
    Zero {
        range: Range<u64>,
    },
    /// Of what lies in the range: a log may be of several disks, each of which is flushed by itself.
    Flush {
        range: Range<u64>,
    },
}

impl WriteLog {
    /// Events up to now. Ask when a flush was acknowledged: what was flushed then is there after every cut at this
    /// number of events or more.
    pub fn event_count(&self) -> usize {
        self.events().len()
    }

    /// What was logged up to now; `block_bytes` is what the disk writes all of or nothing: its logical block.
    pub fn recording(&self, block_bytes: u32) -> Recording {
        Recording { events: self.events().clone(), block_bytes: block_bytes.max(1).into() }
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a log to [`Replay`]. Power may be cut behind any number of its events.
#[derive(Clone, Debug)]
pub struct Recording {
    events: Vec<Event>,
    block_bytes: u64,
}

impl Recording {
    /// How many events it has.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }
}

impl layer::DiskLayer for WriteLogDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.disk.open_queue(memory, depth)?;
        Ok(Box::new(LoggedQueue {
            slots: Slots::new(queue.depth()),
            queue,
            disk: Arc::clone(&self.disk),
            memory: memory.clone(),
            log: Arc::clone(&self.log),
            range: self.range.clone(),
        }))
    }
}

struct LoggedQueue {
    queue: Box<dyn Queue>,
    disk: Arc<dyn Disk>,
    memory: MemoryMap,
    log: Arc<WriteLog>,
    range: Range<u64>,
    slots: Slots<InFlight>,
}

struct InFlight {
    token: u64,
    /// Index of the event that issued it; reads have none.
    issued: Option<usize>,
}

impl LoggedQueue {
    /// What the request changes; `None` for a read, and for what the disk will refuse.
    fn change(&self, request: &Request<'_>) -> Option<Change> {
        self.disk.geometry().check(request).ok()?;
        let offset_bytes = self.range.start + request.offset_bytes;
        match request.operation {
            Operation::Read => None,
            Operation::Write { force_unit_access } => {
                let data = self.data(request)?;
                Some(Change::Write { offset_bytes, data, force_unit_access })
            }
            Operation::Flush => Some(Change::Flush { range: self.range.clone() }),
            Operation::Discard { length_bytes } | Operation::WriteZeroes { length_bytes, .. } => {
                // It was checked to lie on the disk.
                Some(Change::Zero { range: offset_bytes..offset_bytes + length_bytes })
            }
        }
    }

    /// The bytes to be written; `None` when a segment lies outside memory.
    fn data(&self, request: &Request<'_>) -> Option<Arc<[u8]>> {
        let mut data = Vec::new();
        for &segment in request.segments {
            append(&mut data, &self.memory.slice(segment)?);
        }
        Some(data.into())
    }
}

fn append<B: BitmapSlice>(data: &mut Vec<u8>, slice: &VolatileSlice<'_, B>) {
    let start = data.len();
    data.resize(start + slice.len(), 0);
    slice.copy_to(&mut data[start..]);
}

impl layer::QueueLayer for LoggedQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        let change = self.change(request);
        // Held until the event is there: whatever the disk does with the request is logged behind it.
        let mut events = self.log.events();
        let issued = change.is_some().then_some(events.len());
        let slot = self.slots.insert(InFlight { token: request.token, issued }).ok_or(QueueError::Full)?;
        if let Err(error) = self.queue.push(&Request { token: slot, ..*request }) {
            self.slots.take(slot);
            return Err(error);
        }
        events.extend(change.map(Event::Issued));
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.queue.reap(completions);
        let mut events = self.log.events();
        for completion in &mut completions[before..] {
            let Some(InFlight { token, issued }) = self.slots.take(completion.token) else { continue };
            completion.token = token;
            let succeeded = completion.result.is_ok();
            events.extend(issued.map(|issued| Event::Completed { issued, succeeded }));
        }
    }
}
