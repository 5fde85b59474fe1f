//! What an image lies on, as imago sees it. Metadata, and data where imago copies them, pass through here; what queues
//! carry does not.

use super::header::{AUTOCLEAR_AT, INCOMPATIBLE_AT, INCOMPATIBLE_DIRTY};
use super::image_file::ImageFile;
use super::order::Order;
use crate::{Completion, Disk, Geometry, MemoryMap, Operation, Queue, Request, Segment};
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::PreallocateMode;
use imago::storage::drivers::CommonStorageHelper;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fmt::{self, Debug, Display, Formatter};
use std::io;
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
    Disk(Mutex<SourceDisk>),
}

/// Reads a disk from the thread that asks.
struct SourceDisk {
    name: String,
    geometry: Geometry,
    memory: MemoryMap,
    queue: Box<dyn Queue>,
    completions: Vec<Completion>,
}

impl SourceDisk {
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
        let reader = SourceDisk { name, geometry, memory, queue, completions: Vec::with_capacity(1) };
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
        if let Kind::File { file, .. } = &self.kind {
            file.note_read(bufv.len());
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

/// Takes marks out of a part of a header. Who only reads needs no refcounts, which is all that an image marked dirty
/// may have wrong, and imago opens none that is. And it would take away the marks of what others keep beside the data,
/// whatever that is, before those who know better ([`super::header_change`]) can say what is still true.
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
