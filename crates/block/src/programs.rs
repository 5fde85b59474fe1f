//! Where programs of others are. Nothing else reads PATH, and nothing is executed by its bare name: a system looks for
//! that in the current directory, too, where PATH has an empty or a relative element or is not set, and what lies there
//! is whoever's who could write to it.

use rustix::fs::{Access, access};
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What counts where PATH says nothing.
const USUAL: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The absolute directories of PATH; the usual ones where it is not set, or has none.
pub fn directories() -> Vec<PathBuf> {
    of(env::var_os("PATH").as_deref())
}

fn of(path: Option<&OsStr>) -> Vec<PathBuf> {
    let absolute = |path: &OsStr| env::split_paths(path).filter(|directory| directory.is_absolute()).collect();
    let directories: Vec<_> = path.map(absolute).unwrap_or_default();
    if directories.is_empty() { absolute(OsStr::new(USUAL)) } else { directories }
}

/// They as a PATH, for a program that looks for others.
pub fn path() -> OsString {
    // Each of them comes out of such a list.
    env::join_paths(directories()).unwrap_or_else(|_| USUAL.into())
}

/// The program of this name that may be executed.
pub fn find(name: &str) -> Option<PathBuf> {
    directories().into_iter().map(|directory| directory.join(name)).find(|program| is_program(program))
}

/// Whether a file is one that may be executed.
pub fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// Executes the program of this name, or the one at this path; what it executes itself is found likewise.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let program = Path::new(program.as_ref());
    let name = program.to_str().filter(|name| !name.contains('/'));
    // Where there is none, that is what is said of it when it is executed.
    let found = name.map(|name| find(name).unwrap_or_else(|| Path::new("/usr/bin").join(name)));
    let mut command = Command::new(found.as_deref().unwrap_or(program));
    command.env("PATH", path());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_directory_has_no_programs() {
        let of = |path: Option<&str>| env::join_paths(of(path.map(OsStr::new))).unwrap();
        for nothing in [None, Some(""), Some(":"), Some("."), Some("bin:./x::..")] {
            assert_eq!(of(nothing), USUAL, "{nothing:?}");
        }
        assert_eq!(of(Some("/a:")), "/a");
        assert_eq!(of(Some(":/a:.:b:/c/../d")), "/a:/c/../d");
    }

    #[test]
    fn what_is_executed_has_a_directory() {
        for program in ["sh", "no such program", "/bin/sh", "./sh"] {
            let command = command(program);
            assert!(command.get_program().to_str().unwrap().contains('/'), "{program}");
            assert!(command.get_envs().any(|(name, path)| name == "PATH" && path.is_some_and(|path| !path.is_empty())));
        }
    }
}
