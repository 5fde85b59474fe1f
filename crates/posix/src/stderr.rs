//! What this library says by itself, on the program's stderr.
//!
//! Not by std's stream: where nobody hears it, a program must not end of that, and a child that is forked meanwhile
//! must not wait for its lock.

use std::mem::zeroed;
use std::ptr::null_mut;

/// Says a line, if somebody hears it.
pub(crate) fn tell(text: &str) {
    let line = format!("blockyard: {text}\n");
    // SAFETY: sets of signals, which are filled in by the calls; the line is there. A signal that says that nobody
    // hears is this thread's own, and taken back unless there was one before.
    unsafe {
        let (mut pipe, mut pending, mut mask): (libc::sigset_t, libc::sigset_t, libc::sigset_t) = zeroed();
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::sigpending(&raw mut pending);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut mask);
        // It may be on a disk itself, which the kernel knows nothing of.
        let written = libc::syscall(libc::SYS_write, libc::STDERR_FILENO, line.as_ptr(), line.len());
        if written < 0 && libc::sigismember(&raw const pending, libc::SIGPIPE) == 0 {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&raw const pipe, null_mut(), &raw const now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, null_mut());
    }
}
