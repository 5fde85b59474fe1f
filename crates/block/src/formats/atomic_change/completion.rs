//! What an unfinished change holds: seen on its image, and written to it.

use super::found_journal::refuse_marked;
use super::unfinished_change::{Problem, UnfinishedChange};
use crate::formats::{ImageError, Qcow2Check, Repair};
use crate::layers::{OverlayDisk, commit};
use crate::{Disk, FileOptions, Qcow2Disk, shown};
use std::io;
use std::sync::Arc;

impl UnfinishedChange {
    /// The image as it will be: `base`, the disk on its file, seen through the change. Nothing is written.
    ///
    /// # Errors
    /// When the change is not one of it.
    pub fn shown_on(&self, base: Arc<dyn Disk>) -> Result<Arc<dyn Disk>, ImageError> {
        let overlay = || {
            self.record()?;
            Ok(Arc::new(self.delta(&base)?) as Arc<dyn Disk>)
        };
        overlay().map_err(|problem| match problem {
            Problem::Restored => self.restored(),
            Problem::Failed(source) => ImageError::Unusable {
                path: self.image.path().to_owned(),
                problem: format!("is half-changed, and {} cannot be read: {source}", shown(self.path())),
            },
        })
    }

    /// Writes it to the image, whose file is open for writing as `base`, and for nobody else; `is_qcow2`: as a qcow2
    /// image.
    ///
    /// # Errors
    /// When the image cannot be written, or the change is not one of it; when the image is half-changed by another one
    /// then.
    pub fn complete(self, base: Arc<dyn Disk>, is_qcow2: bool) -> Result<(), ImageError> {
        self.fold(base, is_qcow2).map_err(|problem| match problem {
            Problem::Restored => self.restored(),
            Problem::Failed(source) => self.half_changed(&source),
        })?;
        // Where nobody can be locked out, somebody may have completed this one, and begun the next.
        refuse_marked(&self.image)
    }

    fn fold(&self, base: Arc<dyn Disk>, is_qcow2: bool) -> Result<(), Problem> {
        // What the open file says counts, and not whether it has a name still: who may remove things in the directory
        // may have removed it.
        let mut record = self.record()?;
        if self.has_not_happened(&record) {
            return self.remove_name();
        }
        // Somebody had the image before, where nobody can be locked out.
        if record.is_done() {
            return self.remove(record);
        }
        let was_begun = !record.is_untouched();
        let delta = self.delta(&base)?;
        record.begin(self.image.file())?;
        let folded = commit(&delta, &*base);
        // An image may be written until it is closed.
        drop(delta);
        let is_closed = Arc::strong_count(&base) == 1;
        drop(base);
        if let Err(error) = folded {
            if is_closed {
                // Without this, a restored one is not known as one.
                let _ = record.stop(self.image.file());
            }
            return Err(error.into());
        }
        if was_begun && is_closed && is_qcow2 {
            self.free_leaked_clusters()?;
        }
        self.remove(record)
    }

    /// Whoever was killed may have allocated clusters that nothing refers to yet.
    fn free_leaked_clusters(&self) -> io::Result<()> {
        let failed = |error: ImageError| io::Error::other(crate::explain(&error));
        let mut check = Qcow2Check::open(&self.image, true).map_err(failed)?;
        let report = check.run(Repair::Leaks, &mut |_| ()).map_err(failed)?;
        // Anything else that is wrong is for `image check` to say.
        if report.corruptions == 0 && report.leaks == 0 { check.truncate(report.image_end_bytes) } else { Ok(()) }
    }

    fn delta(&self, base: &Arc<dyn Disk>) -> io::Result<OverlayDisk> {
        let geometry = base.geometry();
        let options = FileOptions {
            read_only: true,
            lock: false,
            logical_block_bytes: geometry.logical_block_bytes,
            ..FileOptions::default()
        };
        let delta = Qcow2Disk::open_delta(self.journal.try_clone()?, self.path(), Arc::clone(base), &options, true);
        let delta = OverlayDisk::on(delta.map_err(|error| io::Error::other(crate::explain(&error)))?);
        if delta.geometry().capacity_bytes != geometry.capacity_bytes {
            return Err(io::Error::other("it is of a disk of another size"));
        }
        Ok(delta)
    }
}
