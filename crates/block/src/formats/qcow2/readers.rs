//! Threads that read compressed clusters: as many as there are CPUs, from the first such request on.
//!
//! They change nothing. A cluster that a request is on its way to is not freed ([`super::grace`]), so what its entry
//! said goes on being true.

use super::image::{CompressedCluster, Image, Reader};
use super::worker::errno_of;
use crate::formats::scatter::Returns;
use crate::{MemoryMap, RequestError, Segment};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
    inbox: Mutex<Inbox>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inbox {
    jobs: VecDeque<ReadJob>,
    is_closed: bool,
}

impl Readers {
    pub(super) fn new(image: Arc<Image>) -> Self {
        let shared = Arc::new(Shared { image, inbox: Mutex::default(), arrived: Condvar::new() });
        Self { shared, threads: Mutex::default() }
    }

    /// Reads it, in a thread of these; in the caller's where there can be none.
    pub(super) fn take(&self, job: ReadJob) {
        if !self.has_threads() {
            return job.perform(&self.shared.image, &mut Reader::default());
        }
        self.shared.inbox().jobs.push_back(job);
        self.shared.arrived.notify_one();
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
        self.shared.inbox().is_closed = true;
        self.shared.arrived.notify_all();
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
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut reader = Reader::default();
        loop {
            let inbox = self.arrived.wait_while(self.inbox(), |inbox| inbox.jobs.is_empty() && !inbox.is_closed);
            let Some(job) = inbox.unwrap_or_else(PoisonError::into_inner).jobs.pop_front() else { return };
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
        let mut rest = contents.get(self.skip_bytes as usize..).unwrap_or_default();
        for &segment in &self.segments {
            let slice = self.memory.slice(segment).ok_or(RequestError::BadSegment)?;
            let (piece, later) = rest.split_at_checked(slice.len()).ok_or(RequestError::Os(libc::EIO))?;
            slice.copy_from(piece);
            rest = later;
        }
        Ok(())
    }
}
