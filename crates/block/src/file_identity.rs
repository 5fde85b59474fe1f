//! Whether one file is another.

use rustix::fs::Stat;

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
}
