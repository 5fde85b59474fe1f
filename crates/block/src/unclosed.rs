//! Images that could not be closed.
//!
//! An image is closed when the last that has its disk, or a queue of it, lets go, which has no result: in whichever
//! thread, through whichever layers. What was written to it is there by then; its bitmaps are stored and its spare
//! clusters given back in the end. The program says once who hears where that fails.

use std::io;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

type Listener = fn(&Path, &io::Error);

static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);

/// From now on, `listener` hears of each image that cannot be closed, and why, before whoever has let go of it goes on.
/// Its bitmaps may stay in use then, and clusters of it be leaked.
pub fn hear_of_unclosed(listener: Listener) {
    *LISTENER.write().unwrap_or_else(PoisonError::into_inner) = Some(listener);
}

/// Says so of the image at `path`.
pub(crate) fn tell_of_unclosed(path: &Path, error: &io::Error) {
    let listener = *LISTENER.read().unwrap_or_else(PoisonError::into_inner);
    listener.inspect(|listener| listener(path, error));
}
