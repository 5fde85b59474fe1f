//! Whoever writes a part of a block reads the rest of it before, and what another writes there meanwhile would be lost.
//! So parts are written alone: among the threads of a process, where nobody writes whole blocks meanwhile, either; and
//! among the processes of an `attach`, by locks of the file system's on a file beside the disk's socket, which end with
//! whoever has them.

use crate::errno::Errno;
use crate::locks;
use crate::names::beside;
use crate::own;
use crate::setup::{self, Inside};
use blockyard_block::FileIdentity;
use libc::c_int;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What the file is called, behind the name of the disk's socket.
pub(crate) const ENDING: &str = ".parts";

/// Those of a disk, by this process.
#[derive(Default)]
pub(crate) struct PartialWrites {
    threads: RwLock<()>,
    /// Open from the first on, if there is one, and which that is: a program may close it past libc.
    file: OnceLock<Option<(File, FileIdentity)>>,
}

/// Nobody else writes parts of these blocks, for as long as this is there.
pub(crate) struct Alone<'a> {
    file: Option<(&'a File, Range<u64>)>,
    _threads: RwLockWriteGuard<'a, ()>,
}

impl PartialWrites {
    /// Whole blocks are written: no thread of this process writes parts.
    pub(crate) fn keep_out(&self) -> RwLockReadGuard<'_, ()> {
        self.threads.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever writes parts of blocks later, of the disk of that number, can do so.
    pub(crate) fn prepare(&self, number: usize) {
        let _threads = self.threads.write().unwrap_or_else(PoisonError::into_inner);
        self.file(number);
    }

    fn file(&self, number: usize) -> Option<&(File, FileIdentity)> {
        let file = self.file.get_or_init(|| {
            let _inside = Inside::enter();
            let path = beside(&setup::disk(number)?.disk, ENDING)?;
            let file = own::make(|| File::options().read(true).write(true).open(path)).ok()?;
            let identity = FileIdentity::of_open(&file).ok()?;
            Some((file, identity))
        });
        file.as_ref()
    }

    /// Parts of the blocks in `bytes` are about to be written.
    pub(crate) fn alone(&self, number: usize, bytes: Range<u64>) -> Result<Alone<'_>, Errno> {
        let threads = self.threads.write().unwrap_or_else(PoisonError::into_inner);
        let Some((file, identity)) = self.file(number) else { return Ok(Alone { file: None, _threads: threads }) };
        if !identity.is_of(file) {
            return Err(Errno(libc::EIO));
        }
        lock(file, libc::F_WRLCK, &bytes)?;
        Ok(Alone { file: Some((file, bytes)), _threads: threads })
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Some((file, bytes)) = &self.file {
            // It cannot fail.
            let _ = lock(file, libc::F_UNLCK, bytes);
        }
    }
}

/// Waits for a lock, or gives it back.
fn lock(file: &File, kind: c_int, bytes: &Range<u64>) -> Result<(), Errno> {
    let mut wanted = locks::range(kind, bytes.clone());
    loop {
        match locks::set(file.as_raw_fd(), libc::F_OFD_SETLKW, &mut wanted) {
            Err(Errno(libc::EINTR)) => {}
            done => return done,
        }
    }
}
