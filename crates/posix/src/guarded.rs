//! Memory that a program names, which may not be there: the kernel would say so (EFAULT), where a copy in this process
//! would end it.
//!
//! One instruction copies. Where it meets what is not there, the handler of SIGSEGV and SIGBUS goes on behind it; all
//! other signals of these are for the program, whose own handler this library keeps in mind and calls.

use crate::errno::Errno;
use crate::next::own;
use libc::{c_int, c_void, siginfo_t};
use std::mem::{transmute, zeroed};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

// Bytes left, 0 for none, of a copy to the first argument from the second.
std::arch::global_asm!(
    ".hidden blockyard_copy",
    ".globl blockyard_copy",
    ".hidden blockyard_copy_access",
    ".globl blockyard_copy_access",
    ".hidden blockyard_copy_end",
    ".globl blockyard_copy_end",
    ".type blockyard_copy, @function",
    "blockyard_copy:",
    "mov rcx, rdx",
    "blockyard_copy_access:",
    "rep movsb",
    "blockyard_copy_end:",
    "mov rax, rcx",
    "ret",
);

unsafe extern "C" {
    fn blockyard_copy(to: *mut u8, from: *const u8, count: usize) -> usize;
    static blockyard_copy_access: u8;
    static blockyard_copy_end: u8;
}

/// Copies bytes of which one side may not be there: how many were copied.
///
/// # Safety
/// The other side is there, and what is there of the one side may be read or written so.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, count: usize) -> usize {
    // SAFETY: the caller's; a fault is caught.
    count - unsafe { blockyard_copy(to, from, count) }
}

/// A value of the program's.
pub(crate) fn get<T: Copy>(place: *const T) -> Result<T, Errno> {
    // SAFETY: all of the types that are asked for are numbers and addresses.
    let mut value: T = unsafe { zeroed() };
    // SAFETY: there is room for one; what of the program's is there may be read.
    let copied = unsafe { copy((&raw mut value).cast(), place.cast(), size_of::<T>()) };
    if copied == size_of::<T>() { Ok(value) } else { Err(Errno(libc::EFAULT)) }
}

/// Gives the program a value where it has said that there is room for one.
pub(crate) fn put<T: Copy>(place: *mut T, value: T) -> Result<c_int, Errno> {
    // SAFETY: the value is there; the program has said that it may be written there.
    let copied = unsafe { copy(place.cast(), (&raw const value).cast(), size_of::<T>()) };
    if copied == size_of::<T>() { Ok(0) } else { Err(Errno(libc::EFAULT)) }
}

/// A signal, and what the program does about it (`sa_sigaction`, `sa_flags`).
struct Known {
    signal: c_int,
    handler: AtomicUsize,
    flags: AtomicI32,
}

static KNOWN: [Known; 2] = [Known::of(libc::SIGSEGV), Known::of(libc::SIGBUS)];

impl Known {
    const fn of(signal: c_int) -> Self {
        Self { signal, handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) }
    }
}

/// What of the program's flags is its own, and not of the action that the kernel has.
const OWN_FLAGS: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND;

/// What glibc answers.
///
/// # Safety
/// As sigaction(2).
unsafe fn kernels(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int {
    own!(sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int)
}

/// From now on, memory may be missing.
pub(crate) fn catch() {
    for known in &KNOWN {
        // SAFETY: all of it is numbers.
        let mut action: libc::sigaction = unsafe { zeroed() };
        // SAFETY: there is room for what it is now, which a program may have been started with.
        if unsafe { kernels(known.signal, null(), &raw mut action) } == 0 {
            known.handler.store(action.sa_sigaction, Ordering::Relaxed);
            set(known, action, null_mut());
        }
    }
}

/// What the program sets for a signal of these; `None` for another.
pub(crate) fn program_sets(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> Option<c_int> {
    let known = KNOWN.iter().find(|known| known.signal == signal)?;
    // SAFETY: the program's, as of sigaction(2).
    let Some(action) = (unsafe { action.as_ref() }) else {
        // SAFETY: the program's, as of sigaction(2).
        let asked = unsafe { kernels(signal, null(), before) };
        restore(known.handler.load(Ordering::Relaxed), known.flags.load(Ordering::Relaxed), before);
        return Some(asked);
    };
    Some(set(known, *action, before))
}

/// Has the kernel call this library for a signal, and this library what the action says.
fn set(known: &Known, action: libc::sigaction, before: *mut libc::sigaction) -> c_int {
    let mut ours = action;
    ours.sa_sigaction = caught as *const () as usize;
    ours.sa_flags = action.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO | libc::SA_ONSTACK;
    let handler = known.handler.swap(action.sa_sigaction, Ordering::Relaxed);
    let flags = known.flags.swap(action.sa_flags, Ordering::Relaxed);
    // SAFETY: the function takes such a signal; there is room for what was there.
    let answer = unsafe { kernels(known.signal, &raw const ours, before) };
    restore(handler, flags, before);
    answer
}

/// What the program had set, in place of what the kernel had.
fn restore(handler: usize, flags: c_int, before: *mut libc::sigaction) {
    // SAFETY: the program's, as of sigaction(2), or null.
    if let Some(before) = unsafe { before.as_mut() } {
        before.sa_sigaction = handler;
        before.sa_flags = before.sa_flags & !(OWN_FLAGS | libc::SA_ONSTACK) | flags & (OWN_FLAGS | libc::SA_ONSTACK);
    }
}

extern "C" fn caught(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's, for this handler.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = &mut registers[libc::REG_RIP as usize];
    if *at == (&raw const blockyard_copy_access) as i64 {
        *at = (&raw const blockyard_copy_end) as i64;
        return;
    }
    let Some(known) = KNOWN.iter().find(|known| known.signal == signal) else { return };
    let (handler, flags) = (known.handler.load(Ordering::Relaxed), known.flags.load(Ordering::Relaxed));
    // SAFETY: the kernel's, for this handler.
    let was_sent = unsafe { (*info).si_code } <= 0;
    match handler {
        libc::SIG_IGN if was_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all of it is numbers; what it says is what is done where nobody says anything.
            let default: libc::sigaction = unsafe { zeroed() };
            // SAFETY: as sigaction(2) takes it. What has failed fails again, and ends this process.
            unsafe { kernels(signal, &raw const default, null_mut()) };
            if was_sent {
                // SAFETY: it comes as soon as this handler is over.
                unsafe { libc::raise(signal) };
            }
        }
        handler => {
            if flags & libc::SA_RESETHAND != 0 {
                known.handler.store(libc::SIG_DFL, Ordering::Relaxed);
            }
            // SAFETY: it is the program's handler. One without SA_SIGINFO looks at the first argument alone.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { transmute(handler) };
            handler(signal, info, context);
        }
    }
}
