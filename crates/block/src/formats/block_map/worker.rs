//! The one thread of an image, which reads tables that are not in memory, so that only those requests wait for them
//! that need them. Compressed blocks have threads of their own: [`Readers`].

use super::image::{Image, Place};
use super::layer::SliceBuffer;
use super::unpacker::{UnpackJob, Unpacker};
use crate::formats::inbox::Inbox;
use crate::formats::readers::Readers;
use crate::formats::scatter::{Cutter, Returns, copy_to, errno_of};
use crate::{MemoryMap, RequestError, Segment, read_bytes};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Most bytes that are copied at once.
const BUFFER_BYTES: u64 = 1 << 20;

/// Something for the thread to do.
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) slot: u16,
    pub(super) memory: Arc<MemoryMap>,
    pub(super) returns: Arc<Returns>,
}

pub(super) enum Task {
    /// Look up where a range lies, as far as that is done soon, and let the request go on.
    LookUp { range: Range<u64> },
    /// Carry it out.
    Read { offset_bytes: u64, segments: Vec<Segment> },
}

/// The thread, for as long as the disk or a queue of it lives.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    readers: Readers<UnpackJob>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    image: Arc<Image>,
    inbox: Inbox<Job>,
}

impl Worker {
    pub(super) fn start(image: Image) -> io::Result<Self> {
        let image = Arc::new(image);
        let readers = Readers::new(Arc::clone(&image), "block map unpack");
        let shared = Arc::new(Shared { image, inbox: Inbox::default() });
        let working = Arc::clone(&shared);
        let thread = thread::Builder::new().name("block map".into()).spawn(move || working.run())?;
        Ok(Self { shared, readers, thread: Some(thread) })
    }

    pub(super) fn image(&self) -> &Image {
        &self.shared.image
    }

    pub(super) fn take(&self, job: Job) {
        self.shared.inbox.put(job);
    }

    /// Reads a part of a compressed block.
    pub(super) fn unpack(&self, job: UnpackJob) {
        self.readers.take(job);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.inbox.close();
        if let Some(thread) = self.thread.take() {
            // It has no reason to panic.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut buffer = Box::new(SliceBuffer::new());
        let mut unpacker = Unpacker::default();
        while let Some(Job { task, slot, memory, returns }) = self.inbox.next() {
            match task {
                Task::LookUp { range } => match self.image.look_up(range, &mut buffer) {
                    Ok(()) => returns.resume(slot),
                    Err(error) => returns.post(slot, Err(errno_of(&error))),
                },
                Task::Read { offset_bytes, segments } => {
                    returns.post(slot, self.read(offset_bytes, &segments, &memory, (&mut buffer, &mut unpacker)));
                }
            }
        }
    }

    fn read(
        &self,
        offset_bytes: u64,
        segments: &[Segment],
        memory: &MemoryMap,
        (buffer, unpacker): (&mut SliceBuffer, &mut Unpacker),
    ) -> Result<(), RequestError> {
        let length_bytes: u64 = segments.iter().map(|segment| u64::from(segment.length_bytes)).sum();
        let (mut at, end) = (offset_bytes, offset_bytes.saturating_add(length_bytes));
        let (mut cutter, mut piece) = (Cutter::new(segments), Vec::new());
        while at < end {
            let wanted_bytes = (end - at).min(BUFFER_BYTES);
            let (place, length_bytes) =
                self.image.find_now(at, wanted_bytes, buffer).map_err(|error| errno_of(&error))?;
            cutter.cut(length_bytes, &mut piece);
            match place {
                Place::There { index, offset_bytes } => {
                    let below = self.image.below().get(index).ok_or(RequestError::Os(libc::EIO))?;
                    let bytes = read_bytes(&**below, offset_bytes..offset_bytes.saturating_add(length_bytes));
                    copy_to(memory, &piece, &bytes.map_err(|error| errno_of(&error))?)?;
                }
                Place::Logged { layer, offset_bytes } => {
                    let mut bytes = vec![0; length_bytes as usize];
                    let read = self.image.read_logged(layer, &mut bytes, offset_bytes);
                    read.map_err(|error| errno_of(&error))?;
                    copy_to(memory, &piece, &bytes)?;
                }
                Place::Compressed { block, skip_bytes } => {
                    let whole = unpacker.block(&self.image, block).map_err(|error| errno_of(&error))?;
                    copy_to(memory, &piece, whole.get(skip_bytes as usize..).unwrap_or_default())?;
                }
                Place::Zeros if piece.iter().all(|&segment| memory.zero(segment)) => {}
                Place::Zeros => return Err(RequestError::BadSegment),
                Place::Forbidden => return Err(RequestError::Os(libc::EACCES)),
                Place::Nowhere | Place::Unknown => return Err(RequestError::Os(libc::EIO)),
            }
            at += length_bytes;
        }
        Ok(())
    }
}
