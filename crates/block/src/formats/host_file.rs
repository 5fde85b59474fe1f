//! The calls by which an image's file is read and written, but for what queues carry.
//!
//! Tests have another type in this one's place, which makes the same calls and records them: `recorded_file.rs`.

use crate::file::Stability;
use crate::{Disk, FileDisk};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, fdatasync, ftruncate};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A file, or a block device.
pub(super) struct HostFile {
    file: File,
    /// That of the disk that queues reach, where there is one.
    stability: Arc<Stability>,
}

impl HostFile {
    pub(super) fn new(file: File) -> Self {
        Self { stability: Arc::new(Stability::of(&file)), file }
    }

    /// A file that queues reach as `disk`, and that disk.
    pub(super) fn with_disk(file: File, disk: FileDisk) -> (Self, Arc<dyn Disk>) {
        (Self { file, stability: disk.stability() }, Arc::new(disk))
    }

    /// # Errors
    /// When this one fails, or one before did, of this or of a queue: what is lost then is not known.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.stability.check()?;
        fdatasync(&self.file).inspect_err(|_| self.stability.lost())?;
        Ok(self.stability.confirm()?)
    }

    /// As a sync that failed.
    #[cfg(test)]
    pub(super) fn lose(&self) {
        self.stability.lost();
    }

    /// A sync that what follows relies on.
    pub(super) fn barrier(&self) -> io::Result<()> {
        self.sync()
    }

    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Writes, and waits until these bytes are stable.
    pub(super) fn write_stable(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match pwritev2(&self.file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.stability.stable_write_failed(errno);
                    return Err(errno.into());
                }
            }
        }
        Ok(self.stability.confirm()?)
    }

    /// Cuts the file off there, or goes on with zeros up to there.
    pub(super) fn set_length(&self, length: u64) -> io::Result<()> {
        Ok(ftruncate(&self.file, length)?)
    }

    /// Zeroes a range that lies in the file.
    pub(super) fn fallocate(&self, mode: FallocateFlags, offset: u64, length: u64) -> rustix::io::Result<()> {
        fallocate(&self.file, mode, offset, length)
    }

    /// Reads all of it if it is in memory; what is not is fetched meanwhile, and the error is
    /// [`io::ErrorKind::WouldBlock`]. False: that cannot be done here.
    pub(super) fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        match preadv2(&self.file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) {
            Ok(count) => Ok(count == buffer.len()),
            Err(Errno::AGAIN) => {
                // Advice that is not taken does no harm.
                let _ = fadvise(&self.file, offset, NonZeroU64::new(buffer.len() as u64), Advice::WillNeed);
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(_) => Ok(false),
        }
    }

    /// What lies behind the end reads as zeros. Whether all lies before it.
    pub(super) fn read(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<bool> {
        while !buffer.is_empty() {
            match self.file.read_at(buffer, offset) {
                Ok(0) => {
                    buffer.fill(0);
                    return Ok(false);
                }
                Ok(count) => {
                    buffer = &mut buffer[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl AsFd for HostFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl fmt::Debug for HostFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(formatter)
    }
}
