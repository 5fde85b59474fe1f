//! Access control lists of files, and what is left of a file's rights where they cannot be kept.

use super::{PERMISSIONS, XATTR_BYTES_MAX};
use crate::descriptor_path;
use rustix::fs::{Mode, XattrFlags, fgetxattr, fremovexattr, fsetxattr, getxattr};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

/// A file's access control list, if it has more than permission bits (acl(5)).
pub(super) const ACL: &str = "system.posix_acl_access";

/// Whom a file's access control list lets in and keeps out. Of a file that has one, the group's permission bits are not
/// the group's: they are the most that the list gives to anybody but the owner and others.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AccessList {
    None,
    Is(Vec<u8>),
    /// There may be one.
    Unknown,
}

impl AccessList {
    pub(super) fn of(file: &File) -> Self {
        Self::read(|list| fgetxattr(file, ACL, list))
    }

    /// That of a file that is opened as a place alone (`O_PATH`): nobody needs to be let in to read the list.
    pub(super) fn of_place(opened: &OwnedFd) -> Self {
        Self::read(|list| getxattr(descriptor_path(opened), ACL, list))
    }

    fn read<'a>(get: impl FnOnce(rustix::buffer::SpareCapacity<'_, u8>) -> rustix::io::Result<usize> + 'a) -> Self {
        let mut list = Vec::with_capacity(XATTR_BYTES_MAX);
        match get(rustix::buffer::spare_capacity(&mut list)) {
            Ok(_) => Self::Is(list),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Self::None,
            Err(_) => Self::Unknown,
        }
    }

    /// Gives a new file this list, and not what its directory has new files inherit; true when it lets in and keeps out
    /// whom this one does. `grouped_alike`: it has the group that the list means by the file's.
    pub(super) fn give(&self, new: &File, grouped_alike: bool) -> bool {
        match (fremovexattr(new, ACL), self) {
            (Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP), Self::None) => true,
            (_, Self::Is(list)) if grouped_alike => fsetxattr(new, ACL, list, XattrFlags::empty()).is_ok(),
            _ => false,
        }
    }

    /// The permission bits of a new file, by those of the one that had this list: nobody may do more with it.
    pub(super) fn rights(&self, old: Mode, grouped_alike: bool, listed_alike: bool) -> Mode {
        let for_all = match (self, listed_alike) {
            (_, true) if grouped_alike => old & PERMISSIONS,
            // One group's rights must not become another's.
            (Self::None, true) => rights_of_all(old),
            // Whom a list keeps out may be anybody.
            _ => Mode::empty(),
        };
        (old & Mode::RWXU) | for_all
    }
}

/// What a file lets its owner, its group and all others do, as permission bits for what is made of it.
///
/// # Errors
/// When it cannot be looked at.
pub(crate) fn permissions(file: &File) -> io::Result<u32> {
    let (mode, list) = (file.metadata()?.mode(), AccessList::of(file));
    let is_none = list == AccessList::None;
    Ok(list.rights(Mode::from_raw_mode(mode), true, is_none).as_raw_mode())
}

/// The group's and others' permissions where it is another group: what both have.
fn rights_of_all(mode: Mode) -> Mode {
    let bits = mode.as_raw_mode();
    let both = (bits >> 3) & bits & 0o7;
    Mode::from_raw_mode(both << 3 | both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_let_in_whom_the_old_file_kept_out() {
        let (listed, unknown) = (AccessList::Is(Vec::new()), AccessList::Unknown);
        for (list, old, grouped_alike, listed_alike, wanted) in [
            (&AccessList::None, 0o4750, true, true, 0o750),
            (&AccessList::None, 0o604, false, true, 0o600),
            (&AccessList::None, 0o664, false, true, 0o644),
            (&AccessList::None, 0o4750, false, true, 0o700),
            (&AccessList::None, 0o664, true, false, 0o600),
            (&listed, 0o664, true, true, 0o664),
            (&listed, 0o664, true, false, 0o600),
            (&listed, 0o664, false, false, 0o600),
            (&unknown, 0o664, true, false, 0o600),
            (&unknown, 0o664, false, false, 0o600),
        ] {
            let rights = list.rights(Mode::from_raw_mode(old), grouped_alike, listed_alike);
            assert_eq!(rights, Mode::from_raw_mode(wanted), "{list:?} {old:o} {grouped_alike} {listed_alike}");
        }
    }
}
