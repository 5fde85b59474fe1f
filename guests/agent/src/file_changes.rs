//! Removing, making, moving and linking files.

use crate::failures::{Failures, failure, refusal};
use crate::glob;
use crate::interruption;
use crate::mounts::path_of;
use crate::removal;
use blockyard_protocol::appliance::{Failure, Link, MakeDirectory, Remove, Rename};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// rm(1).
pub(crate) fn remove(request: &Remove, failures: &mut Failures) {
    let mut unmatched = Failures::default();
    let not_there = if request.force { &mut unmatched } else { &mut *failures };
    let mut paths = Vec::new();
    glob::each(&request.paths, not_there, |path, _| paths.push(path));
    for path in &paths {
        let removed = match interruption::check().and_then(|()| fs::symlink_metadata(path)) {
            Err(error) => Err(error),
            // What ends in `..` may be the root as well.
            Ok(_) if path.file_name().is_none() => Err(io::Error::other("it is the root directory, or ends in `..`")),
            Ok(metadata) if metadata.is_dir() && request.recursive => removal::remove_tree(path),
            Ok(metadata) if metadata.is_dir() && request.directory => fs::remove_dir(path),
            Ok(_) => fs::remove_file(path),
        };
        match removed {
            Err(error) if request.force && error.kind() == io::ErrorKind::NotFound => {}
            removed => failures.note(path, "cannot remove", removed),
        }
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
        failures.note(path, "cannot make the directory", made);
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
    for source in &sources {
        let name = source.file_name().unwrap_or(OsStr::new("."));
        let target = if into { target.join(name) } else { target.to_owned() };
        if request.no_clobber && fs::symlink_metadata(&target).is_ok() {
            continue;
        }
        failures.note(source, "cannot move", fs::rename(source, target));
    }
    Ok(())
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
    let replaces = request.force && fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_dir());
    let cleared = if replaces { fs::remove_file(&path) } else { Ok(()) };
    let linked =
        cleared.and_then(|()| if request.symbolic { symlink(target, &path) } else { fs::hard_link(target, &path) });
    linked.map_err(|error| failure(&path, "cannot link", &error))
}

/// `path`, or the place for `name` in it if it is a directory.
pub(crate) fn inside(path: &Path, name: Option<&OsStr>) -> PathBuf {
    match name {
        Some(name) if fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) => path.join(name),
        _ => path.to_owned(),
    }
}
