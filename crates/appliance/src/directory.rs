//! The directory of an appliance: while it starts, its files and sockets have names there.

use blockyard_block::{error_at, private_directory};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, statvfs};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

/// A directory for sockets, initramfs and, where namespaces cannot be had, the guest's memory: that is a file, which
/// the guest executes.
pub(crate) fn make_directory(memory_bytes: u64) -> io::Result<TempDir> {
    private_directory(|place| takes_memory(place, memory_bytes))
}

/// A file that was not there, for this user alone.
pub(crate) fn new_file(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    file.set_permissions(Permissions::from_mode(0o600)).map(|()| file)
}

/// For this user, and this user alone, whatever the umask has left.
pub(crate) fn permit(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| error_at(path, &error))
}

/// The longest path of a directory where sockets can have names, and are in one of ours, of 108 bytes at most
/// (unix(7)).
const DIRECTORY_BYTES_MAX: usize = 80;

/// Whether sockets can be made in a directory, and it has room for a guest's memory and lets it be executed.
pub(crate) fn takes_memory(directory: &Path, memory_bytes: u64) -> bool {
    if directory.as_os_str().len() > DIRECTORY_BYTES_MAX {
        return false;
    }
    let Ok(place) = statvfs(directory) else { return false };
    let free = place.f_bavail.saturating_mul(place.f_frsize);
    let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let writable =
        || rustix::fs::open(directory, unnamed, Mode::RUSR).is_ok() || tempfile::tempfile_in(directory).is_ok();
    !place.f_flag.contains(StatVfsMountFlags::NOEXEC) && free >= memory_bytes && writable()
}
