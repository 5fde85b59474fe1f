//! An image's file whose calls are counted, recorded if a test wants that, and held up where it says.

use super::cut_files::{CutFiles, FILE_SPACE, LENGTH_AT};
use super::host_file::HostFile;
use crate::layers::{Recording, Replay, WriteLog, WriteLogDisk};
use crate::{Disk, FileDisk, FileIdentity};
use rustix::fs::{FallocateFlags, SeekFrom, fstat, seek};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

thread_local! {
    /// Whose changes are logged, of the files that this thread opens.
    static RECORDED: RefCell<Vec<(FileIdentity, Logged)>> = const { RefCell::new(Vec::new()) };
}

/// Where the header's fields lie.
const HEADER_BYTES: u64 = 104;

/// Where a file's changes are logged.
#[derive(Clone)]
struct Logged {
    log: Arc<WriteLog>,
    /// Where the file lies in the log.
    range: Range<u64>,
    skips_barriers: bool,
}

impl Logged {
    fn length_at(&self) -> u64 {
        self.range.start + LENGTH_AT
    }
}

/// What this thread changes in some files of images, from now on.
pub(super) struct Recorder {
    log: Arc<WriteLog>,
    before: CutFiles,
    identities: Vec<FileIdentity>,
}

impl Recorder {
    pub(super) fn of(paths: &[&Path]) -> Self {
        Self::new(paths, false)
    }

    /// Of files whose metadata are written in no order.
    pub(super) fn skipping_barriers(paths: &[&Path]) -> Self {
        Self::new(paths, true)
    }

    fn new(paths: &[&Path], skips_barriers: bool) -> Self {
        let log = Arc::<WriteLog>::default();
        let identities: Vec<_> = paths.iter().map(|path| identity(&File::open(path).unwrap())).collect();
        for (index, &identity) in identities.iter().enumerate() {
            let start = index as u64 * FILE_SPACE;
            let logged = Logged { log: Arc::clone(&log), range: start..start + FILE_SPACE, skips_barriers };
            RECORDED.with_borrow_mut(|recorded| recorded.push((identity, logged)));
        }
        Self { log, before: CutFiles::read(paths), identities }
    }

    pub(super) fn event_count(&self) -> usize {
        self.log.event_count()
    }

    /// What was recorded; sectors of `sector_bytes` are written whole.
    pub(super) fn end(self, sector_bytes: u32) -> Recorded {
        Recorded { recording: self.log.recording(sector_bytes), before: self.before.clone() }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        RECORDED.with_borrow_mut(|recorded| recorded.retain(|(identity, _)| !self.identities.contains(identity)));
    }
}

/// What was changed in files, and how they were before.
pub(super) struct Recorded {
    pub(super) recording: Recording,
    before: CutFiles,
}

impl Recorded {
    pub(super) fn replay(&self) -> Replay<'_, CutFiles> {
        Replay::new(&self.recording, self.before.clone())
    }
}

fn identity(file: &File) -> FileIdentity {
    FileIdentity::of_open(file).unwrap()
}

/// In the place of a [`HostFile`], which it has.
pub(super) struct RecordedFile {
    file: HostFile,
    logged: Option<Logged>,
    pub(super) gate: Gate,
    pub(super) failures: Failures,
    pub(super) counts: Counts,
}

/// Which calls fail.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// The so manyth write, by lack of room on a full file system; 0 is none.
    pub(super) fails_in: AtomicU64,
    /// The next write of the header is done, and said to have failed.
    pub(super) header_fails: AtomicBool,
    /// The next sync says that something could not be made stable.
    pub(super) sync_fails: AtomicBool,
    /// No write finds storage that has none.
    pub(super) is_full: AtomicBool,
}

/// What was done to a file here, not by queues.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) syncs: AtomicU64,
    pub(super) read_bytes: AtomicU64,
}

impl RecordedFile {
    pub(super) fn new(file: File) -> Self {
        let identity = identity(&file);
        Self::of(HostFile::new(file), identity)
    }

    fn of(file: HostFile, identity: FileIdentity) -> Self {
        let found = |recorded: &Vec<(FileIdentity, Logged)>| {
            recorded.iter().find(|(other, _)| *other == identity).map(|(_, logged)| logged.clone())
        };
        Self {
            file,
            logged: RECORDED.with_borrow(found),
            gate: Gate::default(),
            failures: Failures::default(),
            counts: Counts::default(),
        }
    }

    /// What queues write goes into the same log.
    pub(super) fn with_disk(file: File, disk: FileDisk) -> (Self, Arc<dyn Disk>) {
        let identity = identity(&file);
        let (file, disk) = HostFile::with_disk(file, disk);
        let recorded = Self::of(file, identity);
        let disk = match &recorded.logged {
            Some(Logged { log, range, .. }) => {
                Arc::new(WriteLogDisk::sharing(disk, Arc::clone(log), range.clone())) as Arc<dyn Disk>
            }
            None => disk,
        };
        (recorded, disk)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.may_fail_to_sync()?;
        self.flush(|| self.file.sync())
    }

    /// Once, as the kernel says it.
    fn may_fail_to_sync(&self) -> io::Result<()> {
        if !self.failures.sync_fails.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        self.file.lose();
        Err(Errno::IO.into())
    }

    pub(super) fn barrier(&self) -> io::Result<()> {
        self.may_fail_to_sync()?;
        if self.skips_barriers() { Ok(()) } else { self.flush(|| self.file.barrier()) }
    }

    fn skips_barriers(&self) -> bool {
        self.logged.as_ref().is_some_and(|logged| logged.skips_barriers)
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
        match &self.logged {
            Some(logged) => logged.log.flush(logged.range.clone(), flush),
            None => flush(),
        }
    }

    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.may_fail(bytes, offset)?;
        let Some(logged) = &self.logged else { return self.file.write(bytes, offset) };
        let end = offset + bytes.len() as u64;
        if end > self.length_bytes() {
            logged.log.write(logged.length_at(), &end.to_be_bytes(), || ());
        }
        logged.log.write(logged.range.start + offset, bytes, || self.file.write(bytes, offset))
    }

    pub(super) fn write_stable(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.skips_barriers() {
            return self.write(bytes, offset);
        }
        self.may_fail(bytes, offset)?;
        if offset < HEADER_BYTES && self.failures.header_fails.swap(false, Ordering::SeqCst) {
            self.write(bytes, offset)?;
            return Err(Errno::IO.into());
        }
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        let Some(logged) = &self.logged else { return self.file.write_stable(bytes, offset) };
        // The file's length, too, as far as data are found by it.
        let length_bytes = self.length_bytes().max(offset + bytes.len() as u64);
        logged.log.write_stable(logged.length_at(), &length_bytes.to_be_bytes(), || ());
        logged.log.write_stable(logged.range.start + offset, bytes, || self.file.write_stable(bytes, offset))
    }

    pub(super) fn set_length(&self, length_bytes: u64) -> io::Result<()> {
        let Some(logged) = &self.logged else { return self.file.set_length(length_bytes) };
        let old_bytes = self.length_bytes();
        if length_bytes < old_bytes {
            // Whoever makes the file longer again waits for a write of a refcount before anything leads there, and a
            // file system keeps the order of what it does to a file: so what was there does not come back.
            let zeros = vec![0; (old_bytes - length_bytes) as usize];
            logged.log.write_stable(logged.range.start + length_bytes, &zeros, || ());
        }
        let set = || self.file.set_length(length_bytes);
        logged.log.write(logged.length_at(), &length_bytes.to_be_bytes(), set)
    }

    fn length_bytes(&self) -> u64 {
        fstat(&self.file).unwrap().st_size as u64
    }

    pub(super) fn fallocate(&self, mode: FallocateFlags, offset: u64, length: u64) -> rustix::io::Result<()> {
        let zero = || self.file.fallocate(mode, offset, length);
        match &self.logged {
            Some(Logged { log, range, .. }) => log.zero(range.start + offset..range.start + offset + length, zero),
            None => zero(),
        }
    }

    pub(super) fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        self.gate.pass_now(offset)?;
        self.file.read_now(buffer, offset)
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        self.gate.pass(offset);
        self.counts.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.file.read(buffer, offset)
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
pub(super) struct Gate {
    closed: Mutex<Option<Range<u64>>>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn close(&self, range: Range<u64>) {
        *self.closed.lock().unwrap() = Some(range);
    }

    pub(super) fn open(&self) {
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
