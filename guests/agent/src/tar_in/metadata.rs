//! Whose a file of an archive is, and what else is said of it.

use crate::owner_names::OwnerNames;
use blockyard_archive::{ACCESS_LIST, AccessControlList, DEFAULT_LIST, Member, NameOf};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timestamps, Uid, XattrFlags, chmod, chownat, fchmod, fchown, fremovexattr, fsetxattr,
    futimens, listxattr_query, lremovexattr, lsetxattr, removexattr, setxattr, statfs, utimensat,
};
use rustix::io::Errno;
use std::cell::OnceCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// A file system without extended attributes (statfs(2)).
const VFAT: u64 = 0x4d44;
/// Permissions, without set-ID bits and sticky.
const PERMISSIONS: u32 = 0o777;

/// The image's users and groups, which access control lists of archives may name: read when one does.
#[derive(Default)]
pub(super) struct Names {
    users: OnceCell<OwnerNames>,
    groups: OnceCell<OwnerNames>,
}

impl Names {
    fn number(&self, of: NameOf, name: &[u8]) -> Option<u32> {
        let names = match of {
            NameOf::User => self.users.get_or_init(OwnerNames::users),
            NameOf::Group => self.groups.get_or_init(OwnerNames::groups),
        };
        names.number(std::str::from_utf8(name).ok()?)
    }
}

/// What a directory has a say in, for what is made in it (inode(7), acl(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Inheritance {
    /// New files may get its group.
    pub(super) group: bool,
    /// New files get an access control list.
    pub(super) list: bool,
}

/// What a member of an archive says besides its data.
#[derive(Debug)]
pub(super) struct Metadata {
    user: Uid,
    group: Gid,
    /// Permissions, set-ID bits and sticky; its group gets no more than its list gives it.
    mode: u32,
    pub(super) modified: Timestamps,
    pub(super) lists: Lists,
    attributes: Vec<(OsString, Vec<u8>)>,
}

/// Access control lists as attributes.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Only one that says more than the mode.
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
    /// Why one of them is not there.
    missing: Option<io::Error>,
}

impl Lists {
    fn of(member: &Member, names: &Names) -> Self {
        let mut missing = None;
        let mut attribute = |list: &AccessControlList| {
            let attribute = list.attribute(|of, name| names.number(of, name));
            attribute.map_err(|error| missing = Some(error)).ok()
        };
        let access = member.access.as_ref().filter(|list| list.is_extended()).and_then(&mut attribute);
        let default = member.default.as_ref().and_then(&mut attribute);
        Self { access, default, missing }
    }

    fn set(&self, set: impl Fn(&str, &[u8]) -> Result<(), Errno>) -> io::Result<()> {
        let lists = [(ACCESS_LIST, &self.access), (DEFAULT_LIST, &self.default)];
        for (name, list) in lists.iter().filter_map(|(name, list)| Some((name, list.as_ref()?))) {
            tolerated(set(name, list))?;
        }
        self.missing.as_ref().map_or(Ok(()), |error| Err(io::Error::new(error.kind(), error.to_string())))
    }
}

impl Metadata {
    /// Everything belongs to root unless `own`. The member has no attributes any more.
    pub(super) fn of(member: &mut Member, own: bool, names: &Names) -> Self {
        let (user, group) = if own { (member.user, member.group) } else { (0, 0) };
        Self {
            user: Uid::from_raw(user),
            group: Gid::from_raw(group),
            mode: member.mode_without_list(),
            modified: member.modified.both(),
            lists: Lists::of(member, names),
            attributes: std::mem::take(&mut member.attributes),
        }
    }

    /// Permissions, set-ID bits and sticky.
    pub(super) fn mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }

    /// Permissions to make a file with that is not yet whose it will be: nobody gets any that he will not have.
    pub(super) fn first_mode(&self, inheritance: Inheritance) -> Mode {
        let permissions = self.mode & PERMISSIONS;
        if self.is_whole(inheritance) {
            return Mode::from_raw_mode(permissions);
        }
        let everybodys = permissions & permissions >> 3 & 0o7;
        Mode::from_raw_mode(permissions & 0o700 | everybodys << 3 | everybodys)
    }

    /// Whether a file that root makes has its owner, and no list but its mode.
    fn is_whole(&self, inheritance: Inheritance) -> bool {
        self.is_roots() && self.lists.access.is_none() && inheritance == Inheritance::default()
    }

    /// Gives a new file what it does not have from being made by root with [`Metadata::first_mode`], in the order that
    /// leaves nothing changed by what comes after it: a new owner takes set-ID bits and capabilities away, and a list
    /// is also a mode.
    pub(super) fn set(&self, file: BorrowedFd<'_>, inheritance: Inheritance) -> io::Result<()> {
        if !self.is_roots() || inheritance.group {
            fchown(file, Some(self.user), Some(self.group))?;
        }
        if inheritance.list {
            removed(fremovexattr(file, ACCESS_LIST))?;
        }
        if self.first_mode(inheritance) != self.mode() || inheritance.list {
            fchmod(file, self.mode())?;
        }
        let listed = self.lists.set(|name, list| fsetxattr(file, name, list, XattrFlags::empty()));
        let attributed = self.set_attributes(|name, value| fsetxattr(file, name, value, XattrFlags::empty()));
        futimens(file, &self.modified)?;
        listed.and(attributed)
    }

    /// The same of something that is not to be opened, and is no link.
    pub(super) fn set_special(&self, path: &Path, inheritance: Inheritance) -> io::Result<()> {
        chownat(CWD, path, Some(self.user), Some(self.group), AtFlags::SYMLINK_NOFOLLOW)?;
        if inheritance.list {
            removed(lremovexattr(path, ACCESS_LIST))?;
        }
        chmod(path, self.mode())?;
        let listed = self.lists.set(|name, list| lsetxattr(path, name, list, XattrFlags::empty()));
        let attributed = self.set_attributes(|name, value| lsetxattr(path, name, value, XattrFlags::empty()));
        set_time(path, &self.modified)?;
        listed.and(attributed)
    }

    /// Owner and extended attributes, of a link.
    pub(super) fn set_owner(&self, path: &Path) -> io::Result<()> {
        if !self.is_roots() {
            chownat(CWD, path, Some(self.user), Some(self.group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        self.set_attributes(|name, value| lsetxattr(path, name, value, XattrFlags::empty()))
    }

    /// The same of a directory, or of the one that a link leads to, as everything of it.
    pub(super) fn set_directory_owner(&self, path: &Path, is_new: bool) -> io::Result<()> {
        if !is_new || !self.is_roots() {
            chownat(CWD, path, Some(self.user), Some(self.group), AtFlags::empty())?;
        }
        self.set_attributes(|name, value| setxattr(path, name, value, XattrFlags::empty()))
    }

    fn set_attributes(&self, set: impl Fn(&OsString, &[u8]) -> Result<(), Errno>) -> io::Result<()> {
        self.attributes.iter().try_for_each(|(name, value)| tolerated(set(name, value)))
    }

    fn is_roots(&self) -> bool {
        (self.user, self.group) == (Uid::ROOT, Gid::ROOT)
    }
}

/// A file system that has no owners has no attributes either.
fn tolerated(set: Result<(), Errno>) -> io::Result<()> {
    match set {
        Err(Errno::OPNOTSUPP) if statfs(".").is_ok_and(|found| found.f_type as u64 == VFAT) => Ok(()),
        set => Ok(set?),
    }
}

/// What is not there need not be removed.
fn removed(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        removed => removed,
    }
}

/// Sets when something was modified that is not to be opened.
pub(super) fn set_time(path: &Path, modified: &Timestamps) -> io::Result<()> {
    Ok(utimensat(CWD, path, modified, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Permissions, lists and time of a directory, or of the one that a link leads to.
pub(super) fn finish_directory(path: &Path, mode: Mode, lists: &Lists, modified: &Timestamps) -> io::Result<()> {
    // Mostly it has no attributes at all.
    if listxattr_query(path) != Ok(0) {
        removed(removexattr(path, ACCESS_LIST))?;
        removed(removexattr(path, DEFAULT_LIST))?;
    }
    chmod(path, mode)?;
    let listed = lists.set(|name, list| setxattr(path, name, list, XattrFlags::empty()));
    utimensat(CWD, path, modified, AtFlags::empty())?;
    listed
}
