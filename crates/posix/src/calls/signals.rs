//! Calls that say what a program does about signals, of which this library takes some for itself.

use crate::guarded;
use crate::next::calls;
use libc::{c_int, sighandler_t};
use std::mem::zeroed;

calls! {
    fn [sigaction, __sigaction](
        signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction
    ) -> c_int |own| {
        guarded::program_sets(signal, action, before).unwrap_or_else(own)
    }
    fn [signal, bsd_signal, ssignal](signal: c_int, handler: sighandler_t) -> sighandler_t |own| {
        set(signal, handler, libc::SA_RESTART).unwrap_or_else(own)
    }
    fn [sysv_signal, __sysv_signal](signal: c_int, handler: sighandler_t) -> sighandler_t |own| {
        set(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER).unwrap_or_else(own)
    }
}

/// As signal(3), of the signals that this library takes.
fn set(signal: c_int, handler: sighandler_t, flags: c_int) -> Option<sighandler_t> {
    // SAFETY: both are numbers and addresses.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { (zeroed(), zeroed()) };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    if handler == libc::SIG_ERR {
        return None;
    }
    let answer = guarded::program_sets(signal, &raw const action, &raw mut before)?;
    Some(if answer == 0 { before.sa_sigaction } else { libc::SIG_ERR })
}
