//! A change of which an image's own file does not have all: whether it counts, and how what is left of it is removed.

use super::journal_record::{IMAGE_MARK, JournalRecord, Stamp};
use super::lasting_identity::LastingIdentity;
use crate::formats::ImageError;
use crate::place::Place;
use crate::{FileIdentity, OpenedFile, Remedy, shell_word, shown};
use rustix::fs::{AtFlags, fstat, fsync, statat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;

/// Why the file of a change is none, in words that go on after "it is".
pub(super) const COPY: &str = "a copy of a change's file";
pub(super) const NO_CHANGE: &str = "not the file of a change";
pub(super) const ANOTHER_IMAGES: &str = "the file of a change to another image";

/// A change that has happened, but that an image's own file does not have completely.
#[derive(Debug)]
pub struct UnfinishedChange {
    pub(super) image: OpenedFile,
    pub(super) journal: File,
    pub(super) place: Place,
    /// What the image looked like when this was found, and its mark; `None` when it is ours since before it happened.
    pub(super) seen: Option<(Stamp, Option<LastingIdentity>)>,
}

impl UnfinishedChange {
    /// The file that has it.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    pub(super) fn restored(&self) -> ImageError {
        let is_marked = self.seen.is_some_and(|(_, mark)| mark.is_some());
        // What is copied into a file leaves it its attributes.
        let unmark = if is_marked { format!(", and {}", unmarking(&self.image)) } else { String::new() };
        ImageError::Unusable {
            path: self.image.path().to_owned(),
            problem: format!(
                "has been written to by something else since a change {} was cut off: if it was restored, remove {}{unmark}",
                Remedy::Atomically,
                shown(self.path())
            ),
        }
    }

    /// Whether it has happened. One that has not is removed by who completes it, and the image stays as it is.
    pub fn has_happened(&self) -> bool {
        // What cannot be read may have.
        self.record().map_or(true, |record| !self.has_not_happened(&record))
    }

    pub(super) fn has_not_happened(&self, record: &JournalRecord<'_>) -> bool {
        self.seen.is_some_and(|(_, mark)| !record.has_happened(mark))
    }

    /// Makes it happen, on stable storage: from now on it counts for everybody.
    pub(super) fn happen(&self) -> Result<(), ImageError> {
        let mut record = JournalRecord::read(&self.journal).map_err(|error| self.given_up(&error))?;
        record.happen(self.image.file()).map_err(|error| self.given_up(&error))?;
        record.make_stable(self.image.file()).map_err(|error| self.half_changed(&error))
    }

    /// It has not happened, and will not.
    pub(super) fn given_up(&self, error: &io::Error) -> ImageError {
        // Otherwise whoever writes next does that.
        let _ = self.remove_name();
        as_it_was(&self.image, &cannot_be_written_down(error))
    }

    /// Removes what is left of it, if all of it is in place, or if it has never happened.
    pub(super) fn tidy(self) -> Result<(), ImageError> {
        let over = || -> Result<bool, Problem> {
            let record = self.record()?;
            if self.has_not_happened(&record) {
                self.remove_name()?;
                return Ok(true);
            }
            let is_done = record.is_done();
            if is_done {
                self.remove(record)?;
            }
            Ok(is_done)
        };
        match over() {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.must_be_completed()),
            Err(Problem::Restored) => Err(self.restored()),
            Err(Problem::Failed(source)) => Err(self.half_changed(&source)),
        }
    }

    pub(super) fn half_changed(&self, source: &io::Error) -> ImageError {
        let journal = shown(self.path());
        let is_removed = fstat(&self.journal).is_ok_and(|journal| journal.st_nlink == 0);
        let problem = if is_removed {
            format!(
                "is half-changed: {journal}, which had all of the change, is gone: somebody removed it while it was put in place, and \
                 that failed: {source}: restore the image"
            )
        } else {
            format!(
                "is half-changed: all of the change is in {journal}, and the next command that writes to the image goes on with it; \
                 now it failed: {source}"
            )
        };
        ImageError::Unusable { path: self.image.path().to_owned(), problem }
    }

    /// What is said where this is in the way.
    pub fn must_be_completed(&self) -> ImageError {
        let (image, journal) = (self.image.path(), shown(self.path()));
        let problem =
            format!("has a change that was cut off ({journal}): complete it first, {}", Remedy::CompleteChange);
        ImageError::Unusable { path: image.to_owned(), problem }
    }

    /// The journal's record, if the image is what the change was made for.
    pub(super) fn record(&self) -> Result<JournalRecord<'_>, Problem> {
        let record = JournalRecord::read(&self.journal)?;
        let Some((seen, mark)) = self.seen else { return Ok(record) };
        // It may not have been all there when it was found.
        let is_none = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("it is {why}"));
        if !record.is_original()? {
            return Err(is_none(COPY).into());
        }
        if !record.is_of(self.image.file())? {
            return Err(is_none(ANOTHER_IMAGES).into());
        }
        let is_anothers = mark.is_some_and(|mark| !record.is_named_by(mark));
        let is_restored = is_anothers || record.has_happened(mark) && !record.is_for(&seen, mark);
        if is_restored { Err(Problem::Restored) } else { Ok(record) }
    }

    /// All of it is in place.
    pub(super) fn remove(&self, mut record: JournalRecord<'_>) -> Result<(), Problem> {
        record.finish(self.image.file())?;
        self.remove_name()
    }

    /// Removes it, if it is still where it was.
    pub(super) fn remove_name(&self) -> Result<(), Problem> {
        let own = fstat(&self.journal)?;
        match statat(&self.place.directory, &self.place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if FileIdentity::of(&own) == FileIdentity::of(&there) => {}
            // Somebody has moved it: wherever it is, it is done, or has never happened.
            Ok(_) | Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        match unlinkat(&self.place.directory, &self.place.name, AtFlags::empty()) {
            // Somebody was faster.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(fsync(self.place.readable_directory()?)?)
    }
}

/// Why a change is not completed.
pub(super) enum Problem {
    /// The image is not what it was made for.
    Restored,
    Failed(io::Error),
}

impl<E: Into<io::Error>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

pub(super) fn as_it_was(image: &OpenedFile, why: &str) -> ImageError {
    ImageError::Unusable { path: image.path().to_owned(), problem: format!("is as it was: {why}") }
}

pub(super) fn cannot_be_written_down(error: &io::Error) -> String {
    format!("the change cannot be written down: {error}")
}

/// The command that takes its mark from an image.
pub(super) fn unmarking(image: &OpenedFile) -> String {
    let path = image.path();
    // What begins with a hyphen would be an option.
    let path = if path.is_absolute() { path.to_owned() } else { Path::new(".").join(path) };
    format!("`setfattr -x {} {}`", IMAGE_MARK.name(), shell_word(&path.to_string_lossy()))
}
