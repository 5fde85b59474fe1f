//! Whether what was written to a file can still be made stable.

use crate::descriptor_path;
use rustix::fs::{OFlags, fcntl_getfl, fdatasync};
use rustix::io::Errno;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is known of a file that all who write to it share.
///
/// The kernel says once to whoever syncs a file that something of it could not be written, and takes it for written
/// from then on. So whoever flushes later would be told that all is well.
#[derive(Debug)]
pub(crate) struct Stability {
    is_lost: AtomicBool,
    /// The file, opened once more: the kernel says it to each opening. `None` where that cannot be had, and of a file
    /// that is only read.
    witness: Option<File>,
}

impl Stability {
    pub(crate) fn of(file: &File) -> Self {
        let is_written = fcntl_getfl(file).is_ok_and(|flags| flags & OFlags::RWMODE != OFlags::RDONLY);
        let witness = if is_written { File::open(descriptor_path(file)).ok() } else { None };
        Self { is_lost: AtomicBool::new(false), witness }
    }

    /// Whether something may be lost that a flush has not promised yet.
    ///
    /// # Errors
    /// When it may be: EIO.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        if self.is_lost.load(Ordering::Acquire) { Err(Errno::IO) } else { Ok(()) }
    }

    /// A sync failed.
    pub(crate) fn lost(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    /// A write that was to be stable when it ended failed so. What is nothing that can be done there was not taken;
    /// anything else may be about what was written before. What found no room is either: storage that is promised and
    /// not there, as of a thin pool, is missed when what was written before goes out.
    pub(crate) fn stable_write_failed(&self, errno: Errno) {
        let is_only_refused = match errno {
            Errno::FBIG | Errno::INVAL | Errno::OPNOTSUPP => true,
            Errno::NOSPC | Errno::DQUOT => self.witness.as_ref().is_some_and(|witness| fdatasync(witness).is_ok()),
            _ => false,
        };
        if !is_only_refused {
            self.lost();
        }
    }
}
