//! Temporary directories for what nobody else is to see: contents of images.

use anyhow::{Context, Result};
use blockyard_block::shown;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

/// A new one, in which only this user finds anything, whatever the umask is. It is gone when it is dropped.
///
/// # Errors
/// When it cannot be made.
pub fn make() -> Result<TempDir> {
    make_in(&std::env::temp_dir(), "blockyard-")
}

/// The same, below `directory`.
///
/// # Errors
/// When it cannot be made.
pub fn make_in(directory: &Path, prefix: &str) -> Result<TempDir> {
    let own = Permissions::from_mode(0o700);
    let made = tempfile::Builder::new().prefix(prefix).permissions(own.clone()).tempdir_in(directory);
    // The umask may have left less of them.
    let made = made.and_then(|made| std::fs::set_permissions(made.path(), own).map(|()| made));
    made.with_context(|| format!("making a directory in {}", shown(directory)))
}
