//! The end of a process whose first thread ends before the others.
//!
//! libc ends a process when the last of its threads does, and counts this library's, which do not end; the kernel does
//! so, too. So, once the first thread is gone, another looks whether any of the program's is left.
//!
//! libc says when the first thread ends by itself or is cancelled ([`ends`]). One that ends without libc, by exit(2) or
//! by seccomp(2), the kernel tells of alone, as it does joining threads: by a word of memory ([`guard`]).

use crate::connection::without_signals;
use crate::setup::{Inside, SESSIONS};
use crate::{guarded, signals};
use libc::{c_int, c_void, pthread_key_t};
use std::fs;
use std::process::exit;
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// How long to look again.
const PAUSE: Duration = Duration::from_millis(50);
/// Of the thread that looks, in which what the program has for its end (`atexit`) runs.
const STACK_BYTES: usize = 8 << 20;
/// Of the one that ends the process without.
const GUARD_STACK_BYTES: usize = 128 << 10;
/// Of that one, the name.
const GUARD: &[u8] = b"blockyard-guard";
/// Another may have been woken in place of the one that guards.
static LOOKS_AGAIN: libc::timespec = libc::timespec { tv_sec: 10, tv_nsec: 0 };
/// Of prctl(2).
const PR_GET_TID_ADDRESS: c_int = 40;
/// Looks that have to say the same: one may miss a thread that begins while another ends.
const LOOKS: usize = 2;

/// What the first thread has a value of, which is destroyed when that thread ends by itself or is cancelled, but not by
/// exit(3); `pthread_key_t::MAX`: there is none yet.
static KEY: AtomicU32 = AtomicU32::new(pthread_key_t::MAX);
/// What the kernel makes 0 when the first thread has ended, if that is known.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// The same, of a process for which libc has given none.
static OWN_WORD: AtomicU32 = AtomicU32::new(0);
/// Whether a thread waits for that.
static IS_GUARDED: AtomicBool = AtomicBool::new(false);
/// Whether the first thread ends by libc.
static ENDS: AtomicBool = AtomicBool::new(false);

/// From now on, the end of this thread is noticed, if it is the first.
pub(crate) fn watch() {
    let mut key = KEY.load(Ordering::Relaxed);
    ENDS.store(false, Ordering::Relaxed);
    IS_GUARDED.store(false, Ordering::Relaxed);
    // SAFETY: there is room for a key; a number.
    unsafe {
        if libc::gettid() != libc::getpid() {
            return;
        }
        learn_word();
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
    ENDS.store(true, Ordering::Release);
    let looks = thread::Builder::new().name("blockyard-end".to_owned()).stack_size(STACK_BYTES);
    // Where there can be no thread, the process stays until somebody ends it.
    let _ = without_signals(|| looks.spawn(end_with_the_others).map(drop));
}

/// This process is about to have threads of this library's, which must not keep it.
pub(crate) fn guard() {
    // SAFETY: they take nothing.
    if unsafe { libc::gettid() == libc::getpid() } {
        learn_word();
    }
    let word = WORD.load(Ordering::Acquire);
    if word.is_null() || IS_GUARDED.swap(true, Ordering::AcqRel) {
        return;
    }
    let word = word.expose_provenance();
    let name = String::from_utf8_lossy(GUARD).into_owned();
    let waits = thread::Builder::new().name(name).stack_size(GUARD_STACK_BYTES);
    // As above.
    let _ = without_signals(|| waits.spawn(move || end_after_first(word)).map(drop));
}

/// Of the first thread, by itself.
fn learn_word() {
    let mut word: *mut AtomicU32 = null_mut();
    // SAFETY: there is room for an address.
    let answer = unsafe { libc::prctl(PR_GET_TID_ADDRESS, &raw mut word) };
    if answer == 0 && word.is_null() {
        OWN_WORD.store(1, Ordering::Relaxed);
        word = (&raw const OWN_WORD).cast_mut();
        // SAFETY: it is there for ever. Nobody waits for this thread: who has made it has not asked for that.
        unsafe { libc::syscall(libc::SYS_set_tid_address, word) };
    }
    WORD.store(word, Ordering::Release);
}

/// Ends this process as libc does, once none of the program's threads is left.
fn end_with_the_others() {
    wait_for_the_others();
    signals::set_mask(0);
    exit(0);
}

/// Ends this process as the kernel does, once its first thread has ended without libc and none of the others is left.
fn end_after_first(word: usize) {
    signals::let_faults_come();
    let word = ptr::with_exposed_provenance::<u32>(word);
    // It is libc's, which may give it up when that thread has ended.
    while let Ok(number @ 1..) = guarded::get(word) {
        // SAFETY: the kernel looks whether the word is there.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, number, &raw const LOOKS_AGAIN) };
    }
    // Who joins the first thread waits for the same, and the kernel wakes one.
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, c_int::MAX) };
    if ENDS.load(Ordering::Acquire) {
        return;
    }
    wait_for_the_others();
    let status = status_of_first();
    if libc::WIFSIGNALED(status) {
        signals::end_by(libc::WTERMSIG(status));
    }
    // SAFETY: there is nothing that would have to be done before: the first thread has ended without it.
    unsafe { libc::_exit(libc::WEXITSTATUS(status)) };
}

/// How the first thread has ended, as waitpid(2) has it.
fn status_of_first() -> c_int {
    /// Of the numbers in /proc/PID/stat, which begin behind the name.
    const STATUS: usize = 49;
    let _inside = Inside::enter();
    // SAFETY: it takes nothing.
    let path = format!("/proc/self/task/{}/stat", unsafe { libc::getpid() });
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let numbers = text.rsplit_once(") ").map(|(_, numbers)| numbers);
    numbers.and_then(|numbers| numbers.split_ascii_whitespace().nth(STATUS)?.parse().ok()).unwrap_or(0)
}

fn wait_for_the_others() {
    let mut looks = 0;
    while looks < LOOKS {
        thread::sleep(PAUSE);
        looks = if is_left_alone() { looks + 1 } else { 0 };
    }
}

/// Whether this process has no threads but this one, those of sessions and the one that guards, and the first, which
/// has ended. One that tells the program of an end (`SIGEV_THREAD`) is still the program's.
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
        let is_ours =
            || before.split_once('(').is_some_and(|(_, name)| [SESSIONS.as_slice(), GUARD].contains(&name.as_bytes()));
        if thread == process { has_ended } else { has_ended || is_ours() }
    };
    let Ok(mut threads) = fs::read_dir("/proc/self/task") else { return false };
    threads.all(|thread| {
        let number = thread.ok().and_then(|thread| thread.file_name().to_str()?.parse().ok());
        number.is_some_and(|number| number == this || is_nobodys(number))
    })
}
