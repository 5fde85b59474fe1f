//! Whether what was written to a file can still be made stable.

use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is known of a file that all who write to it share.
///
/// The kernel says once to whoever syncs a file that something of it could not be written, and takes it for written
/// from then on. So whoever flushes later would be told that all is well.
#[derive(Debug, Default)]
pub(crate) struct Stability {
    is_lost: AtomicBool,
}

impl Stability {
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

    /// A write that was to be stable when it ended failed so. What found no room, or is nothing that can be done there,
    /// was not taken; anything else may be about what was written before.
    pub(crate) fn stable_write_failed(&self, errno: Errno) {
        if !matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::INVAL | Errno::OPNOTSUPP) {
            self.lost();
        }
    }
}
