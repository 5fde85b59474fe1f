//! Whose a file of an archive is, and what else is said of it.

use blockyard_archive::Member;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timestamps, Uid, XattrFlags, chmod, chownat, fchmod, fchown, fsetxattr, futimens,
    lsetxattr, setxattr, statfs, utimensat,
};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Set-ID bits, which a new owner takes away.
const SET_ID: u32 = 0o6000;
/// A file system without extended attributes (statfs(2)).
const VFAT: u64 = 0x4d44;

/// What a member of an archive says besides its data.
#[derive(Debug)]
pub(super) struct Metadata {
    user: Uid,
    group: Gid,
    /// Permissions, set-ID bits and sticky.
    pub(super) mode: u32,
    pub(super) modified: Timestamps,
    attributes: Vec<(OsString, Vec<u8>)>,
}

impl Metadata {
    /// Everything belongs to root unless `own`. The member has no attributes any more.
    pub(super) fn of(member: &mut Member, own: bool) -> Self {
        let (user, group) = if own { (member.user, member.group) } else { (0, 0) };
        Self {
            user: Uid::from_raw(user),
            group: Gid::from_raw(group),
            mode: member.mode,
            modified: member.modified.both(),
            attributes: std::mem::take(&mut member.attributes),
        }
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
        let attributed = self.set_attributes(|name, value| fsetxattr(file, name, value, XattrFlags::empty()));
        if inherits || (is_chowned && self.mode & SET_ID != 0) {
            fchmod(file, self.mode())?;
        }
        futimens(file, &self.modified)?;
        Ok(attributed?)
    }

    /// Owner and extended attributes, of something that is not to be opened.
    pub(super) fn set_owner(&self, path: &Path) -> io::Result<()> {
        if !self.is_roots() {
            chownat(CWD, path, Some(self.user), Some(self.group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(self.set_attributes(|name, value| lsetxattr(path, name, value, XattrFlags::empty()))?)
    }

    /// The same of a directory, or of the one that a link leads to, as everything of it.
    pub(super) fn set_directory_owner(&self, path: &Path, is_new: bool) -> io::Result<()> {
        if !is_new || !self.is_roots() {
            chownat(CWD, path, Some(self.user), Some(self.group), AtFlags::empty())?;
        }
        Ok(self.set_attributes(|name, value| setxattr(path, name, value, XattrFlags::empty()))?)
    }

    fn set_attributes(&self, set: impl Fn(&OsString, &[u8]) -> Result<(), Errno>) -> Result<(), Errno> {
        for (name, value) in &self.attributes {
            match set(name, value) {
                // There it has none, as it has no owner.
                Err(Errno::OPNOTSUPP) if statfs(".").is_ok_and(|found| found.f_type as u64 == VFAT) => return Ok(()),
                set => set?,
            }
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

/// Permissions and time of a directory, or of the one that a link leads to.
pub(super) fn finish_directory(path: &Path, mode: u32, modified: &Timestamps) -> io::Result<()> {
    chmod(path, Mode::from_raw_mode(mode))?;
    Ok(utimensat(CWD, path, modified, AtFlags::empty())?)
}
