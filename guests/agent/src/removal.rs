//! Removing a directory with all below it, until the host does not want that any more.

use crate::failures::Failures;
use crate::interruption;
use rustix::fs::{AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Files that are removed before somebody looks whether the host still wants it: a look takes a tenth of the time of a
/// removal.
const FILES_PER_LOOK: u32 = 8;

/// A directory that is being emptied.
struct Level {
    directory: Dir,
    /// In the directory above it; of the first one nothing.
    name: CString,
    /// Something in it stays, which is told.
    keeps: bool,
}

impl Level {
    fn new(directory: OwnedFd, name: CString) -> io::Result<Self> {
        Ok(Self { directory: Dir::new(directory)?, name, keeps: false })
    }
}

/// Removes the directory at `path` and all below it that can be removed; what cannot be goes into `failures`, but not
/// the directories that stay for nothing else. No link is followed.
///
/// # Errors
/// When the directory itself cannot be looked into or removed, and when the host has given it up: the rest stays.
pub(crate) fn remove_tree(path: &Path, failures: &mut Failures) -> io::Result<()> {
    let first = openat(CWD, path, DIRECTORY, Mode::empty())?;
    Removal { path, levels: vec![Level::new(first, CString::default())?], kept: HashSet::new(), failures }.run()
}

struct Removal<'request> {
    path: &'request Path,
    levels: Vec<Level>,
    /// Directories that stay, by file system and inode. In a damaged file system one may be in several, and is not to
    /// be emptied for each.
    kept: HashSet<(u64, u64)>,
    failures: &'request mut Failures,
}

impl Removal<'_> {
    fn run(mut self) -> io::Result<()> {
        let mut files = 0u32;
        while let Some(level) = self.levels.last_mut() {
            if files.is_multiple_of(FILES_PER_LOOK) {
                interruption::check()?;
            }
            files = files.wrapping_add(1);
            match level.directory.read() {
                Some(Ok(entry)) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Some(Ok(entry)) => {
                    if let Err(error) = self.remove(&entry) {
                        self.keep(entry.file_name(), "cannot remove", &error);
                    }
                }
                Some(Err(errno)) => {
                    self.keep(c"", "cannot list", &errno.into());
                    self.leave()?;
                }
                None => self.leave()?,
            }
        }
        Ok(())
    }

    /// Removes what is in the last directory, or begins with it if it is a directory.
    fn remove(&mut self, entry: &DirEntry) -> io::Result<()> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        let (directory, name) = (level.directory.fd()?, entry.file_name());
        let kind = match entry.file_type() {
            FileType::Unknown => FileType::from_raw_mode(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode),
            kind => kind,
        };
        if kind != FileType::Directory {
            return Ok(unlinkat(directory, name, AtFlags::empty())?);
        }
        let below = openat(directory, name, DIRECTORY, Mode::empty())?;
        if !self.kept.is_empty() && self.kept.contains(&identity(&below)?) {
            return Err(io::Error::other("it is in several directories, so the file system is damaged (`fsck` it)"));
        }
        self.levels.push(Level::new(below, name.to_owned())?);
        Ok(())
    }

    /// Removes the last directory, which has been emptied as far as it can be.
    fn leave(&mut self) -> io::Result<()> {
        let Some(Level { directory, name, keeps }) = self.levels.pop() else { return Ok(()) };
        let removed = match self.levels.last() {
            Some(above) => unlinkat(above.directory.fd()?, &name, AtFlags::REMOVEDIR),
            None => unlinkat(CWD, self.path, AtFlags::REMOVEDIR),
        };
        let Err(errno) = removed else { return Ok(()) };
        self.kept.insert(identity(directory.fd()?)?);
        let is_told = keeps && errno == Errno::NOTEMPTY;
        match self.levels.last_mut() {
            Some(above) if is_told => above.keeps = true,
            Some(_) => self.keep(&name, "cannot remove", &errno.into()),
            None if is_told => {}
            None => return Err(errno.into()),
        }
        Ok(())
    }

    /// Tells that something in the last directory stays.
    fn keep(&mut self, name: &CStr, what: &str, error: &io::Error) {
        if let Some(level) = self.levels.last_mut() {
            level.keeps = true;
        }
        let names = self.levels.iter().skip(1).map(|level| level.name.as_c_str()).chain([name]);
        let path = || {
            let names = names.map(|name| OsStr::from_bytes(name.to_bytes())).filter(|name| !name.is_empty());
            [self.path.as_os_str()].into_iter().chain(names).collect::<PathBuf>()
        };
        self.failures.note_at(path, what, error);
    }
}

fn identity(directory: impl AsFd) -> io::Result<(u64, u64)> {
    let status = fstat(directory)?;
    Ok((status.st_dev, status.st_ino))
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
        let mut failures = Failures::default();
        remove_tree(&tree, &mut failures).unwrap();
        assert!(failures.count == 0 && !tree.exists() && outside.join("kept").exists());
        symlink(&outside, &tree).unwrap();
        assert!(remove_tree(&tree, &mut failures).is_err() && outside.join("kept").exists());
    }
}
