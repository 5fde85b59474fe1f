//! Calls that say what a program does about signals, of which this library takes some for itself.

use crate::next::calls;
use crate::signals::{program_has_set, program_sets};
use libc::{c_int, sighandler_t};

calls! {
    fn [sigaction, __sigaction](
        signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction
    ) -> c_int |own| {
        program_sets(signal, action, before).unwrap_or_else(own)
    }
    fn [signal, bsd_signal, ssignal, sysv_signal, __sysv_signal, sigset](
        signal: c_int, handler: sighandler_t
    ) -> sighandler_t |own| {
        // What else it does is libc's to know.
        program_has_set(signal, own())
    }
}
