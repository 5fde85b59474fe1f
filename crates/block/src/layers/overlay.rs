//! Copy-on-write on top of any disk.

use super::layer;
use crate::formats::{base_of_delta, fold};
use crate::replacement::refuse_strangers;
use crate::{
    Disk, FileDisk, FileDiskError, FileOptions, ImageError, LocalName, Qcow2Backing, Qcow2Disk, directory_of,
    same_file, shown,
};
use rustix::fs::{CWD, Mode, OFlags, openat, unlinkat};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What a delta's header calls a base that has no name: QEMU cannot open it, and must not, because it would show zeros
/// there.
const NAMELESS_BASE: &str = "blockyard-overlay-on-a-disk-that-is-no-file";

/// A disk whose changes go to a delta, a qcow2 image; the base stays as it is.
///
/// What the delta does not hold is read from the base's own queues, into the requester's memory.
#[derive(Debug)]
pub struct OverlayDisk {
    delta: Qcow2Disk,
}

impl OverlayDisk {
    /// Opens the delta at `path` on `base`, or makes it. A delta that is there must be as large as the base, and name
    /// no other file that is there; that it was made on this base is otherwise the caller's to know. `name` is what a
    /// new delta's header calls the base: with the name of a file and its format, QEMU can open the delta too. A new
    /// delta has what the umask leaves of `permissions`, the base's.
    ///
    /// # Errors
    /// When the delta cannot be opened or made, is an image of its own or of another base, or has another size than
    /// the base.
    pub fn open_or_create(
        base: Arc<dyn Disk>,
        path: &Path,
        name: Option<Qcow2Backing>,
        permissions: Option<u32>,
        options: &FileOptions,
    ) -> Result<Self, ImageError> {
        let failed = |source| ImageError::System { action: "open the delta", path: path.to_owned(), source };
        let capacity_bytes = base.geometry().capacity_bytes;
        let file = match FileDisk::open_file(path, options.read_only) {
            Err(FileDiskError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let replacement = crate::ReplacementFile::create_like(path, permissions)?;
                let name = name.unwrap_or_else(nameless);
                crate::formats::create_delta(replacement.file(), path, capacity_bytes, name)?;
                let file = replacement.file().try_clone().map_err(failed)?;
                replacement.commit(false)?;
                file
            }
            opened => {
                let file = opened?;
                refuse_others(&file, path, name.as_ref())?;
                file
            }
        };
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            let problem = "is no regular file, and a delta is".into();
            return Err(ImageError::Unusable { path: path.to_owned(), problem });
        }
        // Whose it is could read what is written, parts of the base among it.
        if !options.read_only {
            refuse_strangers(&file, path)?;
        }
        let delta = Qcow2Disk::open_delta(file, path, base, options, false)?;
        let delta_bytes = delta.geometry().capacity_bytes;
        if delta_bytes != capacity_bytes {
            let problem = format!("is a delta of {delta_bytes} bytes, but its base has {capacity_bytes}");
            return Err(ImageError::Unusable { path: path.to_owned(), problem });
        }
        Ok(Self { delta })
    }

    /// One that is open.
    pub(crate) fn on(delta: Qcow2Disk) -> Self {
        Self { delta }
    }

    /// The first run of `range` that the delta has or has not, and which of both.
    pub(crate) fn find_own(&self, range: Range<u64>) -> io::Result<(u64, bool)> {
        self.delta.find_own(range)
    }

    /// A delta in an unnamed file in `directory`, which is gone with the disk. Flushes do nothing: there is nothing to
    /// keep.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn temporary(base: Arc<dyn Disk>, directory: &Path, options: &FileOptions) -> Result<Self, ImageError> {
        let failed =
            |source| ImageError::System { action: "make a temporary file in", path: directory.to_owned(), source };
        Self::volatile(base, unnamed(directory).map_err(failed)?, directory, options)
    }

    /// A delta in an empty file, open for reading and writing. Flushes do nothing: whoever wants to keep it waits until
    /// it is dropped, and makes the file stable. `path` is for messages.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn volatile(
        base: Arc<dyn Disk>,
        file: File,
        path: &Path,
        options: &FileOptions,
    ) -> Result<Self, ImageError> {
        crate::formats::create_delta(&file, path, base.geometry().capacity_bytes, nameless())?;
        let options = FileOptions { read_only: false, cache_unsafe: true, ..*options };
        Ok(Self { delta: Qcow2Disk::open_delta(file, path, base, &options, true)? })
    }
}

/// Refuses an image that is there and was made on nothing, or on another base than the one of that name, as far as
/// their names tell: a file that has been moved is not known by its name.
fn refuse_others(file: &File, path: &Path, base: Option<&Qcow2Backing>) -> Result<(), ImageError> {
    let unusable = |problem| Err(ImageError::Unusable { path: path.to_owned(), problem });
    // What cannot be opened says so when it is.
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Ok(());
    }
    let Some(named) = base_of_delta(file, path)? else {
        return unusable("is an image of its own, over no other: name a new file for what is changed".into());
    };
    let (Ok(named), Some(base)) = (LocalName::of(&named), base) else { return Ok(()) };
    let named = directory_of(path).join(named.path);
    match named.exists() && !same_file(&named, Path::new(&base.name)).unwrap_or(false) {
        true => unusable(format!(
            "holds what was changed of {}, and not of {}: name a new file for that",
            shown(&named),
            shown(&base.name)
        )),
        false => Ok(()),
    }
}

fn nameless() -> Qcow2Backing {
    Qcow2Backing { name: NAMELESS_BASE.into(), format: "raw".into() }
}

/// A file without a name; on a file system that has none, one whose name is gone.
fn unnamed(directory: &Path) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match openat(CWD, directory, flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok(file.into()),
        Err(_) => {
            let path = directory.join(format!(".blockyard-snapshot-{}", std::process::id()));
            let file = openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
            unlinkat(CWD, &path, rustix::fs::AtFlags::empty())?;
            Ok(file.into())
        }
    }
}

impl layer::DiskLayer for OverlayDisk {
    fn below(&self) -> &dyn Disk {
        &self.delta
    }
}

/// Writes what a delta holds to its base, and flushes it. The delta stays as it is, and shows the same as before; when
/// this has returned without an error, it is no longer needed. Nobody may write to either meanwhile. Returns the bytes
/// that were written.
///
/// # Errors
/// When either fails, or the base is read-only or smaller; then the delta is still needed, and this can be done again.
pub fn commit(delta: &OverlayDisk, base: &dyn Disk) -> io::Result<u64> {
    Ok(fold(&delta.delta, |range| delta.find_own(range), base, &mut |_, _| true)?)
}
