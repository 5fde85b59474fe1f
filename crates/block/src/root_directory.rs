//! Files below a root directory: this machine's, or another system's, whose links are that system's own.

use crate::descriptor_path;
use crate::named_file::{NamedFileError, opened_at, read_at};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A root directory, open. Whatever links lie in it, what is found by a name lies below it.
#[derive(Debug)]
pub struct RootDirectory(Option<OwnedFd>);

impl RootDirectory {
    /// This machine's own.
    pub fn of_this_machine() -> Self {
        Self(None)
    }

    /// The one at `path`.
    ///
    /// # Errors
    /// When it is no directory, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, NamedFileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let unreadable = |errno: rustix::io::Errno| NamedFileError::Unreadable {
            what: "the root directory",
            path: path.to_owned(),
            source: errno.into(),
        };
        rustix::fs::open(path, flags, Mode::empty()).map(|directory| Self(Some(directory))).map_err(unreadable)
    }

    /// Opens the regular file that an absolute path leads to in it, which is `what`.
    ///
    /// # Errors
    /// When there is none.
    pub fn open_file(&self, path: &Path, what: &'static str) -> Result<File, NamedFileError> {
        opened_at(path, what, false, |flags| self.open_at(path, flags))
    }

    /// What is in that file.
    ///
    /// # Errors
    /// When there is none, or it has more than `bytes_max`.
    pub fn read(&self, path: &Path, what: &'static str, bytes_max: u64) -> Result<Vec<u8>, NamedFileError> {
        read_at(self.open_file(path, what)?, path, what, bytes_max)
    }

    /// The path in it of what a path leads to, without links.
    ///
    /// # Errors
    /// When that is nothing.
    pub fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let found = path_of(&self.open_at(path, OFlags::PATH | OFlags::CLOEXEC)?)?;
        let Some(root) = &self.0 else { return Ok(found) };
        match found.strip_prefix(path_of(root)?) {
            Ok(below) => Ok(Path::new("/").join(below)),
            Err(_) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn open_at(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        match &self.0 {
            Some(root) => {
                let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
                openat2(root, path, flags, Mode::empty(), resolve)
            }
            None => rustix::fs::open(path, flags, Mode::empty()),
        }
    }
}

fn path_of(file: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(descriptor_path(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_lead_nowhere_but_below_the_root() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("root/usr/bin")).unwrap();
        fs::write(at("secret"), "the host's").unwrap();
        fs::write(at("root/secret"), "its own").unwrap();
        symlink("../../../secret", at("root/usr/bin/up")).unwrap();
        symlink("/secret", at("root/usr/bin/absolute")).unwrap();
        symlink(at("secret"), at("root/usr/bin/out")).unwrap();
        symlink("usr/bin", at("root/bin")).unwrap();
        let root = RootDirectory::open(&at("root")).unwrap();
        let read = |path: &str| root.read(Path::new(path), "the program", 99);
        for path in ["/usr/bin/up", "/bin/absolute", "/../secret"] {
            assert_eq!(read(path).unwrap(), b"its own", "{path}");
        }
        assert_eq!(root.resolve(Path::new("/bin/up")).unwrap(), Path::new("/secret"));
        assert!(read("/bin/out").is_err() && read("/bin").is_err());
        assert_eq!(RootDirectory::of_this_machine().resolve(Path::new("/usr/..")).unwrap(), Path::new("/"));
    }
}
