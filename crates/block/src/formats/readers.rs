//! Threads of an image's own that read what takes a processor's time: as many as there are CPUs, from the first such
//! request on. They change nothing.

use super::inbox::Inbox;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Most threads.
const THREADS_MAX: usize = 16;

/// Something to be read.
pub(super) trait ReadJob: Send + 'static {
    /// What it is read from.
    type Image: Send + Sync + 'static;
    /// What a thread keeps between jobs.
    type Reader: Default;

    /// Reads it, and says so to whoever waits.
    fn perform(&self, image: &Self::Image, reader: &mut Self::Reader);
}

pub(super) struct Readers<J: ReadJob> {
    shared: Arc<Shared<J>>,
    name: &'static str,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared<J: ReadJob> {
    image: Arc<J::Image>,
    inbox: Inbox<J>,
}

impl<J: ReadJob> Readers<J> {
    /// Of `image`; `name`: the threads'.
    pub(super) fn new(image: Arc<J::Image>, name: &'static str) -> Self {
        let shared = Arc::new(Shared { image, inbox: Inbox::default() });
        Self { shared, name, threads: Mutex::default() }
    }

    /// Reads it, in a thread of these; in the caller's where there can be none.
    pub(super) fn take(&self, job: J) {
        if !self.has_threads() {
            return job.perform(&self.shared.image, &mut J::Reader::default());
        }
        self.shared.inbox.put(job);
    }

    fn has_threads(&self) -> bool {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.is_empty() {
            let count = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
            threads.extend((0..count).filter_map(|_| {
                let shared = Arc::clone(&self.shared);
                thread::Builder::new().name(self.name.into()).spawn(move || shared.run()).ok()
            }));
        }
        !threads.is_empty()
    }
}

impl<J: ReadJob> Drop for Readers<J> {
    fn drop(&mut self) {
        self.shared.inbox.close();
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        // They do not panic, and whoever dropped this has no use for it if one does.
        threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl<J: ReadJob> fmt::Debug for Readers<J> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Readers")
    }
}

impl<J: ReadJob> Shared<J> {
    fn run(&self) {
        let mut reader = J::Reader::default();
        while let Some(job) = self.inbox.next() {
            job.perform(&self.image, &mut reader);
        }
    }
}
