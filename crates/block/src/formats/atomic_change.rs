//! Changes to an image that happen as a whole or not at all, whenever the process is killed or the power is cut.
//!
//! Writes go to a delta ([`OverlayDisk`]) in a file that has no name, so that a change which is given up, or whose process is killed, leaves the
//! image as it was. [`AtomicChange::commit`] makes the delta stable and then gives it a name beside the image: that is the
//! moment at which the change has happened. Only then is it written to the image, and the delta removed when that is
//! stable. A delta that is found there ([`UnfinishedChange`]) is one that was not written completely; that is done again before the
//! image is opened, by whoever opens it next. It can be done any number of times, as a delta holds whole clusters.
//!
//! The name has the image's inode number and its time of birth: neither another file that gets the image's name nor a new one in its
//! place is taken for it.

use super::ImageError;
use crate::layers::{OverlayDisk, commit};
use crate::{Disk, FileOptions, Qcow2Disk, ReplacementFile};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fsync, open, statx};
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
        let Self { image, base, delta, journal } = self;
        let Some(delta) = Arc::into_inner(delta) else {
            let problem = "is as it was: somebody still writes to what was to be changed".to_owned();
            return Err(ImageError::Unusable { path: image, problem });
        };
        drop(delta);
        let path = journal.path().to_owned();
        journal.commit(true)?;
        UnfinishedChange { image, journal: path }.complete(base.0)
    }
}

/// A change that has happened, but that an image's own file does not have completely.
#[derive(Debug)]
pub struct UnfinishedChange {
    image: PathBuf,
    journal: PathBuf,
}

impl UnfinishedChange {
    /// The one of the image at `path`, if there is any.
    pub fn find(path: &Path) -> Option<Self> {
        // What cannot be looked at has none that could be found; whoever opens it says why.
        let journal = journal_path(path).ok()?;
        let is_ours = is_of_a_change(&journal.symlink_metadata().ok()?, &path.metadata().ok()?);
        is_ours.then(|| Self { image: path.to_owned(), journal })
    }

    /// Writes it to the image, which is open for writing, and so locked, as `base`.
    ///
    /// # Errors
    /// When the image cannot be written, or the change is not one of it.
    pub fn complete(self, base: Arc<dyn Disk>) -> Result<(), ImageError> {
        self.fold(base).map_err(|source| ImageError::Unusable {
            path: self.image.clone(),
            problem: format!(
                "is half-changed: all of the change is in {}, and the next command on the image goes on with it; \
                 now it failed: {source}",
                self.journal.display()
            ),
        })
    }

    fn fold(&self, base: Arc<dyn Disk>) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match open(&self.journal, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            // Somebody had the image before, and has done it.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        if !is_of_a_change(&file.metadata()?, &self.image.metadata()?) {
            return Err(io::Error::other("it is no file of the image's owner"));
        }
        let geometry = base.geometry();
        let options = FileOptions {
            read_only: true,
            lock: false,
            logical_block_bytes: geometry.logical_block_bytes,
            ..FileOptions::default()
        };
        let delta = Qcow2Disk::open_delta(file, &self.journal, Arc::clone(&base), &options, true);
        let delta = OverlayDisk::on(delta.map_err(|error| io::Error::other(crate::explain(&error)))?);
        if delta.geometry().capacity_bytes != geometry.capacity_bytes {
            return Err(io::Error::other("it is of a disk of another size"));
        }
        commit(&delta, &*base)?;
        std::fs::remove_file(&self.journal)?;
        let directory = self.journal.parent().unwrap_or(Path::new("/"));
        Ok(fsync(File::open(directory)?)?)
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
    let born = (status.stx_btime.tv_sec, status.stx_btime.tv_nsec);
    let name = format!(".blockyard-change-{:x}-{:x}-{:x}", status.stx_ino, born.0, born.1);
    Ok(image.parent().unwrap_or(Path::new("/")).join(name))
}
