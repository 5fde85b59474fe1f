//! The check that a qcow2 image needs before it is written to ([`PendingCheck`]).

use super::check;
use super::header::Header;
use super::header_change;
use super::image::Image;
use super::references::{self, Reference};
use crate::formats::WritableFile;
use crate::formats::pending_check::{CHECKED_AT_ONCE_BYTES, PendingCheck};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An image whose check has yet to be made.
pub(super) struct Unchecked {
    file: Arc<WritableFile>,
    header: Header,
}

impl Unchecked {
    /// Checks the image, if that does not take long; else returns it.
    ///
    /// # Errors
    /// A sentence, which goes on after the image's path, when it is damaged.
    pub(super) fn or_checked(file: &Arc<WritableFile>, header: &Header) -> Result<Option<Self>, String> {
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

    /// The same in the background. Once the image is in order, it says so itself.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn start(self, image: Arc<Image>) -> io::Result<PendingCheck<()>> {
        PendingCheck::start("qcow2-check", move |is_over| {
            let outcome = self.check(is_over);
            // Where bitmaps are kept, the first change marks them first.
            let may_write = outcome.is_ok() && image.dirty_bits.is_none();
            image.may_write_in_place.store(may_write, Ordering::Release);
            outcome
        })
    }
}
