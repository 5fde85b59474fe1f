//! Locks that keep two programs from using one image at once, as QEMU takes them.
//!
//! The scheme is QEMU's (block/file-posix.c, `raw_apply_lock_bytes` and `raw_check_lock_bytes`): each permission has a
//! number. Whoever uses permission n holds a shared lock on byte 100 + n, whoever does not share it with others a
//! shared lock on byte 200 + n. One sets one's own locks first, and then asks whether anybody else holds the opposite
//! ones. The locks belong to the open file description (fcntl(2), F_OFD_SETLK), so they end with its last descriptor,
//! even if the process is killed.

mod holder;

use super::FileDiskError;
use crate::OpenedFile;
pub(super) use holder::{DeviceHolder, find_of_device};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Permissions, as `BLK_PERM_` in QEMU's include/block/block-common.h numbers them.
const CONSISTENT_READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// Byte of a permission that is used, and of one that is not shared.
const USED: i64 = 100;
const UNSHARED: i64 = 200;

/// How long the kernel may take for what a killed process had. Rings of io_uring hold the file; workers of the kernel
/// take them down, which on a busy machine wait their turn.
const DYING_USER: Duration = Duration::from_secs(5);

/// How long a process may take from fork to exec. Tests fork hundreds in one process, on machines that are busy.
const FORKED_USER: Duration = Duration::from_millis(if cfg!(test) { 30_000 } else { 200 });

const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// How long somebody who is in the way is waited for: the one rule for locked files and for devices that are open
/// exclusively.
///
/// What no process holds is about to go, or is another user's. What a process holds may be a process's that has just
/// been forked and still has, until it executes its program, what its parent has closed meanwhile.
pub(super) struct Patience {
    since: Instant,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { since: Instant::now() }
    }

    /// Waits a little, after which it may be tried again; false when there is no use in that. `is_held`: somebody is
    /// known to have it.
    pub(super) fn waits(&self, is_held: bool) -> bool {
        let is_left = self.since.elapsed() <= if is_held { FORKED_USER } else { DYING_USER };
        if is_left {
            std::thread::sleep(RETRY_PAUSE);
        }
        is_left
    }
}

/// Locks the file for as long as it is open, or says who has it.
///
/// A file system without locks is used without: QEMU does the same.
pub(super) fn lock(file: &File, path: &Path, read_only: bool) -> Result<(), FileDiskError> {
    let patience = Patience::new();
    loop {
        let Some(conflict) = try_lock(file, read_only).map_err(|source| failed(path, source))? else { return Ok(()) };
        let holder = holder::find(file, conflict);
        if !patience.waits(holder.is_some()) {
            let holder = holder.unwrap_or_else(|| "another process".to_owned());
            return Err(FileDiskError::Locked { path: path.to_owned(), holder, purpose: conflict.purpose() });
        }
    }
}

fn failed(path: &Path, source: io::Error) -> FileDiskError {
    FileDiskError::Lock { path: path.to_owned(), source }
}

/// Who uses an image, as far as locks tell: each a name and process, or only that there is somebody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileUsers {
    /// One that may write to it.
    pub writer: Option<String>,
    /// One that reads it.
    pub reader: Option<String>,
}

impl FileUsers {
    /// Looks at the locks of a file; takes none.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn of(opened: &OpenedFile) -> Result<Self, FileDiskError> {
        Self::of_file(opened.file()).map_err(|source| failed(opened.path(), source))
    }

    fn of_file(file: &File) -> io::Result<Self> {
        let user =
            |permission: i64| match conflict_at(file, USED + permission) {
                Err(error) if has_no_locks(&error) => Ok(None),
                Err(error) => Err(error),
                Ok(conflict) => Ok(conflict
                    .map(|conflict| holder::find(file, conflict).unwrap_or_else(|| "another process".to_owned()))),
            };
        Ok(Self { writer: user(WRITE)?, reader: user(CONSISTENT_READ)? })
    }
}

/// Another's lock.
#[derive(Clone, Copy, Debug)]
struct Conflict {
    byte: i64,
    /// The holder, if it is a process's lock rather than an open file's.
    process: Option<u32>,
}

impl Conflict {
    fn purpose(self) -> &'static str {
        if self.byte < UNSHARED { "for writing" } else { "and lets nobody write to it" }
    }
}

/// Takes the locks; gives them back and says what is in the way if another has them.
fn try_lock(file: &File, read_only: bool) -> io::Result<Option<Conflict>> {
    let used = if read_only { &[CONSISTENT_READ][..] } else { &[CONSISTENT_READ, WRITE] };
    let unshared = [WRITE, RESIZE];
    let own = used.iter().map(|bit| USED + bit).chain(unshared.iter().map(|bit| UNSHARED + bit));
    for byte in own {
        match set(file, libc::F_RDLCK, byte, 1) {
            Err(error) if has_no_locks(&error) => return Ok(None),
            set => set?,
        }
    }
    let others = unshared.iter().map(|bit| USED + bit).chain(used.iter().map(|bit| UNSHARED + bit));
    for byte in others {
        if let Some(conflict) = conflict_at(file, byte)? {
            set(file, libc::F_UNLCK, USED, 2 * (UNSHARED - USED))?;
            return Ok(Some(conflict));
        }
    }
    Ok(None)
}

fn has_no_locks(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP))
}

fn set(file: &File, kind: i32, byte: i64, length: i64) -> io::Result<()> {
    let mut lock = range(kind, byte, length);
    control(file, libc::F_OFD_SETLK, &mut lock)
}

/// Who would be in the way of an exclusive lock.
fn conflict_at(file: &File, byte: i64) -> io::Result<Option<Conflict>> {
    let mut lock = range(libc::F_WRLCK, byte, 1);
    control(file, libc::F_OFD_GETLK, &mut lock)?;
    if i32::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    Ok(Some(Conflict { byte, process: u32::try_from(lock.l_pid).ok() }))
}

fn range(kind: i32, start: i64, length: i64) -> libc::flock {
    let l_pid = 0; // Must be, for an open file description's lock.
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: length, l_pid }
}

fn control(file: &File, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: both commands take a flock, which outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
