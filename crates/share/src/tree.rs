//! The system calls on the shared directory, none of which leaves it.
//!
//! Every file is found from a descriptor of its directory, by one name: no link is followed, and no other mount is
//! entered, as what is mounted below may be anything (/proc has files that change whoever writes them). openat2(2)
//! keeps to that. A process that serves for reading has to do without it, as no filter of system calls sees how it
//! opens; with one name and no links, openat(2) leads no further, and whose mount it has come to is looked at.
//!
//! What is found is held by a descriptor that opens nothing (O_PATH). Only when that is a regular file or a directory
//! is it opened for its contents, itself and not by its name: so no FIFO is waited for and no device is woken.

use crate::message::{ATTRIBUTE_BYTES_MAX, LINK_BYTES_MAX, Name, NewTime};
use crate::nodes::Node;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, StatxFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, XattrFlags, chmodat, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat, linkat, mkdirat, open,
    openat, openat2, readlinkat_raw, renameat_with, statx, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What a file of the guest's may have of a mode: never the set-ID bits, which would be the server's user's.
const MODE: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO).union(Mode::SVTX);
/// What the guest may say of how a file is opened. What is not here would be about the host: direct I/O needs memory
/// that is aligned as the host's file system wants it.
const OPEN_FLAGS: OFlags = OFlags::RWMODE.union(OFlags::TRUNC).union(OFlags::SYNC).union(OFlags::DSYNC);
/// Of everything that is opened.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);
/// How a name is looked up.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
/// A name that others take away and make again while it is created is tried so often.
const ATTEMPTS_MAX: u32 = 8;
/// Bytes of "user.": the only attributes that a guest has anything to do with. Others mean something to the host's
/// kernel.
const USER_ATTRIBUTE: &[u8] = b"user.";
/// Bytes of all names of a file's attributes (XATTR_LIST_MAX).
const ATTRIBUTE_NAMES_BYTES_MAX: usize = 65536;

/// The way from a descriptor to what it is open on.
#[derive(Debug)]
pub(crate) struct Tree {
    /// This process's descriptors, in /proc: the way to open what is held by one that opens nothing.
    descriptors: OwnedFd,
    /// The mount of all that is found, where openat2(2) is not to be had.
    mount: Option<u64>,
}

/// The name of a descriptor in the directory of descriptors.
struct Number {
    text: [u8; 11],
    length: usize,
}

impl Number {
    fn of(descriptor: impl AsFd) -> Self {
        let mut number = Self { text: [0; 11], length: 0 };
        // A number of 32 bits and the zero behind it fit.
        let _ = write!(number, "{}", descriptor.as_fd().as_raw_fd());
        number
    }

    fn as_c_str(&self) -> Result<&CStr, Errno> {
        CStr::from_bytes_until_nul(&self.text).map_err(|_| Errno::INVAL)
    }
}

impl Write for Number {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.text.get_mut(self.length..self.length + text.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

impl Tree {
    /// The way below `directory`, for reading only or not.
    ///
    /// # Errors
    /// When there is no /proc, or the kernel does not number its mounts (before Linux 5.8) where that is needed.
    pub(crate) fn new(directory: &OwnedFd, read_only: bool) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = open("/proc/self/fd", flags, Mode::empty())?;
        let mount = read_only.then(|| mount_of(directory)).transpose()?;
        Ok(Self { descriptors, mount })
    }

    /// Opens what has this name in a directory.
    fn open_at(&self, directory: &Node, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        let Some(mount) = self.mount else {
            return openat2(directory, name, flags, Mode::empty(), RESOLVE);
        };
        let descriptor = openat(directory, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
        if mount_of(&descriptor)? == mount { Ok(descriptor) } else { Err(Errno::XDEV) }
    }

    /// The directory that is shared.
    pub(crate) fn root(directory: &OwnedFd) -> Result<Node, Errno> {
        let stat = fstat(directory)?;
        Ok(Node::new(directory.try_clone().map_err(|_| Errno::MFILE)?, &stat))
    }

    /// What has this name in a directory.
    pub(crate) fn find(&self, directory: &Node, name: &CStr) -> Result<(Node, Stat), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = self.open_at(directory, name, flags)?;
        let stat = fstat(&descriptor)?;
        Ok((Node::new(descriptor, &stat), stat))
    }

    /// Opens a regular file.
    pub(crate) fn open(&self, node: &Node, flags: u32) -> Result<OwnedFd, Errno> {
        match node.kind {
            FileType::RegularFile => self.reopen(node, open_flags(flags)?),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::PERM),
        }
    }

    /// Opens a directory, to be read.
    pub(crate) fn open_directory(&self, node: &Node) -> Result<OwnedFd, Errno> {
        self.open_at(node, c".", OFlags::DIRECTORY | ALWAYS)
    }

    /// Opens what a descriptor is open on. There is no name on the way that anybody else could change.
    fn reopen(&self, descriptor: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat(&self.descriptors, Number::of(descriptor).as_c_str()?, flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// Makes a regular file, or opens the one that is there, unless it has to be new.
    pub(crate) fn create(
        &self,
        directory: &Node,
        name: Name<'_>,
        flags: u32,
        mode: u32,
    ) -> Result<(Node, Stat, OwnedFd), Errno> {
        let opened = open_flags(flags)?;
        let has_to_be_new = OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
        for _ in 0..ATTEMPTS_MAX {
            let new = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            match openat2(directory, name.as_c_str(), opened | new, Mode::from_raw_mode(mode) & MODE, RESOLVE) {
                Ok(file) => {
                    let descriptor = self.reopen(&file, OFlags::PATH)?;
                    let stat = fstat(&file)?;
                    return Ok((Node::new(descriptor, &stat), stat, file));
                }
                Err(Errno::EXIST) if !has_to_be_new => {}
                Err(errno) => return Err(errno),
            }
            match self.find(directory, name.as_c_str()) {
                Ok((node, _)) => {
                    let file = self.open(&node, flags)?;
                    let stat = fstat(&file)?;
                    return Ok((node, stat, file));
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::STALE)
    }

    pub(crate) fn make_directory(&self, directory: &Node, name: Name<'_>, mode: u32) -> Result<(), Errno> {
        mkdirat(directory, name.as_c_str(), Mode::from_raw_mode(mode) & MODE)
    }

    /// Makes a link, of whatever text: nobody here ever follows one.
    pub(crate) fn make_link(&self, directory: &Node, name: Name<'_>, text: &CStr) -> Result<(), Errno> {
        symlinkat(text, directory, name.as_c_str())
    }

    /// Gives a file another name: itself, not what it might be a link to.
    pub(crate) fn link(&self, node: &Node, directory: &Node, name: Name<'_>) -> Result<(), Errno> {
        let number = Number::of(node);
        linkat(&self.descriptors, number.as_c_str()?, directory, name.as_c_str(), AtFlags::SYMLINK_FOLLOW)
    }

    pub(crate) fn remove(&self, directory: &Node, name: Name<'_>, is_directory: bool) -> Result<(), Errno> {
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(directory, name.as_c_str(), flags)
    }

    pub(crate) fn rename(
        &self,
        (directory, name): (&Node, Name<'_>),
        (new_directory, new_name): (&Node, Name<'_>),
        flags: u32,
    ) -> Result<(), Errno> {
        let flags = RenameFlags::from_bits_retain(flags);
        if !(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE).contains(flags) {
            return Err(Errno::INVAL);
        }
        renameat_with(directory, name.as_c_str(), new_directory, new_name.as_c_str(), flags)
    }

    /// The text of a link, in `space`.
    pub(crate) fn link_text<'a>(&self, node: &Node, space: &'a mut [u8]) -> Result<&'a [u8], Errno> {
        if node.kind != FileType::Symlink {
            return Err(Errno::INVAL);
        }
        let length = space.len().min(LINK_BYTES_MAX);
        let bytes = readlinkat_raw(node, c"", &mut space[..length])?;
        Ok(&space[..bytes])
    }

    /// Sets a regular file's or directory's mode, without set-ID bits.
    pub(crate) fn set_mode(&self, node: &Node, mode: u32) -> Result<(), Errno> {
        if !matches!(node.kind, FileType::RegularFile | FileType::Directory) {
            return Err(Errno::OPNOTSUPP);
        }
        let mode = Mode::from_raw_mode(mode) & MODE;
        chmodat(&self.descriptors, Number::of(node).as_c_str()?, mode, AtFlags::empty())
    }

    pub(crate) fn set_times(
        &self,
        node: &Node,
        accessed: Option<NewTime>,
        modified: Option<NewTime>,
    ) -> Result<(), Errno> {
        let time = |new: Option<NewTime>| match new {
            None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            Some(NewTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            Some(NewTime::At { seconds, nanoseconds }) => Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
        };
        let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
        utimensat(node, c"", &times, AtFlags::EMPTY_PATH)
    }

    /// Opens a file or directory for its extended attributes.
    fn open_for_attributes(&self, node: &Node) -> Result<OwnedFd, Errno> {
        match node.kind {
            FileType::RegularFile => self.reopen(node, OFlags::RDONLY | ALWAYS),
            FileType::Directory => self.open_directory(node),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// An attribute's value, in `space`.
    pub(crate) fn attribute<'a>(
        &self,
        node: &Node,
        name: &CStr,
        space: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a [u8], Errno> {
        is_for_guests(name)?;
        let length = space.len().min(ATTRIBUTE_BYTES_MAX);
        Ok(fgetxattr(self.open_for_attributes(node)?, name, &mut space[..length])?.0)
    }

    pub(crate) fn set_attribute(&self, node: &Node, name: &CStr, value: &[u8], flags: u32) -> Result<(), Errno> {
        is_for_guests(name)?;
        let flags = XattrFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        fsetxattr(self.open_for_attributes(node)?, name, value, flags)
    }

    pub(crate) fn remove_attribute(&self, node: &Node, name: &CStr) -> Result<(), Errno> {
        is_for_guests(name)?;
        fremovexattr(self.open_for_attributes(node)?, name)
    }

    /// The names of a file's attributes that are for guests, each to `each` with a zero behind it. `space` has room for
    /// all names that a file can have.
    pub(crate) fn attribute_names(
        &self,
        node: &Node,
        space: &mut [MaybeUninit<u8>],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Errno> {
        let length = space.len().min(ATTRIBUTE_NAMES_BYTES_MAX);
        let names = match self.open_for_attributes(node) {
            Ok(file) => flistxattr(file, &mut space[..length])?.0,
            // Others have none that a guest could read.
            Err(Errno::OPNOTSUPP) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let names = names.split_inclusive(|&byte| byte == 0);
        names.filter(|name| name.starts_with(USER_ATTRIBUTE)).for_each(&mut each);
        Ok(())
    }
}

/// The number of the mount that a file was found in.
fn mount_of(descriptor: &OwnedFd) -> Result<u64, Errno> {
    let found = statx(descriptor, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) {
        Ok(found.stx_mnt_id)
    } else {
        Err(Errno::NOSYS)
    }
}

fn is_for_guests(name: &CStr) -> Result<(), Errno> {
    if name.to_bytes().starts_with(USER_ATTRIBUTE) { Ok(()) } else { Err(Errno::OPNOTSUPP) }
}

/// How the host's file is opened for a guest's open(2). Appending is said by each write, as the guest's page cache does
/// not append.
fn open_flags(flags: u32) -> Result<OFlags, Errno> {
    let flags = OFlags::from_bits_retain(flags) & OPEN_FLAGS;
    match flags & OFlags::RWMODE {
        // Linux' own mode for ioctl(2) alone.
        OFlags::RWMODE => Err(Errno::INVAL),
        _ => Ok(flags | ALWAYS),
    }
}
