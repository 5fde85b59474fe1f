//! Where a replacement file goes, and what it replaces.

use super::ReplacementError;
use super::access_list::AccessList;
use crate::named_file::is_without_a_name;
use crate::place::{Place, is_for_devices, is_mount_root};
use crate::users::has_number;
use crate::{FileDisk, FileIdentity, FileOptions};
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags, accessat, fstat, openat, statx,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A place for a regular file, and what is there.
#[derive(Debug)]
pub(super) struct NewPlace {
    pub(super) place: Place,
    /// The regular file that has the name now.
    pub(super) replaces: Option<OldFile>,
}

/// The file that is replaced.
#[derive(Debug)]
pub(super) struct OldFile {
    pub(super) attributes: Attributes,
    pub(super) identity: FileIdentity,
    /// Open, so that no other file gets its inode's number.
    _opened: OwnedFd,
}

/// Who may do what with a file.
#[derive(Debug)]
pub(super) struct Attributes {
    pub(super) mode: Mode,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) list: AccessList,
    /// The file itself, for what else is said of it, and of an old one for its lock; `None` for one that may not be
    /// read, which is nobody's image.
    pub(super) file: Option<File>,
}

impl NewPlace {
    /// What a path leads to is decided once, by the kernel and its rules on whose symbolic links are followed.
    pub(super) fn find(path: &Path) -> Result<Self, ReplacementError> {
        match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => Self::of_existing(path, file),
            Err(Errno::NOENT) if path.is_symlink() => Err(ReplacementError::DanglingLink(path.to_owned())),
            Err(Errno::NOENT) => Self::of_new(path),
            Err(errno) => Err(ReplacementError::new("look at", path, errno)),
        }
    }

    fn of_existing(path: &Path, opened: OwnedFd) -> Result<Self, ReplacementError> {
        let failed = |error: io::Error| ReplacementError::new("look at", path, error);
        let identity = FileIdentity::of_open(&opened).map_err(|errno| failed(errno.into()))?;
        let status = statx(&opened, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map_err(|e| failed(e.into()))?;
        if let Some(kind) = unsuitable(FileType::from_raw_mode(status.stx_mode.into())) {
            return Err(ReplacementError::NotAFile { path: path.to_owned(), kind });
        }
        if is_mount_root(&opened).map_err(failed)? {
            return Err(ReplacementError::MountPoint(path.to_owned()));
        }
        let place = Place::of(&opened, path).map_err(failed)?;
        if is_strangers(&place, status.stx_uid).map_err(failed)? {
            return Err(ReplacementError::Strangers(path.to_owned()));
        }
        if let Some(refused) = cannot_be_replaced(&place, &status, path).map_err(failed)? {
            return Err(refused);
        }
        // To replace a file takes no more than its directory, but nobody expects a file to change that may not be
        // written.
        let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
        match accessat(&place.directory, &place.name, Access::WRITE_OK, flags) {
            // A kernel that does not know such a question.
            Ok(()) | Err(Errno::NOSYS) => {}
            Err(errno) => {
                return Err(ReplacementError::NotWritable { path: path.to_owned(), source: errno.into() });
            }
        }
        let file = place.open(OFlags::RDONLY).ok().filter(|file| is_same(file, &status));
        if let Some(file) = &file {
            FileDisk::lock(file, path, &FileOptions::default())?;
        }
        let mode = Mode::from_raw_mode(u32::from(status.stx_mode) & 0o7777);
        let list = file.as_ref().map_or_else(|| AccessList::of_place(&opened), AccessList::of);
        let attributes = Attributes { mode, user: status.stx_uid, group: status.stx_gid, list, file };
        Ok(Self { replaces: Some(OldFile { attributes, identity, _opened: opened }), place })
    }

    fn of_new(path: &Path) -> Result<Self, ReplacementError> {
        refuse_missing_device(path)?;
        let no_directory = |directory: &Path| Err(ReplacementError::NoDirectory(directory.to_owned()));
        match Place::named(path) {
            Ok(place) => Ok(Self { place, replaces: None }),
            Err(error) => match (error.kind(), path.parent()) {
                (io::ErrorKind::InvalidInput, _) => no_directory(path),
                (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, Some(parent)) => no_directory(parent),
                _ => Err(ReplacementError::new("open the directory of", path, error)),
            },
        }
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.place.path
    }
}

/// Refuses to make a file of a name that nothing has, if it is one of a device: a file in /dev lies in memory, and
/// whoever names it means a device that is not there, or has another name.
///
/// # Errors
/// [`ReplacementError::NoDevice`] when it is.
pub fn refuse_missing_device(path: &Path) -> Result<(), ReplacementError> {
    // Of a device such as /dev/group/volume, the directory may be missing too.
    let above = path.ancestors().skip(1).find_map(|above| {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        openat(CWD, above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
    });
    match above.is_some_and(|above| is_for_devices(above).unwrap_or(false)) {
        true => Err(ReplacementError::NoDevice(path.to_owned())),
        false => Ok(()),
    }
}

/// Refuses a file or FIFO that is to be written as it is, and was opened by `path`, if somebody else may have put it
/// there to read what is written.
///
/// # Errors
/// When somebody may have, or its directory cannot be looked at.
pub fn refuse_strangers(opened: impl AsFd, path: &Path) -> Result<(), ReplacementError> {
    let failed = |error: io::Error| ReplacementError::new("look at", path, error);
    // A pipe without a name, as a shell makes them, lies nowhere that anybody could put it.
    if is_without_a_name(&opened).map_err(failed)? {
        return Ok(());
    }
    let owner = fstat(&opened).map_err(|errno| failed(errno.into()))?.st_uid;
    let place = Place::of(&opened, path).map_err(failed)?;
    match is_strangers(&place, owner).map_err(failed)? {
        true => Err(ReplacementError::Strangers(path.to_owned())),
        false => Ok(()),
    }
}

/// Whether a file of this owner may have been put there to be written by somebody else, by the rule that the kernel has
/// for files that a program would create (`proc_sys_fs(5)`, `protected_regular`).
///
/// # Errors
/// When its directory cannot be looked at.
fn is_strangers(place: &Place, owner: u32) -> io::Result<bool> {
    let directory = fstat(&place.directory)?;
    let mode = Mode::from_raw_mode(directory.st_mode);
    let is_shared = mode.contains(Mode::SVTX) && mode.intersects(Mode::WGRP | Mode::WOTH);
    let is_known = [geteuid().as_raw(), directory.st_uid].contains(&owner) && has_number(owner);
    Ok(is_shared && !is_known)
}

/// Why a file may not lose its name to another one, as far as that is known before.
fn cannot_be_replaced(place: &Place, file: &Statx, path: &Path) -> io::Result<Option<ReplacementError>> {
    let statx_of = |directory| statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let directory = statx_of(&place.directory)?;
    let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    if [&directory, file].into_iter().any(|status| status.stx_attributes.intersects(fixed)) {
        return Ok(Some(ReplacementError::Fixed(path.to_owned())));
    }
    // In a sticky directory, its owner, the file's and who may do all can.
    let me = geteuid();
    let is_sticky = Mode::from_raw_mode(directory.stx_mode.into()).contains(Mode::SVTX);
    let is_mine = me.is_root() || [directory.stx_uid, file.stx_uid].contains(&me.as_raw());
    Ok((is_sticky && !is_mine).then(|| ReplacementError::Sticky(path.to_owned())))
}

fn is_same(file: &File, status: &Statx) -> bool {
    let opened = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    let identity = |status: &Statx| (status.stx_dev_major, status.stx_dev_minor, status.stx_ino);
    opened.is_ok_and(|opened| identity(&opened) == identity(status))
}

/// What a thing is that no regular file may replace.
fn unsuitable(file_type: FileType) -> Option<&'static str> {
    match file_type {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::BlockDevice => Some("a block device"),
        FileType::CharacterDevice => Some("a character device"),
        FileType::Fifo => Some("a FIFO"),
        FileType::Socket => Some("a socket"),
        _ => Some("no regular file"),
    }
}
