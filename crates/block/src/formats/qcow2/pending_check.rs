//! The check that a qcow2 image needs before it is written to ([`PendingCheck`]).

use super::check;
use super::header::Header;
use super::header_change;
use super::image::Image;
use super::references::{self, Reference};
use super::snapshots::{self, L1_MAX_BYTES};
use crate::formats::WritableFile;
use crate::formats::pending_check::{CHECKED_AT_ONCE_BYTES, PendingCheck};
use crate::image_trouble::{ImageTrouble, tell_of_trouble};
use crate::size;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An image whose check has yet to be made.
pub(super) struct Unchecked {
    file: Arc<WritableFile>,
    header: Header,
    path: PathBuf,
}

impl Unchecked {
    /// Checks the image, if that does not take long; else returns it.
    ///
    /// # Errors
    /// A sentence, which goes on after the image's path, when it is damaged, or too long.
    pub(super) fn or_checked(file: &Arc<WritableFile>, header: &Header, path: &Path) -> Result<Option<Self>, String> {
        check::clusters_of(file, header, "written to")?;
        let this = Self { file: Arc::clone(file), header: header.clone(), path: path.to_owned() };
        if takes_long(file, header).map_err(|error| format!("cannot be read: {error}"))? {
            return Ok(Some(this));
        }
        this.check(&AtomicBool::new(false)).map(|()| None)
    }

    /// Checks it, says of what others keep beside the data and is not known here that it is out of date, and tells of
    /// what is missing, which nobody sees once something is written.
    ///
    /// # Errors
    /// A sentence, as [`Unchecked::or_checked`].
    pub(super) fn check(&self, is_over: &AtomicBool) -> Result<(), String> {
        let missing = check::check(&self.file, &self.header, is_over)?;
        if missing > 0 {
            let missing = missing.saturating_mul(self.header.cluster_bytes());
            tell_of_trouble(&self.path, ImageTrouble::CutOff, &io::Error::other(size::human(missing)));
        }
        header_change::clear_unknown(&self.file, &self.header).map_err(|error| format!("cannot be written: {error}"))
    }

    /// The same in the background. Once the image is in order, it says so itself.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn start(
        self,
        image: Arc<Image>,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<PendingCheck<()>> {
        let path = self.path.clone();
        let check = move |is_over: &AtomicBool| {
            let outcome = self.check(is_over);
            // Where bitmaps are kept, the first change marks them first.
            let may_write = outcome.is_ok() && image.dirty_bits.is_none();
            image.may_write_in_place.store(may_write, Ordering::Release);
            outcome
        };
        PendingCheck::start("qcow2-check", path, check, ended)
    }
}

/// Whether an image has more tables than are checked when it is opened, blocks of refcounts among them, or is in so
/// long a file that what is remembered of its clusters is as large.
fn takes_long(file: &WritableFile, header: &Header) -> io::Result<bool> {
    let remembered_bytes = file.length_bytes() / header.cluster_bytes() / 4;
    let own_bytes = header.l1.length_bytes + header.refcounts.length_bytes;
    if remembered_bytes.max(own_bytes) > CHECKED_AT_ONCE_BYTES {
        return Ok(true);
    }
    let tables_max = (CHECKED_AT_ONCE_BYTES - own_bytes) / header.cluster_bytes();
    // What is wrong with the table of snapshots, the check says.
    let snapshots = snapshots::snapshots(file, header)?.tables;
    let snapshots = snapshots.into_iter().filter(|l1| l1.length_bytes <= L1_MAX_BYTES);
    let l1_tables = snapshots.chain([header.l1]).flat_map(|l1| references::in_l1(file, header, l1));
    let tables = references::in_refcount_table(file, header).chain(l1_tables);
    let is_used = |table: &io::Result<Reference>| table.as_ref().map_or(true, Reference::is_used);
    let more = tables.filter(is_used).nth(tables_max as usize);
    more.transpose().map(|more| more.is_some())
}
