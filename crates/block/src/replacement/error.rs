//! Why a file cannot be replaced.

use crate::{FileDiskError, shown};
use std::io;
use std::path::{Path, PathBuf};

/// Why an output file cannot be created, written or put in its place.
#[derive(Debug, thiserror::Error)]
pub enum ReplacementError {
    /// A symbolic link whose target does not exist.
    #[error("{} is a symbolic link that leads nowhere: remove it, or name the file it should lead to", shown(.0))]
    DanglingLink(PathBuf),
    /// What is to be a new file is there already.
    #[error("{} is there already, and nothing of it would be left: remove it, or choose another name", shown(.0))]
    Taken(PathBuf),
    /// Another program has made, or put there, a file of the name since this one was begun.
    #[error(
        "something else has been put at {} since this began, and is left as it is: choose another name, or remove it and begin again",
        shown(.0)
    )]
    MadeMeanwhile(PathBuf),
    /// The path is taken by something that is not a regular file.
    #[error("{} is {kind}: name a regular file, or one that does not exist yet", shown(path))]
    NotAFile {
        /// Where the file was to be.
        path: PathBuf,
        /// What is there, with its article.
        kind: &'static str,
    },
    /// Something is mounted on the path, such as a container's file or a file served by FUSE: the name is not free for
    /// another file.
    #[error("{} is a mount point, and no other file can take its place: name another file", shown(.0))]
    MountPoint(PathBuf),
    /// The directory that the file would be in is not there.
    #[error("there is no directory {}: create it first", shown(.0))]
    NoDirectory(PathBuf),
    /// Nothing has the name, and it is one of a device: in /dev, where no file is made.
    #[error("there is no device {}: name one that is there, or a file that is not in /dev", shown(.0))]
    NoDevice(PathBuf),
    /// The file is there and this user may not write to it.
    #[error("{} cannot be written; change its permissions, or name another file", shown(path))]
    NotWritable {
        /// The file that is there.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file, or its directory, has an attribute by which nothing there changes.
    #[error("{} cannot be replaced: it or its directory is not to be changed (`lsattr -d`); name another file", shown(.0))]
    Fixed(PathBuf),
    /// The file is somebody else's, in a directory that is too and out of which its users may take their own only.
    #[error("{} cannot be replaced: only its owner may take it out of its directory, which is sticky; name another file", shown(.0))]
    Sticky(PathBuf),
    /// The file is a stranger's, in a sticky directory where anybody could put it: the contents would be that
    /// stranger's to read.
    #[error(
        "{} is somebody else's file in a directory that others write to, and its owner could read what is written: remove it, or choose another name",
        shown(.0)
    )]
    Strangers(PathBuf),
    /// The file is there and another program uses it.
    #[error(transparent)]
    InUse(#[from] FileDiskError),
    /// The file system or the user's quota is full.
    #[error("no space left for {}: free some, or write to another file system", shown(.0))]
    NoSpace(PathBuf),
    /// Anything else that the operating system refused.
    #[error("cannot {action} {}", shown(path))]
    Failed {
        /// What was tried: a verb, and what else stands before the path.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl ReplacementError {
    pub(super) fn new(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.to_owned(), source.into());
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace(path),
            _ => Self::Failed { action, path, source },
        }
    }
}
