//! The end of a process whose first thread ends before the others.
//!
//! libc ends a process when the last of its threads does, and counts this library's, which do not end. So, once the
//! first thread is gone, another looks whether any of the program's is left.

use crate::connection::without_signals;
use crate::setup::{Inside, SESSIONS};
use crate::signals;
use libc::{c_int, c_void, pthread_key_t};
use std::fs;
use std::process::exit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// How long to look again.
const PAUSE: Duration = Duration::from_millis(50);
/// Of the thread that looks, in which what the program has for its end (`atexit`) runs.
const STACK_BYTES: usize = 8 << 20;
/// Looks that have to say the same: one may miss a thread that begins while another ends.
const LOOKS: usize = 2;

/// What the first thread has a value of, which is destroyed when that thread ends by itself or is cancelled, but not by
/// exit(3); `pthread_key_t::MAX`: there is none yet.
static KEY: AtomicU32 = AtomicU32::new(pthread_key_t::MAX);

/// From now on, the end of this thread is noticed, if it is the first.
pub(crate) fn watch() {
    let mut key = KEY.load(Ordering::Relaxed);
    // SAFETY: there is room for a key; a number.
    unsafe {
        if libc::gettid() != libc::getpid() {
            return;
        }
        if key == pthread_key_t::MAX {
            if libc::pthread_key_create(&raw mut key, Some(ends)) != 0 {
                return;
            }
            KEY.store(key, Ordering::Relaxed);
        }
        libc::pthread_setspecific(key, (&raw const KEY).cast());
    }
}

extern "C" fn ends(_value: *mut c_void) {
    let looks = thread::Builder::new().name("blockyard-end".to_owned()).stack_size(STACK_BYTES);
    // Where there can be no thread, the process stays until somebody ends it.
    let _ = without_signals(|| looks.spawn(end_with_the_others).map(drop));
}

/// Ends this process as libc does, once none of the program's threads is left.
fn end_with_the_others() {
    let mut looks = 0;
    while looks < LOOKS {
        thread::sleep(PAUSE);
        looks = if is_left_alone() { looks + 1 } else { 0 };
    }
    signals::set_mask(0);
    exit(0);
}

/// Whether this process has no threads but this one, those of sessions, and the first, which has ended. One that tells
/// the program of an end (`SIGEV_THREAD`) is still the program's.
fn is_left_alone() -> bool {
    let _inside = Inside::enter();
    // SAFETY: they take nothing.
    let (process, this) = unsafe { (libc::getpid(), libc::gettid()) };
    let is_nobodys = |thread: c_int| {
        // One that is gone by now.
        let Ok(stat) = fs::read(format!("/proc/self/task/{thread}/stat")) else { return true };
        let text = String::from_utf8_lossy(&stat);
        let Some((before, after)) = text.rsplit_once(") ") else { return false };
        let has_ended = after.starts_with(['Z', 'X']);
        let is_of_session = || before.split_once('(').is_some_and(|(_, name)| name.as_bytes() == SESSIONS);
        if thread == process { has_ended } else { has_ended || is_of_session() }
    };
    let Ok(mut threads) = fs::read_dir("/proc/self/task") else { return false };
    threads.all(|thread| {
        let number = thread.ok().and_then(|thread| thread.file_name().to_str()?.parse().ok());
        number.is_some_and(|number| number == this || is_nobodys(number))
    })
}
