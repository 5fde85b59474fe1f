//! Each directory is looked into once: in a damaged file system one may be in several, or in itself.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Directories that are remembered.
const SEEN_MAX: usize = 1 << 20;

/// Directories that were met, by their file systems and inodes.
#[derive(Default)]
pub(crate) struct SeenDirectories(HashSet<(u64, u64)>);

impl SeenDirectories {
    /// Whether a directory is met for the first time. Where there are too many to remember, it is.
    pub(crate) fn is_new(&mut self, directory: &Metadata) -> bool {
        self.0.len() == SEEN_MAX || self.0.insert((directory.dev(), directory.ino()))
    }
}
