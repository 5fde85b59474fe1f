//! Removing a directory with all below it, until the host does not want that any more.

use crate::interruption;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use std::ffi::CString;
use std::io;
use std::path::Path;

/// Files that are removed before somebody looks whether the host still wants it: a look takes a tenth of the time of a removal.
const FILES_PER_LOOK: u32 = 8;

/// A directory that is being emptied.
struct Level {
    directory: Dir,
    /// In the directory above it; of the first one nothing.
    name: CString,
}

/// Removes the directory at `path`. No link is followed.
///
/// # Errors
/// With the first file that cannot be removed, and when the host has given it up: the rest stays.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let open = |path: &Path| openat(CWD, path, DIRECTORY, Mode::empty());
    let mut levels = vec![Level { directory: Dir::new(open(path)?)?, name: CString::default() }];
    let mut files = 0;
    while let Some(level) = levels.last_mut() {
        if files % FILES_PER_LOOK == 0 {
            interruption::check()?;
        }
        files = files.wrapping_add(1);
        let Some(entry) = level.directory.read() else {
            let Some(Level { name, .. }) = levels.pop() else { break };
            match levels.last() {
                Some(above) => unlinkat(above.directory.fd()?, &name, AtFlags::REMOVEDIR)?,
                None => std::fs::remove_dir(path)?,
            }
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let directory = level.directory.fd()?;
        let kind = match entry.file_type() {
            FileType::Unknown => FileType::from_raw_mode(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode),
            kind => kind,
        };
        if kind == FileType::Directory {
            let below = openat(directory, name, DIRECTORY, Mode::empty())?;
            let name = name.to_owned();
            levels.push(Level { directory: Dir::new(below)?, name });
        } else {
            unlinkat(directory, name, AtFlags::empty())?;
        }
    }
    Ok(())
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_is_removed_and_what_its_links_lead_to_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (tree, outside) = (directory.path().join("tree"), directory.path().join("outside"));
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir(tree.join("empty")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        symlink(&outside, tree.join("a/link")).unwrap();
        (0..100).for_each(|number| fs::write(tree.join(format!("a/b/{number}")), "").unwrap());
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && outside.join("kept").exists());
        symlink(&outside, &tree).unwrap();
        assert!(remove_tree(&tree).is_err() && outside.join("kept").exists());
    }
}
