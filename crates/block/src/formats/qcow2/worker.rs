//! The one thread of an image that changes what lies where, and does what blocks.
//!
//! It looks up for the queues what they do not find in memory, before anything else.
//!
//! It takes jobs in batches. The changes of a batch are in the file (not yet stable) before any of them is
//! acknowledged, so a killed process loses nothing; and only what is in the file do the queues find. Only this thread
//! changes mappings, so what it looks up stays true while it works.
//!
//! A cluster that is discarded is taken out of the tables at once, and freed when no request is on its way to it any
//! more ([`super::grace`]), its storage with it. That is stable before anything else is put there
//! ([`super::metadata`]): else a power cut could leave the cluster with two users, or old data as a new table.
//!
//! Compressed clusters are read by threads of their own, which change nothing: [`Readers`].

use super::chain::Opened;
use super::changes::{Changes, Zeroing};
use super::closing::Closing;
use super::image::{Image, Reader};
use super::image_tables::{Patience, SliceBuffer};
use super::kept_bitmaps::KeptBitmaps;
use super::metadata::Metadata;
use super::pending_check::Unchecked;
use crate::formats::inbox::Inbox;
use crate::formats::pending_check::PendingCheck;
use crate::formats::readers::{ReadJob, Readers};
use crate::formats::scatter::{Returns, errno_of};
use crate::image_trouble::{ImageTrouble, tell_of_trouble};
use crate::{MemoryMap, RequestError, Segment};
use std::io;
use std::mem;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Jobs whose changes are written to the file together.
const BATCH_MAX: usize = 64;

/// Most bytes that are copied at once.
const BUFFER_BYTES: usize = 1 << 20;

/// How soon to look again whether what was discarded may be freed, which waits for requests that are in flight.
const PAUSE: Duration = Duration::from_millis(20);

/// Clusters are freed when nobody asks for anything, or as soon as they are so many bytes or ranges: it takes a sync.
const FREED_BYTES: u64 = 4 << 20;
const FREED_RANGES: usize = 256;

/// Most changed ranges that are told apart: of several batches.
const CHANGED_MAX: usize = 16 * BATCH_MAX;

/// Something for the worker to do.
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) slot: u16,
    pub(super) memory: Arc<MemoryMap>,
    pub(super) returns: Arc<Returns>,
}

pub(super) enum Task {
    /// Look up where a range lies, as far as that is done soon, and let the request go on.
    LookUp {
        range: Range<u64>,
    },
    Read {
        offset_bytes: u64,
        segments: Vec<Segment>,
    },
    /// Give a place to what is about to be written of a range, as far as that is done ahead, and let the request go on.
    PlaceAhead {
        range: Range<u64>,
    },
    /// `is_stable`: on stable storage when it is done.
    Write {
        offset_bytes: u64,
        segments: Vec<Segment>,
        is_stable: bool,
    },
    Discard {
        offset_bytes: u64,
        length_bytes: u64,
    },
    WriteZeroes {
        offset_bytes: u64,
        length_bytes: u64,
        may_unmap: bool,
    },
    /// Done when everything before it is in the file, and stable if `is_stable`.
    Settle {
        is_stable: bool,
    },
}

impl Task {
    /// The range of the disk that may lie elsewhere afterwards.
    fn changes(&self) -> Option<Range<u64>> {
        match *self {
            Self::LookUp { .. } | Self::Read { .. } | Self::Settle { .. } => None,
            Self::PlaceAhead { ref range } => Some(range.clone()),
            Self::Write { offset_bytes, ref segments, .. } => {
                let length_bytes: u64 = segments.iter().map(|segment| u64::from(segment.length_bytes)).sum();
                Some(offset_bytes..offset_bytes.saturating_add(length_bytes))
            }
            Self::Discard { offset_bytes, length_bytes } | Self::WriteZeroes { offset_bytes, length_bytes, .. } => {
                Some(offset_bytes..offset_bytes.saturating_add(length_bytes))
            }
        }
    }
}

/// The thread, for as long as the disk or a queue of it lives.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    readers: Readers<Image>,
    thread: Option<JoinHandle<()>>,
    closing: Closing,
}

#[derive(Debug)]
struct Shared {
    image: Arc<Image>,
    inbox: Inbox<Job>,
}

impl Worker {
    pub(super) fn start(opened: Opened, path: &Path) -> io::Result<Self> {
        let Opened { image, metadata, unchecked, bitmaps, .. } = opened;
        let image = Arc::new(image);
        let readers = Readers::new(Arc::clone(&image), path.to_owned(), "qcow2-reader");
        let shared = Arc::new(Shared { image, inbox: Inbox::default() });
        let woken = Arc::clone(&shared);
        let start = |unchecked: Unchecked| unchecked.start(Arc::clone(&shared.image), move || woken.inbox.wake());
        let pending = unchecked.map(start).transpose()?;
        let working = Arc::clone(&shared);
        let closing = Closing::of(path.to_owned());
        let closed = closing.clone();
        let run = move || {
            match Working::new(&working.image, metadata, pending, bitmaps).run(&working.inbox) {
                Err(error) if !working.image.is_temporary => closed.failed(error),
                // A temporary one is gone now.
                _ => {}
            }
        };
        let thread = thread::Builder::new().name("qcow2".into()).spawn(run)?;
        Ok(Self { shared, readers, thread: Some(thread), closing })
    }

    pub(super) fn closing(&self) -> &Closing {
        &self.closing
    }

    pub(super) fn image(&self) -> &Image {
        &self.shared.image
    }

    pub(super) fn take(&self, job: Job) {
        self.shared.inbox.put(job);
    }

    /// Reads a part of a compressed cluster.
    pub(super) fn read(&self, job: ReadJob<Image>) {
        self.readers.take(job);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.inbox.close();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and whoever dropped this has no use for it if it does.
            let _ = thread.join();
        }
    }
}

/// What only the thread itself has.
struct Working<'a> {
    image: &'a Image,
    /// Without it, nothing is changed.
    pending: Option<PendingCheck<()>>,
    /// Those that are kept, which are marked before anything is changed.
    bitmaps: Option<KeptBitmaps>,
    /// Of an image that is written to.
    changes: Option<Changes<'a>>,
    reader: Reader,
    cluster_bits: u32,
    buffer: Vec<u8>,
    slice: Box<SliceBuffer>,
    /// What is changed, until the queues find it so.
    changed: Vec<Range<u64>>,
    /// Clusters of the file that were taken out of the tables since the grace that is awaited began.
    gone: Vec<Range<u64>>,
    /// And before it.
    awaiting: Vec<Range<u64>>,
    /// Why some could not be freed, and are leaked.
    leaked: Option<io::Error>,
    /// It was said why something cannot be read, of which whoever reads hears no more than that it cannot.
    has_told: bool,
}

impl<'a> Working<'a> {
    fn new(
        image: &'a Image,
        metadata: Option<Metadata>,
        pending: Option<PendingCheck<()>>,
        bitmaps: Option<KeptBitmaps>,
    ) -> Self {
        Self {
            image,
            pending,
            bitmaps,
            cluster_bits: metadata.as_ref().map_or(0, |metadata| metadata.layout().cluster_bits),
            changes: metadata.map(|metadata| Changes::new(image, metadata)),
            reader: Reader::default(),
            buffer: Vec::new(),
            slice: Box::new(SliceBuffer::new()),
            changed: Vec::new(),
            gone: Vec::new(),
            awaiting: Vec::new(),
            leaked: None,
            has_told: false,
        }
    }

    /// Does what is asked for until nobody is left who asks, and closes the image.
    fn run(mut self, inbox: &Inbox<Job>) -> io::Result<()> {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut aside = Vec::new();
        loop {
            let waits = !self.gone.is_empty() || !self.awaiting.is_empty();
            if inbox.some(BATCH_MAX, waits.then_some(PAUSE), &mut batch).is_none() {
                break;
            }
            let is_idle = batch.is_empty();
            self.look_up(&mut batch);
            self.set_aside(&mut batch, &mut aside);
            if !batch.is_empty() {
                self.perform(&mut batch);
            }
            let gone_clusters: u64 = self.gone.iter().map(|range| range.end - range.start).sum();
            let are_many = gone_clusters << self.cluster_bits >= FREED_BYTES || self.gone.len() >= FREED_RANGES;
            if is_idle || are_many {
                self.free_gone();
            }
        }
        // No queue is left that could still use anything.
        let leaked = self.leaked.take().map_or(Ok(()), Err);
        self.close().and(leaked)
    }

    fn close(&mut self) -> io::Result<()> {
        if self.pending.take().is_some() {
            // Nothing was changed.
            return Ok(());
        }
        let Some(changes) = &mut self.changes else { return Ok(()) };
        let written = changes.metadata.write_entries();
        self.gone.append(&mut self.awaiting);
        self.gone.append(&mut changes.metadata.take_gone());
        if let Err(error) = written.and_then(|()| changes.metadata.free(&self.gone)) {
            // No entry leads to what was reserved, whatever could not be written.
            let _ = changes.metadata.close();
            return Err(error);
        }
        let dirty = self.image.dirty_bits.as_ref();
        let stored = match self.bitmaps.as_mut().zip(dirty) {
            Some((bitmaps, dirty)) => bitmaps.end(&mut changes.metadata, dirty),
            None => Ok(()),
        };
        changes.metadata.close().and(stored)
    }

    /// Takes the look-ups out of a batch and does them, those that need no disk first.
    fn look_up(&mut self, batch: &mut Vec<Job>) {
        let (image, slice, has_told) = (self.image, &mut self.slice, &mut self.has_told);
        let mut done = |job: &Job, patience| {
            let Task::LookUp { range } = &job.task else { return false };
            match image.look_up(range.clone(), patience, slice) {
                Ok(()) => job.returns.resume(job.slot),
                Err(error) if patience == Patience::None && error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    tell_of_damage(image, has_told, &error);
                    job.returns.post(job.slot, Err(errno_of(&error)));
                }
            }
            true
        };
        batch.retain(|job| !done(job, Patience::None));
        batch.retain(|job| !done(job, Patience::Endless));
    }

    /// Does a batch of jobs, and says so once their changes are in the file.
    fn perform(&mut self, batch: &mut Vec<Job>) {
        let changes = batch.iter().any(|job| !matches!(job.task, Task::Read { .. }));
        let checked = if changes { self.checked().and_then(|()| self.mark_bitmaps()) } else { Ok(()) };
        if changes {
            self.image.is_unstable.store(true, Ordering::SeqCst);
        }
        let mut results = Vec::with_capacity(batch.len());
        for job in batch.iter() {
            let mut result = match checked {
                Err(error) if !matches!(job.task, Task::Read { .. }) => Err(error),
                _ => self.perform_one(job),
            };
            // Settling lets queues write by themselves: not before bitmaps are marked.
            let may_retry = changes && checked.is_ok();
            if may_retry && result == Err(RequestError::Os(libc::ENOSPC)) && self.settle(false).is_ok() {
                // What was discarded may be all that is left.
                self.free_gone();
                result = self.perform_one(job);
            }
            if let Task::Read { .. } = job.task {
                job.returns.post(job.slot, result);
            }
            results.push(result);
        }
        let wants_stable = batch
            .iter()
            .any(|job| matches!(job.task, Task::Write { is_stable: true, .. } | Task::Settle { is_stable: true }));
        let written = if changes && checked.is_ok() {
            self.settle(wants_stable).map_err(|error| errno_of(&error))
        } else {
            Ok(())
        };
        for (job, result) in batch.drain(..).zip(results) {
            match (&job.task, result.and(written)) {
                (Task::Read { .. }, _) => {}
                (Task::PlaceAhead { .. }, Ok(())) => job.returns.resume(job.slot),
                (_, result) => job.returns.post(job.slot, result),
            }
        }
    }

    /// Puts what changes the image aside until that is checked, and takes it back then.
    fn set_aside(&mut self, batch: &mut Vec<Job>, aside: &mut Vec<Job>) {
        if self.pending.as_ref().is_some_and(|pending| pending.outcome().is_none()) {
            aside.extend(batch.extract_if(.., |job| !matches!(job.task, Task::Read { .. })));
        } else if !aside.is_empty() {
            // In the order in which they came.
            aside.append(batch);
            mem::swap(batch, aside);
        }
    }

    /// Whether the image may be changed. What is damaged stays so: everybody who wants to change it is told.
    fn checked(&mut self) -> Result<(), RequestError> {
        match self.pending.as_ref().and_then(PendingCheck::outcome) {
            Some(Err(error)) => Err(errno_of(&error)),
            Some(Ok(())) => {
                self.pending = None;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn mark_bitmaps(&mut self) -> Result<(), RequestError> {
        let (Some(bitmaps), Some(top)) = (&mut self.bitmaps, self.image.tables.first()) else { return Ok(()) };
        bitmaps.begin(top.file()).map_err(|error| errno_of(&error))
    }

    fn settle(&mut self, wants_stable: bool) -> io::Result<()> {
        let Some(changes) = &mut self.changes else { return Ok(()) };
        let written = changes.metadata.write_entries();
        // What could not be written is with the next: until then, the queues know less than is so.
        self.image.may_write_in_place.store(written.is_ok(), Ordering::Release);
        written?;
        self.image.refresh(&self.changed, &mut self.slice);
        self.changed.clear();
        self.gone.append(&mut changes.metadata.take_gone());
        if wants_stable {
            if !self.image.is_temporary {
                changes.metadata.sync()?;
            }
            // Only this thread makes anything unstable.
            self.image.is_unstable.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    fn perform_one(&mut self, job: &Job) -> Result<(), RequestError> {
        self.note_changed(job.task.changes());
        if let (Task::PlaceAhead { range }, Some(changes)) = (&job.task, &mut self.changes) {
            return changes.place_ahead(range.clone()).map_err(|error| errno_of(&error));
        }
        let (offset, length, how) = match &job.task {
            Task::LookUp { .. } | Task::PlaceAhead { .. } | Task::Settle { .. } => return Ok(()),
            Task::Read { offset_bytes, segments } => return self.read(*offset_bytes, segments, &job.memory),
            Task::Write { offset_bytes, segments, .. } => return self.write(*offset_bytes, segments, &job.memory),
            Task::Discard { offset_bytes, length_bytes } => (*offset_bytes, *length_bytes, Zeroing::Discard),
            Task::WriteZeroes { offset_bytes, length_bytes, may_unmap: true } => {
                (*offset_bytes, *length_bytes, Zeroing::Unmap)
            }
            Task::WriteZeroes { offset_bytes, length_bytes, may_unmap: false } => {
                (*offset_bytes, *length_bytes, Zeroing::Keep)
            }
        };
        let changes = self.changes.as_mut().ok_or(RequestError::ReadOnly)?;
        changes.zero(offset, length, how).map_err(|error| errno_of(&error))
    }

    /// Where nothing can be written any more these are never settled: then one range stands for all.
    fn note_changed(&mut self, range: Option<Range<u64>>) {
        self.changed.extend(range);
        if self.changed.len() > CHANGED_MAX {
            let start = self.changed.iter().map(|range| range.start).min();
            let end = self.changed.iter().map(|range| range.end).max();
            self.changed.clear();
            self.changed.extend(start.zip(end).map(|(start, end)| start..end));
        }
    }

    fn read(&mut self, mut offset: u64, segments: &[Segment], memory: &MemoryMap) -> Result<(), RequestError> {
        for piece in pieces(segments) {
            let slice = memory.slice(piece).ok_or(RequestError::BadSegment)?;
            let buffer = buffer_of(&mut self.buffer, slice.len());
            self.image.read(0, offset, buffer, &mut self.reader).map_err(|error| {
                tell_of_damage(self.image, &mut self.has_told, &error);
                errno_of(&error)
            })?;
            slice.copy_from(buffer);
            offset += slice.len() as u64;
        }
        Ok(())
    }

    /// Copies first: the guest may change its memory meanwhile.
    fn write(&mut self, mut offset: u64, segments: &[Segment], memory: &MemoryMap) -> Result<(), RequestError> {
        let changes = self.changes.as_mut().ok_or(RequestError::ReadOnly)?;
        if segments.iter().any(|&segment| memory.slice(segment).is_none()) {
            return Err(RequestError::BadSegment);
        }
        let mut gathered = 0;
        for piece in pieces(segments) {
            let slice = memory.slice(piece).ok_or(RequestError::BadSegment)?;
            if gathered + slice.len() > BUFFER_BYTES {
                changes.write(offset, &self.buffer[..gathered]).map_err(|error| errno_of(&error))?;
                offset += gathered as u64;
                gathered = 0;
            }
            let buffer = buffer_of(&mut self.buffer, gathered + slice.len());
            slice.copy_to(&mut buffer[gathered..]);
            gathered += slice.len();
        }
        changes.write(offset, &self.buffer[..gathered]).map_err(|error| errno_of(&error))
    }

    /// Frees what nobody is on the way to any more.
    fn free_gone(&mut self) {
        let Some(changes) = &mut self.changes else { return };
        // While the queues find it, it is in use.
        if !self.changed.is_empty() {
            return;
        }
        for _ in 0..2 {
            if !self.awaiting.is_empty() && self.image.grace.is_over() {
                let freed = changes.metadata.free(&mem::take(&mut self.awaiting));
                self.leaked = self.leaked.take().or(freed.err());
            }
            if self.awaiting.is_empty() && !self.gone.is_empty() {
                self.awaiting.append(&mut self.gone);
                self.image.grace.begin();
                // Often nobody is on the way, and then there is nothing to wait for.
            }
        }
    }
}

/// Says once what is damaged, where something is.
fn tell_of_damage(image: &Image, has_told: &mut bool, error: &io::Error) {
    if error.kind() == io::ErrorKind::InvalidData && !std::mem::replace(has_told, true) {
        image.paths.first().inspect(|path| tell_of_trouble(path, ImageTrouble::Unreadable, error));
    }
}

/// Segments, cut to what the buffer takes.
fn pieces(segments: &[Segment]) -> impl Iterator<Item = Segment> + '_ {
    segments.iter().flat_map(|segment| {
        let count = (segment.length_bytes as usize).div_ceil(BUFFER_BYTES);
        (0..count).map(move |n| {
            let skipped = (n * BUFFER_BYTES) as u32;
            Segment {
                length_bytes: (segment.length_bytes - skipped).min(BUFFER_BYTES as u32),
                offset_bytes: segment.offset_bytes.saturating_add(u64::from(skipped)),
                ..*segment
            }
        })
    })
}

/// The first `length` bytes of a buffer that grows as it must.
fn buffer_of(buffer: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    &mut buffer[..length]
}
