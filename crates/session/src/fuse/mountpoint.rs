//! The regular file that a disk is mounted over.

use super::FuseError;
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, StatxFlags, flock, open, stat, statx, unlink,
};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What /proc/self/mountinfo calls our mounts.
pub(super) const FILE_SYSTEM_TYPE: &str = "fuse.blockyard";
/// Dead mounts on top of each other that are cleared away; more than a few are no accident of ours.
const DEAD_MOUNTS_MAX: usize = 16;

/// A regular file to mount over: there before us, or made empty by us.
#[derive(Debug)]
pub(super) struct Mountpoint {
    /// Absolute, without symbolic links.
    pub(super) path: PathBuf,
    /// Opened as a path only: what is checked is what is mounted over.
    pub(super) file: OwnedFd,
    /// The file that was made, to be removed again: nobody else's of that name is.
    pub(super) made: Option<FileIdentity>,
    /// The same file, open so that it can be locked: whoever mounts over it or unmounts from it holds the lock meanwhile, as both
    /// name a path, and what is mounted there may be another's by the time that they are heard. `None` if it may not be opened.
    pub(super) turn: Option<OwnedFd>,
}

/// How often and how long to wait for one's turn: a dead server's unmounter needs a tenth of a second. Whoever holds the lock for
/// longer is none of ours.
const TURN_TRIES: u32 = 500;
const TURN_PAUSE: Duration = Duration::from_millis(10);

/// Waits for one's turn at a mount point, for a while; whether it came. Allocates nothing: the unmounter calls it.
pub(super) fn take_turn(file: BorrowedFd<'_>) -> bool {
    (0..TURN_TRIES).any(|_| {
        let locked = flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !locked {
            std::thread::sleep(TURN_PAUSE);
        }
        locked
    })
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

impl Mountpoint {
    /// Checks `path`; makes an empty file where there is none, and clears away what servers that were killed left.
    ///
    /// # Errors
    /// When it is not a regular file, cannot be made, or is served by somebody already.
    pub(super) fn prepare(path: &Path) -> Result<Self, FuseError> {
        let path = absolute(path)?;
        let failed = |errno: Errno| FuseError::Path { path: path.clone(), error: errno.into() };
        for _ in 0..DEAD_MOUNTS_MAX {
            clear_dead_mounts(&path)?;
            let make = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = match open(&path, make, Mode::RUSR | Mode::WUSR) {
                Ok(file) => Some(FileIdentity::of(&rustix::fs::fstat(file).map_err(failed)?)),
                Err(Errno::EXIST) => None,
                Err(errno) => return Err(failed(errno)),
            };
            let file = match open(&path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                // A dead server's unmounter has removed what that one made.
                Err(Errno::NOENT) => continue,
                file => file.map_err(failed)?,
            };
            let stat = rustix::fs::fstat(&file).map_err(failed)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => {}
                FileType::Directory => return Err(FuseError::Directory { path }),
                FileType::Symlink => return Err(FuseError::Symlink { path }),
                _ => return Err(FuseError::NotRegular { path }),
            }
            let to_lock = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let turn = open(&path, to_lock, Mode::empty()).ok();
            if let Some(turn) = &turn {
                take_turn(turn.as_fd());
            }
            // What there was while we waited may be gone, or mounted over.
            let is_there = rustix::fs::lstat(&path).is_ok_and(|now| FileIdentity::of(&now) == FileIdentity::of(&stat));
            if is_there {
                return Ok(Self { path, file, made, turn });
            }
        }
        Err(FuseError::AlreadyServed { path })
    }

    /// It is mounted, or will not be: whoever waits for their turn has it.
    pub(super) fn end_turn(&self) {
        if let Some(turn) = &self.turn {
            let _ = flock(turn, FlockOperation::Unlock);
        }
    }

    /// Removes the file if it is the one that was made.
    pub(super) fn remove(&self) {
        if let Some(made) = self.made {
            remove_made(&self.path, made);
        }
    }
}

/// Removes the file at `path` if it is `made` and still empty. Allocates nothing: the unmounter calls it.
pub(super) fn remove_made<P: rustix::path::Arg + Copy>(path: P, made: FileIdentity) {
    if stat(path).is_ok_and(|stat| FileIdentity::of(&stat) == made && stat.st_size == 0) {
        let _ = unlink(path);
    }
}

/// STATX_MNT_ID_UNIQUE (Linux 6.8): a number that no other mount ever gets. Older kernels answer with STATX_MNT_ID, which
/// is used again once its mount is gone, as is the device number.
const MOUNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Which mount it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MountIdentity {
    id: u64,
    /// Major and minor.
    pub(super) device: (u32, u32),
}

impl MountIdentity {
    /// Of what is mounted at `path`, without asking whoever serves it. Allocates nothing: the unmounter calls it.
    pub(super) fn at<P: rustix::path::Arg>(path: P) -> Option<Self> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
        let found = statx(CWD, path, flags, StatxFlags::TYPE | StatxFlags::MNT_ID | MOUNT_ID_UNIQUE).ok()?;
        Some(Self { id: found.stx_mnt_id, device: (found.stx_dev_major, found.stx_dev_minor) })
    }
}

/// The path with its directory resolved. The last component is not: it may be a dead mount, or a symbolic link, which
/// is refused.
fn absolute(path: &Path) -> Result<PathBuf, FuseError> {
    let failed = |error| FuseError::Path { path: path.to_owned(), error };
    let name = path.file_name().ok_or_else(|| FuseError::Directory { path: path.to_owned() })?;
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    Ok(directory.canonicalize().map_err(failed)?.join(name))
}

/// Unmounts what a server that was killed left at `path`: everything there fails with ENOTCONN.
fn clear_dead_mounts(path: &Path) -> Result<(), FuseError> {
    let failed = |error| FuseError::Path { path: path.to_owned(), error };
    for _ in 0..DEAD_MOUNTS_MAX {
        let mountinfo = fs::read("/proc/self/mountinfo").map_err(failed)?;
        if top_mount_type(&mountinfo, path) != Some(FILE_SYSTEM_TYPE.as_bytes()) {
            return Ok(());
        }
        match fs::symlink_metadata(path) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => {}
            _ => return Err(FuseError::AlreadyServed { path: path.to_owned() }),
        }
        detach(path).map_err(failed)?;
    }
    Err(FuseError::AlreadyServed { path: path.to_owned() })
}

/// Takes the mount away, even if programs still have it open.
fn detach(path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => {}
        other => return Ok(other?),
    }
    let program = super::mount::find_fusermount().ok_or(Errno::PERM)?;
    let status = std::process::Command::new(program).args(["-u", "-q", "-z", "--"]).arg(path).status()?;
    if status.success() { Ok(()) } else { Err(Errno::PERM.into()) }
}

/// The type of the file system mounted last at `path`, out of proc_pid_mountinfo(5).
fn top_mount_type<'a>(mountinfo: &'a [u8], path: &Path) -> Option<&'a [u8]> {
    let mounted_here = |line: &&[u8]| {
        line.split(|&byte| byte == b' ').nth(4).is_some_and(|field| unescape(field) == path.as_os_str().as_bytes())
    };
    let line = mountinfo.split(|&byte| byte == b'\n').rfind(mounted_here)?;
    let mut fields = line.split(|&byte| byte == b' ').skip_while(|&field| field != b"-");
    fields.nth(1)
}

/// Spaces and the like are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                plain.push(escaped);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

/// The path as the system calls want it.
pub(super) fn c_path(path: &OsStr) -> io::Result<std::ffi::CString> {
    std::ffi::CString::new(path.as_bytes()).map_err(|_| Errno::INVAL.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &[u8] = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
        30 22 0:40 / /tmp/a\\040b rw,nosuid shared:1 master:2 - fuse.sshfs host rw\n\
        31 30 0:41 / /tmp/a\\040b rw,nosuid - fuse.blockyard blockyard rw,user_id=0\n";

    #[test]
    fn the_last_mount_of_a_path_counts() {
        assert_eq!(top_mount_type(MOUNTINFO, Path::new("/tmp/a b")), Some(&b"fuse.blockyard"[..]));
        assert_eq!(top_mount_type(MOUNTINFO, Path::new("/")), Some(&b"ext4"[..]));
        assert_eq!(top_mount_type(MOUNTINFO, Path::new("/tmp")), None);
        assert_eq!(top_mount_type(b"garbage\n1 2 3 4 /x", Path::new("/x")), None);
    }

    #[test]
    fn escapes_are_read_and_what_only_looks_like_one_is_left() {
        assert_eq!(unescape(br"a\040b\134"), br"a b\");
        assert_eq!(unescape(br"\9zz\04"), br"\9zz\04");
        assert_eq!(unescape(br"\777"), br"\777");
    }
}
