//! fusermount3, the program that mounts and unmounts for those who may not.

use blockyard_block::programs;
use std::path::PathBuf;

const PROGRAM: &str = "fusermount3";
/// Looked at after `PATH`, which may be anything.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/sbin"];

/// Where it is, if it is installed.
pub(super) fn find() -> Option<PathBuf> {
    let directories = programs::directories().into_iter().chain(DIRECTORIES.map(PathBuf::from));
    directories.map(|directory| directory.join(PROGRAM)).find(|program| programs::is_program(program))
}
