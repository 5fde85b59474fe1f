//! Where a measurement keeps its files.

use anyhow::{Context, Result};
use std::path::Path;
use tempfile::TempDir;

/// A directory of its own below one that the user chose, as that decides whether a disk or memory is measured. Its path is absolute
/// and leads through no link; it is gone when it is dropped.
///
/// # Errors
/// When there is no such directory, or it takes no new ones.
pub(crate) fn make_in(directory: &Path) -> Result<TempDir> {
    let made = directory
        .canonicalize()
        .and_then(|directory| tempfile::Builder::new().prefix("blockyard-bench-").tempdir_in(directory));
    made.with_context(|| format!("making a directory in {}", directory.display()))
}
