//! Which descriptors are open on disks.
//!
//! It is read without a lock, by any number of threads and signal handlers: each descriptor has a word with the number
//! of its entry, and an entry counts who looks at it. Entries are never given back to the system, so that a count can
//! always be looked at; what was found is one's own if the word is the same after it was counted.

use crate::calls::descriptor_names::BEGINNINGS;
use crate::description::{self, Mapped};
use crate::errno::Errno;
use crate::signals::Busy;
use crate::{fork, locks, own, setup, users};
use libc::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

const CHUNK: usize = 1024;
/// Of descriptors: 2^20 is the most that a process may have where nobody has raised fs.nr_open.
const CHUNKS: usize = 1024;

/// What a descriptor is open on.
struct Entry {
    /// Descriptors and calls that have it; 0: it is free.
    users: AtomicU32,
    /// The page of its description, and the disk's number.
    address: AtomicU64,
    disk: AtomicU32,
    /// The next free one.
    next: AtomicU32,
}

impl Entry {
    const fn new() -> Self {
        Self { users: AtomicU32::new(0), address: AtomicU64::new(0), disk: AtomicU32::new(0), next: AtomicU32::new(0) }
    }
}

type Words = [AtomicU32; CHUNK];
type Entries = [Entry; CHUNK];

/// By descriptor: the number of its entry, from 1 on.
static WORDS: [AtomicPtr<Words>; CHUNKS] = [const { AtomicPtr::new(null_mut()) }; CHUNKS];
static ENTRIES: [AtomicPtr<Entries>; CHUNKS] = [const { AtomicPtr::new(null_mut()) }; CHUNKS];
/// Entries that have been in use.
static USED: AtomicU32 = AtomicU32::new(0);
/// How often a disk was given to a descriptor.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// The first free one, with a count above it that changes whenever this does.
static FREE: AtomicU64 = AtomicU64::new(0);

/// What a descriptor is open on, while a call looks at it: no handler of a signal's comes meanwhile, nor a fork by this
/// thread.
pub(crate) struct Open {
    number: u32,
    _busy: Busy,
}

/// The chunk of `all` that something of that number is in.
fn chunk<T>(all: &'static [AtomicPtr<T>; CHUNKS], number: usize) -> Option<&'static T> {
    let chunk = all.get(number / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: it is null or was leaked for ever.
    unsafe { chunk.as_ref() }
}

/// The same, which is made if it is not there.
fn make<T>(all: &'static [AtomicPtr<T>; CHUNKS], number: usize, new: fn() -> Box<T>) -> Result<&'static T, Errno> {
    let place = all.get(number / CHUNK).ok_or(Errno(libc::EMFILE))?;
    if let Some(there) = chunk(all, number) {
        return Ok(there);
    }
    let made = Box::into_raw(new());
    match place.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it is leaked for ever.
        Ok(_) => Ok(unsafe { &*made }),
        Err(there) => {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: another thread has leaked it for ever.
            Ok(unsafe { &*there })
        }
    }
}

#[inline]
fn word(descriptor: c_int) -> Option<&'static AtomicU32> {
    let descriptor = usize::try_from(descriptor).ok()?;
    Some(&chunk(&WORDS, descriptor)?[descriptor % CHUNK])
}

fn entry(number: u32) -> Option<&'static Entry> {
    let index = number.checked_sub(1)? as usize;
    Some(&chunk(&ENTRIES, index)?[index % CHUNK])
}

/// Whether a descriptor is open on a disk.
#[inline]
pub(crate) fn has(descriptor: c_int) -> bool {
    word(descriptor).is_some_and(|word| word.load(Ordering::Acquire) != 0)
}

/// What a descriptor is open on, if that is a disk.
#[inline]
pub(crate) fn find(descriptor: c_int) -> Option<Open> {
    let word = word(descriptor)?;
    if word.load(Ordering::Acquire) == 0 { None } else { find_entry(word) }
}

/// Whether any descriptor has ever been open on one.
#[inline]
pub(crate) fn is_used() -> bool {
    USED.load(Ordering::Relaxed) > 0
}

/// How often a disk was given to a descriptor: another number says that one that was no disk's may have become one's.
#[inline]
pub(crate) fn given() -> u64 {
    GIVEN.load(Ordering::Acquire)
}

fn find_entry(word: &AtomicU32) -> Option<Open> {
    fork::look();
    let _busy = Busy::enter();
    loop {
        let number = word.load(Ordering::Acquire);
        let entry = entry(number)?;
        let mut users = entry.users.load(Ordering::Relaxed);
        while users > 0 {
            match entry.users.compare_exchange_weak(users, users + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    let open = Open { number, _busy: Busy::enter() };
                    if word.load(Ordering::Acquire) == number {
                        return Some(open);
                    }
                    break;
                }
                Err(now) => users = now,
            }
        }
        // It was closed meanwhile, and maybe opened again.
    }
}

impl Open {
    /// One that nobody else has, on a description that was mapped.
    pub(crate) fn new(mapped: Mapped) -> Result<Self, Errno> {
        let busy = Busy::enter();
        let number = take_free().map_or_else(take_new, Ok)?;
        let entry = entry(number).ok_or(Errno(libc::EMFILE))?;
        entry.address.store(mapped.address(), Ordering::Relaxed);
        let disk = mapped.get().disk();
        entry.disk.store(disk as u32, Ordering::Relaxed);
        users::description_opened(disk);
        entry.users.store(1, Ordering::Release);
        Ok(Self { number, _busy: busy })
    }

    fn entry(&self) -> &'static Entry {
        entry(self.number).expect("an entry that is in use is there")
    }

    /// The disk's number.
    pub(crate) fn disk(&self) -> usize {
        self.entry().disk.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn mapped(&self) -> Mapped {
        Mapped::from_address(self.entry().address.load(Ordering::Relaxed))
    }

    /// From now on a descriptor is open on this. What it was open on before is let go of.
    pub(crate) fn give_to(&self, descriptor: c_int) -> Result<(), Errno> {
        let index = usize::try_from(descriptor).map_err(|_| Errno(libc::EBADF))?;
        let words = make(&WORDS, index, || Box::new([const { AtomicU32::new(0) }; CHUNK]))?;
        self.entry().users.fetch_add(1, Ordering::Relaxed);
        close(words[index % CHUNK].swap(self.number, Ordering::AcqRel));
        GIVEN.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let_go(self.number);
    }
}

/// Takes a descriptor out. Whether it was open on a disk.
pub(crate) fn remove(descriptor: c_int) -> bool {
    let Some(word) = word(descriptor) else { return false };
    if word.load(Ordering::Acquire) == 0 {
        return false;
    }
    fork::look();
    let number = word.swap(0, Ordering::AcqRel);
    close(number);
    number > 0
}

/// A descriptor is open on an entry no longer.
fn close(number: u32) {
    if let Some(entry) = entry(number) {
        locks::release(entry.disk.load(Ordering::Relaxed) as usize);
    }
    let_go(number);
}

/// The same of a range of descriptors.
pub(crate) fn remove_range(first: u32, last: u32) {
    let mut descriptor = first;
    while descriptor <= last && (descriptor as usize) < CHUNKS * CHUNK {
        if chunk(&WORDS, descriptor as usize).is_some() {
            remove(descriptor as c_int);
            descriptor += 1;
        } else {
            descriptor = (descriptor / CHUNK as u32 + 1) * CHUNK as u32;
        }
    }
}

/// One user of an entry less. The last frees it.
fn let_go(number: u32) {
    let Some(entry) = entry(number) else { return };
    if entry.users.fetch_sub(1, Ordering::AcqRel) > 1 {
        return;
    }
    Mapped::from_address(entry.address.load(Ordering::Relaxed)).unmap();
    let disk = entry.disk.load(Ordering::Relaxed) as usize;
    let mut head = FREE.load(Ordering::Relaxed);
    loop {
        entry.next.store(head as u32, Ordering::Relaxed);
        match FREE.compare_exchange_weak(head, with_count(head, number), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    users::description_closed(disk);
}

/// In a child, where this thread looks at none: calls of other threads will never end, and what they alone have is let
/// go of.
pub(crate) fn count_anew() {
    let all = || (1..=USED.load(Ordering::Relaxed)).filter_map(|number| Some((number, entry(number)?)));
    // Descriptors are counted where else the next free one is.
    all().for_each(|(_, entry)| entry.next.store(0, Ordering::Relaxed));
    for words in WORDS.iter().enumerate().filter_map(|(index, _)| chunk(&WORDS, index * CHUNK)) {
        for entry in words.iter().filter_map(|word| entry(word.load(Ordering::Relaxed))) {
            entry.next.fetch_add(1, Ordering::Relaxed);
        }
    }
    FREE.store(0, Ordering::Relaxed);
    for (number, entry) in all() {
        let descriptors = entry.next.load(Ordering::Relaxed);
        let had = entry.users.swap(descriptors, Ordering::Relaxed);
        if descriptors > 0 {
            users::description_opened(entry.disk.load(Ordering::Relaxed) as usize);
            continue;
        }
        if had > 0 {
            Mapped::from_address(entry.address.load(Ordering::Relaxed)).unmap();
        }
        entry.next.store(FREE.load(Ordering::Relaxed) as u32, Ordering::Relaxed);
        FREE.store(number.into(), Ordering::Relaxed);
    }
}

/// The files of locks of what descriptors are open on.
pub(crate) fn locks() -> impl Iterator<Item = c_int> {
    let all = (1..=USED.load(Ordering::Relaxed)).filter_map(entry);
    let used = all.filter(|entry| entry.users.load(Ordering::Relaxed) > 0);
    used.filter_map(|entry| Mapped::from_address(entry.address.load(Ordering::Relaxed)).locks())
}

/// The head of the list of free entries that follows `head`.
fn with_count(head: u64, number: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(number)
}

fn take_free() -> Option<u32> {
    let mut head = FREE.load(Ordering::Acquire);
    loop {
        let first = entry(head as u32)?;
        let next = with_count(head, first.next.load(Ordering::Relaxed));
        match FREE.compare_exchange_weak(head, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(head as u32),
            Err(now) => head = now,
        }
    }
}

fn take_new() -> Result<u32, Errno> {
    BEGINNINGS.into_iter().for_each(setup::look_at);
    let index = USED.fetch_add(1, Ordering::Relaxed) as usize;
    make(&ENTRIES, index, || Box::new([const { Entry::new() }; CHUNK]))?;
    Ok(index as u32 + 1)
}

/// Takes in what the program before this one has left open.
pub(crate) fn adopt_inherited() {
    let Ok(names) = std::fs::read_dir("/proc/thread-self/fd") else { return };
    let numbers = names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let numbers: Vec<c_int> = numbers.collect();
    let (disks, others): (Vec<_>, Vec<_>) = numbers.into_iter().partition(|&descriptor| adopt(descriptor).is_some());
    let has = |disk| disks.iter().any(|&descriptor| find(descriptor).is_some_and(|open| open.disk() == disk));
    for descriptor in others {
        match locks::disk_of(descriptor) {
            Some(disk) if has(disk) => locks::adopt(disk, descriptor),
            // Its last descriptor was closed when this program was executed, and so the locks are gone.
            Some(_) => description::close(descriptor),
            None => own::close_stray_locks(descriptor),
        }
    }
}

/// Takes in one that the program before this one has left open, if that is on a disk.
fn adopt(descriptor: c_int) -> Option<()> {
    take_in(descriptor, Mapped::inherited(descriptor)?)
}

/// Takes in one that another process has passed to this one (SCM_RIGHTS), if that is on a disk.
pub(crate) fn adopt_passed(descriptor: c_int) {
    if let Some(mapped) = Mapped::passed(descriptor) {
        // Without room for it, it is open on nothing.
        let _ = take_in(descriptor, mapped);
    }
}

fn take_in(descriptor: c_int, mapped: Mapped) -> Option<()> {
    Open::new(mapped).inspect_err(|_| mapped.unmap()).ok()?.give_to(descriptor).ok()
}
