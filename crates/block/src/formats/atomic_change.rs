//! Changes to an image that happen as a whole or not at all, whenever the process is killed or the power is cut.
//!
//! Writes go to a delta ([`OverlayDisk`]) in a file that has no name, so that a change which is given up, or whose
//! process is killed, leaves the image as it was. [`AtomicChange::commit`] makes the delta stable, gives it a name
//! beside the image, as a journal, and then has the image say in an attribute which journal it is: that is the moment
//! at which the change has happened, by each of the image's names. (Where its file system keeps no attributes, the
//! journal says that.) Only then is it written to the image, and the journal removed when that is stable. A journal
//! that is found there ([`UnfinishedChange`]) is one that was not written completely; that is done again by whoever
//! opens the image for writing next, and whoever only looks at the image looks through it. It can be done any number of
//! times, as a delta holds whole clusters. A journal that the image does not name yet is of a change that has not
//! happened: nobody sees it, and who writes next removes it.
//!
//! The image is one open file ([`OpenedFile`]), and locked, before anything is asked or decided: its inode number and
//! time of birth, which are the journal's name, so that neither another file that gets the image's name nor a new one
//! in its place is taken for it; its owner, who decides whether the journal counts; what it looks like, which the
//! journal remembers ([`JournalRecord`]), so that nor is one taken for it that was restored in place, unless it was
//! being written when the process was killed. Who moves the journal to another image's name changes nothing of that: it
//! says itself which image it is of. What is written to is that open file. Its directory is held open too: no path is
//! resolved twice, and who may rename things there can keep a journal from being found, but not have it written
//! elsewhere, nor brought back later: it says when all of it is in place, and an image that is half-changed says so
//! itself, where its file system keeps attributes.
//!
//! The image has room for the change before it happens ([`room`]).

mod completion;
mod found_journal;
mod journal_record;
mod lasting_identity;
mod room;
#[cfg(test)]
mod tests;
mod unfinished_change;

pub use found_journal::{ForeignJournal, FoundJournal};
pub use unfinished_change::UnfinishedChange;

use super::ImageError;
use crate::Remedy;
use crate::layers::OverlayDisk;
use crate::place::{Place, is_mount_root};
use crate::replacement::NewFile;
use crate::users::is_one_user;
use crate::{Disk, FileOptions, OpenedFile, shown};
use found_journal::{journal_place, refuse_marked};
use journal_record::{JournalRecord, make_ours};
use rustix::fs::{AtFlags, Mode, Uid, fchmod, fchown, fstat, fsync, statat};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use unfinished_change::{as_it_was, cannot_be_written_down};

/// What of an image's permissions its journal has: the owner's.
const OWNERS: Mode = Mode::RWXU;

/// A change to an image that has not happened yet. Dropping it gives it up.
#[derive(Debug)]
pub struct AtomicChange {
    image: OpenedFile,
    base: Base,
    delta: Arc<OverlayDisk>,
    journal: NewFile,
    place: Place,
}

/// The image's disk.
struct Base(Arc<dyn Disk>);

impl std::fmt::Debug for Base {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Base")
    }
}

impl AtomicChange {
    /// Begins a change to an image, which is open for writing as `base`, and locked for as long as this lives.
    ///
    /// # Errors
    /// When no file can be made beside the image, or one is in the way there; when the image says that it is
    /// half-changed.
    pub fn begin(base: Arc<dyn Disk>, image: OpenedFile) -> Result<Self, ImageError> {
        // This change's own mark would take the place of the other's.
        refuse_marked(&image)?;
        let failed =
            |source| ImageError::System { action: "make a file beside", path: image.path().to_owned(), source };
        let Some(place) = journal_place(image.file(), image.path())? else {
            let problem = "its file system does not keep when files were made";
            return Err(cannot_be_changed(&image, problem));
        };
        // One that counts would have been completed when the image was opened.
        if statat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(in_the_way(&image, &place));
        }
        let status = fstat(image.file()).map_err(|errno| failed(errno.into()))?;
        if status.st_nlink > 1 {
            let problem = "it has several names (hard links), and by one in another directory nobody would find a change that was cut \
                           off; a copy of it has one";
            return Err(cannot_be_changed(&image, problem));
        }
        if is_mount_root(image.file()).map_err(failed)? {
            let problem = format!(
                "the file is mounted by itself, as a container's may be, and by its name in its own directory nobody would find a change \
                 that was cut off: use that name, or {}",
                Remedy::NotAtomically
            );
            return Err(cannot_be_changed(&image, &problem));
        }
        if !is_one_user(status.st_uid) {
            let problem = format!(
                "it shows the owner {}, as the files of all users without a number here do, so that \
                 nobody could tell whose a change that was cut off is",
                status.st_uid
            );
            return Err(cannot_be_changed(&image, &problem));
        }
        let mode = Mode::from_raw_mode(status.st_mode) & OWNERS;
        let directory = place.readable_directory().map_err(failed)?;
        let journal = NewFile::create(directory, &place.name, mode).map_err(|errno| failed(errno.into()))?;
        if fstat(journal.file()).map_err(|errno| failed(errno.into()))?.st_uid != status.st_uid
            && fchown(journal.file(), Some(Uid::from_raw(status.st_uid)), None).is_err()
        {
            let problem = format!(
                "can be changed {} by its owner and by root only: if it were cut off, others would have to complete it",
                Remedy::Atomically
            );
            return Err(ImageError::Unusable { path: image.path().to_owned(), problem });
        }
        // Whatever the umask has taken away.
        fchmod(journal.file(), mode).map_err(|errno| failed(errno.into()))?;
        // Before anything is done that would be lost.
        make_ours(journal.file()).map_err(failed)?;
        let file = journal.file().try_clone().map_err(failed)?;
        let logical_block_bytes = base.geometry().logical_block_bytes;
        let options = FileOptions { logical_block_bytes, ..FileOptions::default() };
        let delta = OverlayDisk::volatile(Arc::clone(&base), file, image.path(), &options)?;
        Ok(Self { image, base: Base(base), delta: Arc::new(delta), journal, place })
    }

    /// The disk to write to. It must be dropped before the change is committed.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.delta) as Arc<dyn Disk>
    }

    /// Makes the change happen. It has, on stable storage, when this returns; when it fails after it has happened, the
    /// error says so, and whoever opens the image for writing next completes it.
    ///
    /// # Errors
    /// When somebody still has the disk, and when a file cannot be written.
    pub fn commit(self) -> Result<(), ImageError> {
        let base = Arc::clone(&self.base.0);
        // Nobody has been killed at it before.
        self.happen()?.complete(base, false)
    }

    /// Up to the moment at which the change has happened, on stable storage.
    fn happen(self) -> Result<UnfinishedChange, ImageError> {
        let change = self.name()?;
        change.happen()?;
        Ok(change)
    }

    /// Gives the change its name. It has not happened yet.
    fn name(self) -> Result<UnfinishedChange, ImageError> {
        let Self { image, base, delta, mut journal, place } = self;
        let as_it_was = |why: &str| as_it_was(&image, why);
        let failed = |error: io::Error| as_it_was(&cannot_be_written_down(&error));
        let delta =
            Arc::into_inner(delta).ok_or_else(|| as_it_was("somebody still writes to what was to be changed"))?;
        room::reserve(&delta, &*base.0, image.file())
            .map_err(|error| as_it_was(&format!("there is no room for the change in it: {error}")))?;
        drop((delta, base));
        JournalRecord::create(journal.file(), image.file()).map_err(failed)?;
        let file = journal.file().try_clone().map_err(failed)?;
        fsync(&file).map_err(|errno| failed(errno.into()))?;
        journal.take_free_place(&place.name).map_err(|errno| match errno {
            Errno::EXIST => in_the_way(&image, &place),
            errno => failed(errno.into()),
        })?;
        let change = UnfinishedChange { image, journal: file, place, seen: None };
        match fsync(journal.directory()) {
            Ok(()) => Ok(change),
            Err(errno) => Err(change.given_up(&errno.into())),
        }
    }
}

fn in_the_way(image: &OpenedFile, place: &Place) -> ImageError {
    let problem = format!("is as it was: {} is in the way, which is no change of it that counts", shown(&place.path));
    ImageError::Unusable { path: image.path().to_owned(), problem }
}

/// Why a change to an image cannot begin.
fn cannot_be_changed(image: &OpenedFile, problem: &str) -> ImageError {
    let problem = format!("cannot be changed {}: {problem}", Remedy::Atomically);
    ImageError::Unusable { path: image.path().to_owned(), problem }
}
