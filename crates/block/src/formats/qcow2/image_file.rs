//! The file of an image, for its metadata, and for data that are copied here. What queues carry does not pass through it.

use super::entries::entries_of;
use super::header::Table;
#[cfg(test)]
use crate::layers::WriteLog;
use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, fdatasync, ftruncate, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
#[cfg(test)]
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An image's file. It grows as imago writes it.
#[derive(Debug)]
pub(super) struct ImageFile {
    pub(super) file: File,
    /// The end of what is known to be there.
    length_bytes: AtomicU64,
    is_growing: bool,
    /// Whether syncing is worth anything.
    cache_unsafe: bool,
    /// Size of a table that imago keeps in memory, and how many bytes of them it has read.
    table_bytes: u64,
    tables_read_bytes: AtomicU64,
    #[cfg(test)]
    pub(super) gate: tests::Gate,
    #[cfg(test)]
    pub(super) log: Option<Arc<WriteLog>>,
    #[cfg(test)]
    pub(super) skips_barriers: bool,
    #[cfg(test)]
    pub(super) counts: tests::Counts,
}

impl ImageFile {
    /// `table_bytes`: of an L2 table or a block of refcounts in it.
    pub(super) fn new(file: File, length_bytes: u64, is_growing: bool, cache_unsafe: bool, table_bytes: u64) -> Self {
        Self {
            file,
            length_bytes: AtomicU64::new(length_bytes),
            is_growing,
            cache_unsafe,
            table_bytes,
            tables_read_bytes: AtomicU64::new(0),
            #[cfg(test)]
            gate: tests::Gate::default(),
            #[cfg(test)]
            log: tests::LOG.take(),
            #[cfg(test)]
            skips_barriers: tests::SKIPS_BARRIERS.take(),
            #[cfg(test)]
            counts: tests::Counts::default(),
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
        if self.cache_unsafe {
            return Ok(());
        }
        let sync = || fdatasync(&self.file);
        #[cfg(test)]
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        #[cfg(test)]
        let sync = || logged(&self.log, |log| log.flush(sync), sync);
        Ok(sync()?)
    }

    /// Gives a range's storage back; it reads as zeros afterwards. Not every file can.
    pub(super) fn punch_hole(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(self.fallocate(mode, offset_bytes, length_bytes)?)
    }

    /// Writes within the file, or makes it longer.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let write = || self.file.write_all_at(bytes, offset);
        #[cfg(test)]
        let write = || logged(&self.log, |log| log.write(offset, bytes, write), write);
        write()?;
        self.grown_to(offset + bytes.len() as u64);
        Ok(())
    }

    /// The same, and waits until these bytes are stable, not for what else was written.
    pub(super) fn write_stable(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.cache_unsafe {
            return self.write(bytes, offset);
        }
        let write = || self.write_synchronously(bytes, offset);
        #[cfg(test)]
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        #[cfg(test)]
        let write = || logged(&self.log, |log| log.write_stable(offset, bytes, write), write);
        write()?;
        self.grown_to(offset + bytes.len() as u64);
        Ok(())
    }

    fn write_synchronously(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match pwritev2(&self.file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Zeroes a range that lies in the file.
    fn fallocate(&self, mode: FallocateFlags, offset: u64, length: u64) -> rustix::io::Result<()> {
        let zero = || fallocate(&self.file, mode, offset, length);
        #[cfg(test)]
        let zero = || logged(&self.log, |log| log.zero(offset..offset + length, zero), zero);
        zero()
    }

    fn grown_to(&self, end: u64) {
        self.length_bytes.fetch_max(end, Ordering::AcqRel);
    }

    /// Reads what is in memory. What is not is fetched meanwhile, and the error is [`io::ErrorKind::WouldBlock`].
    pub(super) fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        #[cfg(test)]
        self.gate.pass_now(offset)?;
        match preadv2(&self.file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) {
            Ok(count) if count == buffer.len() => Ok(()),
            Err(Errno::AGAIN) => {
                // Advice that is not taken does no harm.
                let _ = fadvise(&self.file, offset, NonZeroU64::new(buffer.len() as u64), Advice::WillNeed);
                Err(io::ErrorKind::WouldBlock.into())
            }
            // The end of the file, or a file system that always waits.
            _ => self.read(buffer, offset),
        }
    }

    /// What lies behind the end reads as zeros.
    pub(super) fn read(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        #[cfg(test)]
        self.gate.pass(offset);
        #[cfg(test)]
        self.counts.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        while !buffer.is_empty() {
            match self.file.read_at(buffer, offset) {
                Ok(0) => {
                    buffer.fill(0);
                    return Ok(());
                }
                Ok(count) => {
                    buffer = &mut buffer[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
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
        match self.fallocate(mode, offset, end - offset) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            done => Ok(done?),
        }
    }
}

#[cfg(test)]
fn logged<R>(log: &Option<Arc<WriteLog>>, with: impl FnOnce(&WriteLog) -> R, without: impl FnOnce() -> R) -> R {
    match log {
        Some(log) => with(log),
        None => without(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::WriteLog;
    use std::cell::Cell;
    use std::io;
    use std::ops::Range;
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, Condvar, Mutex};

    thread_local! {
        /// Where the changes of the next image file that this thread opens are logged.
        pub(in super::super) static LOG: Cell<Option<Arc<WriteLog>>> = const { Cell::new(None) };
        /// Whether the next image file's metadata are written in no order.
        pub(in super::super) static SKIPS_BARRIERS: Cell<bool> = const { Cell::new(false) };
    }

    /// What was done to a file here, not by queues.
    #[derive(Debug, Default)]
    pub(in super::super) struct Counts {
        pub(in super::super) syncs: AtomicU64,
        pub(in super::super) read_bytes: AtomicU64,
    }

    /// A range of a file that cannot be read until somebody says so, as of a disk that is slow.
    #[derive(Debug, Default)]
    pub(in super::super) struct Gate {
        closed: Mutex<Option<Range<u64>>>,
        opened: Condvar,
    }

    impl Gate {
        pub(in super::super) fn close(&self, range: Range<u64>) {
            *self.closed.lock().unwrap() = Some(range);
        }

        pub(in super::super) fn open(&self) {
            *self.closed.lock().unwrap() = None;
            self.opened.notify_all();
        }

        pub(super) fn pass(&self, offset: u64) {
            let closed = self.closed.lock().unwrap();
            let is_closed =
                |closed: &mut Option<Range<u64>>| closed.as_ref().is_some_and(|range| range.contains(&offset));
            drop(self.opened.wait_while(closed, is_closed).unwrap());
        }

        pub(super) fn pass_now(&self, offset: u64) -> io::Result<()> {
            match &*self.closed.lock().unwrap() {
                Some(range) if range.contains(&offset) => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        }
    }
}
