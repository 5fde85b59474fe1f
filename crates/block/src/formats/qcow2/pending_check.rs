//! The check that an image needs before it is written to, when it takes long: in a thread of its own, while the image
//! is read.
//!
//! What is small is checked when it is opened ([`CHECKED_AT_ONCE_BYTES`]), so that whoever opens a damaged image is
//! told. Of a large one, changes wait for the check; damage fails all of them, with EUCLEAN.

use super::check;
use super::header::Header;
use super::header_change;
use super::image::Image;
use super::image_file::ImageFile;
use super::references::{self, Reference};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Bytes of tables that are checked before the image is open: some milliseconds.
const CHECKED_AT_ONCE_BYTES: u64 = 4 << 20;

/// An image whose check has yet to be made.
pub(super) struct Unchecked {
    file: Arc<ImageFile>,
    header: Header,
}

impl Unchecked {
    /// Checks the image, if that does not take long; else returns it.
    ///
    /// # Errors
    /// A sentence, which goes on after the image's path, when it is damaged.
    pub(super) fn or_checked(file: &Arc<ImageFile>, header: &Header) -> Result<Option<Self>, String> {
        let this = Self { file: Arc::clone(file), header: header.clone() };
        let tables = references::in_l1(file, header, header.l1).map_err(|error| format!("cannot be read: {error}"))?;
        let tables = tables.filter(Reference::is_used).count() as u64;
        if tables.saturating_mul(header.cluster_bytes()) > CHECKED_AT_ONCE_BYTES {
            return Ok(Some(this));
        }
        this.check(&AtomicBool::new(false)).map(|()| None)
    }

    /// Checks it, and says of what others keep beside the data and is not known here that it is out of date.
    ///
    /// # Errors
    /// A sentence, as [`Unchecked::or_checked`].
    pub(super) fn check(&self, is_over: &AtomicBool) -> Result<(), String> {
        check::check(&self.file, &self.header, is_over)?;
        header_change::clear_unknown(&self.file, &self.header).map_err(|error| format!("cannot be written: {error}"))
    }
}

/// A check in the background.
pub(super) struct PendingCheck {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    outcome: Mutex<Option<Result<(), String>>>,
    /// Nobody wants to know any more.
    is_over: AtomicBool,
}

impl PendingCheck {
    /// Begins it. Once the image is in order, it says so itself.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn start(unchecked: Unchecked, image: Arc<Image>) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let working = Arc::clone(&shared);
        let thread = thread::Builder::new().name("qcow2-check".into()).spawn(move || {
            let outcome = unchecked.check(&working.is_over);
            // Where bitmaps are kept, the first change marks them first.
            let may_write = outcome.is_ok() && image.dirty_bits.is_none();
            image.may_write_in_place.store(may_write, Ordering::Release);
            *working.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Whether the image is in order, once that is known; EUCLEAN when it is damaged.
    pub(super) fn outcome(&self) -> Option<io::Result<()>> {
        let outcome = self.shared.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.as_ref().map(|outcome| match outcome {
            Ok(()) => Ok(()),
            Err(_) => Err(io::Error::from_raw_os_error(libc::EUCLEAN)),
        })
    }
}

impl Drop for PendingCheck {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It does not panic, and nobody wants to know if it does.
            drop(thread.join());
        }
    }
}
