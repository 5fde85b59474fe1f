//! fusermount3, the program that mounts and unmounts for those who may not.

use rustix::fs::{Access, access};
use std::path::PathBuf;

const PROGRAM: &str = "fusermount3";
/// Looked at after `PATH`, which may be anything.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/sbin"];

/// Where it is, if it is installed.
pub(super) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    let known = DIRECTORIES.iter().map(PathBuf::from);
    directories
        .chain(known)
        .map(|directory| directory.join(PROGRAM))
        .find(|program| access(program, Access::EXEC_OK).is_ok_and(|()| program.is_file()))
}
