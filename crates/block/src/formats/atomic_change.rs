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

use super::file_identity::FileIdentity;
use super::journal_record::{IMAGE_MARK, JournalRecord, Stamp, is_ours};
use super::{ImageError, Qcow2Check, Repair, room};
use crate::layers::{OverlayDisk, commit};
use crate::place::{Place, is_mount_root};
use crate::replacement::NewFile;
use crate::users::is_one_user;
use crate::{Disk, FileOptions, OpenedFile, Qcow2Disk, shell_word, shown};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, fsync, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
            let problem = "cannot be changed with --atomic: its file system does not keep when files were made";
            return Err(ImageError::Unusable { path: image.path().to_owned(), problem: problem.to_owned() });
        };
        // One that counts would have been completed when the image was opened.
        if statat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(in_the_way(&image, &place));
        }
        let status = fstat(image.file()).map_err(|errno| failed(errno.into()))?;
        if status.st_nlink > 1 {
            let problem = "cannot be changed with --atomic: it has several names (hard links), and by one in another directory \
                           nobody would find a change that was cut off; a copy of it has one";
            return Err(ImageError::Unusable { path: image.path().to_owned(), problem: problem.to_owned() });
        }
        if is_mount_root(image.file()).map_err(failed)? {
            let problem = "cannot be changed with --atomic: the file is mounted by itself, as a container's may be, and by its name in its own \
                           directory nobody would find a change that was cut off: use that name, or leave out --atomic";
            return Err(ImageError::Unusable { path: image.path().to_owned(), problem: problem.to_owned() });
        }
        if !is_one_user(status.st_uid) {
            let problem = format!(
                "cannot be changed with --atomic: it shows the owner {}, as the files of all users without a number here do, so that \
                 nobody could tell whose a change that was cut off is",
                status.st_uid
            );
            return Err(ImageError::Unusable { path: image.path().to_owned(), problem });
        }
        let mode = Mode::from_raw_mode(status.st_mode) & OWNERS;
        let directory = place.readable_directory().map_err(failed)?;
        let journal = NewFile::create(directory, &place.name, mode).map_err(|errno| failed(errno.into()))?;
        if fstat(journal.file()).map_err(|errno| failed(errno.into()))?.st_uid != status.st_uid
            && fchown(journal.file(), Some(Uid::from_raw(status.st_uid)), None).is_err()
        {
            let problem = "can be changed with --atomic by its owner and by root only: if it were cut off, others would have to complete it";
            return Err(ImageError::Unusable { path: image.path().to_owned(), problem: problem.to_owned() });
        }
        // Whatever the umask has taken away.
        fchmod(journal.file(), mode).map_err(|errno| failed(errno.into()))?;
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

fn as_it_was(image: &OpenedFile, why: &str) -> ImageError {
    ImageError::Unusable { path: image.path().to_owned(), problem: format!("is as it was: {why}") }
}

fn cannot_be_written_down(error: &io::Error) -> String {
    format!("the change cannot be written down: {error}")
}

fn in_the_way(image: &OpenedFile, place: &Place) -> ImageError {
    let problem = format!("is as it was: {} is in the way, which is no change of it that counts", shown(&place.path));
    ImageError::Unusable { path: image.path().to_owned(), problem }
}

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

/// Why the file of a change is none, in words that go on after "it is".
const COPY: &str = "a copy of a change's file";
const NO_CHANGE: &str = "not the file of a change";
const ANOTHER_IMAGES: &str = "the file of a change to another image";

fn of_another_version(image: &OpenedFile, place: &Place) -> ImageError {
    let problem = format!(
        "has a change with --atomic that was cut off, and {}, which has it, was written by another version of Blockyard: complete it with \
         that one; an earlier one's does not say which image it is of",
        shown(&place.path)
    );
    ImageError::Unusable { path: image.path().to_owned(), problem }
}

/// Refuses an image that says that it is half-changed, in the words that its journal, or what is there instead, gives
/// rise to.
fn refuse_marked(image: &OpenedFile) -> Result<(), ImageError> {
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
        "is half-changed: a change with --atomic was cut off, and {journal}, which had all of it, {there}: bring it back, or \
         restore the image; {by_another_name}{} has the image taken for whole as it is, for fsck to repair",
        unmarking(image)
    );
    ImageError::Unusable { path: image.path().to_owned(), problem }
}

/// The command that takes its mark from an image.
fn unmarking(image: &OpenedFile) -> String {
    let path = image.path();
    // What begins with a hyphen would be an option.
    let path = if path.is_absolute() { path.to_owned() } else { Path::new(".").join(path) };
    format!("`setfattr -x {} {}`", IMAGE_MARK.name(), shell_word(&path.to_string_lossy()))
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

/// A change that has happened, but that an image's own file does not have completely.
#[derive(Debug)]
pub struct UnfinishedChange {
    image: OpenedFile,
    journal: File,
    place: Place,
    /// What the image looked like when this was found, and its mark; `None` when it is ours since before it happened.
    seen: Option<(Stamp, Option<FileIdentity>)>,
}

impl UnfinishedChange {
    /// The file that has it.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

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

    fn restored(&self) -> ImageError {
        let is_marked = self.seen.is_some_and(|(_, mark)| mark.is_some());
        // What is copied into a file leaves it its attributes.
        let unmark = if is_marked { format!(", and {}", unmarking(&self.image)) } else { String::new() };
        ImageError::Unusable {
            path: self.image.path().to_owned(),
            problem: format!(
                "has been written to by something else since a change with --atomic was cut off: if it was restored, remove {}{unmark}",
                shown(self.path())
            ),
        }
    }

    /// Whether it has happened. One that has not is removed by who completes it, and the image stays as it is.
    pub fn has_happened(&self) -> bool {
        // What cannot be read may have.
        self.record().map_or(true, |record| !self.has_not_happened(&record))
    }

    fn has_not_happened(&self, record: &JournalRecord<'_>) -> bool {
        self.seen.is_some_and(|(_, mark)| !record.has_happened(mark))
    }

    /// Makes it happen, on stable storage: from now on it counts for everybody.
    fn happen(&self) -> Result<(), ImageError> {
        let mut record = JournalRecord::read(&self.journal).map_err(|error| self.given_up(&error))?;
        record.happen(self.image.file()).map_err(|error| self.given_up(&error))?;
        record.make_stable(self.image.file()).map_err(|error| self.half_changed(&error))
    }

    /// It has not happened, and will not.
    fn given_up(&self, error: &io::Error) -> ImageError {
        // Otherwise whoever writes next does that.
        let _ = self.remove_name();
        as_it_was(&self.image, &cannot_be_written_down(error))
    }

    /// Removes what is left of it, if all of it is in place, or if it has never happened.
    fn tidy(self) -> Result<(), ImageError> {
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

    fn half_changed(&self, source: &io::Error) -> ImageError {
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
        let problem = format!(
            "has a change that was cut off ({journal}): complete it first, with `blockyard image check -r leaks` or any command \
             that writes to it"
        );
        ImageError::Unusable { path: image.to_owned(), problem }
    }

    /// The journal's record, if the image is what the change was made for.
    fn record(&self) -> Result<JournalRecord<'_>, Problem> {
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

    /// All of it is in place.
    fn remove(&self, mut record: JournalRecord<'_>) -> Result<(), Problem> {
        record.finish(self.image.file())?;
        self.remove_name()
    }

    /// Removes it, if it is still where it was.
    fn remove_name(&self) -> Result<(), Problem> {
        let own = fstat(&self.journal)?;
        match statat(&self.place.directory, &self.place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino) => {}
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

/// Why a change is not completed.
enum Problem {
    /// The image is not what it was made for.
    Restored,
    Failed(io::Error),
}

impl<E: Into<io::Error>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Where the journal of an image lies once it is complete; `None` where files have no time of birth.
fn journal_place(image: impl AsFd, path: &Path) -> Result<Option<Place>, ImageError> {
    let failed = |source: io::Error| ImageError::System { action: "look at", path: path.to_owned(), source };
    let Some(FileIdentity { inode, born }) = FileIdentity::of(&image).map_err(failed)? else { return Ok(None) };
    let name = format!(".blockyard-change-{inode:x}-{:x}-{:x}", born[0], born[1]);
    let place = Place::of(image, path).and_then(|place| place.beside(&OsString::from(name)));
    place.map(Some).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileDisk;
    use crate::tests::own_mounts::among_own_mounts;
    use crate::tests::unknown_users::among_unknown_users;
    use crate::write::write_bytes;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};
    use tempfile::TempDir;

    const BYTES: usize = 1 << 20;

    /// The image's disk, and its file.
    fn open_image(path: &Path) -> (Arc<dyn Disk>, OpenedFile) {
        let file = OpenedFile::open(path, false).unwrap();
        file.lock(&FileOptions::default()).unwrap();
        let disk = FileDisk::on_opened(file.file().try_clone().unwrap(), path, &FileOptions::default()).unwrap();
        (Arc::new(disk), file)
    }

    fn find(path: &Path) -> (Arc<dyn Disk>, FoundJournal) {
        let (disk, file) = open_image(path);
        let found = FoundJournal::of(&file, false).unwrap();
        (disk, found)
    }

    fn complete(path: &Path) -> Result<(), ImageError> {
        match find(path) {
            (disk, FoundJournal::Unfinished(change)) => change.complete(disk, false),
            (_, found) => panic!("{found:?}"),
        }
    }

    /// An image, and a change to it that has happened, and of which nothing is in place: its process was killed.
    fn killed() -> (TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        fs::write(&path, vec![1; BYTES]).unwrap();
        let (disk, file) = open_image(&path);
        let change = AtomicChange::begin(disk, file).unwrap();
        write_bytes(&*change.disk(), 65536, &[2; 4096]).unwrap();
        change.happen().unwrap();
        assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
        (directory, path)
    }

    #[test]
    fn a_change_to_an_image_that_was_restored_since_is_left_to_its_owner() {
        let (directory, path) = killed();
        let old = SystemTime::now() - Duration::from_secs(1000);
        // As `cp -p` has it: in the same file.
        fs::write(&path, vec![3; BYTES]).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        for _ in 0..2 {
            let error = complete(&path).unwrap_err().to_string();
            assert!(error.contains("written to by something else") && error.contains("remove "), "{error}");
            assert_eq!(fs::read(&path).unwrap(), vec![3; BYTES]);
        }
        // As the message says.
        let error = complete(&path).unwrap_err().to_string();
        let unmarking = format!("`setfattr -x user.blockyard.change {}`", path.display());
        assert_eq!(error.contains(&unmarking), is_marked(&path), "{error}");
        unmark(&path);
        fs::remove_file(journal(&directory, &path)).unwrap();
        assert!(matches!(find(&path).1, FoundJournal::None));
        assert_eq!(fs::read(&path).unwrap(), vec![3; BYTES]);
    }

    /// Takes an image for whole as it is, as messages say.
    fn unmark(path: &Path) {
        if is_marked(path) {
            rustix::fs::removexattr(path, IMAGE_MARK.name()).unwrap();
        }
    }

    #[test]
    fn where_nobody_can_tell_whose_files_are_no_change_counts_and_none_begins() {
        let prepare = || {
            let (directory, path) = killed();
            fs::write(directory.path().join("fresh"), vec![1; BYTES]).unwrap();
            // An image without one says less, and is taken for whole.
            unmark(&path);
            directory
        };
        let test =
            "formats::atomic_change::tests::where_nobody_can_tell_whose_files_are_no_change_counts_and_none_begins";
        let directory = among_unknown_users(test, prepare, |directory| {
            let (_, found) = find(&directory.join("image"));
            let FoundJournal::Foreign(ForeignJournal { problem, .. }) = found else { panic!("{found:?}") };
            assert!(problem.contains("maybe anybody's"), "{problem}");
            let (disk, file) = open_image(&directory.join("fresh"));
            let error = AtomicChange::begin(disk, file).unwrap_err().to_string();
            assert!(error.contains("nobody could tell whose"), "{error}");
        });
        assert!(matches!(find(&directory.path().join("image")).1, FoundJournal::Unfinished(_)));
    }

    #[test]
    fn a_change_of_which_nothing_was_in_place_is_completed() {
        let (directory, path) = killed();
        // Whatever else becomes of it.
        let renamed = directory.path().join("renamed");
        fs::rename(&path, &renamed).unwrap();
        fs::set_permissions(&renamed, fs::Permissions::from_mode(0o640)).unwrap();
        let path = renamed;
        complete(&path).unwrap();
        let image = fs::read(&path).unwrap();
        assert!(image[65536..][..4096] == [2; 4096] && image[..65536] == [1; 65536] && image[69632] == 1);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// As [`killed`], when the image was being written.
    fn killed_later() -> (TempDir, PathBuf) {
        let (directory, path) = killed();
        let (_disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
        let Ok(mut record) = change.record() else { panic!("it is whole") };
        record.begin(change.image.file()).unwrap();
        (directory, path)
    }

    fn journal(directory: &TempDir, path: &Path) -> PathBuf {
        let mut names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        names.find(|found| found != path).unwrap()
    }

    /// Who may rename files there moves another one of the owner's beside the image.
    #[test]
    fn any_file_under_a_journals_name_is_no_change() {
        for content in [vec![], vec![0; 512], vec![7; BYTES]] {
            let (directory, path) = killed();
            let name = journal(&directory, &path);
            unmark(&path);
            fs::remove_file(&name).unwrap();
            fs::write(&name, &content).unwrap();
            if rustix::fs::setxattr(&name, "user.any", b"", rustix::fs::XattrFlags::empty()).is_err() {
                eprintln!("no attributes here");
                return;
            }
            fs::set_permissions(&name, fs::Permissions::from_mode(0o600)).unwrap();
            for read_only in [true, false] {
                let image = OpenedFile::open(&path, read_only).unwrap();
                let found = FoundJournal::of(&image, read_only).unwrap();
                assert!(matches!(&found, FoundJournal::Foreign(found) if found.problem == NO_CHANGE), "{found:?}");
                FoundJournal::refuse_to_write(&image).unwrap();
            }
            assert_eq!(fs::read(&name).unwrap(), content);
        }
    }

    #[test]
    fn who_takes_a_change_away_while_it_is_put_in_place_cannot_bring_it_back() {
        for decoy in [false, true] {
            let (directory, path) = killed_later();
            let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
            let (journal, aside) = (journal(&directory, &path), directory.path().join("aside"));
            fs::rename(&journal, &aside).unwrap();
            if decoy {
                fs::write(&journal, b"decoy").unwrap();
            }
            change.complete(disk, false).unwrap();
            assert_eq!(fs::read(&path).unwrap()[65536..][..4096], [2; 4096]);
            assert_eq!(fs::read(&journal).ok(), decoy.then(|| b"decoy".to_vec()));
            fs::write(&path, vec![3; BYTES]).unwrap();
            fs::rename(&aside, &journal).unwrap();
            let looked_at = OpenedFile::open(&path, true).unwrap();
            assert!(matches!(FoundJournal::of(&looked_at, true).unwrap(), FoundJournal::None));
            complete(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), vec![3; BYTES]);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn an_image_whose_change_is_gone_says_so_and_who_takes_it_as_it_is_keeps_what_he_writes() {
        let (directory, path) = killed_later();
        let (journal, aside) = (journal(&directory, &path), directory.path().join("aside"));
        fs::rename(&journal, &aside).unwrap();
        let image = OpenedFile::open(&path, false).unwrap();
        if IMAGE_MARK.of(image.file()).unwrap().is_none() {
            eprintln!("no attributes here");
            return;
        }
        for (decoy, why) in [(false, "is gone"), (true, "is no regular file")] {
            if decoy {
                std::os::unix::fs::symlink("aside", &journal).unwrap();
            }
            let error = FoundJournal::of(&image, true).unwrap_err().to_string();
            let gone = format!("{}, which had all of it, {why}", journal.display());
            assert!(error.contains("is half-changed") && error.contains(&gone), "{error}");
        }
        fs::rename(&aside, &journal).unwrap();
        assert!(matches!(FoundJournal::of(&image, true).unwrap(), FoundJournal::Unfinished(_)));
        rustix::fs::fremovexattr(image.file(), IMAGE_MARK.name()).unwrap();
        fs::write(&path, vec![3; BYTES]).unwrap();
        drop(image);
        let error = complete(&path).unwrap_err().to_string();
        assert!(error.contains("written to by something else"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), vec![3; BYTES]);
    }

    /// Another change to that image, of which nothing is in place but the mark.
    fn killed_again(path: &Path) {
        let (disk, file) = open_image(path);
        let change = AtomicChange::begin(disk, file).unwrap();
        write_bytes(&*change.disk(), 131_072, &[4; 4096]).unwrap();
        let change = change.happen().unwrap();
        let Ok(mut record) = change.record() else { panic!("it is whole") };
        record.begin(change.image.file()).unwrap();
    }

    #[test]
    fn the_journal_of_an_earlier_change_does_not_count_for_a_later_one() {
        for was_done in [false, true] {
            let (directory, path) = killed();
            let (name, earlier) = (journal(&directory, &path), directory.path().join("earlier"));
            let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
            fs::rename(&name, &earlier).unwrap();
            if was_done {
                change.complete(disk, false).unwrap();
            } else {
                drop((disk, change));
                unmark(&path);
            }
            killed_again(&path);
            let image = OpenedFile::open(&path, false).unwrap();
            if IMAGE_MARK.of(image.file()).unwrap().is_none() {
                eprintln!("no attributes here");
                return;
            }
            let (later, before) = (directory.path().join("later"), fs::read(&path).unwrap());
            fs::rename(&name, &later).unwrap();
            fs::rename(&earlier, &name).unwrap();
            for read_only in [true, false] {
                let error = FoundJournal::of(&image, read_only).unwrap_err().to_string();
                assert!(error.contains("is half-changed") && error.contains("is that of another change"), "{error}");
            }
            assert!(fs::read(&path).unwrap() == before);
            fs::rename(&later, &name).unwrap();
            drop(image);
            complete(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap()[131_072..][..4096], [4; 4096]);
        }
    }

    #[test]
    fn a_half_changed_image_whose_name_is_another_files_says_so() {
        let (directory, path) = killed_later();
        let image = OpenedFile::open(&path, false).unwrap();
        fs::rename(&path, directory.path().join("moved")).unwrap();
        fs::write(&path, b"decoy").unwrap();
        if IMAGE_MARK.of(image.file()).unwrap().is_none() {
            eprintln!("no attributes here");
            return;
        }
        for read_only in [true, false] {
            let error = FoundJournal::of(&image, read_only).unwrap_err().to_string();
            assert!(error.contains("is half-changed"), "{error}");
        }
    }

    /// Who sends somebody a file, byte by byte, sees which file that becomes before the last ones.
    #[test]
    fn what_somebody_was_sent_is_no_change_though_it_says_which_file_it_is() {
        let (directory, path) = killed();
        let (name, sent) = (journal(&directory, &path), directory.path().join("sent"));
        fs::copy(&name, &sent).unwrap();
        let file = File::options().read(true).write(true).open(&sent).unwrap();
        let own = FileIdentity::of(&file).unwrap().unwrap();
        let Ok(record) = JournalRecord::read(&file) else { panic!("it is whole") };
        record.forge(own).unwrap();
        if rustix::fs::fsetxattr(&file, "user.test", b"1", rustix::fs::XattrFlags::empty()).is_err() {
            eprintln!("no attributes here");
            return;
        }
        fs::rename(&sent, &name).unwrap();
        if is_marked(&path) {
            let image = OpenedFile::open(&path, false).unwrap();
            let error = FoundJournal::of(&image, false).unwrap_err().to_string();
            assert!(error.contains("is half-changed") && error.contains("is a copy of a change's file"), "{error}");
            unmark(&path);
        }
        let found = find(&path).1;
        assert!(
            matches!(&found, FoundJournal::Foreign(found) if found.problem == "a copy of a change's file"),
            "{found:?}"
        );
    }

    /// As [`find`], where nobody is locked out.
    fn find_unlocked(path: &Path) -> (Arc<dyn Disk>, UnfinishedChange) {
        let image = OpenedFile::open(path, false).unwrap();
        let options = FileOptions { lock: false, ..FileOptions::default() };
        let disk = FileDisk::on_opened(image.file().try_clone().unwrap(), path, &options).unwrap();
        let FoundJournal::Unfinished(change) = FoundJournal::of(&image, false).unwrap() else { panic!("it is there") };
        (Arc::new(disk), change)
    }

    fn is_marked(path: &Path) -> bool {
        IMAGE_MARK.of(&File::open(path).unwrap()).unwrap().is_some()
    }

    #[test]
    fn who_removes_the_journal_of_a_change_while_it_is_committed_does_not_undo_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        fs::write(&path, vec![1; BYTES]).unwrap();
        let (disk, file) = open_image(&path);
        let change = AtomicChange::begin(Arc::clone(&disk), file).unwrap();
        write_bytes(&*change.disk(), 65536, &[2; 4096]).unwrap();
        let change = change.happen().unwrap();
        fs::remove_file(journal(&directory, &path)).unwrap();
        change.complete(disk, false).unwrap();
        assert_eq!(fs::read(&path).unwrap()[65536..][..4096], [2; 4096]);
        assert!(!is_marked(&path));
    }

    #[test]
    fn who_removes_a_journal_that_was_found_has_no_half_changed_image_taken_for_a_whole_one() {
        for killed in [killed, killed_later] {
            let (directory, path) = killed();
            let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
            fs::remove_file(journal(&directory, &path)).unwrap();
            change.complete(disk, false).unwrap();
            assert_eq!(fs::read(&path).unwrap()[65536..][..4096], [2; 4096]);
            assert!(!is_marked(&path));
        }
    }

    #[test]
    fn a_journal_that_is_cut_short_and_removed_leaves_the_image_half_changed() {
        let (directory, path) = killed_later();
        let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
        let (journal, was_marked) = (journal(&directory, &path), is_marked(&path));
        File::options().write(true).open(&journal).unwrap().set_len(512).unwrap();
        fs::remove_file(&journal).unwrap();
        let error = change.complete(disk, false).unwrap_err().to_string();
        assert!(error.contains("is half-changed") && error.contains("is gone") && error.contains("restore"), "{error}");
        assert_eq!(is_marked(&path), was_marked);
    }

    #[test]
    fn a_half_changed_image_is_not_changed_further() {
        let (directory, path) = killed_later();
        fs::remove_file(journal(&directory, &path)).unwrap();
        if !is_marked(&path) {
            eprintln!("no attributes here");
            return;
        }
        let (disk, file) = open_image(&path);
        let said = FoundJournal::of(&file, false).unwrap_err().to_string();
        let error = AtomicChange::begin(disk, file).unwrap_err().to_string();
        assert!(error.contains("is half-changed") && error == said, "{error}");
        assert!(is_marked(&path));
    }

    #[test]
    fn what_somebody_else_has_completed_is_not_put_over_what_was_written_since() {
        let (directory, path) = killed_later();
        let (disk, change) = find_unlocked(&path);
        complete(&path).unwrap();
        fs::write(&path, vec![3; BYTES]).unwrap();
        change.complete(disk, false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), vec![3; BYTES]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_image_is_not_whole_when_somebody_else_has_begun_another_change() {
        for is_removed in [false, true] {
            let (directory, path) = killed_later();
            let (disk, change) = find_unlocked(&path);
            complete(&path).unwrap();
            killed_again(&path);
            if !is_marked(&path) {
                eprintln!("no attributes here");
                return;
            }
            if is_removed {
                fs::remove_file(journal(&directory, &path)).unwrap();
            }
            let error = change.complete(disk, false).unwrap_err().to_string();
            let why = if is_removed { "is half-changed" } else { "has a change that was cut off" };
            assert!(error.contains(why) && is_marked(&path), "{error}");
        }
    }

    /// Neither before that nor then.
    #[test]
    fn what_somebody_is_being_sent_is_no_change_when_all_of_it_has_come() {
        let (directory, path) = killed();
        let (name, sent) = (journal(&directory, &path), directory.path().join("sent"));
        fs::copy(&name, &sent).unwrap();
        let file = File::options().read(true).write(true).open(&sent).unwrap();
        if rustix::fs::fsetxattr(&file, "user.test", b"1", rustix::fs::XattrFlags::empty()).is_err() {
            eprintln!("no attributes here");
            return;
        }
        let Ok(record) = JournalRecord::read(&file) else { panic!("it is whole") };
        record.forge(FileIdentity::of(&file).unwrap().unwrap()).unwrap();
        let whole = fs::read(&sent).unwrap();
        file.set_len(100).unwrap();
        fs::rename(&sent, &name).unwrap();
        for problem in [NO_CHANGE, COPY] {
            for read_only in [true, false] {
                let image = OpenedFile::open(&path, read_only).unwrap();
                let error = FoundJournal::of(&image, read_only).unwrap_err().to_string();
                assert!(error.contains("is half-changed") && error.contains(problem), "{error}");
            }
            fs::write(&name, &whole).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
    }

    /// Moves the journal beside the image to where that of `other` would be.
    fn give_journal_to(other: &Path, directory: &TempDir, path: &Path) -> PathBuf {
        let file = File::open(other).unwrap();
        let place = journal_place(&file, other).unwrap().unwrap();
        let mut names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let is_journal = |found: &PathBuf| ![path, other].contains(&found.as_path());
        fs::rename(names.find(is_journal).unwrap(), &place.path).unwrap();
        place.path
    }

    /// Who may rename things beside an image moves the journal, which he may not read, to another image's name: one of
    /// his own that says that it is half-changed by it, or one of the same owner's that looks the same.
    #[test]
    fn a_journal_that_is_moved_to_another_image_is_no_change_to_that_one() {
        type Stage = fn() -> (TempDir, PathBuf);
        let stages: [Stage; 5] = [named, killed, killed_later, stopped, done];
        for (stage, make) in stages.into_iter().enumerate() {
            for marked in [false, true] {
                let (directory, path) = make();
                let (other, before) = (directory.path().join("other"), fs::read(&path).unwrap());
                fs::write(&other, vec![3; BYTES]).unwrap();
                let own = FileIdentity::of(File::open(journal_beside(&directory, &[&path, &other])).unwrap());
                let modified = fs::metadata(&path).unwrap().modified().unwrap();
                let file = File::options().write(true).open(&other).unwrap();
                file.set_modified(modified).unwrap();
                let is_kept = marked && IMAGE_MARK.set(&file, &own.unwrap().unwrap()).unwrap();
                let moved = give_journal_to(&other, &directory, &path);
                for read_only in [true, false] {
                    let image = OpenedFile::open(&other, read_only).unwrap();
                    match FoundJournal::of(&image, read_only) {
                        Ok(FoundJournal::Foreign(found)) if !is_kept => {
                            assert_eq!((found.path, found.problem), (moved.clone(), ANOTHER_IMAGES));
                        }
                        Err(error) if is_kept => {
                            let error = error.to_string();
                            assert!(error.contains("is half-changed") && error.contains(ANOTHER_IMAGES), "{error}");
                        }
                        found => panic!("{stage}, {marked}: {found:?}"),
                    }
                }
                assert!(moved.exists() && fs::read(&other).unwrap() == vec![3; BYTES], "{stage}, {marked}");
                assert!(fs::read(&path).unwrap() == before);
                // It is still the image's that it is of.
                give_journal_to(&path, &directory, &other);
                complete(&path).unwrap();
                let wanted = if stage == 0 { vec![1; 4096] } else { vec![2; 4096] };
                assert!(fs::read(&path).unwrap()[65536..][..4096] == wanted && !is_marked(&path), "{stage}");
                assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
            }
        }
    }

    /// It was not there when it was looked at.
    #[test]
    fn a_journal_that_becomes_another_images_meanwhile_is_not_put_in_place() {
        let (directory, path) = killed();
        let (name, other) = (journal(&directory, &path), directory.path().join("other"));
        let (disk, change) = find_unlocked(&path);
        fs::write(&other, vec![3; BYTES]).unwrap();
        let change = UnfinishedChange { image: OpenedFile::open(&other, false).unwrap(), ..change };
        let error = change.complete(disk, false).unwrap_err().to_string();
        assert!(error.contains(ANOTHER_IMAGES) && name.exists(), "{error}");
        assert_eq!(fs::read(&other).unwrap(), vec![3; BYTES]);
    }

    fn journal_beside(directory: &TempDir, others: &[&Path]) -> PathBuf {
        let mut names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        names.find(|found| !others.contains(&found.as_path())).unwrap()
    }

    /// As [`killed`], between the change's name and its moment.
    fn named() -> (TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        fs::write(&path, vec![1; BYTES]).unwrap();
        let (disk, file) = open_image(&path);
        let change = AtomicChange::begin(disk, file).unwrap();
        write_bytes(&*change.disk(), 65536, &[2; 4096]).unwrap();
        change.name().unwrap();
        (directory, path)
    }

    /// As [`killed`], when it could not be put in place.
    fn stopped() -> (TempDir, PathBuf) {
        let (directory, path) = killed_later();
        let (_disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
        let Ok(mut record) = change.record() else { panic!("it is whole") };
        record.stop(change.image.file()).unwrap();
        (directory, path)
    }

    /// As [`killed`], when all of it was in place, and the journal said so.
    fn done() -> (TempDir, PathBuf) {
        let (directory, path) = killed();
        let (name, aside) = (journal(&directory, &path), directory.path().join("aside"));
        let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
        let own = FileIdentity::of(&change.journal).unwrap().unwrap();
        fs::rename(&name, &aside).unwrap();
        change.complete(disk, false).unwrap();
        fs::rename(&aside, &name).unwrap();
        IMAGE_MARK.set(&File::open(&path).unwrap(), &own).unwrap();
        (directory, path)
    }

    #[test]
    fn what_was_cut_off_before_its_moment_has_not_happened_and_leaves_nothing() {
        let (directory, path) = named();
        let looked_at = OpenedFile::open(&path, true).unwrap();
        assert!(matches!(FoundJournal::of(&looked_at, true).unwrap(), FoundJournal::None));
        let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
        assert!(!change.has_happened());
        change.complete(disk, false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        // Nor does it when somebody brings it back later.
        let (directory, path) = named();
        let (name, aside) = (journal(&directory, &path), directory.path().join("aside"));
        fs::rename(&name, &aside).unwrap();
        killed_again(&path);
        complete(&path).unwrap();
        fs::rename(&aside, &name).unwrap();
        complete(&path).unwrap();
        let image = fs::read(&path).unwrap();
        assert!(image[65536..][..4096] == [1; 4096] && image[131_072..][..4096] == [4; 4096]);
    }

    /// As far as this goes: a file system may have as much as anybody wants.
    fn fill_attributes(path: &Path) {
        let mut number = 0;
        for bytes in [1000, 100, 10, 0] {
            while number < 1000 {
                let (name, flags) = (format!("user.fill{number:04}"), rustix::fs::XattrFlags::empty());
                if rustix::fs::setxattr(path, &name, &vec![0; bytes], flags).is_err() {
                    break;
                }
                number += 1;
            }
        }
    }

    #[test]
    fn a_change_to_an_image_that_has_no_room_for_a_mark_happens_when_its_file_says_so() {
        let (directory, path) = named();
        fill_attributes(&path);
        assert!(matches!(FoundJournal::of(&OpenedFile::open(&path, true).unwrap(), true).unwrap(), FoundJournal::None));
        complete(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
        let (disk, file) = open_image(&path);
        let change = AtomicChange::begin(disk, file).unwrap();
        write_bytes(&*change.disk(), 65536, &[2; 4096]).unwrap();
        change.happen().unwrap();
        if is_marked(&path) {
            eprintln!("there is room for any number of attributes here");
        }
        let looked_at = OpenedFile::open(&path, true).unwrap();
        assert!(matches!(FoundJournal::of(&looked_at, true).unwrap(), FoundJournal::Unfinished(_)));
        complete(&path).unwrap();
        assert!(fs::read(&path).unwrap()[65536..][..4096] == [2; 4096] && !is_marked(&path));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// Somebody links the image into another directory, at every moment that there is.
    #[test]
    fn a_change_counts_by_all_names_of_an_image_or_by_none() {
        for make in [named, killed, killed_later] as [fn() -> (TempDir, PathBuf); 3] {
            let (directory, path) = make();
            let elsewhere = tempfile::tempdir().unwrap();
            let other = elsewhere.path().join("other");
            if fs::hard_link(&path, &other).is_err() {
                eprintln!("two file systems");
                return;
            }
            let of = |path: &Path| FoundJournal::of(&OpenedFile::open(path, true).unwrap(), true);
            match of(&path).unwrap() {
                FoundJournal::None => assert!(matches!(of(&other).unwrap(), FoundJournal::None)),
                _ if !is_marked(&path) => eprintln!("no attributes here"),
                _ => {
                    let error = of(&other).unwrap_err().to_string();
                    let how = "use the name that it lies beside";
                    assert!(error.contains("is half-changed") && error.contains(how), "{error}");
                }
            }
            fs::remove_file(&other).unwrap();
            complete(&path).unwrap();
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn who_writes_to_an_image_removes_what_is_left_of_a_change_that_is_over() {
        for (make, value) in [(done as fn() -> (TempDir, PathBuf), 2), (named, 1)] {
            let (directory, path) = make();
            let image = OpenedFile::open(&path, false).unwrap();
            FoundJournal::refuse(&image).unwrap();
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
            FoundJournal::refuse_to_write(&image).unwrap();
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
            assert!(!is_marked(&path) && fs::read(&path).unwrap()[65536..][..4096] == [value; 4096]);
        }
        for make in [killed, killed_later, stopped] as [fn() -> (TempDir, PathBuf); 3] {
            let (directory, path) = make();
            let image = OpenedFile::open(&path, false).unwrap();
            let error = FoundJournal::refuse_to_write(&image).unwrap_err().to_string();
            assert!(error.contains("has a change that was cut off"), "{error}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        }
    }

    #[test]
    fn a_journal_of_another_version_is_left_to_that_version() {
        for version in [b'1', b'3', b'5'] {
            let (directory, path) = killed();
            let (_disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
            let Ok(record) = change.record() else { panic!("it is whole") };
            record.age(version).unwrap();
            for read_only in [true, false] {
                let image = OpenedFile::open(&path, read_only).unwrap();
                let error = FoundJournal::of(&image, read_only).unwrap_err().to_string();
                assert!(error.contains("another version of Blockyard: complete it with that one"), "{error}");
            }
            assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        }
    }

    /// A file system of somebody's own (FUSE) gives its files what numbers he likes.
    #[test]
    fn a_journal_on_another_file_system_is_no_change() {
        let (directory, path) = killed();
        let name = journal(&directory, &path);
        among_own_mounts(move || {
            let system = directory.path().join("system");
            fs::create_dir(&system).unwrap();
            rustix::mount::mount("none", &system, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
            fs::copy(&name, system.join("file")).unwrap();
            rustix::mount::mount_bind(system.join("file"), &name).unwrap();
            unmark(&path);
            let image = OpenedFile::open(&path, true).unwrap();
            let found = FoundJournal::of(&image, true).unwrap();
            let problem = "on another file system than the image";
            assert!(matches!(&found, FoundJournal::Foreign(found) if found.problem == problem), "{found:?}");
            for mounted in [&name, &system] {
                rustix::mount::unmount(mounted, rustix::mount::UnmountFlags::DETACH).unwrap();
            }
        });
    }

    #[test]
    fn an_image_that_is_mounted_as_a_file_is_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let [own, mounted] = ["own", "mounted"].map(|name| directory.path().join(name));
        fs::write(&own, vec![1; BYTES]).unwrap();
        fs::write(&mounted, "").unwrap();
        among_own_mounts(move || {
            rustix::mount::mount_bind(&own, &mounted).unwrap();
            let (disk, file) = open_image(&mounted);
            let error = AtomicChange::begin(disk, file).unwrap_err().to_string();
            assert!(error.contains("mounted by itself") && error.contains("leave out --atomic"), "{error}");
            // By the name in its own directory it is.
            let (disk, file) = open_image(&own);
            let change = AtomicChange::begin(disk, file).unwrap();
            write_bytes(&*change.disk(), 65536, &[2; 4096]).unwrap();
            change.commit().unwrap();
            assert_eq!(fs::read(&mounted).unwrap()[65536..][..4096], [2; 4096]);
            // Its directory may be a mount.
            rustix::mount::mount_bind(own.parent().unwrap(), own.parent().unwrap()).unwrap();
            let (disk, file) = open_image(&own);
            AtomicChange::begin(disk, file).unwrap();
        });
    }

    #[test]
    fn what_is_not_all_of_a_change_is_not_put_in_place() {
        let (directory, path) = killed();
        let journal = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let journal = journal.into_iter().find(|found| *found != path).unwrap();
        let whole = fs::metadata(&journal).unwrap().len();
        for length in [0, 100, 512, whole - 512] {
            File::options().write(true).open(&journal).unwrap().set_len(length).unwrap();
            let error = complete(&path).unwrap_err().to_string();
            assert!(error.contains("not all of a change"), "{length}: {error}");
            assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
            File::options().write(true).open(&journal).unwrap().set_len(whole).unwrap();
        }
        drop(directory);
    }
}
