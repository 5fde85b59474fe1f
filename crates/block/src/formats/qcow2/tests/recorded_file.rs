//! An image's file whose calls are counted, recorded if a test wants that, and held up where it says.

use super::super::host_file::HostFile;
use crate::layers::{WriteLog, WriteLogDisk};
use crate::{Disk, FileDisk};
use rustix::fs::{FallocateFlags, SeekFrom, seek};
use rustix::io::Errno;
use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

thread_local! {
    /// Where the changes of the next image file that this thread opens are logged.
    pub(super) static LOG: Cell<Option<Arc<WriteLog>>> = const { Cell::new(None) };
    /// Whether the next image file's metadata are written in no order.
    pub(super) static SKIPS_BARRIERS: Cell<bool> = const { Cell::new(false) };
}

/// In the place of a [`HostFile`], which it has.
pub(in super::super) struct RecordedFile {
    file: HostFile,
    log: Option<Arc<WriteLog>>,
    skips_barriers: bool,
    pub(in super::super) gate: Gate,
    pub(in super::super) failures: Failures,
    pub(in super::super) counts: Counts,
}

/// Which calls fail.
#[derive(Debug, Default)]
pub(in super::super) struct Failures {
    /// The so manyth write, by lack of room on a full file system; 0 is none.
    pub(in super::super) fails_in: AtomicU64,
    /// No write finds storage that has none.
    pub(in super::super) is_full: AtomicBool,
}

/// What was done to a file here, not by queues.
#[derive(Debug, Default)]
pub(in super::super) struct Counts {
    pub(in super::super) syncs: AtomicU64,
    pub(in super::super) read_bytes: AtomicU64,
}

impl RecordedFile {
    pub(in super::super) fn new(file: File) -> Self {
        Self::of(HostFile::new(file))
    }

    fn of(file: HostFile) -> Self {
        Self {
            file,
            log: LOG.take(),
            skips_barriers: SKIPS_BARRIERS.take(),
            gate: Gate::default(),
            failures: Failures::default(),
            counts: Counts::default(),
        }
    }

    /// What queues write goes into the same log.
    pub(in super::super) fn with_disk(file: File, disk: FileDisk) -> (Self, Arc<dyn Disk>) {
        let (file, disk) = HostFile::with_disk(file, disk);
        let recorded = Self::of(file);
        let disk = match &recorded.log {
            Some(log) => Arc::new(WriteLogDisk::sharing(disk, Arc::clone(log))),
            None => disk,
        };
        (recorded, disk)
    }

    pub(in super::super) fn sync(&self) -> io::Result<()> {
        self.flush(|| self.file.sync())
    }

    pub(in super::super) fn barrier(&self) -> io::Result<()> {
        if self.skips_barriers { Ok(()) } else { self.flush(|| self.file.barrier()) }
    }

    fn may_fail(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let left = self.failures.fails_in.load(Ordering::SeqCst);
        if left > 0 {
            self.failures.fails_in.store(left - 1, Ordering::SeqCst);
        }
        let is_hole =
            || seek(&self.file, SeekFrom::Data(offset)).map_or(true, |data| data >= offset + bytes.len() as u64);
        match (left, self.failures.is_full.load(Ordering::SeqCst)) {
            (1, false) => Err(Errno::IO.into()),
            (left, true) if left == 1 || is_hole() => Err(Errno::NOSPC.into()),
            _ => Ok(()),
        }
    }

    fn flush(&self, flush: impl Fn() -> io::Result<()>) -> io::Result<()> {
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        self.logged(|log| log.flush(&flush), &flush)
    }

    pub(in super::super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.may_fail(bytes, offset)?;
        let write = || self.file.write(bytes, offset);
        self.logged(|log| log.write(offset, bytes, write), write)
    }

    pub(in super::super) fn write_stable(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.skips_barriers {
            return self.write(bytes, offset);
        }
        self.may_fail(bytes, offset)?;
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        let write = || self.file.write_stable(bytes, offset);
        self.logged(|log| log.write_stable(offset, bytes, write), write)
    }

    pub(in super::super) fn fallocate(&self, mode: FallocateFlags, offset: u64, length: u64) -> rustix::io::Result<()> {
        let zero = || self.file.fallocate(mode, offset, length);
        self.logged(|log| log.zero(offset..offset + length, zero), zero)
    }

    pub(in super::super) fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        self.gate.pass_now(offset)?;
        self.file.read_now(buffer, offset)
    }

    pub(in super::super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.gate.pass(offset);
        self.counts.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.file.read(buffer, offset)
    }

    fn logged<R>(&self, with: impl FnOnce(&WriteLog) -> R, without: impl FnOnce() -> R) -> R {
        match &self.log {
            Some(log) => with(log),
            None => without(),
        }
    }
}

impl AsFd for RecordedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl fmt::Debug for RecordedFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(formatter)
    }
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

    fn pass(&self, offset: u64) {
        let closed = self.closed.lock().unwrap();
        let is_closed = |closed: &mut Option<Range<u64>>| closed.as_ref().is_some_and(|range| range.contains(&offset));
        drop(self.opened.wait_while(closed, is_closed).unwrap());
    }

    fn pass_now(&self, offset: u64) -> io::Result<()> {
        match &*self.closed.lock().unwrap() {
            Some(range) if range.contains(&offset) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }
}
