//! Extended attributes of files (xattr(7)).

use crate::{ACCESS_LIST, DEFAULT_LIST};
use rustix::fs::{
    XattrFlags, fgetxattr, flistxattr, flistxattr_query, fremovexattr, fsetxattr, getxattr, lgetxattr, listxattr,
    listxattr_query, llistxattr, llistxattr_query,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest value, and longest list of names.
const BYTES_MAX: usize = 64 << 10;
/// What most values fit in.
const BYTES: usize = 1 << 10;

/// How attributes begin that a file's owner may set.
const USER_ATTRIBUTE: &[u8] = b"user.";
/// How those begin that say on a host what Blockyard has done to a file: that an image is half-changed, for one. An
/// image's word is none.
const OWN_ATTRIBUTE: &[u8] = b"user.blockyard.";

/// Whose attributes are read: not those of what a link leads to.
#[derive(Clone, Copy)]
pub(crate) enum Attributed<'file> {
    Open(&'file File),
    Named(&'file Path),
    /// Open as a path only (`O_PATH`), and where it was found.
    Seen(&'file File, &'file Path),
}

/// What the kernel calls an open file: a name that leads to this very file, a symbolic link too. `None` where there is
/// no /proc.
fn descriptor_path(file: &File) -> Option<PathBuf> {
    Some(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))).filter(|path| path.is_symlink())
}

impl Attributed<'_> {
    fn list_bytes(self) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => flistxattr_query(file),
            Self::Named(path) => llistxattr_query(path),
            Self::Seen(file, path) => descriptor_path(file).map_or_else(|| llistxattr_query(path), listxattr_query),
        }
    }

    fn list(self, into: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => flistxattr(file, into),
            Self::Named(path) => llistxattr(path, into),
            Self::Seen(file, path) => match descriptor_path(file) {
                Some(own) => listxattr(own, into),
                None => llistxattr(path, into),
            },
        }
    }

    fn get(self, name: &[u8], into: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(file) => fgetxattr(file, name, into),
            Self::Named(path) => lgetxattr(path, name, into),
            Self::Seen(file, path) => match descriptor_path(file) {
                Some(own) => getxattr(own, name, into),
                None => lgetxattr(path, name, into),
            },
        }
    }

    /// Names and values. Mostly there are none, and then this is one system call.
    pub(crate) fn attributes(self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let bytes = match self.list_bytes() {
            // Some file systems have none at all.
            Ok(0) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
            bytes => bytes?,
        };
        let names = whole(bytes, |into| self.list(into))?;
        let mut attributes = Vec::new();
        for name in names.split(|&byte| byte == 0).filter(|name| is_kept(name)) {
            match whole(BYTES, |into| self.get(name, into)) {
                Ok(value) => attributes.push((name.to_vec(), value)),
                // Somebody has removed it.
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(attributes)
    }
}

/// The attributes of the file at `path` that belong to it: names and values. Those of a link are its own.
///
/// # Errors
/// When they cannot be read.
pub fn attributes(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    Attributed::Named(path).attributes()
}

/// Whether an attribute is one that a file's owner may set, and none that Blockyard sets itself.
pub fn is_user_attribute(name: &[u8]) -> bool {
    name.starts_with(USER_ATTRIBUTE) && !name.starts_with(OWN_ATTRIBUTE)
}

/// Sets an attribute of a file that came out of an image, if it is its owner's own ([`is_user_attribute`]): others say
/// what the host's kernel, or Blockyard, shall make of a file. Where the file system has none, as vfat, the file has
/// none.
///
/// # Errors
/// When it cannot be set.
pub fn set_user_attribute(file: impl AsFd, name: &OsStr, value: &[u8]) -> io::Result<()> {
    if !is_user_attribute(name.as_bytes()) {
        return Ok(());
    }
    match fsetxattr(file, name, value, XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => Ok(()),
        set => Ok(set?),
    }
}

/// Takes a new file's or directory's access control lists away, which its directory gave it: its mode is all that
/// counts then.
///
/// # Errors
/// When it has one that cannot be removed.
pub fn remove_lists(file: impl AsFd) -> Result<(), Errno> {
    [ACCESS_LIST, DEFAULT_LIST].into_iter().try_for_each(|list| match fremovexattr(&file, list) {
        // A file has no default list; some file systems have none at all.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS | Errno::ACCESS | Errno::INVAL) => Ok(()),
        removed => removed,
    })
}

/// Reads something that has about `bytes` bytes.
fn whole(bytes: usize, read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; bytes.clamp(1, BYTES_MAX)];
    let length = match read(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(BYTES_MAX, 0);
            read(&mut buffer)?
        }
        length => length?,
    };
    buffer.truncate(length);
    Ok(buffer)
}

/// What belongs to a file, and not to the file system or the machine that it is on (attr's xattr.conf).
fn is_kept(name: &[u8]) -> bool {
    let is_machines = name.starts_with(b"system.") && !name.starts_with(b"system.posix_acl_");
    !name.is_empty() && !is_machines && name != b"security.evm"
}
