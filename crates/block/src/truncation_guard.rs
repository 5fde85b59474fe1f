//! Surviving a mapped file that its owner cuts short.
//!
//! A page of a mapping beyond the end of its file raises SIGBUS in whoever touches it. The files of a client's memory
//! are the client's, so it could end the server that way. A handler, installed once for the process, puts zeros over a
//! mapping that faults, if it is in the table of guarded ones, and marks it; whoever owns the mapping asks for the
//! mark. Any other SIGBUS goes where it went before.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings that can be guarded at once: 128 clients with as many regions as they may have.
const GUARDS_MAX: usize = 4096;

/// A line of the table. Whoever has set `taken` owns it, and writes `start` last; the handler reads it at any time.
struct Entry {
    taken: AtomicBool,
    /// Zero when there is no mapping here.
    start: AtomicUsize,
    end: AtomicUsize,
    cut_short: AtomicBool,
}

static TABLE: [Entry; GUARDS_MAX] = [const {
    Entry {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        cut_short: AtomicBool::new(false),
    }
}; GUARDS_MAX];

/// What a SIGBUS led to before.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that may lose its file. Dropped before the mapping is.
#[derive(Debug)]
pub(crate) struct TruncationGuard {
    index: usize,
}

impl TruncationGuard {
    /// Guards the whole mapping from `start` on.
    pub(crate) fn new(start: *mut u8, length_bytes: usize) -> io::Result<Self> {
        install()?;
        let free = TABLE.iter().position(|entry| !entry.taken.swap(true, Ordering::Acquire));
        let index = free.ok_or_else(|| io::Error::other("too many memory regions of clients"))?;
        let entry = &TABLE[index];
        entry.cut_short.store(false, Ordering::Relaxed);
        entry.end.store(start as usize + length_bytes, Ordering::Relaxed);
        entry.start.store(start as usize, Ordering::Release);
        Ok(Self { index })
    }

    /// False from when the mapping was found cut short: from then on it holds zeros and what this process writes.
    pub(crate) fn is_intact(&self) -> bool {
        !TABLE[self.index].cut_short.load(Ordering::Relaxed)
    }
}

impl Drop for TruncationGuard {
    fn drop(&mut self) {
        let entry = &TABLE[self.index];
        entry.start.store(0, Ordering::Release);
        entry.taken.store(false, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), c_int>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: all zeros is a sigaction; SIGBUS is a signal; the pointers are to locals.
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: as above; a null new action only asks.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous) } != 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        // Known before the handler can run.
        let _ = PREVIOUS.set(previous);
        // SAFETY: all zeros is a sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
        action.sa_sigaction = handler as usize;
        // On the alternate stack, because the previous handler may be the one that reports stack overflows.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the handler calls only what may be called from one: atomics, mmap, sigaction, raise.
        match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    });
    installed.map_err(io::Error::from_raw_os_error)
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a SA_SIGINFO handler a siginfo; with BUS_ADRERR it holds an address.
    let fault = unsafe { ((*info).si_code == libc::BUS_ADRERR).then(|| (*info).si_addr() as usize) };
    if !fault.is_some_and(put_zeros_at) {
        pass_on(signal, info, context);
    }
}

/// Puts zeros over the guarded mapping that `address` lies in; false if there is none.
fn put_zeros_at(address: usize) -> bool {
    for entry in &TABLE {
        let start = entry.start.load(Ordering::Acquire);
        let end = entry.end.load(Ordering::Relaxed);
        // The mapping of the address that faulted is not let go while it is used. So what matches is that one's line,
        // unless it was being changed just now.
        if start == 0 || !(start..end).contains(&address) || entry.start.load(Ordering::Acquire) != start {
            continue;
        }
        // SAFETY: the range is a whole mapping that its owner keeps, and is using this moment; it holds bytes that
        // others change anyway. mmap is a plain system call here.
        let mapped = unsafe {
            let errno = *libc::__errno_location();
            let mapped = libc::mmap(
                start as *mut c_void,
                end - start,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            );
            *libc::__errno_location() = errno;
            mapped
        };
        if mapped == libc::MAP_FAILED {
            return false;
        }
        entry.cut_short.store(true, Ordering::Relaxed);
        return true;
    }
    false
}

/// Does what would have been done without us.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(previous) = PREVIOUS.get() else { return };
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the previous action is one; raise is allowed in a handler. A fault comes again when we return, a
            // signal that somebody sent is sent again, blocked until then. The kernel ignores no fault.
            unsafe {
                libc::sigaction(signal, previous, std::ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO it is such a function; it gets what we got.
            unsafe {
                std::mem::transmute::<usize, extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(handler)(
                    signal, info, context,
                );
            }
        }
        handler => {
            // SAFETY: without SA_SIGINFO it is a function of the signal's number.
            unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal) }
        }
    }
}
