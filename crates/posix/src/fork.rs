//! What a child of fork(2) has of its parent: nothing that another thread was in the middle of.
//!
//! What takes several steps, a connection or a part of one, or a name, is made by one thread at a time ([`alone`]), and
//! a fork waits for it: so a child has no half of it, and no lock that nobody will give back. Calls on disks are not
//! waited for. In the child, connections are forgotten, and what descriptors are open on is counted anew, as those
//! calls will never end there.

use crate::signals::Busy;
use crate::{connection, table};
use std::cell::Cell;
use std::mem::zeroed;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Whether a thread makes something, or a child.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// The signals that are blocked in the thread that makes a child.
static MASK: AtomicU64 = AtomicU64::new(0);
/// How long to look again whether another thread is done.
const PAUSE: Duration = Duration::from_millis(1);

thread_local! {
    /// Whether this thread is the one.
    static IS_MINE: Cell<bool> = const { Cell::new(false) };
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

/// Runs `run` while no other thread makes anything, or a child.
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
    // SAFETY: what the last one does may be done in a child.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// No signal's handler runs in the middle of it, which might wait for this thread.
extern "C" fn before() {
    if IS_MINE.get() {
        return;
    }
    loop {
        let mask = set_mask(u64::MAX);
        if let Some(taken) = Taken::take() {
            MASK.store(mask, Ordering::Relaxed);
            return std::mem::forget(taken);
        }
        set_mask(mask);
        thread::sleep(PAUSE);
    }
}

extern "C" fn in_parent() {
    let mask = MASK.load(Ordering::Relaxed);
    drop(Taken);
    set_mask(mask);
}

/// A child has none of its parent's threads: what they did for it, it does by itself.
extern "C" fn in_child() {
    connection::forget_all();
    table::count_anew();
    in_parent();
}

/// Blocks these signals, as a set of the kernel's, and no others. Those that were blocked.
fn set_mask(mask: u64) -> u64 {
    // SAFETY: all of it is numbers, the first of which are the kernel's set.
    let (mut new, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { (zeroed(), zeroed()) };
    // SAFETY: the set is longer than that.
    unsafe { (&raw mut new).cast::<u64>().write(mask) };
    // SAFETY: two sets.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const new, &raw mut before) };
    // SAFETY: as above.
    unsafe { (&raw const before).cast::<u64>().read() }
}
