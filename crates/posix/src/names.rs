//! Which names are disks.

use crate::guarded::get;
use crate::locks;
use blockyard_block::specification::DiskSpecification;
use libc::c_char;
use std::ffi::{CStr, OsStr};
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
}

impl Named {
    /// `None` if no disk can be called so.
    pub(crate) fn new(disk: &[u8], name: &[u8]) -> Option<Self> {
        let disk = str::from_utf8(disk).ok().filter(|disk| !disk.is_empty())?.to_owned();
        (!name.is_empty()).then(|| Self { name: name.to_owned(), disk })
    }

    /// Whether what is called a disk can be one.
    pub(crate) fn can_be_opened(&self) -> bool {
        self.disk.parse::<DiskSpecification>().is_ok()
    }

    /// The file of its descriptions' locks, if there may be one.
    pub(crate) fn description_locks(&self) -> Option<PathBuf> {
        beside(&self.disk, locks::OF_DESCRIPTIONS)
    }

    /// Whether it has this name. Of the path, no byte behind the first that differs is looked at.
    pub(crate) fn is_named(&self, path: *const c_char) -> bool {
        let name = self.name.iter().chain(&[0]);
        name.enumerate().all(|(index, &byte)| get(path.cast::<u8>().wrapping_add(index)) == Ok(byte))
    }
}

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
