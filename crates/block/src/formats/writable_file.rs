//! The file of an image that is written to, for its metadata, and for data that are copied here. What queues carry does
//! not pass through it.

#[cfg(not(test))]
use super::host_file::HostFile;
use super::qcow2::DataCipher;
#[cfg(test)]
use super::recorded_file::RecordedFile as HostFile;
use crate::{Disk, FileDisk};
use rustix::fs::{FallocateFlags, SeekFrom, fstat, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// An image's file. It grows as it is written.
#[derive(Debug)]
pub(super) struct WritableFile {
    pub(super) file: HostFile,
    /// The end of what is known to be there.
    length_bytes: AtomicU64,
    is_growing: bool,
    /// Whether syncing is worth anything.
    cache_unsafe: bool,
    /// What the data in it are encrypted by.
    cipher: DataCipher,
    /// Data on their way to the file.
    encrypted: Mutex<Vec<u8>>,
    /// What its header says is not known, as a write of it failed.
    is_unknown: AtomicBool,
    /// A run that is known to be no hole: to ask for its end again may cost as much as there is of it (tmpfs).
    known_data: Mutex<Range<u64>>,
}

/// What lies at multiples of so many bytes of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    pub(super) bytes: u64,
    /// For messages, with its article.
    pub(super) what: &'static str,
    /// Whether one may begin behind the file's end: as zeros, of an image that is written to.
    pub(super) may_be_missing: bool,
}

/// Data that are encrypted at once.
const ENCRYPTED_BYTES: usize = 256 << 10;

impl WritableFile {
    pub(super) fn new(file: File, length_bytes: u64, is_growing: bool, cache_unsafe: bool) -> Self {
        Self::of(HostFile::new(file), length_bytes, is_growing, cache_unsafe)
    }

    /// The same of a file that queues reach as `disk`; and that disk.
    pub(super) fn with_disk(file: File, disk: FileDisk, is_growing: bool, cache_unsafe: bool) -> (Self, Arc<dyn Disk>) {
        let length_bytes = disk.length_bytes();
        let (file, disk) = HostFile::with_disk(file, disk);
        (Self::of(file, length_bytes, is_growing, cache_unsafe), disk)
    }

    fn of(file: HostFile, length_bytes: u64, is_growing: bool, cache_unsafe: bool) -> Self {
        let length_bytes = AtomicU64::new(length_bytes);
        Self {
            file,
            length_bytes,
            is_growing,
            cache_unsafe,
            cipher: DataCipher::None,
            encrypted: Mutex::default(),
            is_unknown: AtomicBool::new(false),
            known_data: Mutex::new(0..0),
        }
    }

    /// The same file, in which data are encrypted so.
    pub(super) fn encrypted(self, cipher: DataCipher) -> Self {
        Self { cipher, ..self }
    }

    /// What the data in it are encrypted by.
    pub(super) fn cipher(&self) -> &DataCipher {
        &self.cipher
    }

    /// Whether it is a regular file that is written to.
    pub(super) fn is_growing(&self) -> bool {
        self.is_growing
    }

    /// Never shrinks while the image is in use.
    pub(super) fn length_bytes(&self) -> u64 {
        self.length_bytes.load(Ordering::Acquire)
    }

    /// Makes all that was written stable. The kernel says once that it could not: what is lost then is not known, and
    /// nothing that could lead there is written any more.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.synced(HostFile::sync)
    }

    /// The same, as what follows relies on all that was written before.
    pub(super) fn barrier(&self) -> io::Result<()> {
        self.synced(HostFile::barrier)
    }

    fn synced(&self, sync: impl FnOnce(&HostFile) -> io::Result<()>) -> io::Result<()> {
        let synced = if self.cache_unsafe { Ok(()) } else { sync(&self.file) };
        self.is_unknown.fetch_or(synced.is_err(), Ordering::AcqRel);
        synced
    }

    /// Gives a range's storage back; it reads as zeros afterwards. Not every file can.
    pub(super) fn punch_hole(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(self.file.fallocate(mode, offset_bytes, length_bytes)?)
    }

    /// Zeroes a range, which keeps its storage. Not every file can.
    pub(super) fn zero_range(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        Ok(self.file.fallocate(mode, offset_bytes, length_bytes)?)
    }

    /// Writes within the file, or makes it longer.
    ///
    /// # Errors
    /// When it cannot be written, or its header is not known.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_known()?;
        self.file.write(bytes, offset)?;
        self.grown_to(offset + bytes.len() as u64);
        Ok(())
    }

    /// The same, and waits until these bytes are stable, not for what else was written.
    pub(super) fn write_stable(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_known()?;
        if self.cache_unsafe {
            return self.write(bytes, offset);
        }
        self.file.write_stable(bytes, offset)?;
        self.grown_to(offset + bytes.len() as u64);
        Ok(())
    }

    /// The same of what the header says. When that fails, it may be in the file or not, and what is written by the one
    /// may be lost by the other: so nothing is written any more.
    pub(super) fn write_header(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let written = self.write_stable(bytes, offset);
        self.is_unknown.fetch_or(written.is_err(), Ordering::AcqRel);
        written
    }

    fn check_known(&self) -> io::Result<()> {
        if self.is_unknown.load(Ordering::Acquire) { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// Writes data, encrypted if the image's are.
    pub(super) fn write_data(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.cipher.is_none() {
            return self.write(bytes, offset);
        }
        let mut encrypted = self.encrypted.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, piece) in (offset..).step_by(ENCRYPTED_BYTES).zip(bytes.chunks(ENCRYPTED_BYTES)) {
            encrypted.clear();
            encrypted.extend_from_slice(piece);
            self.cipher.encrypt(&mut encrypted, at)?;
            self.write(&encrypted, at)?;
        }
        Ok(())
    }

    /// Reads data, which are from `disk_offset` of the disk on, of `units`.
    ///
    /// # Errors
    /// As [`WritableFile::read_units`].
    pub(super) fn read_data(&self, buffer: &mut [u8], offset: u64, disk_offset: u64, units: Units) -> io::Result<()> {
        self.read_units(buffer, offset, units)?;
        self.cipher.decrypt(buffer, offset, disk_offset)
    }

    fn grown_to(&self, end: u64) {
        self.length_bytes.fetch_max(end, Ordering::AcqRel);
    }

    /// Reads as [`WritableFile::read_units`] does what is in memory. What is not is fetched meanwhile, and the error is
    /// [`io::ErrorKind::WouldBlock`].
    pub(super) fn read_units_now(&self, buffer: &mut [u8], offset: u64, units: Units) -> io::Result<()> {
        // Else it is the end of the file, or a file system that always waits.
        if self.file.read_now(buffer, offset)? { Ok(()) } else { self.read_units(buffer, offset, units) }
    }

    /// What lies behind the end reads as zeros.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read(buffer, offset).map(drop)
    }

    /// Reads of `units`, the last of which may be cut off by the file's end, and reads as zeros from there on.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when one begins at the end or behind it: then something is missing.
    pub(super) fn read_units(&self, buffer: &mut [u8], offset: u64, units: Units) -> io::Result<()> {
        let Units { bytes, what, may_be_missing } = units;
        if self.file.read(buffer, offset)? || may_be_missing {
            return Ok(());
        }
        // Others may have made it longer.
        let end = seek(&self.file, SeekFrom::End(0))?;
        let first = offset.max(end.next_multiple_of(bytes));
        if first >= offset.saturating_add(buffer.len() as u64) {
            return Ok(());
        }
        let problem = format!("{what} at {} lies behind the file's end, which is at {end}", first - first % bytes);
        Err(io::Error::new(io::ErrorKind::InvalidData, problem))
    }

    /// Whether a range lies in the file.
    pub(super) fn has(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.length_bytes())
    }

    /// Whether a range is known to take no storage, and so to read as zeros.
    pub(super) fn is_hole(&self, offset: u64, length: u64) -> bool {
        self.next_data(offset).is_none_or(|data| data >= offset.saturating_add(length))
    }

    /// The first byte from `offset` on that is not known to be in a hole, if there is any.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => Some(data),
            // No data up to the end. Other errors are of files that do not know.
            Err(error) => (error != Errno::NXIO).then_some(offset),
        }
    }

    /// Whether the first of `length` bytes from an offset take no storage in the file, so that what is not encrypted
    /// reads as zeros, and of how many that is known. What lies behind the file's end does not count as a hole.
    pub(super) fn first_run(&self, offset: u64, length: u64) -> (bool, u64) {
        let end = offset.saturating_add(length).min(self.length_bytes());
        if offset >= end || !self.cipher.is_none() {
            return (false, length);
        }
        let mut known = self.known_data.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(&offset) {
            let hole_end = self.next_data(offset).map_or(end, |data| data.min(end));
            if hole_end > offset {
                return (true, hole_end - offset);
            }
            // Never before it, whatever the file says, so that a walk ends.
            *known = offset..seek(&self.file, SeekFrom::Hole(offset)).map_or(end, |hole| hole.max(offset + 1));
        }
        (false, known.end.min(end) - offset)
    }

    /// Whether a file of clusters has so many more than it has storage for that some were given a place ahead: as QEMU
    /// tells images with preallocated metadata.
    pub(super) fn is_far_from_full(&self, cluster_bytes: u64) -> bool {
        let storage_bytes =
            fstat(&self.file).map_or(u64::MAX, |stat| stat.st_blocks.cast_unsigned().saturating_mul(512));
        let (stored, clusters) = (storage_bytes / cluster_bytes, self.length_bytes().div_ceil(cluster_bytes));
        clusters >= (stored.saturating_mul(10) / 9).max(stored.saturating_add(2))
    }

    /// Makes the file shorter. For whoever knows that nothing in use lies behind.
    pub(super) fn truncate(&self, length: u64) -> io::Result<()> {
        if self.is_growing {
            self.file.set_length(length)?;
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
            self.file.set_length(end)?;
            self.grown_to(end);
        }
        Ok(())
    }
}
