//! Work that several threads share while somebody watches how far it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often the watcher is called.
const WATCH: Duration = Duration::from_millis(100);

/// What the threads and whoever watches them have in common. `E` is why the work ends before its end.
pub(crate) struct WatchedWork<E> {
    done_bytes: AtomicU64,
    /// Those of them that nothing had to be done for.
    skipped_bytes: AtomicU64,
    is_over: AtomicBool,
    /// The first one.
    failure: Mutex<Option<E>>,
}

impl<E: Send> WatchedWork<E> {
    pub(crate) fn new() -> Self {
        Self {
            done_bytes: AtomicU64::new(0),
            skipped_bytes: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Runs `work` on so many threads, to the end of all. `watch` hears ten times a second how many bytes are done;
    /// when it says not to go on, the work fails with `stopped`.
    ///
    /// # Errors
    /// The first thing that failed, in any thread.
    pub(crate) fn run(
        &self,
        threads: usize,
        work: impl Fn() -> Result<(), E> + Sync,
        stopped: impl Fn() -> E,
        mut watch: impl FnMut(u64) -> bool,
    ) -> Result<(), E> {
        std::thread::scope(|scope| {
            let (alive, ended) = mpsc::channel::<()>();
            for _ in 0..threads {
                let (alive, work) = (alive.clone(), &work);
                scope.spawn(move || {
                    // Gone when the thread ends, however it does.
                    let _alive = alive;
                    if let Err(error) = work() {
                        self.fail(error);
                    }
                });
            }
            drop(alive);
            while ended.recv_timeout(WATCH) == Err(RecvTimeoutError::Timeout) {
                if !watch(self.done_bytes()) {
                    self.fail(stopped());
                }
            }
        });
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn fail(&self, error: E) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// So many bytes more are done.
    pub(crate) fn advance(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes more are done, as there is nothing in them.
    pub(crate) fn skip(&self, bytes: u64) {
        self.skipped_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.advance(bytes);
    }

    /// What is done but for what was skipped: what a speed is counted by.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.done_bytes().saturating_sub(self.skipped_bytes.load(Ordering::Relaxed))
    }

    pub(crate) fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Relaxed)
    }

    /// Whether something has failed, so that the others may stop.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_ends_the_work_of_all() {
        let work = WatchedWork::new();
        let turn = AtomicU64::new(0);
        let one = || {
            if turn.fetch_add(1, Ordering::Relaxed) == 0 {
                work.advance(7);
                work.skip(5);
                return Err("first");
            }
            while !work.is_over() {
                std::thread::yield_now();
            }
            Err("later")
        };
        assert_eq!(work.run(3, one, || "stopped", |_| true), Err("first"));
        assert_eq!((work.done_bytes(), work.data_bytes()), (12, 7));
    }

    #[test]
    fn whoever_watches_may_end_it() {
        let work = WatchedWork::new();
        let endless = || {
            while !work.is_over() {
                std::thread::yield_now();
            }
            Ok(())
        };
        assert_eq!(work.run(2, endless, || "stopped", |_| false), Err("stopped"));
    }
}
