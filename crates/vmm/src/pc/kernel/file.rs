//! A file that is booted, read by its parts.

use super::refused;
use crate::machine::MachineError;
use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

/// A file whose length is known.
#[derive(Debug)]
pub(super) struct BootFile<'a> {
    /// For messages: `the kernel`.
    what: &'static str,
    file: &'a File,
    bytes: u64,
}

impl<'a> BootFile<'a> {
    /// # Errors
    /// When it is no regular file, or empty.
    pub(super) fn new(what: &'static str, file: &'a File) -> Result<Self, MachineError> {
        let metadata =
            file.metadata().map_err(|source| MachineError::Os { what: "looking at a file to boot", source })?;
        if !metadata.is_file() {
            return Err(refused(format!("{what} is no regular file")));
        }
        match metadata.len() {
            0 => Err(refused(format!("{what} is an empty file"))),
            bytes => Ok(Self { what, file, bytes }),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of a range that ends with the file at the latest.
    ///
    /// # Errors
    /// When it does not, or cannot be read.
    pub(super) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, MachineError> {
        self.check(offset, length as u64)?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).map_err(|error| self.unreadable(error))?;
        Ok(bytes)
    }

    /// The first bytes, as far as there are any.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) fn beginning(&self, length_max: usize) -> Result<Vec<u8>, MachineError> {
        self.read(0, usize::try_from(self.bytes).map_or(length_max, |bytes| bytes.min(length_max)))
    }

    /// Reads a range into guest memory, with nothing in between.
    ///
    /// # Errors
    /// When it does not end with the file, cannot be read, or there is no memory at `address`.
    pub(super) fn load(
        &self,
        offset: u64,
        length: u64,
        memory: &impl GuestMemoryBackend,
        address: u64,
    ) -> Result<(), MachineError> {
        self.check(offset, length)?;
        let mut file = self.file;
        file.seek(SeekFrom::Start(offset)).map_err(|error| self.unreadable(error))?;
        let loaded = memory.read_exact_volatile_from(GuestAddress(address), &mut file, length as usize);
        loaded.map_err(|error| refused(format!("{} cannot be read into the guest's memory: {error}", self.what)))
    }

    fn check(&self, offset: u64, length: u64) -> Result<(), MachineError> {
        if offset.checked_add(length).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        let (what, bytes, wanted) = (self.what, self.bytes, offset.saturating_add(length));
        Err(refused(format!("{what} is cut off: the file has {bytes} bytes, and by its own account {wanted} or more")))
    }

    fn unreadable(&self, error: std::io::Error) -> MachineError {
        match error.kind() {
            ErrorKind::UnexpectedEof => refused(format!("{} became shorter while it was read", self.what)),
            _ => refused(format!("{} cannot be read: {error}", self.what)),
        }
    }
}
