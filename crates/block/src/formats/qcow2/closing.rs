//! How closing an image ended.

use super::ImageError;
use crate::image_trouble::{ImageTrouble, tell_of_trouble};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// How closing an image ended, for whoever has this before all have let go of the disk: to nobody else is it told.
#[derive(Debug)]
pub struct Qcow2Closing(Closing);

impl Qcow2Closing {
    /// What went wrong; the disk and its queues are gone.
    ///
    /// # Errors
    /// What was flushed is there, but bitmaps in the image may stay in use, and clusters be leaked.
    pub fn result(self) -> Result<(), ImageError> {
        let Closing { path, state } = self.0;
        let error = state.lock().unwrap_or_else(PoisonError::into_inner).error.take();
        error.map_or(Ok(()), |source| Err(ImageError::System { action: "close", path, source }))
    }
}

/// What the image's thread and whoever asks have in common.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    is_awaited: bool,
    error: Option<io::Error>,
}

impl Closing {
    pub(super) fn of(path: PathBuf) -> Self {
        Self { path, state: Arc::default() }
    }

    /// Somebody asks how it ends.
    pub(super) fn awaited(&self) -> Qcow2Closing {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_awaited = true;
        Qcow2Closing(self.clone())
    }

    /// It failed.
    pub(super) fn failed(&self, error: io::Error) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.is_awaited {
            true => state.error = Some(error),
            false => tell_of_trouble(&self.path, ImageTrouble::UnclosedQcow2, &error),
        }
    }
}
