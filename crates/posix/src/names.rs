//! Which names are disks.

use crate::guarded::Text;
use crate::locks;
use blockyard_block::specification::DiskSpecification;
use libc::c_int;
use rustix::fs::{Stat, fstat, stat};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The variable of the environment that says so: `DISK=NAME`, one on each line. A disk is what the command line takes
/// for one; a name has no `=` in it.
pub(crate) const VARIABLE: &CStr = c"BLOCKYARD_ATTACH";
/// Whether they look like block devices or like files of their size: `device`, which is what they are otherwise, or
/// `file`.
pub(crate) const LOOKS: &CStr = c"BLOCKYARD_ATTACH_AS";
/// POSIX AIO requests of a process on a disk that are under way, at most; whoever makes one more is told EAGAIN.
pub(crate) const AIO_MAX: &CStr = c"BLOCKYARD_ATTACH_AIO_MAX";
/// Disks at most.
pub(crate) const NAMES_MAX: usize = 64;

/// A disk and its name.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: Vec<u8>,
    pub(crate) disk: String,
    /// Of the disk, which no other one's is: those of another `attach` are others, whatever their numbers are.
    pub(crate) identity: u64,
    /// Where its last part begins, if it begins with a slash and ends with a part, and the directory before it.
    part: Option<(usize, CString)>,
}

impl Named {
    /// `None` if no disk can be called so.
    pub(crate) fn new(disk: &[u8], name: &[u8]) -> Option<Self> {
        let disk = str::from_utf8(disk).ok().filter(|disk| !disk.is_empty())?.to_owned();
        let slash = name.iter().rposition(|&byte| byte == b'/').filter(|_| name.first() == Some(&b'/'));
        let part_at = slash.map(|slash| slash + 1).filter(|&at| at < name.len());
        let part = part_at.and_then(|at| Some((at, CString::new(name.get(..at)?).ok()?)));
        // FNV-1a.
        let identity = disk
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        (!name.is_empty()).then(|| Self { name: name.to_owned(), disk, identity, part })
    }

    /// Whether what is called a disk can be one.
    pub(crate) fn can_be_opened(&self) -> bool {
        self.disk.parse::<DiskSpecification>().is_ok()
    }

    /// The file of its descriptions' locks, if there may be one.
    pub(crate) fn description_locks(&self) -> Option<PathBuf> {
        beside(&self.disk, locks::OF_DESCRIPTIONS)
    }

    /// What names begin with that may be its: two bytes, the last of them of one being the end.
    pub(crate) fn beginnings(&self) -> impl Iterator<Item = [u8; 2]> {
        let part = self.part.as_ref().and_then(|(at, _)| self.name.get(*at..));
        let beginning = |text: &[u8]| Some([*text.first()?, *text.get(1).unwrap_or(&0)]);
        [Some(&*self.name), part].into_iter().flatten().filter_map(beginning)
    }

    /// Whether it has this name, which begins with `first`.
    pub(crate) fn is_named(&self, first: u8, path: Text) -> bool {
        is_text(&self.name, first, path)
    }

    /// Whether it is the file of this name, which begins with `first`, in a directory that a descriptor is open on (or
    /// `AT_FDCWD`).
    pub(crate) fn is_in(&self, directory: c_int, first: u8, path: Text) -> bool {
        let Some((at, parent)) = &self.part else { return false };
        self.name.get(*at..).is_some_and(|part| is_text(part, first, path)) && is_at(directory, parent)
    }
}

/// Whether a path, which begins with `first`, is this text. Of it, no byte behind the first that differs is looked at.
fn is_text(text: &[u8], first: u8, path: Text) -> bool {
    let mut rest = text.iter().chain(&[0]).enumerate();
    rest.next().is_some_and(|(_, &byte)| byte == first) && rest.all(|(index, &byte)| path.byte(index) == Ok(byte))
}

/// Whether a directory, the working one (`AT_FDCWD`) or one that a descriptor is open on, is the one of that path.
/// Nothing is allocated, and little put on the stack: it is asked of any name, in signal handlers, too.
fn is_at(directory: c_int, path: &CStr) -> bool {
    let found = match directory {
        libc::AT_FDCWD => stat(c"."),
        // SAFETY: whatever is open there, or nothing, it is only looked at.
        descriptor if descriptor >= 0 => fstat(unsafe { BorrowedFd::borrow_raw(descriptor) }),
        _ => return false,
    };
    let identity = |found: Stat| (found.st_dev, found.st_ino);
    found.is_ok_and(|found| stat(path).is_ok_and(|there| identity(there) == identity(found)))
}

/// Where the disk's own server is to be had, if whoever serves it here is only its client (`crates/attach`).
pub(crate) const DOOR: &str = ".door";

/// What may lie beside a disk's socket.
pub(crate) fn beside(disk: &str, ending: &str) -> Option<PathBuf> {
    disk.strip_prefix("session:").map(|socket| PathBuf::from(format!("{socket}{ending}")))
}

/// What a variable says.
pub(crate) fn parse(text: &OsStr) -> Vec<Named> {
    let named = |line: &[u8]| {
        let at = line.iter().rposition(|&byte| byte == b'=')?;
        Named::new(&line[..at], &line[at + 1..])
    };
    text.as_bytes().split(|&byte| byte == b'\n').filter_map(named).take(NAMES_MAX).collect()
}
