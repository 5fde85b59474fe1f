//! The directory that files are made in: mostly the one that the last file was made in.

use super::bounds::{Bounds, directory_of};
use super::metadata::Inheritance;
use blockyard_archive::DEFAULT_LIST;
use rustix::fs::{FileType, fgetxattr, fstat};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Set-group-ID.
const SET_GROUP_ID: u32 = 0o2000;

/// An open directory.
#[derive(Debug)]
pub(super) struct Parent {
    path: PathBuf,
    directory: OwnedFd,
    /// What new files get of it.
    pub(super) inheritance: Inheritance,
}

impl Parent {
    fn open(path: &Path, bounds: &Bounds) -> io::Result<Self> {
        let directory = bounds.open_directory(path)?;
        let status = fstat(&directory)?;
        debug_assert_eq!(FileType::from_raw_mode(status.st_mode), FileType::Directory);
        let list = fgetxattr(&directory, DEFAULT_LIST, &mut [0u8; 0][..]).is_ok();
        let group = status.st_gid != 0 || status.st_mode & SET_GROUP_ID != 0;
        Ok(Self { path: path.to_owned(), directory, inheritance: Inheritance { group, list } })
    }

    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }
}

impl AsFd for Parent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// The last directory.
#[derive(Default)]
pub(super) struct Parents {
    last: Option<Rc<Parent>>,
}

impl Parents {
    /// The directory that `path` is in; `make` makes it if it is not there.
    pub(super) fn of(
        &mut self,
        path: &Path,
        bounds: &Bounds,
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<Rc<Parent>> {
        let wanted = directory_of(path);
        if let Some(last) = self.last.as_ref().filter(|last| last.path == wanted) {
            return Ok(Rc::clone(last));
        }
        let parent = match Parent::open(wanted, bounds) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(wanted)?;
                Parent::open(wanted, bounds)?
            }
            opened => opened?,
        };
        let parent = Rc::new(parent);
        self.last = Some(Rc::clone(&parent));
        Ok(parent)
    }

    /// Something else may be at `path` from now on, or on the way to what is below it.
    pub(super) fn forget(&mut self, path: &Path) {
        self.last.take_if(|last| last.path.starts_with(path));
    }
}
