//! Whose a file of an archive is, and what else is said of it.

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fsetxattr, futimens,
    lsetxattr, utimensat,
};
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;
use tar::Entry;

/// How pax archives name an extended attribute.
const XATTR: &str = "SCHILY.xattr.";
/// Set-ID bits, which a new owner takes away.
const SET_ID: u32 = 0o6000;

/// What an entry of an archive says besides its data.
#[derive(Debug)]
pub(super) struct Metadata {
    user: Uid,
    group: Gid,
    /// Permissions, set-ID bits and sticky.
    pub(super) mode: u32,
    pub(super) modified: Timestamps,
    attributes: Vec<(String, Vec<u8>)>,
}

impl Metadata {
    /// Everything belongs to root unless `own`.
    pub(super) fn of<R: Read>(entry: &mut Entry<'_, R>, own: bool) -> io::Result<Self> {
        let header = entry.header();
        let id = |id: u64| id.min(u64::from(u32::MAX - 1)) as u32;
        let (user, group) = if own { (id(header.uid()?), id(header.gid()?)) } else { (0, 0) };
        let mode = header.mode()? & 0o7777;
        let modified = Timespec { tv_sec: i64::try_from(header.mtime()?).unwrap_or(i64::MAX), tv_nsec: 0 };
        let mut attributes = Vec::new();
        if let Some(extensions) = entry.pax_extensions()? {
            for extension in extensions.flatten() {
                if let Some(name) = extension.key().ok().and_then(|key| key.strip_prefix(XATTR)) {
                    attributes.push((name.to_owned(), extension.value_bytes().to_vec()));
                }
            }
        }
        let modified = Timestamps { last_access: modified, last_modification: modified };
        Ok(Self { user: Uid::from_raw(user), group: Gid::from_raw(group), mode, modified, attributes })
    }

    /// Permissions to make a file with.
    pub(super) fn mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }

    /// Gives a new file what it does not have from being made by root with [`Metadata::mode`], in the order that leaves nothing changed
    /// by what comes after it. It `inherits` where its directory has a say in that.
    pub(super) fn set(&self, file: BorrowedFd<'_>, inherits: bool) -> io::Result<()> {
        let is_chowned = inherits || !self.is_roots();
        if is_chowned {
            fchown(file, Some(self.user), Some(self.group))?;
        }
        for (name, value) in &self.attributes {
            fsetxattr(file, name.as_str(), value, XattrFlags::empty())?;
        }
        if inherits || (is_chowned && self.mode & SET_ID != 0) {
            fchmod(file, self.mode())?;
        }
        Ok(futimens(file, &self.modified)?)
    }

    /// Owner and extended attributes, of something that is not to be opened.
    pub(super) fn set_owner(&self, path: &Path) -> io::Result<()> {
        if !self.is_roots() {
            chownat(CWD, path, Some(self.user), Some(self.group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        for (name, value) in &self.attributes {
            lsetxattr(path, name.as_str(), value, XattrFlags::empty())?;
        }
        Ok(())
    }

    fn is_roots(&self) -> bool {
        (self.user, self.group) == (Uid::ROOT, Gid::ROOT)
    }
}

/// Sets when something was modified that is not to be opened.
pub(super) fn set_time(path: &Path, modified: &Timestamps) -> io::Result<()> {
    Ok(utimensat(CWD, path, modified, AtFlags::SYMLINK_NOFOLLOW)?)
}
