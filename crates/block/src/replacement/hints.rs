//! What a file system is told of a new file before anything is written to it.

use super::{ReplacementError, ReplacementFile};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};
use std::fs::File;

/// What a file system is told of a new file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileHints {
    /// What is written again is written in its place, by those that copy on write; Btrfs has no checksums of it then.
    pub no_cow: bool,
    /// The file gets storage in pieces of so many bytes, by those that can.
    pub extent_bytes: Option<u32>,
}

/// One that a file system does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownHint {
    /// [`FileHints::no_cow`].
    NoCow,
    /// [`FileHints::extent_bytes`].
    ExtentBytes,
}

/// `struct fsxattr`: linux/fs.h.
#[derive(Clone, Copy)]
#[repr(C)]
struct FileAttributes {
    flags: u32,
    extent_bytes: u32,
    extents: u32,
    project: u32,
    copied_extent_bytes: u32,
    padding: [u8; 8],
}

/// `FS_XFLAG_EXTSIZE`: linux/fs.h.
const HAS_EXTENT_BYTES: u32 = 1 << 11;

/// What is said of what a file system, or its kernel, does not know.
const UNKNOWN: [Errno; 3] = [Errno::OPNOTSUPP, Errno::NOTTY, Errno::NOSYS];

impl ReplacementFile {
    /// Tells the file system about the file, which is empty, and its companion; what it does not know.
    ///
    /// # Errors
    /// When it refuses what it knows.
    pub fn give_hints(&self, hints: &FileHints) -> Result<Vec<UnknownHint>, ReplacementError> {
        let mut unknown = Vec::new();
        for file in [Some(self), self.companion()].into_iter().flatten() {
            if hints.no_cow && !file.known(set_no_cow(file.file()), "have written in place")? {
                unknown.push(UnknownHint::NoCow);
            }
            if let Some(bytes) = hints.extent_bytes
                && !file.known(set_extent_bytes(file.file(), bytes), "set the extent size hint of")?
            {
                unknown.push(UnknownHint::ExtentBytes);
            }
        }
        unknown.dedup();
        Ok(unknown)
    }

    fn known(&self, set: rustix::io::Result<bool>, action: &'static str) -> Result<bool, ReplacementError> {
        match set {
            Err(errno) if UNKNOWN.contains(&errno) => Ok(false),
            set => set.map_err(|errno| self.failed(action, errno)),
        }
    }
}

/// Whether it is so then: what a file system does not know, it may pass over in silence.
fn set_no_cow(file: &File) -> rustix::io::Result<bool> {
    let flags = ioctl_getflags(file)?;
    ioctl_setflags(file, flags | IFlags::NOCOW)?;
    Ok(ioctl_getflags(file)?.contains(IFlags::NOCOW))
}

fn set_extent_bytes(file: &File, bytes: u32) -> rustix::io::Result<bool> {
    const SET: Opcode = opcode::write::<FileAttributes>(b'X', 32);
    let now = attributes(file)?;
    let wanted = FileAttributes { flags: now.flags | HAS_EXTENT_BYTES, extent_bytes: bytes, ..now };
    // SAFETY: FS_IOC_FSSETXATTR reads a struct fsxattr through its argument.
    unsafe { ioctl(file, Setter::<SET, FileAttributes>::new(wanted)) }?;
    Ok(attributes(file)?.extent_bytes == bytes)
}

fn attributes(file: &File) -> rustix::io::Result<FileAttributes> {
    const GET: Opcode = opcode::read::<FileAttributes>(b'X', 31);
    // SAFETY: FS_IOC_FSGETXATTR writes a struct fsxattr through its argument, for which any bytes are one.
    unsafe { ioctl(file, Getter::<GET, FileAttributes>::new()) }
}
