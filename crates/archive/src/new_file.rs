//! Files that have their names when they are complete, and not before.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often another temporary name is tried.
const NAME_ATTEMPTS_MAX: usize = 100;

/// A file that is being written. It has no name where the file system can do that, so that nothing half written is left
/// of it whoever is killed. One that takes another's place has a temporary name for the moment between its two system
/// calls, when it is complete.
pub(crate) struct NewFile<'parent> {
    pub(crate) file: File,
    parent: &'parent OwnedFd,
    temporary_name: Option<OsString>,
}

impl<'parent> NewFile<'parent> {
    /// An empty file in `parent`. `unnamed` is whether to try without a name, and afterwards whether that works.
    pub(crate) fn create(parent: &'parent OwnedFd, unnamed: &mut bool) -> Result<Self, Errno> {
        let mode = Mode::RUSR | Mode::WUSR;
        if *unnamed {
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            match openat(parent, ".", flags, mode).map(File::from) {
                // It gets its name through /proc, which a container may lack.
                Ok(file) if descriptor_path(&file).exists() => return Ok(Self { file, parent, temporary_name: None }),
                Err(errno @ (Errno::ACCESS | Errno::NOSPC | Errno::DQUOT | Errno::ROFS)) => return Err(errno),
                _ => *unnamed = false,
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (file, name) = with_temporary_name(|name| openat(parent, name, flags, mode))?;
        Ok(Self { file: file.into(), parent, temporary_name: Some(name) })
    }

    /// Gives it its name, in the place of what has it. A directory is not replaced.
    pub(crate) fn take_name(mut self, name: &OsStr) -> Result<(), Errno> {
        match self.temporary_name.take() {
            Some(temporary) => rename(self.parent.as_fd(), &temporary, name),
            None => make(self.parent, name, |name| {
                linkat(CWD, descriptor_path(&self.file), self.parent, name, AtFlags::SYMLINK_FOLLOW)
            }),
        }
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary_name {
            // Half a file is none; there is nobody to tell.
            let _ = unlinkat(self.parent, name, AtFlags::empty());
        }
    }
}

/// Has `make` make something of that name: where there is something, under another name that then takes its place.
///
/// # Errors
/// When it cannot be made, or does not take the place of what is there: no directory's.
pub fn make(parent: impl AsFd, name: &OsStr, make: impl Fn(&OsStr) -> Result<(), Errno>) -> Result<(), Errno> {
    match make(name) {
        Err(Errno::EXIST) => {
            let ((), temporary) = with_temporary_name(make)?;
            rename(parent.as_fd(), &temporary, name)
        }
        made => made,
    }
}

fn rename(parent: BorrowedFd<'_>, temporary: &OsStr, name: &OsStr) -> Result<(), Errno> {
    let renamed = renameat(parent, temporary, parent, name);
    // It is still there if that failed, or both are names of one file (rename(2)).
    let _ = unlinkat(parent, temporary, AtFlags::empty());
    renamed
}

fn with_temporary_name<T>(make: impl Fn(&OsStr) -> Result<T, Errno>) -> Result<(T, OsString), Errno> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    for _ in 0..NAME_ATTEMPTS_MAX {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".blockyard-{}-{count}", process::id()));
        match make(&name) {
            Err(Errno::EXIST) => {}
            made => return made.map(|made| (made, name)),
        }
    }
    Err(Errno::EXIST)
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
