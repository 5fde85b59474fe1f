//! Threads that read compressed clusters: as many as there are CPUs, from the first such request on.
//!
//! They change nothing. A cluster that a request is on its way to is not freed ([`super::grace`]), so what its entry
//! said goes on being true.

use super::image::{CompressedCluster, Image, Reader};
use crate::formats::inbox::Inbox;
use crate::formats::scatter::{Returns, copy_to, errno_of};
use crate::{MemoryMap, RequestError, Segment};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Most threads.
const THREADS_MAX: usize = 16;

/// A part of a compressed cluster, for somebody's memory.
pub(super) struct ReadJob {
    pub(super) cluster: CompressedCluster,
    pub(super) skip_bytes: u64,
    pub(super) segments: Vec<Segment>,
    pub(super) slot: u16,
    pub(super) memory: Arc<MemoryMap>,
    pub(super) returns: Arc<Returns>,
}

pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    image: Arc<Image>,
    inbox: Inbox<ReadJob>,
}

impl Readers {
    pub(super) fn new(image: Arc<Image>) -> Self {
        let shared = Arc::new(Shared { image, inbox: Inbox::default() });
        Self { shared, threads: Mutex::default() }
    }

    /// Reads it, in a thread of these; in the caller's where there can be none.
    pub(super) fn take(&self, job: ReadJob) {
        if !self.has_threads() {
            return job.perform(&self.shared.image, &mut Reader::default());
        }
        self.shared.inbox.put(job);
    }

    fn has_threads(&self) -> bool {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.is_empty() {
            let count = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
            threads.extend((0..count).filter_map(|_| {
                let shared = Arc::clone(&self.shared);
                thread::Builder::new().name("qcow2-reader".into()).spawn(move || shared.run()).ok()
            }));
        }
        !threads.is_empty()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.inbox.close();
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        // They do not panic, and whoever dropped this has no use for it if one does.
        threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Readers")
    }
}

impl Shared {
    fn run(&self) {
        let mut reader = Reader::default();
        while let Some(job) = self.inbox.next() {
            job.perform(&self.image, &mut reader);
        }
    }
}

impl ReadJob {
    fn perform(&self, image: &Image, reader: &mut Reader) {
        self.returns.post(self.slot, self.read(image, reader));
    }

    fn read(&self, image: &Image, reader: &mut Reader) -> Result<(), RequestError> {
        let contents = image.compressed_cluster(self.cluster, reader).map_err(|error| errno_of(&error))?;
        copy_to(&self.memory, &self.segments, contents.get(self.skip_bytes as usize..).unwrap_or_default())
    }
}
