//! Files that get their names when they are complete.

use crate::{FileIdentity, descriptor_path};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, openat, renameat, renameat_with, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Longest file name that file systems take.
pub(super) const NAME_MAX_BYTES: usize = 255;

/// How often to try another random name.
const NAME_ATTEMPTS_MAX: usize = 100;

/// A new file in a directory, open for reading and writing. Where the file system can, it has no name until it takes
/// its place; elsewhere a temporary one, which is removed on drop.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: File,
    directory: OwnedFd,
    /// The name that it has beside its place, while it has one.
    temporary_name: Option<OsString>,
}

impl NewFile {
    /// Makes an empty file that is to be called `name`, with what the umask leaves of `mode`.
    pub(crate) fn create(directory: OwnedFd, name: &OsStr, mode: Mode) -> rustix::io::Result<Self> {
        match open_unnamed(&directory, mode) {
            Some(file) => Ok(Self { file: file.into(), directory, temporary_name: None }),
            None => Self::create_named(directory, name, mode),
        }
    }

    /// The same, where there are no files without names.
    pub(super) fn create_named(directory: OwnedFd, name: &OsStr, mode: Mode) -> rustix::io::Result<Self> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let (file, name) = with_random_name(name, |temporary| openat(&directory, temporary, flags, mode))?;
        Ok(Self { file: file.into(), directory, temporary_name: Some(name) })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The directory, open for reading.
    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Gets its name, in the place of the file that has it, or if nothing has.
    ///
    /// # Errors
    /// [`Errno::EXIST`] when it is another file that has it.
    pub(super) fn take_place(&mut self, name: &OsStr, old: FileIdentity) -> rustix::io::Result<()> {
        let found = match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return self.take_free_place(name),
            found => FileIdentity::of(&found?),
        };
        if found != old {
            return Err(Errno::EXIST);
        }
        let temporary = match self.temporary_name.take() {
            Some(temporary) => temporary,
            None => with_random_name(name, |temporary| self.link_as(temporary))?.1,
        };
        let renamed = renameat(&self.directory, &temporary, &self.directory, name);
        if renamed.is_err() {
            self.temporary_name = Some(temporary);
        }
        renamed
    }

    /// Gets its name if nothing else has it.
    ///
    /// # Errors
    /// [`Errno::EXIST`] when something has.
    pub(crate) fn take_free_place(&mut self, name: &OsStr) -> rustix::io::Result<()> {
        let Some(temporary) = &self.temporary_name else { return self.link_as(name) };
        match renameat_with(&self.directory, temporary, &self.directory, name, RenameFlags::NOREPLACE) {
            // A file system that knows no such flag may know other names of one file.
            Err(Errno::INVAL | Errno::NOSYS) => {
                linkat(&self.directory, temporary, &self.directory, name, AtFlags::empty())?;
                unlinkat(&self.directory, temporary, AtFlags::empty())?;
            }
            renamed => renamed?,
        }
        self.temporary_name = None;
        Ok(())
    }

    fn link_as(&self, name: &OsStr) -> rustix::io::Result<()> {
        linkat(CWD, descriptor_path(&self.file), &self.directory, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for NewFile {
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

pub(super) fn temporary_name(name: &OsStr) -> OsString {
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
