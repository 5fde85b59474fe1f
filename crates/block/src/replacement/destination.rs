//! Where a replacement file goes, and what it replaces.

use super::ReplacementError;
use crate::{FileDisk, FileOptions};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, openat};
use std::ffi::OsString;
use std::fs::{self, File, FileType, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A place for a regular file: a directory that exists, and a name in it.
#[derive(Debug)]
pub(super) struct Destination {
    /// All of it, symbolic links resolved.
    pub(super) path: PathBuf,
    pub(super) directory: PathBuf,
    pub(super) name: OsString,
    /// The regular file that has the name now.
    pub(super) replaces: Option<OldFile>,
}

/// What a replacement takes over from the file that it replaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct OldFile {
    pub(super) mode: Mode,
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Destination {
    pub(super) fn find(path: &Path) -> Result<Self, ReplacementError> {
        let failed = |error| ReplacementError::new("look at", path, error);
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.file_type().is_symlink() => match fs::canonicalize(path) {
                Ok(target) => Self::of_existing(&target, &fs::metadata(&target).map_err(failed)?),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Err(ReplacementError::DanglingLink(path.to_owned()))
                }
                Err(error) => Err(failed(error)),
            },
            Ok(metadata) => Self::of_existing(path, &metadata),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::of_new(path),
            Err(error) => Err(failed(error)),
        }
    }

    /// Locks the file that is there. One that cannot be read cannot be locked, and is nobody's image.
    pub(super) fn lock(&self) -> Result<Option<File>, ReplacementError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let old = self.replaces.and_then(|_| openat(CWD, &self.path, flags, Mode::empty()).ok()).map(File::from);
        if let Some(old) = &old {
            FileDisk::lock(old, &self.path, &FileOptions::default())?;
        }
        Ok(old)
    }

    fn of_existing(path: &Path, metadata: &Metadata) -> Result<Self, ReplacementError> {
        if let Some(kind) = unsuitable(metadata.file_type()) {
            return Err(ReplacementError::NotAFile { path: path.to_owned(), kind });
        }
        accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)
            .map_err(|errno| ReplacementError::NotWritable { path: path.to_owned(), source: errno.into() })?;
        let old = OldFile {
            mode: Mode::from_raw_mode(metadata.mode() & 0o7777),
            user: metadata.uid(),
            group: metadata.gid(),
        };
        Ok(Self { replaces: Some(old), ..Self::of_new(path)? })
    }

    fn of_new(path: &Path) -> Result<Self, ReplacementError> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let name = match path.file_name() {
            Some(name) if !path.as_os_str().as_bytes().ends_with(b"/") => name,
            _ => return Err(ReplacementError::NoDirectory(path.to_owned())),
        };
        if !directory.is_dir() {
            return Err(ReplacementError::NoDirectory(directory.to_owned()));
        }
        Ok(Self { path: path.to_owned(), directory: directory.to_owned(), name: name.to_owned(), replaces: None })
    }
}

/// What a thing is that no regular file may replace.
fn unsuitable(file_type: FileType) -> Option<&'static str> {
    match file_type {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_block_device() => Some("a block device"),
        kind if kind.is_char_device() => Some("a character device"),
        kind if kind.is_fifo() => Some("a FIFO"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("no regular file"),
    }
}
