//! Temporary directories for what nobody else is to see: contents of images.

use anyhow::{Context, Result};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// A new one, in which only this user finds anything, whatever the umask is. It is gone when it is dropped.
///
/// # Errors
/// When it cannot be made.
pub fn make() -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("blockyard-").permissions(Permissions::from_mode(0o700));
    builder.tempdir().context("making a directory")
}
