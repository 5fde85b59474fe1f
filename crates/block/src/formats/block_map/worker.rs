//! The one thread of an image, which reads tables that are not in memory, so that only those requests wait for them
//! that need them, and changes what lies where. Compressed blocks have threads of their own: [`Readers`].
//!
//! It takes jobs in batches. The changes of a batch are in the file (not yet stable) before any of them is
//! acknowledged, so a killed process loses nothing.

use super::changes::{Changes, Written, Zeroing};
use super::image::Image;
use super::reader::Reader;
use super::vmdk::{GrainTables, UncheckedTables};
use crate::formats::inbox::Inbox;
use crate::formats::pending_check::PendingCheck;
use crate::formats::readers::{ReadJob, Readers};
use crate::formats::scatter::{Cutter, Returns, copy_to, errno_of};
use crate::image_trouble::{ImageTrouble, tell_of_trouble};
use crate::{MemoryMap, RequestError, Segment};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Jobs whose changes are written to the file together.
const BATCH_MAX: usize = 64;

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
    LookUp {
        range: Range<u64>,
    },
    /// Carry it out.
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
    Zero {
        offset_bytes: u64,
        length_bytes: u64,
        how: Zeroing,
    },
    /// Say that the image is changed, and let the request go on.
    Begin,
    /// Done when everything before it is stable.
    Settle,
}

/// What an image that is written to has besides.
pub(super) struct ToChange {
    pub(super) written: Written,
    /// By layer.
    pub(super) unchecked: Vec<(usize, UncheckedTables)>,
}

/// The tables of layers that are in order.
type Tables = BTreeMap<usize, GrainTables>;

impl ToChange {
    /// Looks at the tables, where that does not take long.
    ///
    /// # Errors
    /// A sentence, which goes on after the image's path, when something is wrong.
    pub(super) fn checked(self) -> Result<Checking, String> {
        let Self { written, unchecked } = self;
        let is_small = unchecked.iter().all(|(_, tables)| tables.is_small());
        let tables = if is_small { Ok(check(unchecked, &AtomicBool::new(false))?) } else { Err(unchecked) };
        Ok(Checking { written, tables })
    }
}

/// What is written to, with its tables, or those that are yet to be looked at.
pub(super) struct Checking {
    written: Written,
    tables: Result<Tables, Vec<(usize, UncheckedTables)>>,
}

fn check(unchecked: Vec<(usize, UncheckedTables)>, is_over: &AtomicBool) -> Result<Tables, String> {
    unchecked.into_iter().map(|(layer, tables)| Ok((layer, tables.check(is_over)?))).collect()
}

/// The thread, for as long as the disk or a queue of it lives.
#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    readers: Readers<Image>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    image: Arc<Image>,
    inbox: Inbox<Job>,
}

impl Worker {
    pub(super) fn start(image: Image, to_change: Option<Checking>) -> io::Result<Self> {
        let image = Arc::new(image);
        let path = image.files().next().unwrap_or(Path::new("")).to_owned();
        let readers = Readers::new(Arc::clone(&image), path.clone(), "block map unpack");
        let shared = Arc::new(Shared { image, inbox: Inbox::default() });
        let woken = Arc::clone(&shared);
        let start = |checking| Changing::new(checking, &path, move || woken.inbox.wake());
        let changing = to_change.map(start).transpose()?;
        let working = Arc::clone(&shared);
        let run = move || {
            if let Err(error) = Working::new(&working.image, changing).run(&working.inbox) {
                tell_of_trouble(&path, ImageTrouble::UnclosedVmdk, &error);
            }
        };
        let thread = thread::Builder::new().name("block map".into()).spawn(run)?;
        Ok(Self { shared, readers, thread: Some(thread) })
    }

    pub(super) fn image(&self) -> &Image {
        &self.shared.image
    }

    pub(super) fn take(&self, job: Job) {
        self.shared.inbox.put(job);
    }

    /// Says why a range cannot be read, of which a request hears no more than a number.
    pub(super) fn tell_of(&self, range: Range<u64>) {
        if let Err(error) = self.image().map(range) {
            self.readers.tell(&error);
        }
    }

    /// Reads a part of a compressed block.
    pub(super) fn unpack(&self, job: ReadJob<Image>) {
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

/// An image that may be changed, once it is checked.
enum Changing {
    Pending(Written, PendingCheck<Tables>),
    Ready(Changes),
    /// It is damaged, and stays as it is.
    Refused,
}

impl Changing {
    fn new(
        Checking { written, tables }: Checking,
        path: &Path,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        Ok(match tables {
            Ok(tables) => Self::Ready(Changes::new(written, tables)),
            Err(unchecked) => {
                let check = move |is_over: &AtomicBool| check(unchecked, is_over);
                Self::Pending(written, PendingCheck::start("block map check", path.to_owned(), check, ended)?)
            }
        })
    }

    /// Whether the check goes on.
    fn is_pending(&self) -> bool {
        matches!(self, Self::Pending(_, pending) if pending.outcome().is_none())
    }

    /// What to change it by. What is damaged stays so: everybody who wants to change it is told.
    fn changes(&mut self) -> Result<&mut Changes, RequestError> {
        *self = match std::mem::replace(self, Self::Refused) {
            Self::Pending(written, pending) => match pending.take() {
                Some(tables) => Self::Ready(Changes::new(written, tables)),
                None => Self::Refused,
            },
            other => other,
        };
        match self {
            Self::Ready(changes) => Ok(changes),
            Self::Pending(..) | Self::Refused => Err(RequestError::Os(libc::EUCLEAN)),
        }
    }
}

/// What only the thread itself has.
struct Working<'a> {
    image: &'a Image,
    changing: Option<Changing>,
    reader: Reader,
    buffer: Vec<u8>,
}

impl<'a> Working<'a> {
    fn new(image: &'a Image, changing: Option<Changing>) -> Self {
        Self { image, changing, reader: Reader::default(), buffer: Vec::new() }
    }

    /// Does what is asked for until nobody is left who asks, and closes the image.
    fn run(mut self, inbox: &Inbox<Job>) -> io::Result<()> {
        let (mut batch, mut aside) = (Vec::with_capacity(BATCH_MAX), Vec::new());
        while inbox.some(BATCH_MAX, None, &mut batch).is_some() {
            self.read(&mut batch);
            if self.changing.as_ref().is_some_and(Changing::is_pending) {
                aside.append(&mut batch);
            } else if !aside.is_empty() {
                // In the order in which they came.
                aside.append(&mut batch);
                std::mem::swap(&mut batch, &mut aside);
            }
            if !batch.is_empty() {
                self.change(&mut batch);
            }
        }
        match &mut self.changing {
            // No queue is left that could still use anything.
            Some(Changing::Ready(changes)) => changes.close(self.image, &mut self.reader),
            _ => Ok(()),
        }
    }

    /// Takes what changes nothing out of a batch, and does it.
    fn read(&mut self, batch: &mut Vec<Job>) {
        batch.retain(|job| {
            match &job.task {
                Task::LookUp { range } => match self.image.look_up(range.clone(), &mut self.reader.slice) {
                    Ok(()) => job.returns.resume(job.slot),
                    Err(error) => job.returns.post(job.slot, Err(errno_of(&error))),
                },
                Task::Read { offset_bytes, segments } => {
                    let read = in_pieces(*offset_bytes, segments, &mut self.buffer, |at, piece, buffer| {
                        self.reader.read(self.image, 0, at, buffer).map_err(|error| errno_of(&error))?;
                        copy_to(&job.memory, piece, buffer)
                    });
                    job.returns.post(job.slot, read);
                }
                Task::Write { .. } | Task::Zero { .. } | Task::Begin | Task::Settle => return true,
            }
            false
        });
    }

    /// Does a batch of changes, and says so once they are in the file.
    fn change(&mut self, batch: &mut Vec<Job>) {
        let changes = match &mut self.changing {
            Some(changing) => changing.changes(),
            None => Err(RequestError::ReadOnly),
        };
        let changes = match changes {
            Ok(changes) => changes,
            Err(error) => return batch.drain(..).for_each(|job| job.returns.post(job.slot, Err(error))),
        };
        if batch.iter().any(|job| !matches!(job.task, Task::Begin)) {
            self.image.is_unstable.store(true, Ordering::SeqCst);
        }
        let (image, reader, buffer) = (self.image, &mut self.reader, &mut self.buffer);
        let results: Vec<_> = batch
            .iter()
            .map(|job| match &job.task {
                Task::Write { offset_bytes, segments, .. } => {
                    in_pieces(*offset_bytes, segments, buffer, |at, piece, buffer| {
                        // Copied first: the guest may change its memory meanwhile.
                        copy_from(&job.memory, piece, buffer)?;
                        changes.write(image, reader, at, buffer).map_err(|error| errno_of(&error))
                    })
                }
                Task::Zero { offset_bytes, length_bytes, how } => {
                    changes.zero(image, reader, (*offset_bytes, *length_bytes), *how).map_err(|error| errno_of(&error))
                }
                Task::Begin => changes.begin().map_err(|error| errno_of(&error)),
                Task::LookUp { .. } | Task::Read { .. } | Task::Settle => Ok(()),
            })
            .collect();
        let wants_stable =
            batch.iter().any(|job| matches!(job.task, Task::Write { is_stable: true, .. } | Task::Settle));
        let settled = changes.settle(image, reader, wants_stable).map_err(|error| errno_of(&error));
        image.may_write_in_place.store(changes.has_begun(), Ordering::Release);
        for (job, result) in batch.drain(..).zip(results) {
            match (job.task, result.and(settled)) {
                (Task::Begin, Ok(())) => job.returns.resume(job.slot),
                (_, result) => job.returns.post(job.slot, result),
            }
        }
    }
}

/// Calls `perform` for each piece of some segments, which begin at an offset, with a buffer as long as the piece.
fn in_pieces(
    offset_bytes: u64,
    segments: &[Segment],
    buffer: &mut Vec<u8>,
    mut perform: impl FnMut(u64, &[Segment], &mut [u8]) -> Result<(), RequestError>,
) -> Result<(), RequestError> {
    let length_bytes: u64 = segments.iter().map(|segment| u64::from(segment.length_bytes)).sum();
    let (mut at, end) = (offset_bytes, offset_bytes.saturating_add(length_bytes));
    let (mut cutter, mut piece) = (Cutter::new(segments), Vec::new());
    while at < end {
        let length_bytes = (end - at).min(BUFFER_BYTES);
        cutter.cut(length_bytes, &mut piece);
        buffer.resize(length_bytes as usize, 0);
        perform(at, &piece, buffer)?;
        at += length_bytes;
    }
    Ok(())
}

/// Copies a request's segments, which have as many bytes.
fn copy_from(memory: &MemoryMap, segments: &[Segment], mut bytes: &mut [u8]) -> Result<(), RequestError> {
    for &segment in segments {
        let slice = memory.slice(segment).ok_or(RequestError::BadSegment)?;
        let (now, later) = bytes.split_at_mut_checked(slice.len()).ok_or(RequestError::Os(libc::EIO))?;
        slice.copy_to(now);
        bytes = later;
    }
    Ok(())
}
