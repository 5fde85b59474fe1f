//! Where an open file lies.

use crate::FileIdentity;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags, fstat, openat, readlinkat, statat, statx,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Symbolic links that are followed one after another, as many as the kernel follows (MAXSYMLINKS).
const LINKS_MAX: usize = 40;

/// A directory, held open, and the name that a file has in it, or will have. What is done to the name is done there,
/// whatever becomes meanwhile of the path that led to it.
#[derive(Debug)]
pub(crate) struct Place {
    /// All of it, without symbolic links at its end.
    pub(crate) path: PathBuf,
    /// Open as a path only (`O_PATH`).
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
}

impl Place {
    /// The place that the path itself names, without following a symbolic link at its end.
    pub(crate) fn named(path: &Path) -> io::Result<Self> {
        let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path does not end in a file's name");
        let name = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/")).ok_or_else(no_name)?;
        let directory = openat(CWD, directory_of(path), DIRECTORY, Mode::empty())?;
        Ok(Self { path: path.to_owned(), directory, name: name.to_owned() })
    }

    /// The place of `file`, which was opened by `path`. What the path leads to was for the kernel to decide, by its
    /// rules on whose symbolic links are followed: what is found here counts only if it is that very file.
    ///
    /// # Errors
    /// When the file has no name there (any more).
    pub(crate) fn of(file: impl AsFd, path: &Path) -> io::Result<Self> {
        let opened = fstat(file)?;
        let mut place = Self::named(path)?;
        for _ in 0..LINKS_MAX {
            let found = statat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
                let is_same = FileIdentity::of(&found) == FileIdentity::of(&opened);
                return if is_same { Ok(place) } else { Err(io::Error::other("it is being moved or replaced")) };
            }
            place = place.follow()?;
        }
        Err(Errno::LOOP.into())
    }

    /// Where the symbolic link at this place leads to.
    fn follow(&self) -> io::Result<Self> {
        let target = readlinkat(&self.directory, &self.name, Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        let name = target.file_name().ok_or(Errno::ISDIR)?;
        let directory = openat(&self.directory, directory_of(&target), DIRECTORY, Mode::empty())?;
        let path = directory_of(&self.path).join(&target);
        Ok(Self { path, directory, name: name.to_owned() })
    }

    /// Opens the file at this place, if it is one; follows no symbolic link, and waits for nobody.
    pub(crate) fn open(&self, access: OFlags) -> io::Result<File> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(openat(&self.directory, &self.name, flags, Mode::empty())?.into())
    }

    /// The directory, open for reading, so that it can be made stable and files without names can be made in it.
    pub(crate) fn readable_directory(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&self.directory, ".", flags, Mode::empty())?)
    }

    /// Another name in the same directory.
    pub(crate) fn beside(&self, name: &OsStr) -> io::Result<Self> {
        let directory = self.directory.try_clone()?;
        Ok(Self { path: directory_of(&self.path).join(name), directory, name: name.to_owned() })
    }
}

/// Whether something is mounted on the very name that an open file was reached by: a file mounted by itself (a bind
/// mount, a file of FUSE). No other file can take that name, and the directory round it is not the one that the file is
/// in.
pub(crate) fn is_mount_root(file: impl AsFd) -> io::Result<bool> {
    let status = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    Ok(status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Whether a directory is one of devices: /dev, or one below it on the same file system. What is mounted there, such as
/// /dev/shm, is a directory like others.
///
/// # Errors
/// When it cannot be told.
pub(crate) fn is_for_devices(directory: impl AsFd) -> io::Result<bool> {
    let identity = |status: Stat| (status.st_dev, status.st_ino);
    let devices = match rustix::fs::stat("/dev") {
        Ok(status) => identity(status),
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(errno.into()),
    };
    let mut directory = openat(directory, ".", DIRECTORY, Mode::empty())?;
    let mut at = identity(fstat(&directory)?);
    while at.0 == devices.0 {
        if at == devices {
            return Ok(true);
        }
        directory = openat(&directory, "..", DIRECTORY, Mode::empty())?;
        let above = identity(fstat(&directory)?);
        // Nothing is above the root.
        if above == at {
            break;
        }
        at = above;
    }
    Ok(false)
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The directory that the file at `path` is in, or will be.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_found_through_links_and_only_the_file_that_was_opened() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("deep")).unwrap();
        fs::write(at("deep/file"), "this").unwrap();
        fs::write(at("other"), "other").unwrap();
        symlink("deep/file", at("relative")).unwrap();
        symlink(at("relative"), at("absolute")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("/", at("root")).unwrap();
        let file = File::open(at("absolute")).unwrap();
        for name in ["absolute", "relative", "deep/file", "deep/../deep/file"] {
            let place = Place::of(&file, &at(name)).unwrap();
            assert_eq!(
                (place.path.canonicalize().unwrap(), &*place.name),
                (at("deep/file"), "file".as_ref()),
                "{name}"
            );
            // The directory is that one, wherever the path leads later.
            fs::rename(at("deep"), at("moved")).unwrap();
            assert_eq!(io::read_to_string(place.open(OFlags::RDONLY).unwrap()).unwrap(), "this");
            fs::rename(at("moved"), at("deep")).unwrap();
        }
        for (name, why) in [("other", "being moved"), ("loop", "symbolic links"), ("nothing", "No such file")] {
            let error = Place::of(&file, &at(name)).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
        for name in ["deep/..", "deep/file/", "/"] {
            assert!(Place::named(&at(name)).is_err(), "{name}");
        }
        fs::rename(at("relative"), at("gone")).unwrap();
        symlink("other", at("relative")).unwrap();
        assert!(Place::of(&file, &at("absolute")).is_err());
    }
}
