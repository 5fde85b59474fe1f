//! Where a measurement keeps its files.

use anyhow::{Context, Result};
use blockyard_block::private_directory_in;
use std::path::Path;
use tempfile::TempDir;

/// A directory of its own below one that the user chose, as that decides whether a disk or memory is measured. Its path
/// is absolute and leads through no link; only this user finds anything in it, and nobody else puts another in its
/// place; it is gone when it is dropped.
///
/// # Errors
/// When there is no such directory, others can change what lies in it, or it takes no new ones.
pub fn make_in(directory: &Path) -> Result<TempDir> {
    private_directory_in(directory, "blockyard-bench-").context("making a directory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nobody_else_finds_anything_in_it() {
        let parent = tempfile::tempdir().unwrap();
        let made = make_in(parent.path()).unwrap();
        assert_eq!(fs::metadata(made.path()).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let open = make_in(parent.path()).unwrap_err();
        assert!(format!("{open:#}").contains("choose a directory that only you and root can change"), "{open:#}");
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let missing = make_in(&parent.path().join("missing")).unwrap_err();
        assert!(format!("{missing:#}").contains("missing"), "{missing:#}");
    }
}
