//! Calls that say what a program does about signals, of which this library takes some for itself.

use crate::next::calls;
use crate::signals::{mask_changes, program_has_set, program_sets};
use libc::{c_int, c_void, sighandler_t, sigset_t};

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
    fn [pthread_sigmask, sigprocmask](how: c_int, new: *const sigset_t, before: *mut sigset_t) -> c_int |own| {
        let answer = own();
        mask_changes();
        answer
    }
    fn [sigblock, sigsetmask](mask: c_int) -> c_int |own| {
        let answer = own();
        mask_changes();
        answer
    }
    fn [sighold, sigrelse](signal: c_int) -> c_int |own| {
        let answer = own();
        mask_changes();
        answer
    }
    fn [longjmp, _longjmp, siglongjmp, __longjmp_chk](place: *mut c_void, value: c_int) -> () |own| {
        // Where it goes, the mask may be what it was there.
        mask_changes();
        own();
    }
    fn [setcontext](place: *const c_void) -> c_int |own| {
        mask_changes();
        own()
    }
    fn [swapcontext](from: *mut c_void, to: *const c_void) -> c_int |own| {
        mask_changes();
        own()
    }
}
