//! Looking for the journal of an image, and whether what is found there counts.

use super::journal_record::{IMAGE_MARK, JournalRecord, Stamp, is_ours};
use super::lasting_identity::LastingIdentity;
use super::unfinished_change::{ANOTHER_IMAGES, COPY, NO_CHANGE, UnfinishedChange, unmarking};
use crate::Remedy;
use crate::formats::ImageError;
use crate::place::Place;
use crate::users::is_one_user;
use crate::{OpenedFile, shown};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, statat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What lies where an image's journal would.
#[derive(Debug)]
pub enum FoundJournal {
    /// Nothing.
    None,
    /// Something that may be anybody's and so does not count: it is left alone.
    Foreign(ForeignJournal),
    /// A change.
    Unfinished(UnfinishedChange),
}

/// A file that is called as an image's journal, and does not count.
#[derive(Debug)]
pub struct ForeignJournal {
    /// Where it is.
    pub path: PathBuf,
    /// What it would have to be, and is not; goes on after "it is".
    pub problem: &'static str,
}

impl FoundJournal {
    /// Looks beside an image, which is open, and locked if anybody else may be about it.
    ///
    /// # Errors
    /// When there is a change, and its file cannot be opened for what `read_only` says; when there is none, and the
    /// image says that it is half-changed.
    pub fn of(image: &OpenedFile, read_only: bool) -> Result<Self, ImageError> {
        // Whatever becomes of its name.
        let looked = |source| ImageError::System { action: "look at", path: image.path().to_owned(), source };
        let mark = IMAGE_MARK.of(image.file()).map_err(looked)?;
        let place = match journal_place(image.file(), image.path()) {
            Ok(Some(place)) => place,
            _ if mark.is_some() => return Err(gone(image, None, None)),
            // Nothing can lie beside what has no name.
            _ => return Ok(Self::None),
        };
        let failed =
            |source| ImageError::System { action: "open the unfinished change", path: place.path.clone(), source };
        let status = fstat(image.file()).map_err(|errno| failed(errno.into()))?;
        let found = match statat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) if mark.is_some() => return Err(gone(image, Some(&place), None)),
            Err(Errno::NOENT) => return Ok(Self::None),
            Err(errno) => return Err(failed(errno.into())),
        };
        let foreign = |problem| match mark {
            Some(_) => Err(gone(image, Some(&place), Some(problem))),
            None => Ok(Self::Foreign(ForeignJournal { path: place.path.clone(), problem })),
        };
        if let Some(problem) = foreign_because(&found, &status) {
            return foreign(problem);
        }
        let journal = place.open(if read_only { OFlags::RDONLY } else { OFlags::RDWR }).map_err(failed)?;
        // What was opened is what counts.
        if let Some(problem) = foreign_because(&fstat(&journal).map_err(|errno| failed(errno.into()))?, &status) {
            return foreign(problem);
        }
        let record = JournalRecord::read(&journal);
        // Any file of the owner's may have been moved here.
        match &record {
            Ok(record) if !record.is_original().map_err(failed)? => return foreign(COPY),
            Err(_) if !is_ours(&journal).map_err(failed)? => return foreign(NO_CHANGE),
            _ => {}
        }
        // Those of before did not say which image they are of.
        if JournalRecord::is_of_another_version(&journal).map_err(failed)? {
            return Err(of_another_version(image, &place));
        }
        // One that is damaged, and may be real, is an error where it is needed.
        if let Ok(record) = record {
            if !record.is_of(image.file()).map_err(failed)? {
                return foreign(ANOTHER_IMAGES);
            }
            if mark.is_some_and(|mark| !record.is_named_by(mark)) {
                return foreign("that of another change");
            }
            // Whoever writes next removes it.
            if read_only && (record.is_done() || !record.has_happened(mark)) {
                return Ok(Self::None);
            }
        }
        let image = image.try_clone().map_err(failed)?;
        let seen = Some((Stamp::of(image.file()).map_err(failed)?, mark));
        Ok(Self::Unfinished(UnfinishedChange { image, journal, place, seen }))
    }

    /// Refuses an image with an unfinished change: for who works on the file itself, and sees it neither completed nor
    /// through the change.
    ///
    /// # Errors
    /// When there is one.
    pub(crate) fn refuse(image: &OpenedFile) -> Result<(), ImageError> {
        match Self::of(image, true)? {
            Self::Unfinished(change) => Err(change.must_be_completed()),
            Self::None | Self::Foreign(_) => Ok(()),
        }
    }

    /// The same for who is about to write to an image, and has locked it: he removes what is left of a change that is
    /// all in place, or has never happened, as everybody does who writes.
    ///
    /// # Errors
    /// When there is an unfinished change, and when what is left of one cannot be removed.
    pub fn refuse_to_write(image: &OpenedFile) -> Result<(), ImageError> {
        match Self::of(image, false)? {
            Self::Unfinished(change) => change.tidy(),
            Self::None | Self::Foreign(_) => Ok(()),
        }
    }
}

fn of_another_version(image: &OpenedFile, place: &Place) -> ImageError {
    let problem = format!(
        "has a change {} that was cut off, and {}, which has it, was written by another version of Blockyard: complete it with \
         that one; an earlier one's does not say which image it is of",
        Remedy::Atomically,
        shown(&place.path)
    );
    ImageError::Unusable { path: image.path().to_owned(), problem }
}

/// Refuses an image that says that it is half-changed, in the words that its journal, or what is there instead, gives
/// rise to.
pub(super) fn refuse_marked(image: &OpenedFile) -> Result<(), ImageError> {
    match IMAGE_MARK.of(image.file()) {
        Ok(None) => Ok(()),
        Ok(Some(_)) | Err(_) => FoundJournal::refuse(image),
    }
}

/// The change of a half-changed image is not found: there is nothing, or something that is `foreign_because`.
fn gone(image: &OpenedFile, place: Option<&Place>, foreign_because: Option<&str>) -> ImageError {
    let journal = place.map_or("the file beside it".to_owned(), |place| shown(&place.path).to_string());
    let there = foreign_because.map_or("is gone".to_owned(), |problem| format!("is {problem}"));
    let several = fstat(image.file()).is_ok_and(|image| image.st_nlink > 1);
    let by_another_name =
        if several { "use the name that it lies beside, if it is beside another one of the image's; " } else { "" };
    let problem = format!(
        "is half-changed: a change {} was cut off, and {journal}, which had all of it, {there}: bring it back, or \
         restore the image; {by_another_name}{} has the image taken for whole as it is, for fsck to repair",
        Remedy::Atomically,
        unmarking(image)
    );
    ImageError::Unusable { path: image.path().to_owned(), problem }
}

/// Why a file is not what a change to an image has left, if so: in a directory where others may make files, anybody may
/// have put it there. It counts for everybody who opens the image, or for nobody.
fn foreign_because(journal: &Stat, image: &Stat) -> Option<&'static str> {
    if FileType::from_raw_mode(journal.st_mode) != FileType::RegularFile {
        Some("no regular file")
    } else if journal.st_dev != image.st_dev {
        // Of a file system that somebody has mounted there, the numbers that tell files apart are what he likes.
        Some("on another file system than the image")
    } else if ![0, image.st_uid].contains(&journal.st_uid) {
        Some("neither the image's owner's nor root's")
    } else if !is_one_user(journal.st_uid) {
        Some("maybe anybody's, as its owner has no number here")
    } else if journal.st_nlink > 1 {
        Some("a file with several names")
    } else if Mode::from_raw_mode(journal.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        // With an ACL, the group's bits are what it allows at most.
        Some("a file that others may write to")
    } else {
        None
    }
}

/// Where the journal of an image lies once it is complete; `None` where files have no time of birth.
pub(super) fn journal_place(image: impl AsFd, path: &Path) -> Result<Option<Place>, ImageError> {
    let failed = |source: io::Error| ImageError::System { action: "look at", path: path.to_owned(), source };
    let Some(LastingIdentity { inode, born }) = LastingIdentity::of(&image).map_err(failed)? else { return Ok(None) };
    let name = format!(".blockyard-change-{inode:x}-{:x}-{:x}", born[0], born[1]);
    let place = Place::of(image, path).and_then(|place| place.beside(&OsString::from(name)));
    place.map(Some).map_err(failed)
}
