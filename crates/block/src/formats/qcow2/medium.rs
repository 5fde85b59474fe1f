//! What an image lies on, as imago sees it. Metadata, and data where imago copies them, pass through here; what queues
//! carry does not.

use super::header::{AUTOCLEAR_AT, INCOMPATIBLE_AT, INCOMPATIBLE_DIRTY, Table};
use super::order::Order;
#[cfg(test)]
use crate::layers::WriteLog;
use crate::{Completion, Disk, Geometry, MemoryMap, Operation, Queue, Request, Segment};
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::PreallocateMode;
use imago::storage::drivers::CommonStorageHelper;
use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, fdatasync, ftruncate, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use std::fmt::{self, Debug, Display, Formatter};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vm_memory::Bytes;

/// Buffer through which a disk is read for imago.
const BUFFER_BYTES: usize = 256 << 10;

/// A file or a disk of a chain.
pub(super) struct Medium {
    /// Which of the image's disks, and of each queue's queues.
    pub(super) index: usize,
    kind: Kind,
    locks: CommonStorageHelper,
}

enum Kind {
    File {
        file: Arc<ImageFile>,
        /// Of an image that is written to.
        order: Option<Arc<Mutex<Order>>>,
        is_data_file: bool,
        /// It has a header with features, of which imago sees not all.
        hides_features: bool,
    },
    Disk(Mutex<DiskReader>),
}

/// An image's file. It grows as imago writes it.
#[derive(Debug)]
pub(super) struct ImageFile {
    file: File,
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

    /// The entries of a table, whose size is bounded by whoever knows of it.
    pub(super) fn entries(&self, table: Table) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; table.length_bytes as usize];
        self.read(&mut bytes, table.offset_bytes)?;
        let (entries, _) = bytes.as_chunks();
        Ok(entries.iter().map(|&entry| u64::from_be_bytes(entry)).collect())
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

    fn extend(&self, end: u64) -> io::Result<()> {
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
    fn write_zeroes(&self, offset: u64, length: u64, mode: FallocateFlags) -> io::Result<()> {
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

/// Reads a disk from the thread that asks.
struct DiskReader {
    name: String,
    geometry: Geometry,
    memory: MemoryMap,
    queue: Box<dyn Queue>,
    completions: Vec<Completion>,
}

impl DiskReader {
    fn read(&mut self, buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        let piece_bytes = BUFFER_BYTES.min(usize::try_from(self.geometry.transfer_bytes_max).unwrap_or(BUFFER_BYTES));
        for piece in buffer.chunks_mut(piece_bytes) {
            // Fits: the buffer is no longer than that.
            let segment = Segment { region: 0, length_bytes: piece.len() as u32, offset_bytes: 0 };
            let request = Request { operation: Operation::Read, offset_bytes: offset, segments: &[segment], token: 0 };
            self.queue.push(&request).map_err(io::Error::other)?;
            self.completions.clear();
            self.queue.drain(&mut self.completions)?;
            let result = self.completions.first().map_or(Ok(()), |completion| completion.result);
            result.map_err(io::Error::other)?;
            self.memory.guest_memory().read_slice(piece, vm_memory::GuestAddress(0)).map_err(io::Error::other)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }
}

impl Medium {
    /// An image's own file, of a version; with its `order` if it is written to.
    pub(super) fn file(index: usize, file: Arc<ImageFile>, order: Option<Arc<Mutex<Order>>>, version: u32) -> Self {
        let kind = Kind::File { file, order, is_data_file: false, hides_features: version >= 3 };
        Self { index, kind, locks: CommonStorageHelper::default() }
    }

    /// An image's external data file.
    pub(super) fn data_file(index: usize, file: Arc<ImageFile>, order: Option<Arc<Mutex<Order>>>) -> Self {
        let kind = Kind::File { file, order, is_data_file: true, hides_features: false };
        Self { index, kind, locks: CommonStorageHelper::default() }
    }

    pub(super) fn disk(index: usize, disk: &dyn Disk, name: String) -> io::Result<Self> {
        let memory = MemoryMap::allocate(&[(0, BUFFER_BYTES)]).map_err(io::Error::other)?;
        let queue = disk.open_queue(&memory, 1)?;
        let geometry = disk.geometry();
        let reader = DiskReader { name, geometry, memory, queue, completions: Vec::with_capacity(1) };
        Ok(Self { index, kind: Kind::Disk(Mutex::new(reader)), locks: CommonStorageHelper::default() })
    }

    fn writable_file(&self) -> io::Result<&ImageFile> {
        match &self.kind {
            Kind::File { file, .. } => Ok(file),
            Kind::Disk(_) => Err(Errno::ROFS.into()),
        }
    }

    fn order(&self) -> Option<MutexGuard<'_, Order>> {
        match &self.kind {
            Kind::File { order: Some(order), .. } => Some(order.lock().unwrap_or_else(PoisonError::into_inner)),
            _ => None,
        }
    }

    fn is_data_file(&self) -> bool {
        matches!(self.kind, Kind::File { is_data_file: true, .. })
    }

    fn note_zeroes(&self, offset: u64) {
        let offset = if self.is_data_file() { 0 } else { offset };
        self.order().into_iter().for_each(|mut order| order.note_contents(offset));
    }

    fn geometry(&self) -> Option<Geometry> {
        match &self.kind {
            Kind::File { .. } => None,
            Kind::Disk(reader) => Some(reader.lock().unwrap_or_else(PoisonError::into_inner).geometry),
        }
    }
}

impl imago::Storage for Medium {
    fn req_align(&self) -> usize {
        self.geometry().map_or(1, |geometry| geometry.logical_block_bytes as usize)
    }

    fn size(&self) -> io::Result<u64> {
        match &self.kind {
            Kind::File { file, .. } => Ok(file.length_bytes()),
            Kind::Disk(_) => Ok(self.geometry().map_or(0, |geometry| geometry.capacity_bytes)),
        }
    }

    unsafe fn pure_readv(&self, bufv: IoVectorMut<'_>, mut offset: u64) -> io::Result<()> {
        if let Kind::File { file, .. } = &self.kind
            && bufv.len() == file.table_bytes
        {
            file.tables_read_bytes.fetch_add(file.table_bytes, Ordering::Relaxed);
        }
        for mut slice in bufv.into_inner() {
            match &self.kind {
                Kind::File { file, order, hides_features, .. } => {
                    if !self.order().is_some_and(|order| order.read(&mut slice, offset)) {
                        file.read(&mut slice, offset)?;
                    }
                    if *hides_features {
                        hide_features(&mut slice, offset, order.is_none());
                    }
                }
                Kind::Disk(reader) => {
                    reader.lock().unwrap_or_else(PoisonError::into_inner).read(&mut slice, offset)?;
                }
            }
            offset += slice.len() as u64;
        }
        Ok(())
    }

    unsafe fn pure_writev(&self, bufv: IoVector<'_>, mut offset: u64) -> io::Result<()> {
        let file = self.writable_file()?;
        for slice in bufv.into_inner() {
            match self.order() {
                Some(mut order) if !self.is_data_file() => order.write(&slice, offset)?,
                order => {
                    order.into_iter().for_each(|mut order| order.note_contents(0));
                    file.write(&slice, offset)?;
                }
            }
            offset += slice.len() as u64;
        }
        Ok(())
    }

    unsafe fn pure_write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        self.note_zeroes(offset);
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.writable_file()?.write_zeroes(offset, length, mode)
    }

    unsafe fn pure_write_allocated_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        self.note_zeroes(offset);
        self.writable_file()?.write_zeroes(offset, length, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE)
    }

    fn flush(&self) -> io::Result<()> {
        // Nothing is held back here.
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        match (&self.kind, self.order()) {
            // That of the image's own file is both's.
            (_, Some(_)) if self.is_data_file() => Ok(()),
            (_, Some(mut order)) => order.sync(),
            (Kind::File { file, .. }, None) => file.sync(),
            (Kind::Disk(_), None) => Ok(()),
        }
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        &self.locks
    }

    fn resize(&self, new_size: u64, mode: PreallocateMode) -> io::Result<()> {
        let file = self.writable_file()?;
        let old_size = file.length_bytes();
        if new_size <= old_size {
            return Ok(());
        }
        match mode {
            PreallocateMode::Allocate => {
                file.write_zeroes(old_size, new_size - old_size, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE)
            }
            PreallocateMode::None | PreallocateMode::Zero => file.extend(new_size),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Takes marks out of a part of a header. Who only reads needs no refcounts, which is all that an image marked dirty may have wrong, and
/// imago opens none that is. And it would take away the marks of what others keep beside the data, whatever that is, before those who know
/// better ([`super::header_change`]) can say what is still true.
fn hide_features(bytes: &mut [u8], offset: u64, is_read_only: bool) {
    let mut mask = |at: u64, kept: u8| {
        if let Some(byte) = at.checked_sub(offset).and_then(|at| bytes.get_mut(usize::try_from(at).ok()?)) {
            *byte &= kept;
        }
    };
    if is_read_only {
        mask(INCOMPATIBLE_AT + 7, !(INCOMPATIBLE_DIRTY as u8));
    }
    (AUTOCLEAR_AT..AUTOCLEAR_AT + 8).for_each(|at| mask(at, 0));
}

impl Display for Medium {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::File { file, .. } => write!(formatter, "{:?}", file.file),
            Kind::Disk(reader) => formatter.write_str(&reader.lock().unwrap_or_else(PoisonError::into_inner).name),
        }
    }
}

impl Debug for Medium {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, formatter)
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
