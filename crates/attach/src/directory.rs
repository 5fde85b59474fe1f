//! The directory of an attachment's sockets and library. Nothing of it stays when the attachment ends, and what one
//! leaves that was killed, the next takes away.

use blockyard_block::private_directory_named;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock, openat, statat};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const PREFIX: &str = "blockyard-attach-";
/// One that is new may not be locked yet.
const NEW: Duration = Duration::from_secs(60);
/// Names that are looked at of a place, at most.
const NAMES_MAX: usize = 1 << 16;

/// A directory, locked for as long as it is in use.
pub(crate) struct Directory {
    directory: TempDir,
    _lock: File,
}

impl Directory {
    /// A new one in a place that `suits`. Those beside it that nobody uses any more are removed.
    pub(crate) fn new(suits: impl Fn(&Path) -> bool) -> io::Result<Self> {
        let directory = private_directory_named(PREFIX, suits)?;
        let lock = File::open(directory.path())?;
        flock(&lock, FlockOperation::LockExclusive)?;
        directory.path().parent().into_iter().for_each(remove_unused);
        Ok(Self { directory, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn close(self) -> io::Result<()> {
        self.directory.close()
    }
}

/// Removes what was left in a place where nobody but this user and root changes what this user has there. What cannot
/// be removed is no harm.
fn remove_unused(place: &Path) {
    let (Ok(names), Ok(place_itself)) = (fs::read_dir(place), File::open(place)) else { return };
    for name in names.take(NAMES_MAX).filter_map(|entry| Some(entry.ok()?.file_name())) {
        if name.as_bytes().starts_with(PREFIX.as_bytes())
            && is_unused(&place_itself, Path::new(&name)).is_ok_and(|is| is)
        {
            let _ = fs::remove_dir_all(place.join(name));
        }
    }
}

fn is_unused(place: &File, name: &Path) -> io::Result<bool> {
    let found = statat(place, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_ours = FileType::from_raw_mode(found.st_mode) == FileType::Directory
        && Mode::from_raw_mode(found.st_mode) == Mode::RWXU
        && found.st_uid == geteuid().as_raw();
    if !is_ours {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = File::from(openat(place, name, flags, Mode::empty())?);
    let age = SystemTime::now().duration_since(directory.metadata()?.modified()?);
    Ok(age.is_ok_and(|age| age >= NEW) && flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok())
}
