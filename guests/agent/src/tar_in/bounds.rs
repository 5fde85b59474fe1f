//! How far an archive's names reach: not out of the directory that it is unpacked into by links of its own.
//!
//! A link that was there before may lead anywhere, and what is below it goes there: a system's /var/run is one. So no
//! bound holds until the archive has brought a link, or has given another name to one that was there, which may lead
//! elsewhere from there. It is the kernel that holds it from then on, on every way, as one directory may be reached by
//! many names. What gets another name is in the bounds in any case.

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, lstat, open, openat2, stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::{fmt, io};

/// The bounds of an archive in the current directory.
#[derive(Debug)]
pub(super) struct Bounds {
    /// There is something outside.
    can_be_left: bool,
    /// The archive has brought a link, which may lead there, or make another lead there.
    hold: bool,
}

/// A name of an archive leads out of its bounds.
#[derive(Debug)]
pub(super) struct LeadsOut;

impl fmt::Display for LeadsOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("leads out of the directory, by a link, and the archive brings links: left out")
    }
}

impl std::error::Error for LeadsOut {}

impl Bounds {
    /// Those of the current directory.
    pub(super) fn here() -> Self {
        let is_root =
            |here: rustix::fs::Stat, root: rustix::fs::Stat| (here.st_dev, here.st_ino) == (root.st_dev, root.st_ino);
        let can_be_left = !stat(".").and_then(|here| Ok(is_root(here, stat("/")?))).unwrap_or(false);
        Self { can_be_left, hold: false }
    }

    /// The archive has brought a link.
    pub(super) fn link(&mut self) {
        self.hold |= self.can_be_left;
    }

    /// Whether the archive may bring another name of what is at `path`: what is in the bounds already, as whatever
    /// comes by that name changes it.
    ///
    /// # Errors
    /// As [`Bounds::check`].
    pub(super) fn check_hard_link(&self, path: &Path) -> io::Result<()> {
        Self { hold: self.can_be_left, ..*self }.check_parent(path)
    }

    /// The archive has brought another name of what is at `path`.
    pub(super) fn hard_link(&mut self, path: &Path) {
        let is_link = |status: Stat| FileType::from_raw_mode(status.st_mode) == FileType::Symlink;
        if self.can_be_left && !self.hold && lstat(path).is_ok_and(is_link) {
            self.hold = true;
        }
    }

    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// [`LeadsOut`], or the kernel's.
    pub(super) fn open_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC)
    }

    /// Whether something is to be made, or changed, at `path`, or in a directory on the way that is not there.
    ///
    /// # Errors
    /// [`LeadsOut`], when that would be out of the bounds. Other errors are for whoever goes there to meet.
    pub(super) fn check(&self, path: &Path) -> io::Result<()> {
        if !self.hold {
            return Ok(());
        }
        match self.open(path, OFlags::PATH | OFlags::CLOEXEC) {
            Err(error) if is_out(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// The same of the directory that `path` is in.
    fn check_parent(&self, path: &Path) -> io::Result<()> {
        self.check(directory_of(path))
    }

    fn open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        if !self.hold {
            return Ok(open(path, flags, Mode::empty())?);
        }
        openat2(CWD, path, flags, Mode::empty(), ResolveFlags::BENEATH).map_err(|errno| match errno {
            Errno::XDEV => io::Error::other(LeadsOut),
            errno => errno.into(),
        })
    }
}

/// The directory that something at `path` is in.
pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether an error is that a name leads out.
pub(super) fn is_out(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<LeadsOut>())
}
