//! Changes to an image that happen as a whole or not at all, whenever the process is killed or the power is cut.
//!
//! Writes go to a delta ([`OverlayDisk`]) in a file that has no name, so that a change which is given up, or whose process is killed, leaves the
//! image as it was. [`AtomicChange::commit`] makes the delta stable and then gives it a name beside the image: that is the
//! moment at which the change has happened. Only then is it written to the image, and the delta removed when that is
//! stable. A delta that is found there ([`UnfinishedChange`]) is one that was not written completely; that is done again before the
//! image is opened, by whoever opens it next. It can be done any number of times, as a delta holds whole clusters.
//!
//! The name has the image's inode number and its time of birth: neither another file that gets the image's name nor a new one in its
//! place is taken for it. The delta says what the image looked like ([`JournalRecord`]): nor is one that was restored in place, unless
//! it was being written when the process was killed.
//!
//! The image has room for the change before it happens ([`room`]).

use super::journal_record::{JournalRecord, Stamp};
use super::{ImageError, room};
use crate::layers::{OverlayDisk, commit};
use crate::{Disk, FileOptions, Qcow2Disk, ReplacementFile};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, StatxFlags, Uid, fchown, fsync, open, statx};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A change to an image that has not happened yet. Dropping it gives it up.
#[derive(Debug)]
pub struct AtomicChange {
    image: PathBuf,
    base: Base,
    delta: Arc<OverlayDisk>,
    journal: ReplacementFile,
}

/// The image's disk.
struct Base(Arc<dyn Disk>);

impl std::fmt::Debug for Base {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Base")
    }
}

impl AtomicChange {
    /// Begins a change to the image at `path`, which is open for writing as `base`: it stays locked for as long as this lives.
    ///
    /// # Errors
    /// When no file can be made beside the image.
    pub fn begin(base: Arc<dyn Disk>, path: &Path) -> Result<Self, ImageError> {
        let journal = ReplacementFile::create(&journal_path(path)?)?;
        let failed = |source| ImageError::System { action: "make a file beside", path: path.to_owned(), source };
        let file = journal.file().try_clone().map_err(failed)?;
        let logical_block_bytes = base.geometry().logical_block_bytes;
        let options = FileOptions { logical_block_bytes, ..FileOptions::default() };
        let delta = OverlayDisk::volatile(Arc::clone(&base), file, path, &options)?;
        Ok(Self { image: path.to_owned(), base: Base(base), delta: Arc::new(delta), journal })
    }

    /// The disk to write to. It must be dropped before the change is committed.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.delta) as Arc<dyn Disk>
    }

    /// Makes the change happen. It has, on stable storage, when this returns; when it fails after it has happened, the error says so, and
    /// whoever opens the image next completes it.
    ///
    /// # Errors
    /// When somebody still has the disk, and when a file cannot be written.
    pub fn commit(self) -> Result<(), ImageError> {
        let base = Arc::clone(&self.base.0);
        self.name()?.complete(base)
    }

    /// The moment at which the change happens.
    fn name(self) -> Result<UnfinishedChange, ImageError> {
        let Self { image, base, delta, journal } = self;
        let as_it_was =
            |why: &str| ImageError::Unusable { path: image.clone(), problem: format!("is as it was: {why}") };
        let delta =
            Arc::into_inner(delta).ok_or_else(|| as_it_was("somebody still writes to what was to be changed"))?;
        room::reserve(&delta, &*base.0, &image)
            .map_err(|error| as_it_was(&format!("there is no room for the change in it: {error}")))?;
        drop(delta);
        // Whoever owns the image may have to complete it.
        if let Ok(owner) = image.metadata() {
            let _ = fchown(journal.file(), Some(Uid::from_raw(owner.uid())), Some(Gid::from_raw(owner.gid())));
        }
        JournalRecord::create(journal.file(), &image)?;
        let path = journal.path().to_owned();
        journal.commit(true)?;
        Ok(UnfinishedChange { image, journal: path, seen: None })
    }
}

/// A change that has happened, but that an image's own file does not have completely.
#[derive(Debug)]
pub struct UnfinishedChange {
    image: PathBuf,
    journal: PathBuf,
    /// What the image looked like when this was found; `None` when it is ours since before it happened.
    seen: Option<Stamp>,
}

impl UnfinishedChange {
    /// The one of the image at `path`, if there is any.
    pub fn find(path: &Path) -> Option<Self> {
        // What cannot be looked at has none that could be found; whoever opens it says why.
        let journal = journal_path(path).ok()?;
        let image = path.metadata().ok()?;
        let is_ours = is_of_a_change(&journal.symlink_metadata().ok()?, &image);
        is_ours.then(|| Self { image: path.to_owned(), journal, seen: Some(Stamp::of(&image)) })
    }

    /// Writes it to the image, which is open for writing, and so locked, as `base`.
    ///
    /// # Errors
    /// When the image cannot be written, or the change is not one of it.
    pub fn complete(self, base: Arc<dyn Disk>) -> Result<(), ImageError> {
        let unusable = |problem: String| ImageError::Unusable { path: self.image.clone(), problem };
        self.fold(base).map_err(|problem| match problem {
            Problem::Restored => unusable(format!(
                "has been written to by something else since a change with --atomic was cut off: if it was restored, remove {}",
                self.journal.display()
            )),
            Problem::Failed(source) => unusable(format!(
                "is half-changed: all of the change is in {}, and the next command on the image goes on with it; \
                 now it failed: {source}",
                self.journal.display()
            )),
        })
    }

    fn fold(&self, base: Arc<dyn Disk>) -> Result<(), Problem> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match open(&self.journal, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            // Somebody had the image before, and has done it.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        if !is_of_a_change(&file.metadata()?, &self.image.metadata()?) {
            return Err(io::Error::other("it is no file of the image's owner").into());
        }
        let mut record = JournalRecord::read(&file)?;
        if self.seen.is_some_and(|seen| !record.is_for(&seen)) {
            return Err(Problem::Restored);
        }
        let delta = self.delta(file.try_clone()?, &base)?;
        record.begin()?;
        if let Err(error) = commit(&delta, &*base) {
            drop(delta);
            // An image may be written until it is closed. Without this, a restored one is not known as one.
            if Arc::strong_count(&base) == 1 {
                drop(base);
                let _ = record.stop(&self.image);
            }
            return Err(error.into());
        }
        std::fs::remove_file(&self.journal)?;
        let directory = self.journal.parent().unwrap_or(Path::new("/"));
        Ok(fsync(File::open(directory)?)?)
    }

    fn delta(&self, journal: File, base: &Arc<dyn Disk>) -> io::Result<OverlayDisk> {
        let geometry = base.geometry();
        let options = FileOptions {
            read_only: true,
            lock: false,
            logical_block_bytes: geometry.logical_block_bytes,
            ..FileOptions::default()
        };
        let delta = Qcow2Disk::open_delta(journal, &self.journal, Arc::clone(base), &options, true);
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

/// Whether a file of that name can be what a change has left: in a directory where everybody may make files, anybody may have put
/// it there. Those who may write the image anyway are its owner, root, and we.
fn is_of_a_change(journal: &Metadata, image: &Metadata) -> bool {
    journal.is_file() && [0, image.uid(), geteuid().as_raw()].contains(&journal.uid())
}

/// Where the delta of an image lies once it is complete.
fn journal_path(image: &Path) -> Result<PathBuf, ImageError> {
    let failed = |source: io::Error| ImageError::System { action: "look at", path: image.to_owned(), source };
    let image = image.canonicalize().map_err(failed)?;
    let status = statx(CWD, &image, AtFlags::empty(), StatxFlags::INO | StatxFlags::BTIME);
    let status = status.map_err(|errno| failed(errno.into()))?;
    if status.stx_mask & StatxFlags::BTIME.bits() == 0 {
        let problem = "cannot be changed with --atomic: its file system does not keep when files were made".to_owned();
        return Err(ImageError::Unusable { path: image, problem });
    }
    let born = (status.stx_btime.tv_sec, status.stx_btime.tv_nsec);
    let name = format!(".blockyard-change-{:x}-{:x}-{:x}", status.stx_ino, born.0, born.1);
    Ok(image.parent().unwrap_or(Path::new("/")).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileDisk;
    use crate::write::write_bytes;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};
    use tempfile::TempDir;

    const BYTES: usize = 1 << 20;

    fn open_image(path: &Path) -> Arc<dyn Disk> {
        Arc::new(FileDisk::open(path, &FileOptions::default()).unwrap())
    }

    /// An image, and a change to it that has happened, and of which nothing is in place: its process was killed.
    fn killed() -> (TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        fs::write(&path, vec![1; BYTES]).unwrap();
        let change = AtomicChange::begin(open_image(&path), &path).unwrap();
        write_bytes(&*change.disk(), 65536, &[2; 4096]).unwrap();
        change.name().unwrap();
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
            let found = UnfinishedChange::find(&path).unwrap();
            let error = found.complete(open_image(&path)).unwrap_err().to_string();
            assert!(error.contains("written to by something else") && error.contains("remove "), "{error}");
            assert_eq!(fs::read(&path).unwrap(), vec![3; BYTES]);
        }
        let journal = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        fs::remove_file(journal.into_iter().find(|found| *found != path).unwrap()).unwrap();
        assert!(UnfinishedChange::find(&path).is_none());
    }

    #[test]
    fn a_change_of_which_nothing_was_in_place_is_completed() {
        let (directory, path) = killed();
        // Whatever else becomes of it.
        let renamed = directory.path().join("renamed");
        fs::rename(&path, &renamed).unwrap();
        fs::set_permissions(&renamed, fs::Permissions::from_mode(0o640)).unwrap();
        let path = renamed;
        UnfinishedChange::find(&path).unwrap().complete(open_image(&path)).unwrap();
        let image = fs::read(&path).unwrap();
        assert!(image[65536..][..4096] == [2; 4096] && image[..65536] == [1; 65536] && image[69632] == 1);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_not_all_of_a_change_is_not_put_in_place() {
        let (directory, path) = killed();
        let journal = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let journal = journal.into_iter().find(|found| *found != path).unwrap();
        let whole = fs::metadata(&journal).unwrap().len();
        for length in [0, 100, 512, whole - 512] {
            File::options().write(true).open(&journal).unwrap().set_len(length).unwrap();
            let error = UnfinishedChange::find(&path).unwrap().complete(open_image(&path)).unwrap_err().to_string();
            assert!(error.contains("not all of a change"), "{length}: {error}");
            assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
            File::options().write(true).open(&journal).unwrap().set_len(whole).unwrap();
        }
        drop(directory);
    }
}
