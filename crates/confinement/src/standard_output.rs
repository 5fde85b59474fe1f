//! Whether this process was started with a standard output.
//!
//! Rust's runtime opens /dev/null in the place of each standard descriptor that is closed, so that no file gets its
//! number; whoever then prints something is told that all went well. So this is looked at before the runtime begins.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Called by the C library before `main`, with all other initializers (System V ABI, generic part, "Initialization and
/// Termination Functions").
#[used]
// SAFETY: the section is a list of pointers to functions that take what `main` does, of which a function in C need not
// take anything.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: only asks about a number, which belongs to nobody yet.
    let is_closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0;
    WAS_CLOSED.store(is_closed, Ordering::Relaxed);
}

/// Whether standard output was closed when this process was started.
pub fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}
