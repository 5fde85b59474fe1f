//! Fetching a vCPU out of KVM_RUN.
//!
//! A kick sets `immediate_exit` and then signals the thread that is in [`RunState::enter`]…[`RunState::leave`], if
//! there is one. Whichever way the two threads interleave, the vCPU comes back: either its thread number was there to
//! be signalled, so that a KVM_RUN under way is interrupted, or KVM_RUN has yet to begin and sees the flag. The flag
//! stays set until a run reports it.

use super::run_area::{Left, RunArea};
use crate::{Error, Kick};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// What a vCPU and those who kick it share.
#[derive(Debug)]
pub(super) struct RunState {
    area: RunArea,
    /// Thread that is about to be, or is, in KVM_RUN; 0 for none.
    thread: AtomicI32,
}

impl RunState {
    /// Makes the signal ready and wraps `area`.
    pub(super) fn new(area: RunArea) -> Result<Arc<Self>, Error> {
        install_handler()?;
        Ok(Arc::new(Self { area, thread: AtomicI32::new(0) }))
    }

    /// The calling thread goes into KVM_RUN.
    pub(super) fn enter(&self) {
        self.thread.store(THREAD.with(|thread| *thread), Ordering::SeqCst);
    }

    /// The calling thread came back from KVM_RUN.
    pub(super) fn leave(&self) {
        self.thread.store(0, Ordering::Release);
    }

    /// Whether there was a kick since this was last asked.
    pub(super) fn take_kick(&self) -> bool {
        self.area.immediate_exit().swap(0, Ordering::SeqCst) != 0
    }

    /// What KVM_RUN left.
    ///
    /// # Safety
    /// As for [`RunArea::left`].
    pub(super) unsafe fn left(&self) -> Left<'_> {
        // SAFETY: passed on to the caller.
        unsafe { self.area.left() }
    }

    fn kick(&self) {
        self.area.immediate_exit().store(1, Ordering::SeqCst);
        let thread = self.thread.load(Ordering::SeqCst);
        if thread != 0 {
            // SAFETY: a system call without pointers. Should the thread have left the run, or even ended, the signal
            // goes to a thread of this process or to none, and does nothing there: the handler is empty.
            unsafe { libc::tgkill(libc::getpid(), thread, kick_signal()) };
        }
    }
}

/// Kicks a vCPU as long as there is one. Holds it only weakly, so that it keeps neither the vCPU nor its VM alive.
#[derive(Debug)]
pub(super) struct KvmKick(pub(super) Weak<RunState>);

impl Kick for KvmKick {
    fn kick(&self) {
        if let Some(state) = self.0.upgrade() {
            state.kick();
        }
    }
}

thread_local! {
    /// The calling thread's number, once it is able to receive kicks.
    static THREAD: i32 = unblock_signal();
}

fn kick_signal() -> i32 {
    libc::SIGRTMIN() + 1
}

/// Lets the calling thread receive kicks, whatever signal mask it inherited, and returns its number.
fn unblock_signal() -> i32 {
    // SAFETY: `set` is valid for both calls, which write and read only it; failure is impossible with a valid signal
    // number.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, kick_signal());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
        libc::gettid()
    }
}

extern "C" fn do_nothing(_: libc::c_int) {}

/// Installs, once in the process, a handler that does nothing: the signal is there to interrupt KVM_RUN. It may also
/// meet a thread that has just left; most system calls are then restarted, and who waits (poll, futex) expects EINTR.
fn install_handler() -> Result<(), Error> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: all-zero is a valid `sigaction`; the handler is async-signal-safe because it does nothing.
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = do_nothing as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(kick_signal(), &action, ptr::null_mut())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
    });
    installed.map_err(|errno| Error::Os {
        what: "installing the signal handler that fetches vCPUs back",
        source: io::Error::from_raw_os_error(errno),
    })
}
