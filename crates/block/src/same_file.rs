//! Whether two paths lead to the same storage.

use crate::shown;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Whether `a` and `b` are one file, through symbolic or hard links too, or two nodes of one block device. A path
/// that leads nowhere is the same as no other.
///
/// A block device and the file, disk or partition that it lies on count as different: only names are compared, not
/// what is stacked under them.
///
/// # Errors
/// When a path exists but cannot be looked at; the error names it.
pub fn same_file(a: &Path, b: &Path) -> io::Result<bool> {
    let (Some(a), Some(b)) = (look_at(a)?, look_at(b)?) else { return Ok(false) };
    if a.file_type().is_block_device() && b.file_type().is_block_device() {
        return Ok(a.rdev() == b.rdev());
    }
    Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
}

fn look_at(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot look at {}: {error}", shown(path)))),
    }
}
