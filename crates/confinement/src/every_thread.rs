//! Giving up capabilities and files in every thread of the process.
//!
//! Both belong to a thread, and threads share their memory: one that keeps them keeps them for whoever has taken over
//! another. What a thread gives up it gives up by itself only, so each is interrupted by a signal whose handler does
//! it, as libc does for setuid(2).

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What each thread gives up.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUp<'a> {
    /// A Landlock ruleset that holds from now on.
    pub(super) landlock: Option<BorrowedFd<'a>>,
    /// Capabilities that stay, of those that there are; `None` leaves all.
    pub(super) kept_capabilities: Option<u64>,
}

/// Threads that one process may have when it gives something up: serving ones have far fewer before there are clients.
const THREADS_MAX: usize = 1024;
/// A thread that does not come by in so long never will.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the signal's handler has to do. Written before the first signal is sent.
static RULESET: AtomicI32 = AtomicI32::new(-1);
static KEPT: AtomicU64 = AtomicU64::new(u64::MAX);
/// The first error of a thread, or zero.
static FAILED: AtomicI32 = AtomicI32::new(0);
/// Threads that have done it.
static DONE: [AtomicI32; THREADS_MAX] = [const { AtomicI32::new(0) }; THREADS_MAX];
static DONE_COUNT: AtomicUsize = AtomicUsize::new(0);

impl GivenUp<'_> {
    /// Has every other thread give it up, those that are started afterwards too. To be called once in a process's life,
    /// and before the calling thread gives up its files: afterwards it could not look for others. Without /proc, none
    /// are known.
    pub(super) fn elsewhere(self) -> io::Result<()> {
        KEPT.store(self.kept_capabilities.unwrap_or(u64::MAX), Ordering::Relaxed);
        RULESET.store(self.landlock.map_or(-1, |ruleset| ruleset.as_raw_fd()), Ordering::SeqCst);
        install_handler()?;
        // Threads that others start meanwhile are found in the next round: those that were started by one that is done
        // are done.
        let mut done = BTreeSet::from([gettid()]);
        loop {
            let others: Vec<c_int> = threads().into_iter().filter(|thread| !done.contains(thread)).collect();
            if others.is_empty() {
                break;
            }
            others.iter().try_for_each(|&thread| interrupt(thread))?;
            wait_for(&others)?;
            done.extend(others);
        }
        RULESET.store(-1, Ordering::Relaxed);
        has_failed()
    }

    /// Has the calling thread give up what it has, but for its files.
    pub(super) fn here(self) -> io::Result<()> {
        KEPT.store(self.kept_capabilities.unwrap_or(u64::MAX), Ordering::Relaxed);
        give_up();
        has_failed()
    }
}

fn has_failed() -> io::Result<()> {
    match FAILED.load(Ordering::SeqCst) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// The threads of this process that run its code. The kernel's own, which carry out requests of an io_uring, are listed
/// among them, hear no signal, and do what the ring is restricted to.
fn threads() -> Vec<c_int> {
    const PF_IO_WORKER: u64 = 0x10;
    let is_ours = |thread: &c_int| {
        // proc_pid_stat(5): the name in parentheses may be anything; behind it the flags are the seventh.
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
        let flags = stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse::<u64>().ok()?;
        Some(flags & PF_IO_WORKER == 0)
    };
    let Ok(entries) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let number = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<c_int>().ok();
    // One that has ended meanwhile has no more to give up.
    entries.filter_map(number).filter(|thread| is_ours(thread).unwrap_or(false)).collect()
}

/// Waits until each of the threads has done it or has ended.
fn wait_for(asked: &[c_int]) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(50);
    let has_done = |thread: &c_int| DONE.iter().any(|place| place.load(Ordering::Acquire) == *thread);
    loop {
        let living = threads();
        if asked.iter().all(|thread| has_done(thread) || !living.contains(thread)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other("a thread does not hear that it shall give up its rights"));
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(5));
    }
}

fn gettid() -> c_int {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// A signal that nobody else here uses.
fn signal() -> c_int {
    libc::SIGRTMAX() - 3
}

fn install_handler() -> io::Result<()> {
    // SAFETY: all zeros is a sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int) = handle;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler makes system calls and touches atomics.
    match unsafe { libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn handle(_signal: c_int) {
    // SAFETY: the thread's own errno.
    let errno = unsafe { *libc::__errno_location() };
    give_up();
    let place = DONE_COUNT.fetch_add(1, Ordering::Relaxed);
    if let Some(place) = DONE.get(place) {
        place.store(gettid(), Ordering::Release);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// What a thread has to do; its system calls may be made in a signal's handler.
fn give_up() {
    let ruleset = RULESET.load(Ordering::Relaxed);
    // SAFETY: changes this thread alone, and reads no memory.
    let failed = |done: libc::c_long| {
        if done != 0 {
            // SAFETY: the thread's own errno.
            let _ =
                FAILED.compare_exchange(0, unsafe { *libc::__errno_location() }, Ordering::SeqCst, Ordering::SeqCst);
        }
    };
    // SAFETY: these change what this thread may do; the one pointer is to locals that the kernel reads, laid out as it
    // wants.
    unsafe {
        failed(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into());
        if ruleset >= 0 {
            failed(libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0));
        }
        let kept = KEPT.load(Ordering::Relaxed);
        if kept != u64::MAX {
            failed(keep_capabilities(kept));
        }
    }
}

/// Drops this thread's capabilities but for those of `kept` that it has. Without new privileges, nothing brings them
/// back.
///
/// # Safety
/// None of its own: it is a system call that takes rights away.
pub(crate) unsafe fn keep_capabilities(kept: u64) -> libc::c_long {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    // Effective, permitted, inheritable: the low halves, then the high ones (capget(2)).
    let mut sets = [0_u32; 6];
    // SAFETY: both are laid out as the kernel wants them; it fills the second, then reads it.
    unsafe {
        let got = libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr());
        if got != 0 {
            return got;
        }
        let halves = [kept as u32, (kept >> 32) as u32];
        for (half, kept) in halves.into_iter().enumerate() {
            let [effective, permitted, inheritable] = [3 * half, 3 * half + 1, 3 * half + 2];
            sets[permitted] &= kept;
            sets[effective] = sets[permitted];
            sets[inheritable] = 0;
        }
        libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr())
    }
}

/// Sends a thread the signal. One that has ended needs none.
fn interrupt(thread: c_int) -> io::Result<()> {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: sends a signal to a thread of this process, which has a handler for it.
    if unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal()) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}
