//! Whether one file is another.

use rustix::fs::{Stat, fstat};
use std::os::fd::AsFd;

/// Which file it is, whatever its name, as long as it exists: its device and its inode's number, which a later file may
/// get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// Of the file that the system told this of. Allocates nothing.
    pub fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }

    /// Of what is open. Allocates nothing.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn of_open(file: impl AsFd) -> rustix::io::Result<Self> {
        Ok(Self::of(&fstat(file)?))
    }

    /// Whether this is what is open there: somebody may have closed it by its number, and opened another one. Allocates
    /// nothing.
    pub fn is_of(self, file: impl AsFd) -> bool {
        Self::of_open(file) == Ok(self)
    }
}
