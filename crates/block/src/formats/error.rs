//! Why an image cannot be a disk.

use super::KeyFileError;
use crate::{FileDiskError, Remedy, ReplacementError, shown};
use std::io;
use std::path::PathBuf;

/// Why an image could not be opened or made.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file itself.
    #[error(transparent)]
    File(#[from] FileDiskError),
    /// The new file could not be put in its place.
    #[error(transparent)]
    Replacement(#[from] ReplacementError),
    /// The passphrase of an image.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The operating system failed a step.
    #[error("cannot {action} {}", shown(path))]
    System {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The image is wrong in itself, or needs something that is missing here.
    #[error("{} {problem}", shown(path))]
    Unusable {
        /// The image's file.
        path: PathBuf,
        /// What is wrong with it, and what may help; goes on after the path.
        problem: String,
    },
    /// The image refers to a file that cannot be opened.
    #[error("{} refers to {}, which cannot be opened", shown(image), shown(name))]
    Referred {
        /// The image that refers to it.
        image: PathBuf,
        /// The file, as the image calls it.
        name: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The image refers to a file that the user did not allow.
    #[error("{} refers to {}, {}", shown(image), shown(target), Remedy::AllowDirectory(directory))]
    NotAllowed {
        /// The image that refers to it.
        image: PathBuf,
        /// The file that it refers to, symbolic links resolved.
        target: PathBuf,
        /// The directory that the file is in.
        directory: PathBuf,
    },
    /// What an image asks for is impossible.
    #[error("{0}")]
    Invalid(String),
}
