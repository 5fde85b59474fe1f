//! What a child of fork(2) has of its parent: nothing that another thread was in the middle of.
//!
//! A fork waits for nobody: a thread that makes something may itself wait for a lock that libc or the program has taken
//! for the fork, a stream's or an allocator's. What takes several steps, a connection or a part of one, or a name, is
//! made by one thread at a time ([`alone`]). A child gives up what was half done then, by what is known of it in atomic
//! words ([`own::close_all`]), and takes no lock and no memory for that: its program's handlers, which give locks
//! back, come later. Connections are forgotten, and what descriptors are open on is counted anew, as calls of other
//! threads will never end there.
//!
//! A child that libc has not made (clone(2) by syscall(2)) notices that it is one when it first does something with a
//! disk: of one page, the kernel gives it zeros ([`look`]). It may share its parent's descriptors (CLONE_FILES), and
//! closes none then.

use crate::errno::Errno;
use crate::signals::Busy;
use crate::{connection, leader, own, setup, signals, table};
use libc::{c_int, pid_t};
use std::cell::Cell;
use std::ptr::addr_of;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// This process, as far as is known: in a child that has not noticed that it is one, its parent.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// Whether a thread makes something.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// How long to look again whether another thread is done.
const PAUSE: Duration = Duration::from_millis(1);

const PAGE_BYTES: usize = 4096;

/// What a child has zeros of.
#[repr(C, align(4096))]
struct Page {
    state: AtomicU32,
    _rest: [u8; PAGE_BYTES - size_of::<AtomicU32>()],
}

static PAGE: Page = Page { state: AtomicU32::new(0), _rest: [0; _] };
/// What it says where this process is known to be what it is, and while that is seen to.
const KNOWN: u32 = 1;
const LEARNS: u32 = 2;

thread_local! {
    /// Whether this thread is the one.
    static IS_MINE: Cell<bool> = const { Cell::new(false) };
    /// The signals that are blocked in this thread, while it makes a child.
    static MASK: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Given back when it is dropped.
struct Taken;

impl Taken {
    fn take() -> Option<Self> {
        if IS_TAKEN.swap(true, Ordering::SeqCst) {
            return None;
        }
        IS_MINE.set(true);
        Some(Self)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        IS_MINE.set(false);
        IS_TAKEN.store(false, Ordering::SeqCst);
    }
}

/// Runs `run` while no other thread makes anything.
pub(crate) fn alone<T>(run: impl FnOnce() -> T) -> T {
    let _busy = Busy::enter();
    if IS_MINE.get() {
        return run();
    }
    let _taken = loop {
        match Taken::take() {
            Some(taken) => break taken,
            None => thread::sleep(PAUSE),
        }
    };
    run()
}

/// From now on, children are made so.
pub(crate) fn watch() {
    PROCESS.store(own_number(), Ordering::Relaxed);
    PAGE.state.store(KNOWN, Ordering::Release);
    // SAFETY: nothing else is in the page. Where the kernel cannot do it, no child notices that libc has not made it.
    unsafe { libc::madvise(addr_of!(PAGE).cast_mut().cast(), PAGE_BYTES, libc::MADV_WIPEONFORK) };
    // SAFETY: what the last one does may be done in a child.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Before a disk is looked for, or a connection: whether this process is the one that it was.
#[inline]
pub(crate) fn look() {
    if PAGE.state.load(Ordering::Acquire) != KNOWN {
        learn();
    }
}

#[cold]
fn learn() {
    // What a thread is in the middle of, it goes on with; and in a child, this itself.
    if !setup::has_disks() || signals::is_busy() {
        return;
    }
    if PAGE.state.compare_exchange(0, LEARNS, Ordering::AcqRel, Ordering::Acquire).is_err() {
        while PAGE.state.load(Ordering::Acquire) == LEARNS {
            thread::sleep(PAUSE);
        }
        return;
    }
    before();
    {
        let _busy = Busy::enter();
        begin(!shares_descriptors());
    }
}

fn own_number() -> pid_t {
    // SAFETY: it takes nothing.
    unsafe { libc::getpid() }
}

/// Whether what this process opens and closes, its parent does, too. Where the kernel does not say, that may be.
fn shares_descriptors() -> bool {
    /// Of kcmp(2).
    const FILES: c_int = 2;
    let parent = PROCESS.load(Ordering::Relaxed);
    // SAFETY: numbers.
    match unsafe { libc::syscall(libc::SYS_kcmp, own_number(), parent, FILES, 0, 0) } {
        0 => true,
        // In a namespace of its own, a process has no parent, and numbers mean others.
        // SAFETY: it takes nothing.
        -1 => Errno::last() != Errno(libc::ESRCH) || unsafe { libc::getppid() } == 0,
        _ => false,
    }
}

/// Makes a child by what does not tell anybody, before and after.
pub(crate) fn make(child: impl FnOnce() -> pid_t) -> pid_t {
    if !setup::has_disks() {
        return child();
    }
    before();
    let made = child();
    if made == 0 {
        in_child()
    } else {
        in_parent()
    }
    made
}

/// No signal's handler runs in a child before it is well, nor in its parent meanwhile.
extern "C" fn before() {
    if MASK.get().is_none() {
        MASK.set(Some(signals::set_mask(signals::ALL)));
    }
}

extern "C" fn in_parent() {
    MASK.take().map(signals::set_mask);
}

/// What libc has made has descriptors of its own.
extern "C" fn in_child() {
    begin(true);
}

/// A child has none of its parent's threads: what they did for it, it does by itself.
fn begin(closes: bool) {
    PROCESS.store(own_number(), Ordering::Relaxed);
    // What this thread is in the middle of, it goes on with.
    if !IS_MINE.get() {
        if closes {
            own::close_all();
        }
        own::forget_what_is_made();
        IS_TAKEN.store(false, Ordering::SeqCst);
    }
    connection::forget_all();
    table::count_anew();
    if closes {
        own::keep_locks_of(table::locks());
    }
    // Whichever thread has made it, it is the first here.
    leader::watch();
    if setup::has_disks() {
        signals::catch_faults();
    }
    PAGE.state.store(KNOWN, Ordering::Release);
    in_parent();
}
