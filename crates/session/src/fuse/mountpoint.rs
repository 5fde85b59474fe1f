//! The regular file that a disk is mounted over.

use super::{FuseError, fusermount};
use blockyard_block::{FileIdentity, descriptor_path, directory_of};
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, StatxFlags, flock, fstat, openat, readlinkat, statat,
    statx, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What /proc/self/mountinfo calls our mounts.
pub(super) const FILE_SYSTEM_TYPE: &str = "fuse.blockyard";
/// Dead mounts on top of each other that are cleared away; more than a few are no accident of ours.
const DEAD_MOUNTS_MAX: usize = 16;

/// A regular file to mount over: there before us, or made empty by us.
#[derive(Debug)]
pub(super) struct Mountpoint {
    /// Absolute, without symbolic links: for messages, and for fusermount3.
    pub(super) path: PathBuf,
    /// Where it is, whatever becomes of the path.
    pub(super) place: Place,
    /// Opened as a path only: what is checked is what is mounted over.
    pub(super) file: OwnedFd,
    /// The file that was made, to be removed again: nobody else's of that name is.
    pub(super) made: Option<FileIdentity>,
    /// The same file, open so that it can be locked: whoever mounts over it or unmounts from it holds the lock
    /// meanwhile, as both name a path, and what is mounted there may be another's by the time that they are heard.
    /// `None` if it may not be opened.
    pub(super) turn: Option<OwnedFd>,
}

/// How often and how long to wait for one's turn: a dead server's unmounter needs a tenth of a second. Whoever holds
/// the lock for longer is none of ours.
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

/// A directory, open as a path only, and a name in it. Its methods allocate nothing: the unmounter calls them.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) directory: OwnedFd,
    pub(super) name: CString,
}

impl Place {
    /// Removes the file there if it is `made` and still empty.
    pub(super) fn remove_made(&self, made: FileIdentity) {
        let found = statat(&self.directory, self.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|stat| FileIdentity::of(&stat) == made && stat.st_size == 0) {
            let _ = unlinkat(&self.directory, self.name.as_c_str(), AtFlags::empty());
        }
    }

    /// What is mounted there, or what the file lies on.
    pub(super) fn mount(&self) -> Option<MountIdentity> {
        MountIdentity::at(&self.directory, self.name.as_c_str(), AtFlags::empty())
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { directory: self.directory.try_clone()?, name: self.name.clone() })
    }

    /// The number in /proc/self/mountinfo of what is mounted there; `None` if nothing is.
    fn mount_number(&self) -> Option<u64> {
        let number = |name: &CStr, flags| {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC | flags;
            Some(statx(&self.directory, name, flags, StatxFlags::MNT_ID).ok()?.stx_mnt_id)
        };
        number(&self.name, AtFlags::empty())
            .filter(|&number_there| Some(number_there) != number(c"", AtFlags::EMPTY_PATH))
    }

    fn open(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        openat(&self.directory, self.name.as_c_str(), flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
    }

    fn stat(&self) -> Result<Stat, Errno> {
        statat(&self.directory, self.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// For umount(2), which takes paths only.
    fn path(&self) -> PathBuf {
        descriptor_path(&self.directory).join(OsStr::from_bytes(self.name.as_bytes()))
    }
}

impl Mountpoint {
    /// Checks `path`; makes an empty file where there is none, and clears away what servers that were killed left.
    ///
    /// # Errors
    /// When it is not a regular file, cannot be made, or is served by somebody already.
    pub(super) fn prepare(path: &Path) -> Result<Self, FuseError> {
        let (place, path) = resolved(path)?;
        let failed = |errno: Errno| FuseError::Path { path: path.clone(), error: errno.into() };
        for _ in 0..DEAD_MOUNTS_MAX {
            clear_dead_mounts(&place, &path)?;
            let made = match place.open(OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, Mode::RUSR | Mode::WUSR) {
                Ok(file) => Some(FileIdentity::of_open(file).map_err(failed)?),
                Err(Errno::EXIST) => None,
                Err(errno) => return Err(failed(errno)),
            };
            let file = match place.open(OFlags::PATH, Mode::empty()) {
                // A dead server's unmounter has removed what that one made.
                Err(Errno::NOENT) => continue,
                file => file.map_err(failed)?,
            };
            let stat = fstat(&file).map_err(failed)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => {}
                FileType::Directory => return Err(FuseError::Directory { path }),
                FileType::Symlink => return Err(FuseError::Symlink { path }),
                _ => return Err(FuseError::NotRegular { path }),
            }
            let turn = place.open(OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).ok();
            if let Some(turn) = &turn {
                take_turn(turn.as_fd());
            }
            // What there was while we waited may be gone, or mounted over.
            let is_there = place.stat().is_ok_and(|now| FileIdentity::of(&now) == FileIdentity::of(&stat));
            if is_there {
                return Ok(Self { path, place, file, made, turn });
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
            self.place.remove_made(made);
        }
    }
}

/// STATX_MNT_ID_UNIQUE (Linux 6.8): a number that no other mount ever gets. Older kernels answer with STATX_MNT_ID,
/// which is used again once its mount is gone, as is the device number.
const MOUNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Which mount it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MountIdentity {
    id: u64,
    /// Major and minor.
    pub(super) device: (u32, u32),
}

impl MountIdentity {
    /// Of what is mounted at a name, without asking whoever serves it. Allocates nothing: the unmounter calls it.
    fn at(directory: impl AsFd, name: &CStr, flags: AtFlags) -> Option<Self> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC | flags;
        let found = statx(directory, name, flags, StatxFlags::TYPE | StatxFlags::MNT_ID | MOUNT_ID_UNIQUE).ok()?;
        Some(Self { id: found.stx_mnt_id, device: (found.stx_dev_major, found.stx_dev_minor) })
    }
}

/// Where `path` leads to, and its name without symbolic links. Its directory is resolved by the kernel, once; the last
/// component is not: it may be a dead mount, or a symbolic link, which is refused.
fn resolved(path: &Path) -> Result<(Place, PathBuf), FuseError> {
    let failed = |error| FuseError::Path { path: path.to_owned(), error };
    let name = path.file_name().ok_or_else(|| FuseError::Directory { path: path.to_owned() })?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, directory_of(path), flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let shown = readlinkat(CWD, descriptor_path(&directory), Vec::new());
    let shown = shown.map_err(|errno| failed(errno.into()))?.into_bytes();
    let place = Place { directory, name: CString::new(name.as_bytes()).map_err(|_| failed(Errno::INVAL.into()))? };
    Ok((place, PathBuf::from(OsString::from_vec(shown)).join(name)))
}

/// Unmounts what a server that was killed left at a place: everything there fails with ENOTCONN.
fn clear_dead_mounts(place: &Place, path: &Path) -> Result<(), FuseError> {
    let failed = |error| FuseError::Path { path: path.to_owned(), error };
    for _ in 0..DEAD_MOUNTS_MAX {
        let mountinfo = fs::read("/proc/self/mountinfo").map_err(failed)?;
        let Some(number) = place.mount_number() else { return Ok(()) };
        if type_of_mount(&mountinfo, number) != Some(FILE_SYSTEM_TYPE.as_bytes()) {
            return Ok(());
        }
        match place.stat() {
            Err(Errno::NOTCONN) => {}
            _ => return Err(FuseError::AlreadyServed { path: path.to_owned() }),
        }
        detach(place, path).map_err(failed)?;
    }
    Err(FuseError::AlreadyServed { path: path.to_owned() })
}

/// Takes the mount away, even if programs still have it open.
fn detach(place: &Place, path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(place.path(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => {}
        other => return Ok(other?),
    }
    let program = fusermount::find().ok_or(Errno::PERM)?;
    let status = std::process::Command::new(program).args(["-u", "-q", "-z", "--"]).arg(path).status()?;
    if status.success() { Ok(()) } else { Err(Errno::PERM.into()) }
}

/// The type of the file system of a mount, out of proc_pid_mountinfo(5).
fn type_of_mount(mountinfo: &[u8], number: u64) -> Option<&[u8]> {
    let number = number.to_string();
    let mut lines = mountinfo.split(|&byte| byte == b'\n').map(|line| line.split(|&byte| byte == b' '));
    let fields = lines.find(|fields| fields.clone().next() == Some(number.as_bytes()))?;
    fields.skip_while(|&field| field != b"-").nth(1)
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
    fn a_mount_has_the_type_that_its_line_says() {
        assert_eq!(type_of_mount(MOUNTINFO, 31), Some(&b"fuse.blockyard"[..]));
        assert_eq!(type_of_mount(MOUNTINFO, 22), Some(&b"ext4"[..]));
        assert_eq!(type_of_mount(MOUNTINFO, 3), None);
        assert_eq!(type_of_mount(b"garbage\n1 2 3 4 /x", 1), None);
    }
}
