//! The check that an image needs before it is written to, when it takes long: in a thread of its own, while the image
//! is read.
//!
//! What is small is checked when it is opened ([`CHECKED_AT_ONCE_BYTES`]), so that whoever opens a damaged image is
//! told. Of a large one, changes wait for the check; damage fails all of them, with EUCLEAN.

use crate::image_trouble::{ImageTrouble, tell_of_trouble};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Bytes of tables that are checked before the image is open: some milliseconds.
pub(super) const CHECKED_AT_ONCE_BYTES: u64 = 4 << 20;

/// A check in the background, and what it finds out.
pub(super) struct PendingCheck<T> {
    shared: Arc<Shared<T>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<T> {
    outcome: Mutex<Option<Result<T, String>>>,
    /// Nobody wants to know any more.
    is_over: AtomicBool,
}

impl<T: Send + 'static> PendingCheck<T> {
    /// Begins `check` of the image at `path` in a thread called `name`, which calls `ended` when its outcome is there.
    /// It looks now and then whether it is over. What is wrong is told, as requests fail with no more than a number.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn start(
        name: &str,
        path: PathBuf,
        check: impl FnOnce(&AtomicBool) -> Result<T, String> + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { outcome: Mutex::new(None), is_over: AtomicBool::new(false) });
        let working = Arc::clone(&shared);
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let outcome = check(&working.is_over);
            if let Err(problem) = &outcome
                && !working.is_over.load(Ordering::Acquire)
            {
                tell_of_trouble(&path, ImageTrouble::Unwritable, &io::Error::other(problem.clone()));
            }
            *working.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            ended();
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl<T> PendingCheck<T> {
    /// Whether the image is in order, once that is known; EUCLEAN when it is damaged.
    pub(super) fn outcome(&self) -> Option<io::Result<()>> {
        let outcome = self.shared.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.as_ref().map(|outcome| match outcome {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::from_raw_os_error(libc::EUCLEAN)),
        })
    }

    /// What was found out of an image that is in order.
    pub(super) fn take(&self) -> Option<T> {
        self.shared.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()?.ok()
    }
}

impl<T> Drop for PendingCheck<T> {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It does not panic, and nobody wants to know if it does.
            drop(thread.join());
        }
    }
}
