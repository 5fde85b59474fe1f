//! Files that somebody named, each opened once.

use crate::replacement::permissions;
use crate::{FileDisk, FileDiskError, FileOptions};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The name by which this process has what is open, whatever has its own name by then, if /proc is mounted.
pub fn descriptor_path(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// A regular file or block device, opened by its name once. What is found out of it afterwards (what it holds, who owns
/// it, who uses it) and what is done to it is found out of and done to this very file, whatever has the name by then.
#[derive(Debug)]
pub struct OpenedFile {
    file: File,
    path: PathBuf,
}

impl OpenedFile {
    /// Opens the file at `path`, and a block device for writing only if nobody else in the system has it. Nothing is
    /// locked.
    ///
    /// # Errors
    /// When it cannot be opened, or is neither a regular file nor a block device.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, FileDiskError> {
        Ok(Self { file: FileDisk::open_file(path, read_only)?, path: path.to_owned() })
    }

    /// A file that somebody has opened by this path.
    pub fn new(file: File, path: PathBuf) -> Self {
        Self { file, path }
    }

    /// Locks it as [`FileDisk::open`] does, unless the options say not to, for as long as it or a duplicate of it is
    /// open.
    ///
    /// # Errors
    /// When somebody else has locked it.
    pub fn lock(&self, options: &FileOptions) -> Result<(), FileDiskError> {
        FileDisk::lock(&self.file, &self.path, options)
    }

    /// The name by which it was opened, for messages and for what it refers to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file alone.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// Another handle on the same open file, with its locks.
    ///
    /// # Errors
    /// When there are too many.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, path: self.path.clone() })
    }

    /// Its permission bits, without those of the group and of others where it has an access control list: whom that
    /// keeps out may be anybody.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn permissions(&self) -> io::Result<u32> {
        permissions(&self.file)
    }
}
