//! A disk whose queue is open before anybody wants it.

use blockyard_block::layers::layer;
use blockyard_block::{Disk, MemoryMap, Queue};
use blockyard_session::client::SessionDisk;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Entries of the guest's virtqueues at most.
const DEPTH: usize = 256;

/// A session that has one queue, which is opened here: a session's queue takes memory and descriptors, and a process
/// that is shut in makes none. Its guest sets its disk up once.
pub(super) struct ReadyDisk {
    session: SessionDisk,
    queue: Mutex<Option<Box<dyn Queue>>>,
}

impl ReadyDisk {
    /// For requests in this memory.
    pub(super) fn new(session: SessionDisk, memory: &MemoryMap) -> io::Result<Self> {
        let queue = session.open_queue(memory, DEPTH)?;
        Ok(Self { session, queue: Mutex::new(Some(queue)) })
    }
}

impl layer::DiskLayer for ReadyDisk {
    fn below(&self) -> &dyn Disk {
        &self.session
    }

    fn open_queue(&self, _memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.take_if(|_| depth <= DEPTH).ok_or_else(|| io::Error::other("the appliance's disks are set up once"))
    }
}
