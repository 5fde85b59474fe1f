//! Removing, making, moving and linking files.

use crate::failures::{Failures, failure, refusal};
use crate::glob;
use crate::interruption;
use crate::mounts::path_of;
use crate::removal;
use crate::replacing::replacing;
use blockyard_protocol::appliance::{Failure, Link, MakeDirectory, Remove, Rename};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// rm(1).
pub(crate) fn remove(request: &Remove, failures: &mut Failures) {
    let mut unmatched = Failures::default();
    let not_there = if request.force { &mut unmatched } else { &mut *failures };
    let mut paths = Vec::new();
    glob::each(&request.paths, not_there, |path, _| paths.push(path));
    for path in &paths {
        let removed = interruption::check().and_then(|()| remove_one(path, request, failures));
        match removed {
            Err(error) if request.force && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                failures.note(path, "cannot remove without -r", Err(error));
            }
            removed => failures.note(path, "cannot remove", removed),
        }
    }
}

fn remove_one(path: &Path, request: &Remove, failures: &mut Failures) -> io::Result<()> {
    let bytes = path.as_os_str().as_bytes();
    // With a slash behind it, a link would be what it leads to.
    let itself = Path::new(OsStr::from_bytes(without_slashes(bytes)));
    let metadata = fs::symlink_metadata(itself)?;
    if name_of_copy(path).is_none() {
        return Err(io::Error::other("it is the root directory, or ends in `.` or `..`"));
    }
    if !metadata.is_dir() {
        return if itself.as_os_str().len() < bytes.len() {
            Err(Errno::NOTDIR.into())
        } else {
            fs::remove_file(itself)
        };
    }
    match (request.recursive, request.directory) {
        (true, _) => removal::remove_tree(itself, failures),
        (false, true) => fs::remove_dir(itself),
        (false, false) => Err(Errno::ISDIR.into()),
    }
}

/// mkdir(1).
pub(crate) fn make_directories(request: &MakeDirectory, failures: &mut Failures) {
    for path in &request.paths {
        let path = path_of(path);
        if request.parents && path.is_dir() {
            continue;
        }
        let made = DirBuilder::new().recursive(request.parents).mode(0o755).create(path);
        let made = made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(request.mode & 0o7777)));
        let what = match &made {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !request.parents => {
                "cannot make the directory (-p makes those above it, too)"
            }
            _ => "cannot make the directory",
        };
        failures.note(path, what, made);
    }
}

/// mv(1).
pub(crate) fn rename(request: &Rename, failures: &mut Failures) -> Result<(), Failure> {
    let target = path_of(&request.target);
    let into = fs::metadata(target).is_ok_and(|metadata| metadata.is_dir());
    let mut sources = Vec::new();
    glob::each(&request.sources, failures, |path, _| sources.push(path));
    if !into && sources.len() > 1 {
        return Err(failure(target, "cannot move several files there", &io::Error::from_raw_os_error(20)));
    }
    let mut made = HashSet::new();
    for source in &sources {
        let name = source.file_name().unwrap_or(OsStr::new("."));
        let target = if into { target.join(name) } else { target.to_owned() };
        if request.no_clobber && fs::symlink_metadata(&target).is_ok() {
            continue;
        }
        let moved = move_one(source, &target, &made);
        if moved.is_ok() {
            made.insert(target);
        }
        failures.note(source, "cannot move", moved);
    }
    Ok(())
}

fn move_one(source: &Path, target: &Path, made: &HashSet<PathBuf>) -> io::Result<()> {
    if made.contains(target) {
        return Err(io::Error::other(format!("{} has just been moved there", target.display())));
    }
    let from = fs::symlink_metadata(source)?;
    let is = |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    // rename(2) does nothing with two names of one file, and says that it is done.
    if let Ok(there) = fs::symlink_metadata(target)
        && (is(&from, &there) || from.is_symlink() && fs::metadata(source).is_ok_and(|to| is(&to, &there)))
    {
        return Err(io::Error::other(format!("{} is the same file", target.display())));
    }
    fs::rename(source, target)
}

/// ln(1).
pub(crate) fn link(request: &Link) -> Result<(), Failure> {
    let target = path_of(&request.target);
    let path = inside(path_of(&request.path), target.file_name());
    let is_same =
        || fs::canonicalize(target).is_ok_and(|target| fs::canonicalize(&path).is_ok_and(|path| path == target));
    if request.force && !request.symbolic && (is_same() || fs::symlink_metadata(target).is_err()) {
        return Err(refusal(format!("{}: cannot link: it is the same file, or not there", path.display())));
    }
    if !request.symbolic
        && let Err(error) = fs::symlink_metadata(target)
    {
        return Err(failure(target, "cannot link to it", &error));
    }
    let make = |path: &Path| if request.symbolic { symlink(target, path) } else { fs::hard_link(target, path) };
    let linked = if request.force { replacing(&path, make) } else { make(&path) };
    linked.map_err(|error| failure(&path, "cannot link", &error))
}

/// `path`, or the place for `name` in it if it is a directory.
pub(crate) fn inside(path: &Path, name: Option<&OsStr>) -> PathBuf {
    match name {
        Some(name) if fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) => path.join(name),
        _ => path.to_owned(),
    }
}

/// The name that a copy of `path` has in a directory; none for one that ends in `.` or `..`, by which what is in it is
/// meant, and for the root.
pub(crate) fn name_of_copy(path: &Path) -> Option<&OsStr> {
    let bytes = without_slashes(path.as_os_str().as_bytes());
    let name = bytes.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    (!matches!(name, b"" | b"." | b"..")).then(|| OsStr::from_bytes(name))
}

/// A path without the slashes at its end; the root stays what it is.
fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(path.len().min(1), |last| last + 1);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_in_a_dot_has_no_name() {
        for (path, name) in [("/a", Some("a")), ("/a/b//", Some("b")), ("/a/.", None), ("/a/..//", None), ("/", None)] {
            assert_eq!(name_of_copy(Path::new(path)), name.map(OsStr::new), "{path}");
        }
        assert_eq!((without_slashes(b"//"), without_slashes(b"/a//")), (&b"/"[..], &b"/a"[..]));
    }
}
