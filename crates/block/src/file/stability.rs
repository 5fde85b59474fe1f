//! Whether what was written to a file can still be made stable.

use crate::descriptor_path;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where no file has anything: what is asked about it waits for nothing.
const NOWHERE: i64 = 1 << 62;

/// What is known of a file that all who write to it share.
///
/// The kernel says once to each opening of a file that something of it could not be written, and takes it for written
/// from then on. So of those who flush at the same time, one is told; whoever flushes later, or reads an error of a
/// write that was to be stable as one of its own, would be told that all is well.
#[derive(Debug)]
pub(crate) struct Stability {
    is_lost: AtomicBool,
    /// The file, opened once more, which hears of it, too: whoever has it says so before anybody else looks. `None`
    /// where that cannot be had, and of a file that is only read.
    witness: Option<Mutex<File>>,
}

impl Stability {
    pub(crate) fn of(file: &File) -> Self {
        let is_written = fcntl_getfl(file).is_ok_and(|flags| flags & OFlags::RWMODE != OFlags::RDONLY);
        let witness = if is_written { File::open(descriptor_path(file)).ok() } else { None };
        Self { is_lost: AtomicBool::new(false), witness: witness.map(Mutex::new) }
    }

    /// Whether something may be lost that a flush has not promised yet.
    ///
    /// # Errors
    /// When it may be: EIO.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        if self.is_lost.load(Ordering::Acquire) { Err(Errno::IO) } else { Ok(()) }
    }

    /// The same after a sync, or a write that was to be stable, has succeeded: another one that was under way may have
    /// been told what this one was not.
    ///
    /// # Errors
    /// As [`Stability::check`].
    pub(crate) fn confirm(&self) -> Result<(), Errno> {
        self.ask_witness();
        self.check()
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
            Errno::NOSPC | Errno::DQUOT => self.ask_witness(),
            _ => false,
        };
        if !is_only_refused {
            self.lost();
        }
    }

    /// Has the witness say what it has heard; false where it cannot.
    fn ask_witness(&self) -> bool {
        let Some(witness) = &self.witness else { return false };
        let witness = witness.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it takes an open file and numbers, and changes nothing.
        let asked =
            unsafe { libc::sync_file_range(witness.as_raw_fd(), NOWHERE, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
        match Errno::from_io_error(&std::io::Error::last_os_error()) {
            _ if asked == 0 => true,
            // It is no question that this kernel, or this file, answers.
            Some(Errno::PERM | Errno::NOSYS | Errno::SPIPE | Errno::INVAL) => false,
            _ => {
                self.lost();
                true
            }
        }
    }
}
