//! A program's `struct aiocb` (aio.h), and whom it wants told of its end.

use crate::errno::Errno;
use crate::signals;
use libc::{aiocb, c_int, c_void, pid_t, sigval};
use std::mem::zeroed;
use std::sync::atomic::{AtomicI32, Ordering};

/// Where glibc has what it does not show: how a request is scheduled, the error and the result
/// (bits/types/struct_aiocb.h of x86-64, which is part of its binary interface).
const POLICY_AT: usize = 108;
const ERROR_AT: usize = 112;
const RESULT_AT: usize = 120;
/// Of a `struct sigevent`: the function and the attributes of a thread.
const FUNCTION_AT: usize = 16;
const ATTRIBUTES_AT: usize = 24;
const _: () = assert!(size_of::<aiocb>() == 168);

/// What is no way of scheduling: the request is none of glibc's.
const OURS: c_int = i32::from_le_bytes(*b"disk");

/// Who sends a signal: asynchronous I/O (asm-generic/siginfo.h).
const SI_ASYNCIO: c_int = -4;

/// A control block that the program keeps until its request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControlBlock(*mut aiocb);

// SAFETY: the program gives it up until it is done.
unsafe impl Send for ControlBlock {}

impl ControlBlock {
    /// # Safety
    /// It is one, and stays there until its request is done.
    pub(crate) unsafe fn new(block: *mut aiocb) -> Self {
        Self(block)
    }

    fn get(&self) -> &aiocb {
        // SAFETY: as of `new`.
        unsafe { &*self.0 }
    }

    pub(crate) fn address(self) -> *mut aiocb {
        self.0
    }

    pub(crate) fn descriptor(self) -> c_int {
        self.get().aio_fildes
    }

    pub(crate) fn operation(self) -> c_int {
        self.get().aio_lio_opcode
    }

    pub(crate) fn priority(self) -> c_int {
        self.get().aio_reqprio
    }

    pub(crate) fn offset(self) -> i64 {
        self.get().aio_offset
    }

    pub(crate) fn length(self) -> usize {
        self.get().aio_nbytes
    }

    pub(crate) fn buffer(self) -> *mut u8 {
        self.get().aio_buf.cast()
    }

    fn error(&self) -> &AtomicI32 {
        // SAFETY: as of `new`; there is such a number there.
        unsafe { &*self.0.byte_add(ERROR_AT).cast() }
    }

    /// Zero, EINPROGRESS or why it failed.
    pub(crate) fn status(self) -> c_int {
        self.error().load(Ordering::Acquire)
    }

    pub(crate) fn result(self) -> isize {
        // SAFETY: as of `new`; there is such a number there.
        unsafe { self.0.byte_add(RESULT_AT).cast::<isize>().read() }
    }

    fn policy(&self) -> &AtomicI32 {
        // SAFETY: as of `new`; there is such a number there.
        unsafe { &*self.0.byte_add(POLICY_AT).cast() }
    }

    /// Whether it is under way on a disk, whatever its descriptor is open on by now.
    pub(crate) fn is_ours(self) -> bool {
        self.status() == libc::EINPROGRESS && self.policy().load(Ordering::Relaxed) == OURS
    }

    /// It is under way.
    pub(crate) fn begin(self) {
        self.policy().store(OURS, Ordering::Relaxed);
        self.error().store(libc::EINPROGRESS, Ordering::Release);
    }

    /// It was not made.
    pub(crate) fn refuse(self, error: Errno) {
        self.set(Err(error));
    }

    /// It is done: who wants to be told of that is. Whether somebody does.
    pub(crate) fn end(self, result: Result<usize, Errno>) -> bool {
        // After that, the block is the program's.
        let notice = self.notice();
        self.set(result);
        notice.give();
        notice.is_wanted()
    }

    fn set(self, result: Result<usize, Errno>) {
        let (bytes, error) = match result {
            Ok(bytes) => (bytes as isize, 0),
            Err(error) => (-1, error.0),
        };
        // SAFETY: as of `new`; there is room for such a number there.
        unsafe { self.0.byte_add(RESULT_AT).cast::<isize>().write(bytes) };
        self.error().store(error, Ordering::Release);
    }

    /// Whom it wants told.
    pub(crate) fn notice(self) -> Notice {
        // SAFETY: as of `new`.
        unsafe { Notice::of(&raw const (*self.0).aio_sigevent) }
    }
}

/// Whom somebody wants told of something.
#[derive(Clone, Copy)]
pub(crate) enum Notice {
    Nobody,
    /// The process, by a signal with a value.
    Signal(c_int, sigval),
    /// A new thread, which calls a function with a value and has attributes.
    Thread(extern "C" fn(sigval), sigval, *const libc::pthread_attr_t),
}

// SAFETY: what it points to is the program's, for any of its threads.
unsafe impl Send for Notice {}
// SAFETY: as above.
unsafe impl Sync for Notice {}

impl Notice {
    /// # Safety
    /// The event is null or there.
    pub(crate) unsafe fn of(event: *const libc::sigevent) -> Self {
        // SAFETY: the caller's.
        let Some(known) = (unsafe { event.as_ref() }) else { return Self::Nobody };
        match known.sigev_notify {
            libc::SIGEV_SIGNAL if known.sigev_signo > 0 => Self::Signal(known.sigev_signo, known.sigev_value),
            libc::SIGEV_THREAD => {
                // SAFETY: an event of this kind has them there.
                let (function, attributes) = unsafe {
                    (
                        event.byte_add(FUNCTION_AT).cast::<Option<extern "C" fn(sigval)>>().read(),
                        event.byte_add(ATTRIBUTES_AT).cast::<*const libc::pthread_attr_t>().read(),
                    )
                };
                function.map_or(Self::Nobody, |function| Self::Thread(function, known.sigev_value, attributes))
            }
            _ => Self::Nobody,
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        !matches!(self, Self::Nobody)
    }

    /// Tells them.
    pub(crate) fn give(&self) {
        match *self {
            Self::Nobody => {}
            Self::Signal(signal, value) => send(signal, value),
            Self::Thread(function, value, attributes) => start(function, value, attributes),
        }
    }
}

/// What rt_sigqueueinfo(2) takes of a signal with a value (asm-generic/siginfo.h).
#[repr(C)]
struct SignalInfo {
    signal: c_int,
    error: c_int,
    code: c_int,
    padding: c_int,
    process: pid_t,
    user: u32,
    value: sigval,
    rest: [u64; 12],
}

fn send(signal: c_int, value: sigval) {
    // SAFETY: all of it is numbers.
    let mut info: SignalInfo = unsafe { zeroed() };
    // SAFETY: they cannot fail.
    let (process, user) = unsafe { (libc::getpid(), libc::getuid()) };
    (info.signal, info.code, info.process, info.user, info.value) = (signal, SI_ASYNCIO, process, user, value);
    // SAFETY: the structure is what the call takes.
    unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, process, signal, &raw const info) };
}

fn start(function: extern "C" fn(sigval), value: sigval, attributes: *const libc::pthread_attr_t) {
    extern "C" fn begin(argument: *mut c_void) -> *mut c_void {
        // SAFETY: it was made below, for this thread.
        let (function, value) = *unsafe { Box::from_raw(argument.cast::<(extern "C" fn(sigval), sigval)>()) };
        // The thread that makes it takes none: as glibc has it, this one takes all.
        signals::set_mask(0);
        function(value);
        std::ptr::null_mut()
    }

    let argument = Box::into_raw(Box::new((function, value)));
    // SAFETY: an identity that is filled in by the call.
    let mut thread = unsafe { zeroed() };
    // SAFETY: the attributes are the program's, and the thread takes the argument.
    let failed = unsafe { libc::pthread_create(&raw mut thread, attributes, begin, argument.cast()) } != 0;
    if failed {
        // SAFETY: nobody has taken it.
        drop(unsafe { Box::from_raw(argument) });
    } else if attributes.is_null() {
        // SAFETY: it was just made, and nobody joins it.
        unsafe { libc::pthread_detach(thread) };
    }
}
