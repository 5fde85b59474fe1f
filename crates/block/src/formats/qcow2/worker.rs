//! The one thread of an image that changes what lies where, and does what blocks.
//!
//! It looks up for the queues what they do not find in memory, before anything else.
//!
//! It takes jobs in batches. The changes of a batch are in the file (not yet stable) before any of them is
//! acknowledged, so a killed process loses nothing; and only what is in the file do the queues find. Only this thread
//! changes mappings, so what it looks up stays true while it works.
//!
//! A cluster that is discarded or zeroed keeps its place at first, marked as zeros: requests on their way to it do no
//! harm. Once they are all done ([`super::grace`]) it is freed, and its storage given back. That is stable before
//! anything else is put there ([`super::order`]): else a power cut could leave the cluster with two users, or old data
//! as a new table.

use super::image::Image;
use super::image_tables::{Overwrites, Patience, SliceBuffer};
use super::order::Order;
use crate::formats::scatter::Returns;
use crate::{MemoryMap, RequestError, Segment};
use imago::ShallowMapping;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Jobs whose changes are written to the file together.
const BATCH_MAX: usize = 64;

/// Most bytes that are copied at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Tables that imago may hold, of all images of a chain: what it takes itself for one with clusters of 64 KiB.
const TABLES_MAX_BYTES: u64 = 10 << 20;

/// Ranges of zeros up to this length are looked at before they are written.
const FORESEEN_BYTES_MAX: u64 = 256 << 20;

/// How soon to look again whether what was discarded may be freed; it waits for requests that are in flight.
const GRACE_PAUSE: Duration = Duration::from_millis(20);

/// Most changed ranges that are told apart: of several batches.
const CHANGED_MAX: usize = 16 * BATCH_MAX;

/// Most ranges that wait to be freed. What is discarded beyond that keeps its storage until it is written or discarded
/// again.
const DISCARDED_MAX: usize = 4096;

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
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    image: Arc<Image>,
    inbox: Mutex<Inbox>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inbox {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Inbox of {} jobs", self.jobs.len())
    }
}

impl Worker {
    pub(super) fn start(image: Arc<Image>) -> io::Result<Self> {
        let shared = Arc::new(Shared { image, inbox: Mutex::default(), arrived: Condvar::new() });
        let working = Arc::clone(&shared);
        let thread = thread::Builder::new().name("qcow2".into()).spawn(move || Working::new(&working).run(&working))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn image(&self) -> &Image {
        &self.shared.image
    }

    pub(super) fn take(&self, job: Job) {
        self.shared.inbox().jobs.push_back(job);
        self.shared.arrived.notify_one();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.inbox().is_closed = true;
        self.shared.arrived.notify_one();
        if let Some(thread) = self.thread.take() {
            // It catches its own panics.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the jobs that are there, or waits for some, if `pause` is given only that long. `None` when there will be
    /// none.
    fn jobs(&self, pause: Option<Duration>, batch: &mut Vec<Job>) -> Option<()> {
        let mut inbox = self.inbox();
        while inbox.jobs.is_empty() && !inbox.is_closed {
            inbox = match pause {
                None => self.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner),
                Some(pause) => {
                    let (_inbox, _) = self.arrived.wait_timeout(inbox, pause).unwrap_or_else(PoisonError::into_inner);
                    inbox = _inbox;
                    break;
                }
            };
        }
        if inbox.jobs.is_empty() && inbox.is_closed {
            return None;
        }
        let count = inbox.jobs.len().min(BATCH_MAX);
        batch.extend(inbox.jobs.drain(..count));
        Some(())
    }
}

/// What only the thread itself has.
struct Working<'a> {
    image: &'a Image,
    buffer: Vec<u8>,
    slice: Box<SliceBuffer>,
    /// What is changed, until the queues find it so.
    changed: Vec<Range<u64>>,
    /// What became zeros and is not in the file so.
    zeroed: Vec<Range<u64>>,
    /// Clusters were freed; that must be in the file, where its order sees to it, before they are used again.
    frees: bool,
    /// Of the tables that imago has read since it was last made to forget them.
    tables_bytes: u64,
    /// Discarded since the grace that is awaited began.
    discarded: Vec<Discarded>,
    /// Discarded before it.
    awaiting: Vec<Discarded>,
}

/// A range of the disk, of whole clusters, that may be freed, and where it lies.
#[derive(Debug)]
struct Discarded {
    range: Range<u64>,
    place: DataPlace,
}

/// Where a run of data clusters lies.
#[derive(Clone, Copy, Debug)]
struct DataPlace {
    index: usize,
    offset_bytes: u64,
    /// Snapshots may use it too.
    is_shared: bool,
}

impl DataPlace {
    fn after(self, bytes: u64) -> Self {
        Self { offset_bytes: self.offset_bytes + bytes, ..self }
    }
}

impl<'a> Working<'a> {
    fn new(shared: &'a Shared) -> Self {
        Self {
            image: &shared.image,
            buffer: Vec::new(),
            slice: Box::new(SliceBuffer::new()),
            changed: Vec::new(),
            zeroed: Vec::new(),
            frees: false,
            tables_bytes: 0,
            discarded: Vec::new(),
            awaiting: Vec::new(),
        }
    }

    fn run(mut self, shared: &Shared) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let is_idle = self.discarded.is_empty() && self.awaiting.is_empty();
            if shared.jobs((!is_idle).then_some(GRACE_PAUSE), &mut batch).is_none() {
                break;
            }
            self.look_up(&mut batch);
            if !batch.is_empty() {
                self.perform(&mut batch);
            }
            // imago asserts what it thinks cannot be; an image that makes it be loses no more than what it discarded.
            let freed = catch_unwind(AssertUnwindSafe(|| self.free_discarded()));
            if freed.is_err() {
                self.discarded.clear();
                self.awaiting.clear();
            }
            self.limit_tables();
        }
        // No queue is left that could still use anything.
        self.awaiting.append(&mut self.discarded);
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.free_awaiting();
            self.write_metadata().and_then(|()| self.order().map_or(Ok(()), |mut order| order.end_reserve()))
        }));
    }

    /// Takes the look-ups out of a batch and does them, those that need no disk first.
    fn look_up(&mut self, batch: &mut Vec<Job>) {
        let (image, slice) = (self.image, &mut self.slice);
        let mut done = |job: &Job, patience| {
            let Task::LookUp { range } = &job.task else { return false };
            match image.look_up(range.clone(), patience, slice) {
                Ok(()) => job.returns.resume(job.slot),
                Err(error) if patience == Patience::None && error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => job.returns.post(job.slot, Err(errno_of(&error))),
            }
            true
        };
        batch.retain(|job| !done(job, Patience::None));
        batch.retain(|job| !done(job, Patience::Endless));
    }

    /// Makes imago forget its tables when they are many: it counts them, and they may be of 2 MiB.
    fn limit_tables(&mut self) {
        let files = self.image.below.iter().filter_map(|below| below.file.as_ref());
        self.tables_bytes += files.map(|file| file.take_tables_read_bytes()).sum::<u64>();
        if self.tables_bytes > TABLES_MAX_BYTES && self.changed.is_empty() && self.write_metadata().is_ok() {
            self.tables_bytes = 0;
            // What stays in memory does no harm.
            // SAFETY: all that imago changed is in the files, and only this thread uses it.
            let _ = catch_unwind(AssertUnwindSafe(|| unsafe { self.image.access.invalidate_cache() }));
        }
    }

    /// Does a batch of jobs, and says so once their changes are in the file.
    fn perform(&mut self, batch: &mut Vec<Job>) {
        let changes = batch.iter().any(|job| !matches!(job.task, Task::Read { .. }));
        if changes {
            self.image.is_unstable.store(true, Ordering::SeqCst);
        }
        let mut results = Vec::with_capacity(batch.len());
        for job in batch.iter() {
            let done = catch_unwind(AssertUnwindSafe(|| self.perform_one(job)));
            let result = done.unwrap_or(Err(RequestError::Os(libc::EIO)));
            if let Task::Read { .. } = job.task {
                job.returns.post(job.slot, result);
            }
            results.push(result);
        }
        let wants_stable = batch
            .iter()
            .any(|job| matches!(job.task, Task::Write { is_stable: true, .. } | Task::Settle { is_stable: true }));
        let written = catch_unwind(AssertUnwindSafe(|| self.settle(changes, wants_stable)));
        let written = written.unwrap_or(Err(RequestError::Os(libc::EIO)));
        for (job, result) in batch.drain(..).zip(results) {
            if !matches!(job.task, Task::Read { .. }) {
                job.returns.post(job.slot, result.and(written));
            }
        }
    }

    fn settle(&mut self, changes: bool, wants_stable: bool) -> Result<(), RequestError> {
        if !changes {
            return Ok(());
        }
        self.write_metadata().map_err(|error| errno_of(&error))?;
        self.frees = false;
        self.zeroed.clear();
        self.image.refresh(&self.changed, &mut self.slice);
        self.changed.clear();
        if wants_stable {
            self.sync().map_err(|error| errno_of(&error))?;
            // Only this thread makes anything unstable.
            self.image.is_unstable.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Looks at what a job is about to write over.
    fn foresee(&mut self, task: &Task) -> io::Result<()> {
        let Some(range) = task.changes().filter(|range| !range.is_empty()) else { return Ok(()) };
        self.settle_frees()?;
        let image = self.image;
        let cluster_bytes = image.cluster_bytes;
        let clusters = range.start - range.start % cluster_bytes..range.end.saturating_add(cluster_bytes);
        // What is looked at is the file.
        if self.zeroed.iter().any(|zeroed| zeroed.start < clusters.end && clusters.start < zeroed.end) {
            self.write_metadata()?;
            self.zeroed.clear();
        }
        if matches!(task, Task::Discard { .. } | Task::WriteZeroes { .. }) {
            self.zeroed.push(range.clone());
        }
        // Not all of a disk is looked at.
        let overwrites = if range.end - range.start > FORESEEN_BYTES_MAX {
            Overwrites { something: true, frees: true }
        } else {
            image.overwrites(range, &mut self.slice)
        };
        self.frees = overwrites.frees;
        if let Some(mut order) = self.order() {
            order.keeps_contents = overwrites.something;
        }
        Ok(())
    }

    /// What was freed may be used again behind this.
    fn settle_frees(&mut self) -> io::Result<()> {
        if mem::take(&mut self.frees) { self.write_metadata() } else { Ok(()) }
    }

    /// The same, in the middle of a job that frees.
    fn settle_frees_of_one(&mut self) -> io::Result<()> {
        let frees = self.frees;
        self.settle_frees()?;
        self.frees = frees;
        Ok(())
    }

    fn order(&self) -> Option<MutexGuard<'a, Order>> {
        self.image.order.as_ref().map(|order| order.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes what is in the files stable.
    fn sync(&self) -> io::Result<()> {
        if self.image.is_temporary { Ok(()) } else { self.image.access.sync() }
    }

    /// Writes imago's caches to the file: the page cache has them then.
    fn write_metadata(&self) -> io::Result<()> {
        if self.image.geometry.read_only { Ok(()) } else { self.image.access.flush() }
    }

    fn perform_one(&mut self, job: &Job) -> Result<(), RequestError> {
        self.foresee(&job.task).map_err(|error| errno_of(&error))?;
        self.note_changed(job.task.changes());
        let done = match &job.task {
            Task::LookUp { .. } => Ok(()),
            Task::Read { offset_bytes, segments } => return self.read(*offset_bytes, segments, &job.memory),
            Task::Write { offset_bytes, segments, .. } => return self.write(*offset_bytes, segments, &job.memory),
            Task::Settle { .. } => Ok(()),
            Task::Discard { offset_bytes, length_bytes } => self.discard(*offset_bytes, *length_bytes),
            Task::WriteZeroes { offset_bytes, length_bytes, may_unmap } => {
                self.write_zeroes(*offset_bytes, *length_bytes, *may_unmap)
            }
        };
        done.map_err(|error| errno_of(&error))
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
            self.image.access.read(&mut *buffer, offset).map_err(|error| errno_of(&error))?;
            slice.copy_from(buffer);
            offset += slice.len() as u64;
        }
        Ok(())
    }

    /// Copies first: the guest may change its memory, and imago wants bytes that stay.
    fn write(&mut self, mut offset: u64, segments: &[Segment], memory: &MemoryMap) -> Result<(), RequestError> {
        if segments.iter().any(|&segment| memory.slice(segment).is_none()) {
            return Err(RequestError::BadSegment);
        }
        let mut gathered = 0;
        for piece in pieces(segments) {
            let slice = memory.slice(piece).ok_or(RequestError::BadSegment)?;
            if gathered + slice.len() > BUFFER_BYTES {
                self.write_buffer(offset, gathered)?;
                offset += gathered as u64;
                gathered = 0;
            }
            let buffer = buffer_of(&mut self.buffer, gathered + slice.len());
            slice.copy_to(&mut buffer[gathered..]);
            gathered += slice.len();
        }
        self.write_buffer(offset, gathered)
    }

    /// Writes the first `length` bytes of the buffer; what would be padding is dropped.
    fn write_buffer(&mut self, mut offset: u64, length: usize) -> Result<(), RequestError> {
        let image = self.image;
        let inside = image.size_bytes.saturating_sub(offset).min(length as u64) as usize;
        let frees = self.frees;
        let mut written = 0;
        while written < inside {
            let mut step = inside - written;
            // A cluster whose old place may still be written to must get that place again, not have it given away: so
            // it is not written together with its neighbour, whose place decides then.
            let is_discarded = self.is_discarded(offset..offset + step as u64);
            if is_discarded || frees {
                let room = image.cluster_bytes - offset % image.cluster_bytes;
                step = step.min(usize::try_from(room).unwrap_or(usize::MAX));
            }
            if is_discarded {
                self.keep(offset - offset % image.cluster_bytes);
            }
            // What one cluster frees, another must not get before that is stable.
            self.settle_frees_of_one().map_err(|error| errno_of(&error))?;
            image.access.write(&self.buffer[written..written + step], offset).map_err(|error| errno_of(&error))?;
            written += step;
            offset += step as u64;
        }
        Ok(())
    }

    fn is_discarded(&self, range: Range<u64>) -> bool {
        let mut all = self.discarded.iter().chain(&self.awaiting);
        all.any(|discarded| discarded.range.start < range.end && range.start < discarded.range.end)
    }

    /// The cluster at `start` is no longer to be freed: its place is in use again.
    fn keep(&mut self, start: u64) {
        let end = start + self.image.cluster_bytes;
        for list in [&mut self.discarded, &mut self.awaiting] {
            let Some(index) = list.iter().position(|entry| entry.range.start <= start && start < entry.range.end)
            else {
                continue;
            };
            let entry = list.swap_remove(index);
            let before = Discarded { range: entry.range.start..start, place: entry.place };
            let after = Discarded { range: end..entry.range.end, place: entry.place.after(end - entry.range.start) };
            list.extend([before, after].into_iter().filter(|part| !part.range.is_empty()));
        }
    }

    /// Calls `change` with each run of a range that is not zeros already, and where it lies if it is data.
    fn for_each_run(
        &mut self,
        offset: u64,
        length: u64,
        keep_backing: bool,
        mut change: impl FnMut(&mut Self, Range<u64>, Option<DataPlace>) -> io::Result<()>,
    ) -> io::Result<()> {
        let image = self.image;
        let end = offset.saturating_add(length).min(image.size_bytes);
        let mut at = offset;
        while at < end {
            let (mapping, found) = image.access.get_shallow_mapping(at, end - at)?;
            let next = at + found.clamp(1, end - at);
            self.settle_frees_of_one()?;
            match mapping {
                ShallowMapping::Raw { storage, offset, writable, .. } => {
                    let place = DataPlace { index: storage.index, offset_bytes: offset, is_shared: !writable };
                    change(self, at..next, Some(place))?;
                }
                ShallowMapping::Zero { .. } | ShallowMapping::Eof { .. } => {}
                ShallowMapping::Indirect { .. } if keep_backing => {}
                _ => change(self, at..next, None)?,
            }
            at = next;
        }
        Ok(())
    }

    fn discard(&mut self, offset: u64, length: u64) -> io::Result<()> {
        if !self.image.has_zero_clusters || !self.image.frees_clusters {
            return Ok(());
        }
        self.for_each_run(offset, length, true, |working, range, place| {
            let inner = working.whole_clusters(&range);
            if inner.is_empty() {
                return Ok(());
            }
            working.image.access.write_zeroes(inner.start, inner.end.min(working.image.size_bytes) - inner.start)?;
            working.note_discarded(&range, inner, place);
            Ok(())
        })
    }

    fn write_zeroes(&mut self, offset: u64, length: u64, may_unmap: bool) -> io::Result<()> {
        self.for_each_run(offset, length, false, |working, range, place| {
            if !working.image.has_zero_clusters {
                return working.write_zeros_as_data(range);
            }
            let inner = working.whole_clusters(&range);
            if inner.is_empty() {
                return working.write_zeros_as_data(range);
            }
            working.write_zeros_as_data(range.start..inner.start)?;
            working.settle_frees_of_one()?;
            let end = inner.end.min(working.image.size_bytes);
            working.image.access.write_zeroes(inner.start, end - inner.start)?;
            working.settle_frees_of_one()?;
            working.write_zeros_as_data(inner.end.min(range.end)..range.end)?;
            if may_unmap && working.image.frees_clusters {
                working.note_discarded(&range, inner, place);
            }
            Ok(())
        })
    }

    fn write_zeros_as_data(&mut self, range: Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(BUFFER_BYTES as u64);
            let buffer = buffer_of(&mut self.buffer, length as usize);
            buffer.fill(0);
            self.image.access.write(&*buffer, at)?;
            at += length;
        }
        Ok(())
    }

    /// The whole clusters of a range; that of the disk's end is whole when the range reaches there.
    fn whole_clusters(&self, range: &Range<u64>) -> Range<u64> {
        let cluster_bytes = self.image.cluster_bytes;
        let start = range.start.next_multiple_of(cluster_bytes);
        let reaches_end = range.end == self.image.size_bytes;
        let end =
            if reaches_end { range.end.next_multiple_of(cluster_bytes) } else { range.end - range.end % cluster_bytes };
        start..end.max(start)
    }

    /// Remembers that `inner`, of `range`, which lies at `place`, may be freed.
    fn note_discarded(&mut self, range: &Range<u64>, inner: Range<u64>, place: Option<DataPlace>) {
        let Some(place) = place else { return };
        if !inner.is_empty() && self.discarded.len() < DISCARDED_MAX {
            let place = place.after(inner.start - range.start);
            self.discarded.push(Discarded { range: inner, place });
        }
    }

    fn free_discarded(&mut self) {
        // While the queues find it, it is in use.
        if !self.changed.is_empty() {
            return;
        }
        if !self.awaiting.is_empty() && self.image.grace.is_over() {
            self.free_awaiting();
        }
        if self.awaiting.is_empty() && !self.discarded.is_empty() {
            self.awaiting.append(&mut self.discarded);
            self.image.grace.begin();
            // Often nobody is on the way, and then there is nothing to wait for.
            if self.image.grace.is_over() {
                self.free_awaiting();
            }
        }
    }

    fn free_awaiting(&mut self) {
        for discarded in mem::take(&mut self.awaiting) {
            // What cannot be freed stays allocated, as zeros.
            let _ = self.free(&discarded);
        }
        // A disk that fails tells those who flush.
        let _ = self.write_metadata();
    }

    /// Frees a range that nobody uses.
    fn free(&mut self, discarded: &Discarded) -> io::Result<()> {
        let Discarded { range, place } = discarded;
        let end = range.end.min(self.image.size_bytes);
        let mut at = range.start;
        while at < end {
            let (mapping, found) = self.image.access.get_shallow_mapping(at, end - at)?;
            let next = at + found.clamp(1, end - at);
            if let ShallowMapping::Zero { explicit: true, .. } = mapping {
                // The end of the disk may cut its last cluster off.
                let length = (next - at).next_multiple_of(self.image.cluster_bytes);
                let file = self.image.below.get(place.index).and_then(|below| below.file.as_ref());
                if let Some(file) = file.filter(|_| !place.is_shared) {
                    let punched = file.punch_hole(place.offset_bytes + (at - range.start), length);
                    if punched.is_err() {
                        self.order().into_iter().for_each(|mut order| order.frees_keep_contents());
                    }
                }
                // SAFETY: nobody uses these clusters: they have been zeros for longer than any request in flight, and
                // requests that look them up see no place. What imago itself looks up is used in this thread only.
                unsafe { self.image.access.discard_to_zero_unsafe(at, next - at) }?;
            }
            at = next;
        }
        Ok(())
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

/// What the guest is told of an error.
pub(super) fn errno_of(error: &io::Error) -> RequestError {
    RequestError::Os(error.raw_os_error().unwrap_or(libc::EIO))
}
