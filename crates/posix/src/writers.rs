//! Who changes a disk, counted by all processes that have it from one `blockyard attach`: in a page that they share.
//!
//! What was read before its time is good for as long as nobody has changed anything since. So each change is counted
//! before its request is made, and again when that is done. One that is never done, as its process was killed, leaves
//! both numbers apart, and nothing is read before its time any more.

use blockyard_block::RequestError;
use blockyard_session::client::SESSION_ENDED;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs::File;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

/// What whoever serves the disk has put there if nobody else changes it (`crates/attach/src/sessions.rs`).
const MAGIC: u64 = u64::from_le_bytes(*b"by-alone");
/// And what it has put there otherwise.
const OTHERS: u64 = u64::from_le_bytes(*b"by-other");
const PAGE_BYTES: usize = 4096;

#[repr(C)]
#[derive(Debug)]
struct Page {
    magic: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    /// Not zero: several processes transfer, or whoever serves it is about to let another one do so. Then a change
    /// ends before the call that made it does.
    shared: AtomicU64,
    /// Writes that failed, and of which programs were told so.
    told: AtomicU64,
    /// Writes that ended with a session, and of which programs were told that they failed.
    lost: AtomicU64,
    /// What follows is in a cache line of its own: who counts there is in nobody's way.
    _apart: [u64; 10],
    /// System calls that waking and waiting took, whoever else changes the disk.
    calls: AtomicU64,
}

impl Page {
    /// That of a disk, as the file beside its socket has it.
    fn of(file: &File) -> Option<&'static Self> {
        if !file.metadata().is_ok_and(|metadata| metadata.len() >= PAGE_BYTES as u64) {
            return None;
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where there is none.
        let page = unsafe { mmap(null_mut(), PAGE_BYTES, protection, MapFlags::SHARED, file, 0) };
        // SAFETY: it stays mapped, and all of it is atomic.
        unsafe { page.ok()?.cast::<Self>().as_ref() }
    }
}

/// What the processes of a disk share, if whoever serves it has made that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared(Option<&'static Page>);

impl Shared {
    /// As the disk's file beside its socket has it.
    pub(crate) fn of(file: Option<&File>) -> Self {
        Self(file.and_then(Page::of))
    }

    fn with(self, is_it: impl Fn(u64) -> bool) -> Option<&'static Page> {
        self.0.filter(|page| is_it(page.magic.load(Ordering::Acquire)))
    }

    /// Where system calls for the disk are counted.
    pub(crate) fn calls(self) -> Option<&'static AtomicU64> {
        self.with(|magic| matches!(magic, MAGIC | OTHERS)).map(|page| &page.calls)
    }

    /// Who changes the disk.
    pub(crate) fn writers(self) -> Writers {
        Writers(self.with(|magic| magic == MAGIC))
    }
}

/// Those of a disk. Without a page: there may be others, of whom nothing is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writers(Option<&'static Page>);

/// Writes that a program has been told have failed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// The disk has refused them.
    pub(crate) refused: u64,
    /// The session has ended: the disk may never have had them.
    pub(crate) lost: u64,
}

impl Told {
    /// One that failed so.
    pub(crate) fn one(error: RequestError) -> Self {
        let mut told = Self::default();
        told.add(error);
        told
    }

    pub(crate) fn add(&mut self, error: RequestError) {
        *(if error == SESSION_ENDED { &mut self.lost } else { &mut self.refused }) += 1;
    }
}

/// A change of the disk, until it is done.
#[derive(Debug)]
pub(crate) struct Change(Writers);

impl Writers {
    /// Whether those of this process are the only ones.
    #[inline]
    pub(crate) fn are_alone(self) -> bool {
        self.0.is_some_and(|page| page.shared.load(Ordering::SeqCst) == 0)
    }

    /// Where system calls for the disk are counted.
    pub(crate) fn calls(self) -> Option<&'static AtomicU64> {
        self.0.map(|page| &page.calls)
    }

    /// Whether it is known who else there is.
    pub(crate) fn are_known(self) -> bool {
        self.0.is_some()
    }

    /// Programs have been told of writes that failed. Whoever serves the disk tells of the others.
    #[cold]
    pub(crate) fn told(self, Told { refused, lost }: Told) {
        if let Self(Some(page)) = self {
            page.told.fetch_add(refused, Ordering::Relaxed);
            page.lost.fetch_add(lost, Ordering::Relaxed);
        }
    }

    /// Begins a change.
    pub(crate) fn begin(self) -> Change {
        if let Self(Some(page)) = self {
            page.begun.fetch_add(1, Ordering::SeqCst);
        }
        Change(self)
    }

    /// Changes so far, if none is under way: what is asked for now is good for as long as this says the same.
    #[inline]
    pub(crate) fn quiet(self) -> Option<u64> {
        let page = self.0?;
        // In this order: one that begins in between is counted.
        let ended = page.ended.load(Ordering::SeqCst);
        (page.begun.load(Ordering::SeqCst) == ended).then_some(ended)
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if let Writers(Some(page)) = self.0 {
            page.ended.fetch_add(1, Ordering::SeqCst);
        }
    }
}
