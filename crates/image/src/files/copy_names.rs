//! Which names copies have.

use crate::error::{Result, refuse};
use blockyard_block::printable;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What was copied so far has become these, directories or not: none is to replace another.
#[derive(Default)]
pub(super) struct Made(HashMap<PathBuf, bool>);

impl Made {
    /// Takes note of one. Of two directories, what is in them is put together.
    ///
    /// # Errors
    /// When another has this name.
    pub(super) fn note(&mut self, path: PathBuf, is_directory: bool) -> Result<()> {
        let name = printable(&path.to_string_lossy());
        match self.0.insert(path, is_directory) {
            Some(was_directory) if !(was_directory && is_directory) => {
                refuse!("{name} has just been made of another file")
            }
            _ => Ok(()),
        }
    }
}

/// The name that a copy of `path` has in a directory; none for one that ends in `.` or `..`, by which what is in it is
/// meant, and for the root.
pub(super) fn name_of_copy(path: &Path) -> Option<&OsStr> {
    let bytes = path.as_os_str().as_bytes();
    let last = bytes.split(|&byte| byte == b'/').rfind(|name| !name.is_empty()).unwrap_or_default();
    (!matches!(last, b"" | b"." | b"..")).then(|| OsStr::from_bytes(last))
}
