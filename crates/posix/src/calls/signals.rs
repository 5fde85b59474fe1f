//! Calls that say what a program does about signals, of which this library takes some for itself.

use crate::next::calls;
use crate::signals::{mask_changes, program_has_set, program_sets};
use libc::{c_int, c_void, pthread_attr_t, sighandler_t, sigset_t, ucontext_t};

/// Of sigset(3): the signal is blocked.
const SIG_HOLD: sighandler_t = 2;

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
        let before = program_has_set(signal, own());
        if handler == SIG_HOLD && before != libc::SIG_ERR {
            mask_changes(1 << (signal - 1));
        }
        before
    }
    fn [pthread_sigmask, sigprocmask](how: c_int, new: *const sigset_t, before: *mut sigset_t) -> c_int |own| {
        let answer = own();
        let is_set = answer == 0 && how != libc::SIG_UNBLOCK;
        mask_changes(if is_set { set(new) } else { 0 });
        answer
    }
    fn [pthread_attr_setsigmask_np](attributes: *mut pthread_attr_t, mask: *const sigset_t) -> c_int |own| {
        let answer = own();
        // Of a thread that is to be.
        mask_changes(if answer == 0 { set(mask) } else { 0 });
        answer
    }
    fn [sigblock, sigsetmask](mask: c_int) -> c_int |own| {
        let answer = own();
        mask_changes(mask as u64);
        answer
    }
    fn [sighold, sigrelse](signal: c_int) -> c_int |own| {
        let answer = own();
        mask_changes(if answer == 0 { 1 << (signal - 1) } else { 0 });
        answer
    }
    fn [longjmp, _longjmp, siglongjmp, __longjmp_chk](place: *mut c_void, value: c_int) -> () |own| {
        // Where it goes, the mask may be what it was there.
        mask_changes(0);
        own();
    }
    fn [setcontext](place: *const ucontext_t) -> c_int |own| {
        mask_changes(set_of_context(place));
        own()
    }
    fn [swapcontext](from: *mut ucontext_t, to: *const ucontext_t) -> c_int |own| {
        mask_changes(set_of_context(to));
        own()
    }
}

/// A set that libc has taken, as the kernel has it.
fn set(signals: *const sigset_t) -> u64 {
    // SAFETY: it begins as the kernel's does.
    if signals.is_null() { 0 } else { unsafe { signals.cast::<u64>().read() } }
}

fn set_of_context(context: *const ucontext_t) -> u64 {
    // SAFETY: what libc looks at next.
    set(unsafe { &raw const (*context).uc_sigmask })
}
