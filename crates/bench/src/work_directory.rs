//! Where a measurement keeps its files.

use anyhow::{Context, Result};
use blockyard_block::shown;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

/// A directory of its own below one that the user chose, as that decides whether a disk or memory is measured. Its path
/// is absolute and leads through no link; only this user finds anything in it; it is gone when it is dropped.
///
/// # Errors
/// When there is no such directory, or it takes no new ones.
pub(crate) fn make_in(directory: &Path) -> Result<TempDir> {
    let make = || {
        let own = Permissions::from_mode(0o700);
        let mut builder = tempfile::Builder::new();
        let made = builder.prefix("blockyard-bench-").permissions(own.clone()).tempdir_in(directory.canonicalize()?)?;
        // The umask may have left less of them.
        fs::set_permissions(made.path(), own).map(|()| made)
    };
    make().with_context(|| format!("making a directory in {}", shown(directory)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_finds_anything_in_it() {
        let parent = tempfile::tempdir().unwrap();
        let made = make_in(parent.path()).unwrap();
        assert_eq!(fs::metadata(made.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let missing = make_in(&parent.path().join("missing")).unwrap_err();
        assert!(format!("{missing:#}").contains("missing"), "{missing:#}");
    }
}
