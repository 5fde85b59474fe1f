//! What goes wrong with an image and is nobody's result.
//!
//! An image is closed when the last that has its disk, or a queue of it, lets go, which has no result: in whichever
//! thread, through whichever layers. What was written to it is there by then; of qcow2, its bitmaps are stored and its
//! spare clusters given back in the end. And of a request that fails, its result says no more than a number. So the
//! program says once who hears why.

use std::io;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageTrouble {
    /// A qcow2 image could not be closed: its bitmaps may stay in use, and clusters of it be leaked.
    UnclosedQcow2,
    /// A VMDK could not be closed: of what keeps its tables twice, one may lack what was written last.
    UnclosedVmdk,
    /// A compressed part of it cannot be read. Said once of each image that is open.
    Unreadable,
    /// It cannot be written to, as what was looked at in the background says. The error goes on after its path.
    Unwritable,
    /// An image that is to be written to refers to more than its file has. The error says how much more.
    CutOff,
}

type Listener = fn(&Path, ImageTrouble, &io::Error);

static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);

/// From now on, `listener` hears of such trouble with the image at a path, and why, before whoever has let go of it, or
/// waits for a request, goes on.
pub fn hear_of_trouble(listener: Listener) {
    *LISTENER.write().unwrap_or_else(PoisonError::into_inner) = Some(listener);
}

/// Says so of the image at `path`.
pub(crate) fn tell_of_trouble(path: &Path, trouble: ImageTrouble, error: &io::Error) {
    let listener = *LISTENER.read().unwrap_or_else(PoisonError::into_inner);
    listener.inspect(|listener| listener(path, trouble, error));
}
