//! The file of an image, for its metadata, and for data that are copied here. What queues carry does not pass through
//! it.

use super::entries::entries_of;
use super::header::Table;
#[cfg(not(test))]
use super::host_file::HostFile;
#[cfg(test)]
use super::tests::recorded_file::RecordedFile as HostFile;
use crate::{Disk, FileDisk};
use rustix::fs::{FallocateFlags, SeekFrom, ftruncate, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An image's file. It grows as imago writes it.
#[derive(Debug)]
pub(super) struct ImageFile {
    pub(super) file: HostFile,
    /// The end of what is known to be there.
    length_bytes: AtomicU64,
    is_growing: bool,
    /// Whether syncing is worth anything.
    cache_unsafe: bool,
    /// Size of a table that imago keeps in memory, and how many bytes of them it has read.
    table_bytes: u64,
    tables_read_bytes: AtomicU64,
}

impl ImageFile {
    /// `table_bytes`: of an L2 table or a block of refcounts in it.
    pub(super) fn new(file: File, length_bytes: u64, is_growing: bool, cache_unsafe: bool, table_bytes: u64) -> Self {
        Self::of(HostFile::new(file), length_bytes, is_growing, cache_unsafe, table_bytes)
    }

    /// The same of a file that queues reach as `disk`; and that disk.
    pub(super) fn with_disk(
        file: File,
        disk: FileDisk,
        is_growing: bool,
        cache_unsafe: bool,
        table_bytes: u64,
    ) -> (Self, Arc<dyn Disk>) {
        let length_bytes = disk.length_bytes();
        let (file, disk) = HostFile::with_disk(file, disk);
        (Self::of(file, length_bytes, is_growing, cache_unsafe, table_bytes), disk)
    }

    fn of(file: HostFile, length_bytes: u64, is_growing: bool, cache_unsafe: bool, table_bytes: u64) -> Self {
        Self {
            file,
            length_bytes: AtomicU64::new(length_bytes),
            is_growing,
            cache_unsafe,
            table_bytes,
            tables_read_bytes: AtomicU64::new(0),
        }
    }

    /// Of the tables that imago has read since this was last asked.
    pub(super) fn take_tables_read_bytes(&self) -> u64 {
        self.tables_read_bytes.swap(0, Ordering::Relaxed)
    }

    /// imago reads so many bytes at once.
    pub(super) fn note_read(&self, bytes: u64) {
        if bytes == self.table_bytes {
            self.tables_read_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The entries of a table, whose size is bounded by whoever knows of it.
    pub(super) fn entries(&self, table: Table) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; table.length_bytes as usize];
        self.read(&mut bytes, table.offset_bytes)?;
        Ok(entries_of(&bytes).collect())
    }

    /// Whether it is a regular file that is written to.
    pub(super) fn is_growing(&self) -> bool {
        self.is_growing
    }

    /// Never shrinks while the image is in use.
    pub(super) fn length_bytes(&self) -> u64 {
        self.length_bytes.load(Ordering::Acquire)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        if self.cache_unsafe { Ok(()) } else { self.file.sync() }
    }

    /// The same, as what follows relies on all that was written before.
    pub(super) fn barrier(&self) -> io::Result<()> {
        if self.cache_unsafe { Ok(()) } else { self.file.barrier() }
    }

    /// Gives a range's storage back; it reads as zeros afterwards. Not every file can.
    pub(super) fn punch_hole(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(self.file.fallocate(mode, offset_bytes, length_bytes)?)
    }

    /// Writes within the file, or makes it longer.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write(bytes, offset)?;
        self.grown_to(offset + bytes.len() as u64);
        Ok(())
    }

    /// The same, and waits until these bytes are stable, not for what else was written.
    pub(super) fn write_stable(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.cache_unsafe {
            return self.write(bytes, offset);
        }
        self.file.write_stable(bytes, offset)?;
        self.grown_to(offset + bytes.len() as u64);
        Ok(())
    }

    fn grown_to(&self, end: u64) {
        self.length_bytes.fetch_max(end, Ordering::AcqRel);
    }

    /// Reads what is in memory. What is not is fetched meanwhile, and the error is [`io::ErrorKind::WouldBlock`].
    pub(super) fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        // Else it is the end of the file, or a file system that always waits.
        if self.file.read_now(buffer, offset)? { Ok(()) } else { self.read(buffer, offset) }
    }

    /// What lies behind the end reads as zeros.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read(buffer, offset)
    }

    /// Whether a range lies in the file.
    pub(super) fn has(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.length_bytes())
    }

    /// Whether a range is known to take no storage, and so to read as zeros.
    pub(super) fn is_hole(&self, offset: u64, length: u64) -> bool {
        match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => data >= offset.saturating_add(length),
            // No data up to the end. Other errors are of files that do not know.
            Err(error) => error == Errno::NXIO,
        }
    }

    /// Makes the file shorter. For whoever knows that nothing in use lies behind.
    pub(super) fn truncate(&self, length: u64) -> io::Result<()> {
        if self.is_growing {
            ftruncate(&self.file, length)?;
            self.length_bytes.store(length, Ordering::Release);
        }
        Ok(())
    }

    /// Makes a file that grows at least that long.
    pub(super) fn reach(&self, end: u64) -> io::Result<()> {
        if self.is_growing { self.extend(end) } else { Ok(()) }
    }

    pub(super) fn extend(&self, end: u64) -> io::Result<()> {
        if end > self.length_bytes() {
            if !self.is_growing {
                return Err(Errno::NOSPC.into());
            }
            ftruncate(&self.file, end)?;
            self.grown_to(end);
        }
        Ok(())
    }

    /// Zeroes a range, and makes the file reach to its end.
    pub(super) fn write_zeroes(&self, offset: u64, length: u64, mode: FallocateFlags) -> io::Result<()> {
        let end = offset.checked_add(length).ok_or(io::ErrorKind::InvalidInput)?;
        let old_end = self.length_bytes();
        self.extend(end)?;
        // What the file was extended by is a hole, which is as good as zeros unless storage is wanted.
        let end = if mode.contains(FallocateFlags::PUNCH_HOLE) { end.min(old_end) } else { end };
        if offset >= end {
            return Ok(());
        }
        match self.file.fallocate(mode, offset, end - offset) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            done => Ok(done?),
        }
    }
}
