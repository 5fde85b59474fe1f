//! What is known from the program's beginning on.

use crate::aio::JOBS_MAX;
use crate::errno::Errno;
use crate::guarded::{self, Text};
use crate::names::{AIO_MAX, LOOKS, NAMES_MAX, Named, VARIABLE, parse};
use crate::{environment, fork, leader, signals, stdio, table};
use libc::{c_char, c_int};
use std::cell::Cell;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

unsafe extern "C" {
    /// getenv(3), but that there is no environment for a program that has more rights than who started it.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// The disks by their numbers, and how many there are.
static NAMES: [AtomicPtr<Named>; NAMES_MAX] = [const { AtomicPtr::new(null_mut()) }; NAMES_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// What two bytes names begin with that may be disks', a bit for each, which is others', too.
static BEGINNINGS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
static LOOKS_LIKE_FILES: AtomicBool = AtomicBool::new(false);
static REQUESTS_MAX: AtomicUsize = AtomicUsize::new(JOBS_MAX);

thread_local! {
    /// Whether this thread is in this library, which opens files as everybody does.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, calls of this thread are libc's.
pub(crate) struct Inside(bool);

impl Inside {
    pub(crate) fn enter() -> Self {
        Self(INSIDE.replace(true))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// The beginning of what a session calls its thread, as much as there is room for.
pub(crate) const SESSIONS: &[u8; 15] = b"blockyard-sessi";

/// Whether this thread is in this library, or one of its own.
pub(crate) fn is_inside() -> bool {
    let mut name = [0; 16];
    // SAFETY: there is room for a thread's name.
    INSIDE.get() || unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) } == 0 && name.starts_with(SESSIONS)
}

/// Where the bit of a beginning is.
#[inline(always)]
fn place_of(beginning: [u8; 2]) -> (usize, u64) {
    let bit = u32::from(u16::from_le_bytes(beginning)).wrapping_mul(0x9e37_79b1) >> 22;
    (bit as usize / 64, 1 << (bit % 64))
}

/// From now on, names that begin so are looked at.
pub(crate) fn look_at(beginning: [u8; 2]) {
    let (word, bit) = place_of(beginning);
    BEGINNINGS[word].fetch_or(bit, Ordering::Release);
}

/// Whether a path may be a disk's, or lead to one by a descriptor. Of most that are not, this is all that is asked.
#[inline(always)]
pub(crate) fn may_name_disk(path: *const c_char) -> bool {
    let is_beginning = |beginning| {
        let (word, bit) = place_of(beginning);
        BEGINNINGS[word].load(Ordering::Acquire) & bit != 0
    };
    has_disks() && !path.is_null() && (signals::may_faults_be_blocked() || guarded::pair(path).is_none_or(is_beginning))
}

/// The disk that a path names, by its number; a path without a slash names one in the directory that a descriptor is
/// open on, too, or in the working directory (`AT_FDCWD`).
pub(crate) fn find(directory: c_int, path: *const c_char) -> Option<usize> {
    if !has_disks() {
        return None;
    }
    let path = Text::at(path);
    let first = path.byte(0).ok()?;
    // Most are nobody's: what costs most is asked of the others.
    let is_it = |named: &Named| (named.is_named(first, path) || named.is_in(directory, first, path)) && !INSIDE.get();
    disks().position(is_it)
}

pub(crate) fn disk(number: usize) -> Option<&'static Named> {
    // SAFETY: it is null, or was leaked for ever.
    unsafe { NAMES.get(number)?.load(Ordering::Acquire).as_ref() }
}

pub(crate) fn disks() -> impl Iterator<Item = &'static Named> {
    (0..COUNT.load(Ordering::Acquire)).filter_map(disk)
}

/// Whether there are any.
#[inline]
pub(crate) fn has_disks() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// From now on, a name is a disk's.
pub(crate) fn add(named: Named) -> Result<(), Errno> {
    fork::alone(|| {
        let count = COUNT.load(Ordering::Acquire);
        if disks().any(|known| known.name == named.name) {
            return Err(Errno(libc::EEXIST));
        }
        let place = NAMES.get(count).ok_or(Errno(libc::ENOSPC))?;
        if count == 0 {
            // Before there is anything that a child would have to know of.
            fork::watch();
        }
        named.beginnings().for_each(look_at);
        // A child that is forked meanwhile has it or does not: where it has no count of it, another takes its place.
        place.store(Box::into_raw(Box::new(named)), Ordering::Release);
        COUNT.store(count + 1, Ordering::Release);
        if count == 0 {
            signals::catch_faults();
            stdio::watch();
        }
        Ok(())
    })
}

/// Whether disks look like files of their size, and not like block devices.
pub(crate) fn disks_look_like_files() -> bool {
    LOOKS_LIKE_FILES.load(Ordering::Relaxed)
}

/// POSIX AIO requests of a descriptor that are under way, at most.
pub(crate) fn requests_max() -> usize {
    REQUESTS_MAX.load(Ordering::Relaxed)
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

/// Called when the library is loaded, before the program's own code.
extern "C" fn at_load() {
    leader::watch();
    let variable = |name: &CStr| -> Option<&'static CStr> {
        // SAFETY: the name is a string, and nothing changes the environment yet.
        let text = unsafe { secure_getenv(name.as_ptr()) };
        // SAFETY: what is found is a string, and stays one until the program changes its environment.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
    };
    let Some(text) = variable(VARIABLE) else { return };
    if variable(LOOKS).is_some_and(|looks| looks.to_bytes() == b"file") {
        LOOKS_LIKE_FILES.store(true, Ordering::Relaxed);
    }
    let count = variable(AIO_MAX).and_then(|text| text.to_str().ok()?.parse().ok());
    if let Some(count @ 1..JOBS_MAX) = count {
        REQUESTS_MAX.store(count, Ordering::Relaxed);
    }
    signals::learn_first_mask();
    for named in parse(OsStr::from_bytes(text.to_bytes())) {
        // What is said twice is what it was said to be first.
        let _ = add(named);
    }
    if !has_disks() {
        return;
    }
    environment::keep(variable);
    let _inside = Inside::enter();
    table::adopt_inherited();
}
