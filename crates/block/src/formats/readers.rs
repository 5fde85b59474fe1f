//! Threads of an image's own that unpack its compressed blocks: as many as there are CPUs, from the first such request
//! on. They change nothing.
//!
//! A block that a request is on its way to is not freed (of qcow2, [`super::qcow2`]'s grace sees to that; others are
//! read only), so what its entry said goes on being true.

use super::inbox::Inbox;
use super::scatter::{Returns, copy_to, errno_of};
use crate::image_trouble::{ImageTrouble, tell_of_trouble};
use crate::{MemoryMap, RequestError, Segment};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Most threads.
const THREADS_MAX: usize = 16;

/// Blocks that wait to be tried.
const WAITING_MAX: usize = 256;

/// Lines about blocks that cannot be unpacked, at most; all are counted.
const LINES_MAX: u64 = 1000;

/// An image that has compressed blocks.
pub(super) trait PackedImage: Send + Sync + 'static {
    /// Where one lies.
    type Block: Copy + Send + 'static;
    /// What a thread keeps between blocks.
    type Reader: Default;

    /// What a block holds.
    ///
    /// # Errors
    /// When it cannot be read, or does not become a whole one, which names the file and the place.
    fn unpacked<'r>(&self, block: Self::Block, reader: &'r mut Self::Reader) -> io::Result<&'r [u8]>;
}

/// A part of a compressed block, for somebody's memory.
pub(super) struct ReadJob<I: PackedImage> {
    pub(super) block: I::Block,
    pub(super) skip_bytes: u64,
    pub(super) segments: Vec<Segment>,
    pub(super) slot: u16,
    pub(super) memory: Arc<MemoryMap>,
    pub(super) returns: Arc<Returns>,
}

pub(super) struct Readers<I: PackedImage> {
    shared: Arc<Shared<I>>,
    name: &'static str,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared<I: PackedImage> {
    image: Arc<I>,
    path: PathBuf,
    /// It was said why a block cannot be read, of which whoever reads hears no more than that it cannot.
    has_told: AtomicBool,
    inbox: Inbox<ReadJob<I>>,
}

impl<I: PackedImage> Readers<I> {
    /// Of the image at `path`; `name`: the threads'.
    pub(super) fn new(image: Arc<I>, path: PathBuf, name: &'static str) -> Self {
        let shared = Shared { image, path, has_told: AtomicBool::new(false), inbox: Inbox::default() };
        Self { shared: Arc::new(shared), name, threads: Mutex::default() }
    }

    /// Says why something of the image cannot be read, if nothing of that was said yet.
    pub(super) fn tell(&self, error: &io::Error) {
        self.shared.tell(error);
    }

    /// Reads it, in a thread of these; in the caller's where there can be none.
    pub(super) fn take(&self, job: ReadJob<I>) {
        if !self.has_threads() {
            return self.shared.perform(&job, &mut I::Reader::default());
        }
        self.shared.inbox.put(job);
    }

    fn has_threads(&self) -> bool {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.is_empty() {
            threads.extend((0..threads_here()).filter_map(|_| {
                let shared = Arc::clone(&self.shared);
                thread::Builder::new().name(self.name.into()).spawn(move || shared.run()).ok()
            }));
        }
        !threads.is_empty()
    }
}

impl<I: PackedImage> Drop for Readers<I> {
    fn drop(&mut self) {
        self.shared.inbox.close();
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        // They do not panic, and whoever dropped this has no use for it if one does.
        threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl<I: PackedImage> fmt::Debug for Readers<I> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Readers")
    }
}

impl<I: PackedImage> Shared<I> {
    fn run(&self) {
        let mut reader = I::Reader::default();
        while let Some(job) = self.inbox.next() {
            self.perform(&job, &mut reader);
        }
    }

    fn perform(&self, job: &ReadJob<I>, reader: &mut I::Reader) {
        job.returns.post(job.slot, self.read(job, reader));
    }

    fn tell(&self, error: &io::Error) {
        if !self.has_told.swap(true, Ordering::Relaxed) {
            tell_of_trouble(&self.path, ImageTrouble::Unreadable, error);
        }
    }

    fn read(&self, job: &ReadJob<I>, reader: &mut I::Reader) -> Result<(), RequestError> {
        let whole = self.image.unpacked(job.block, reader).map_err(|error| {
            self.tell(&error);
            errno_of(&error)
        })?;
        copy_to(&job.memory, &job.segments, whole.get(job.skip_bytes as usize..).unwrap_or_default())
    }
}

fn threads_here() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// How far a check of compressed blocks has come: hears how many bytes of the disk are tried, of how many; whether it
/// goes on.
pub(super) type GoesOn<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Takes a block that is to be tried, or `None`, which stands for one that was. An error ends the search for more.
pub(super) type Take<'a, B> = &'a mut dyn FnMut(Option<B>) -> io::Result<()>;

/// How often somebody hears how far it has come.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Tries compressed blocks in as many threads as there are CPUs: those that `find` gives to its own argument, of which
/// each is `block_bytes`, and all together `length_bytes` of the disk. `say` hears of those that do not become whole
/// ones; returns how many that are.
///
/// # Errors
/// When `find` fails, a block cannot be read, or there can be no threads. [`io::ErrorKind::Interrupted`] when
/// `goes_on` says so.
pub(super) fn try_blocks<B: Send, R: Default>(
    unpack: impl Fn(B, &mut R) -> io::Result<()> + Sync,
    find: impl FnOnce(Take<'_, B>) -> io::Result<()>,
    (block_bytes, length_bytes): (u64, u64),
    say: &mut dyn FnMut(&str),
    goes_on: GoesOn<'_>,
) -> io::Result<u64> {
    let (blocks, waiting) = sync_channel(WAITING_MAX);
    let (waiting, unpack, failure) = (Mutex::new(waiting), &unpack, OnceLock::new());
    let (found, mut bad) = thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..threads_here() {
            let (waiting, failure) = (&waiting, &failure);
            threads.extend(thread::Builder::new().spawn_scoped(scope, move || try_waiting(waiting, failure, unpack)));
        }
        if threads.is_empty() {
            return (Err(io::Error::from(io::ErrorKind::WouldBlock)), Vec::new());
        }
        let (mut done_bytes, mut told) = (0, Instant::now());
        let found = find(&mut |block| {
            if let Some(block) = block {
                // They take what comes until no more does.
                _ = blocks.send(block);
            }
            done_bytes += block_bytes;
            let tells = told.elapsed() >= TOLD_EVERY;
            if tells {
                told = Instant::now();
            }
            let is_over = failure.get().is_some() || (tells && !goes_on(done_bytes, length_bytes));
            if is_over { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        });
        drop(blocks);
        // They do not panic.
        (found, threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>())
    });
    if let Some(error) = failure.into_inner() {
        return Err(error);
    }
    found?;
    let count = bad.iter().map(|(count, _)| count).sum();
    let lines = bad.iter_mut().flat_map(|(_, lines)| lines.drain(..));
    lines.take(LINES_MAX as usize).for_each(|line| say(&format!("ERROR {line}")));
    Ok(count)
}

/// Tries what waits until no more comes: how many are bad, and why the first of them are. Once something cannot be
/// read, nothing is tried any more: what the file holds there is not known.
fn try_waiting<B, R: Default>(
    waiting: &Mutex<Receiver<B>>,
    failure: &OnceLock<io::Error>,
    unpack: &(impl Fn(B, &mut R) -> io::Result<()> + Sync),
) -> (u64, Vec<String>) {
    let (mut reader, mut count, mut lines) = (R::default(), 0, Vec::new());
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(block) = next else { return (count, lines) };
        if failure.get().is_some() {
            continue;
        }
        match unpack(block, &mut reader) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                count += 1;
                if count <= LINES_MAX {
                    lines.push(error.to_string());
                }
            }
            // The first one counts.
            Err(error) => _ = failure.set(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(
        unpack: impl Fn(u32) -> io::Result<()> + Sync,
        goes_on: GoesOn<'_>,
    ) -> (io::Result<u64>, Vec<String>, u32) {
        let (mut said, mut taken) = (Vec::new(), 0);
        let find = |take: Take<'_, u32>| {
            (0..100_000).try_for_each(|block| {
                taken += 1;
                take(Some(block))
            })
        };
        let outcome =
            try_blocks(|block, ()| unpack(block), find, (512, 0), &mut |line| said.push(line.into()), goes_on);
        (outcome, said, taken)
    }

    #[test]
    fn what_cannot_be_read_is_not_damaged() {
        let errors = |block| match block {
            1000 => Err(io::Error::from_raw_os_error(libc::EIO)),
            7 => Err(io::Error::new(io::ErrorKind::InvalidData, "damaged")),
            _ => Ok(()),
        };
        let (outcome, said, taken) = tried(errors, &mut |_, _| true);
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(said, [""; 0]);
        assert!(taken < 100_000, "it went on to the end");
        let (outcome, said, taken) =
            tried(|block| if block == 1000 { Ok(()) } else { errors(block) }, &mut |_, _| true);
        assert_eq!((outcome.unwrap(), said, taken), (1, vec!["ERROR damaged".to_owned()], 100_000));
    }

    #[test]
    fn whoever_watches_may_end_it() {
        let wait = |_| {
            thread::sleep(Duration::from_millis(1));
            Ok(())
        };
        let (outcome, _, taken) = tried(wait, &mut |done_bytes, _| {
            assert!(done_bytes > 0);
            false
        });
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert!(taken < 100_000);
    }
}
