//! Output files that are written beside their name and take its place when they are complete.

mod destination;
mod error;
#[cfg(test)]
mod tests;

use destination::Destination;
pub use error::ReplacementError;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, Uid, fallocate, fchmod, fchown, fstat, fsync, linkat, openat,
    renameat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest file name that file systems take.
const NAME_MAX_BYTES: usize = 255;

/// How often to try another random name.
const NAME_ATTEMPTS_MAX: usize = 100;

/// Permission bits alone, without set-user-ID, set-group-ID and sticky.
const PERMISSIONS: Mode = Mode::from_raw_mode(0o777);

/// A file that is being written to replace the one at a path, or to appear there.
///
/// Until [`ReplacementFile::commit`] the path is as it was. Where the file system can, the file has no name until then,
/// so that a killed process leaves nothing half written behind: a file that replaces another is `.NAME.blockyard-XXXXXX`
/// only from when it is complete until it is renamed. Elsewhere it has such a name from the start, removed on drop. Hard
/// links to the old file keep the old contents. The old file is locked as an image that is written
/// ([`FileOptions::lock`](crate::FileOptions::lock)): nobody may go on with a file that has lost its name.
#[derive(Debug)]
pub struct ReplacementFile {
    file: File,
    directory: OwnedFd,
    destination: Destination,
    /// The name that the file has beside its destination, while it has one.
    temporary_name: Option<OsString>,
    /// The old file, for its lock.
    _locked: Option<File>,
}

/// The group's permissions that are no more than everybody's.
fn others_rights_for_group(mode: Mode) -> Mode {
    Mode::from_raw_mode((mode & Mode::RWXO).as_raw_mode() << 3)
}

impl ReplacementFile {
    /// Starts to replace `path`, or the file that it leads to through symbolic links. The new file is empty and open
    /// for reading and writing. It has the old one's permissions and, where this user may give it away, its owner, but is no
    /// set-user-ID or set-group-ID file: what is written comes from elsewhere. One that replaces nothing has what the umask leaves of 0666.
    ///
    /// # Errors
    /// When the path is anything but a regular file or free, is a symbolic link that leads nowhere, is not writable, is in use by
    /// another program, or its directory does not exist or takes no new files.
    pub fn create(path: &Path) -> Result<Self, ReplacementError> {
        Self::create_with(path, open_unnamed)
    }

    fn create_with(
        path: &Path,
        open_unnamed: impl Fn(&OwnedFd, Mode) -> Option<OwnedFd>,
    ) -> Result<Self, ReplacementError> {
        let destination = Destination::find(path)?;
        let locked = destination.lock()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, &destination.directory, flags, Mode::empty())
            .map_err(|errno| ReplacementError::new("open the directory", &destination.directory, errno))?;
        let mode = destination.replaces.map_or(Mode::from_raw_mode(0o666), |old| old.mode & PERMISSIONS);
        let (file, temporary_name) = match open_unnamed(&directory, mode) {
            Some(file) => (file, None),
            None => open_temporary(&directory, &destination.name, mode)
                .map(|(file, name)| (file, Some(name)))
                .map_err(|errno| ReplacementError::new("create a file beside", &destination.path, errno))?,
        };
        let replacement = Self { file: File::from(file), directory, destination, temporary_name, _locked: locked };
        replacement.take_over_attributes()?;
        Ok(replacement)
    }

    fn take_over_attributes(&self) -> Result<(), ReplacementError> {
        let Some(old) = self.destination.replaces else { return Ok(()) };
        let new = fstat(&self.file).map_err(|errno| self.failed("look at the new file for", errno))?;
        let mut grouped_alike = new.st_gid == old.group;
        if (new.st_uid, new.st_gid) != (old.user, old.group) {
            let (user, group) = (Uid::from_raw(old.user), Gid::from_raw(old.group));
            // The group alone is better than nothing, and nothing is what other users of `cp` get.
            grouped_alike |=
                fchown(&self.file, Some(user), Some(group)).is_ok() || fchown(&self.file, None, Some(group)).is_ok();
        }
        // One group's rights must not become another's.
        let mode = match grouped_alike {
            true => old.mode & PERMISSIONS,
            false => (old.mode & PERMISSIONS & !Mode::RWXG) | others_rights_for_group(old.mode),
        };
        fchmod(&self.file, mode).map_err(|errno| self.failed("set the permissions of", errno))
    }

    /// Where the file will be: the path it was created for, symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.destination.path
    }

    /// Whether there is a file already that this one will replace.
    pub fn replaces_existing(&self) -> bool {
        self.destination.replaces.is_some()
    }

    /// The file, for whoever writes it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Sets the file's length: what is new reads as zeros.
    ///
    /// # Errors
    /// When the file system cannot hold a file of that length.
    pub fn set_length(&self, length_bytes: u64) -> Result<(), ReplacementError> {
        self.file.set_len(length_bytes).map_err(|error| self.failed("set the length of", error))
    }

    /// Reserves storage for a range, without changing the file's length. On a file system that cannot, does nothing.
    ///
    /// # Errors
    /// When there is not enough space.
    pub fn preallocate(&self, range: Range<u64>) -> Result<(), ReplacementError> {
        if range.is_empty() {
            return Ok(());
        }
        loop {
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, range.start, range.end - range.start) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("reserve space for", errno)),
            }
        }
    }

    /// Puts the file in its place. `durable`: it is on stable storage, under its name, when this returns; otherwise
    /// the page cache has it.
    ///
    /// # Errors
    /// When the file cannot be made stable or cannot take its place; then it is gone and the old file is as it was,
    /// unless only the directory could not be made stable.
    pub fn commit(mut self, durable: bool) -> Result<(), ReplacementError> {
        if durable {
            fsync(&self.file).map_err(|errno| self.failed("write to stable storage", errno))?;
        }
        self.take_place().map_err(|errno| self.failed("put the finished file in the place of", errno))?;
        if durable {
            fsync(&self.directory).map_err(|errno| self.failed("write to stable storage the directory of", errno))?;
        }
        Ok(())
    }

    fn failed(&self, action: &'static str, source: impl Into<std::io::Error>) -> ReplacementError {
        ReplacementError::new(action, self.path(), source)
    }

    fn take_place(&mut self) -> rustix::io::Result<()> {
        if self.temporary_name.is_none() {
            // A path that is free needs no detour by a temporary name.
            match self.link_as(&self.destination.name) {
                Err(Errno::EXIST) => {}
                done => return done,
            }
            let (_, name) = with_random_name(&self.destination.name, |name| self.link_as(name))?;
            self.temporary_name = Some(name);
        }
        if let Some(name) = &self.temporary_name {
            renameat(&self.directory, name, &self.directory, &self.destination.name)?;
            self.temporary_name = None;
        }
        Ok(())
    }

    fn link_as(&self, name: &OsStr) -> rustix::io::Result<()> {
        linkat(CWD, descriptor_path(&self.file), &self.directory, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for ReplacementFile {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary_name {
            // There is nobody to tell, and nothing else to try.
            let _ = unlinkat(&self.directory, name, AtFlags::empty());
        }
    }
}

/// A file without a name that can be given one later; `None` where that does not work.
fn open_unnamed(directory: &OwnedFd, mode: Mode) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = openat(directory, ".", flags, mode).ok()?;
    // It gets its name through /proc, which a container may lack.
    descriptor_path(&file).exists().then_some(file)
}

fn open_temporary(directory: &OwnedFd, name: &OsStr, mode: Mode) -> rustix::io::Result<(OwnedFd, OsString)> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    with_random_name(name, |temporary_name| openat(directory, temporary_name, flags, mode))
}

fn descriptor_path(file: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Tries names like `.NAME.blockyard-XXXXXX` until `make` meets one that is free.
fn with_random_name<T>(
    name: &OsStr,
    make: impl Fn(&OsStr) -> rustix::io::Result<T>,
) -> rustix::io::Result<(T, OsString)> {
    for _ in 0..NAME_ATTEMPTS_MAX {
        let temporary_name = temporary_name(name);
        match make(&temporary_name) {
            Err(Errno::EXIST) => {}
            made => return made.map(|made| (made, temporary_name)),
        }
    }
    Err(Errno::EXIST)
}

fn temporary_name(name: &OsStr) -> OsString {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut random = RandomState::new().hash_one(name);
    let mut ending = *b".blockyard-XXXXXX";
    for letter in ending.iter_mut().rev().take(6) {
        *letter = ALPHABET[(random % ALPHABET.len() as u64) as usize];
        random /= ALPHABET.len() as u64;
    }
    let kept = name.len().min(NAME_MAX_BYTES - ending.len() - 1);
    OsStr::from_bytes(&[b".", &name.as_bytes()[..kept], &ending].concat()).to_owned()
}
