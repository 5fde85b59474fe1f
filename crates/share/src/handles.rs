//! The files and directories that the guest has open, by the numbers that it was given for them.

use crate::room::LastBlock;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// Something that is open.
#[derive(Clone, Debug)]
pub(crate) enum Handle {
    /// A regular file.
    File(Arc<OpenFile>),
    /// A directory, whose descriptor has a place that it is read from.
    Directory(Arc<Mutex<OwnedFd>>),
}

/// A regular file that is open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    descriptor: OwnedFd,
    pub(crate) last_block: LastBlock,
}

impl OpenFile {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor, last_block: LastBlock::default() }
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// All that is open. A number is never used twice.
#[derive(Debug)]
pub(crate) struct Handles {
    by_number: HashMap<u64, Handle>,
    next_number: u64,
    max: usize,
}

impl Handles {
    /// None, and room for `max`.
    pub(crate) fn new(max: usize) -> Self {
        Self { by_number: HashMap::new(), next_number: 1, max }
    }

    /// Whether one more may be opened.
    ///
    /// # Errors
    /// EMFILE if not.
    pub(crate) fn has_room(&self) -> Result<(), Errno> {
        if self.by_number.len() < self.max { Ok(()) } else { Err(Errno::MFILE) }
    }

    /// Takes one in: its number.
    ///
    /// # Errors
    /// EMFILE if there are too many.
    pub(crate) fn insert(&mut self, handle: Handle) -> Result<u64, Errno> {
        self.has_room()?;
        let number = self.next_number;
        self.next_number += 1;
        self.by_number.insert(number, handle);
        Ok(number)
    }

    /// What has this number.
    ///
    /// # Errors
    /// EBADF if nothing has.
    pub(crate) fn get(&self, number: u64) -> Result<Handle, Errno> {
        self.by_number.get(&number).cloned().ok_or(Errno::BADF)
    }

    /// The file of this number.
    ///
    /// # Errors
    /// EBADF if it is none.
    pub(crate) fn file(&self, number: u64) -> Result<Arc<OpenFile>, Errno> {
        match self.by_number.get(&number) {
            Some(Handle::File(file)) => Ok(Arc::clone(file)),
            _ => Err(Errno::BADF),
        }
    }

    /// Lets go of what has this number. What it held is closed by whoever is the last to use it.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Handle> {
        self.by_number.remove(&number)
    }

    /// Lets go of everything.
    pub(crate) fn clear(&mut self) {
        self.by_number.clear();
    }
}
