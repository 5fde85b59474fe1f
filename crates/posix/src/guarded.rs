//! Memory that a program names, which may not be there: the kernel would say so (EFAULT), where a copy in this process
//! would end it.
//!
//! One instruction copies, or reads. Where it meets what is not there, the handler of SIGSEGV and SIGBUS (`signals`)
//! goes on behind it. In a thread that has blocked these, the kernel copies.

use crate::errno::Errno;
use crate::signals;
use libc::{c_char, c_int, iovec};
use std::arch::asm;
use std::mem::zeroed;
use std::slice;

/// An instruction that may meet what is not there, and where its thread goes on then: how far behind the number itself.
#[repr(C)]
struct Access {
    at: i32,
    end: i32,
}

/// One of those, as an assembler has it: from `2:` to `3:`.
macro_rules! may_fault {
    ($instruction:expr) => {
        concat!(
            "2: ",
            $instruction,
            "\n3:\n",
            ".pushsection blockyard_accesses, \"aR\", @progbits\n",
            ".balign 4\n",
            ".long 2b - .\n",
            ".long 3b - .\n",
            ".popsection",
        )
    };
}

unsafe extern "C" {
    /// All of them: the linker gives that part of the library these names.
    #[link_name = "__start_blockyard_accesses"]
    static FIRST: Access;
    #[link_name = "__stop_blockyard_accesses"]
    static END: Access;
}

/// Copies: how many bytes are left.
unsafe fn copy_here(to: *mut u8, from: *const u8, count: usize) -> usize {
    let left;
    // SAFETY: the caller's; a fault is caught.
    unsafe {
        asm!(
            may_fault!("rep movsb"),
            inout("rcx") count => left,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
    left
}

/// What is at a place, a `byte` or a `word`, as a number of 32 bits; -1 where nothing is. Of few bytes, `rep movsb`
/// takes ten times as long.
macro_rules! at {
    ($size:literal, $place:expr) => {{
        let mut found = -1_i32;
        // SAFETY: what of the program's is there may be read; a fault is caught.
        unsafe {
            asm!(
                may_fault!(concat!("movzx {found:e}, ", $size, " ptr [{place}]")),
                found = inout(reg) found,
                place = in(reg) $place,
                options(nostack, preserves_flags, readonly),
            );
        }
        found
    }};
}

#[inline]
fn byte(place: *const u8) -> Option<u8> {
    u8::try_from(at!("byte", place)).ok()
}

/// Two bytes, for a thread that has not blocked what says that they are not there.
#[inline(always)]
pub(crate) fn pair(place: *const c_char) -> Option<[u8; 2]> {
    u16::try_from(at!("word", place)).ok().map(u16::to_le_bytes)
}

/// Copies bytes of which one side may not be there: how many were copied.
///
/// # Safety
/// The other side is there, and what is there of the one side may be read or written so.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, count: usize) -> usize {
    if signals::are_faults_blocked()
        && let Some(copied) = copy_by_kernel(to, from, count)
    {
        return copied;
    }
    // SAFETY: the caller's; a fault is caught.
    count - unsafe { copy_here(to, from, count) }
}

/// The same; `None` where the kernel may not.
#[cold]
fn copy_by_kernel(to: *mut u8, from: *const u8, count: usize) -> Option<usize> {
    let side = |address: *const u8| iovec { iov_base: address.cast_mut().cast(), iov_len: count };
    let (local, remote) = (side(to), side(from));
    // SAFETY: the kernel looks at what is there.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    let is_refused = || matches!(Errno::last(), Errno(libc::ENOSYS | libc::EPERM));
    if copied < 0 && is_refused() { None } else { Some(usize::try_from(copied).unwrap_or(0)) }
}

/// A value of the program's.
pub(crate) fn get<T: Copy>(place: *const T) -> Result<T, Errno> {
    // SAFETY: all of the types that are asked for are numbers and addresses.
    let mut value: T = unsafe { zeroed() };
    // SAFETY: there is room for one; what of the program's is there may be read.
    let copied = unsafe { copy((&raw mut value).cast(), place.cast(), size_of::<T>()) };
    if copied == size_of::<T>() { Ok(value) } else { Err(Errno(libc::EFAULT)) }
}

/// A text of the program's, of which this thread looks at some bytes.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    start: *const u8,
    is_for_kernel: bool,
}

impl Text {
    #[inline]
    pub(crate) fn at(start: *const c_char) -> Self {
        Self { start: start.cast(), is_for_kernel: signals::are_faults_blocked() }
    }

    #[inline]
    pub(crate) fn byte(self, index: usize) -> Result<u8, Errno> {
        let place = self.start.wrapping_add(index);
        if self.is_for_kernel {
            return get(place);
        }
        byte(place).ok_or(Errno(libc::EFAULT))
    }
}

/// Gives the program a value where it has said that there is room for one.
pub(crate) fn put<T: Copy>(place: *mut T, value: T) -> Result<c_int, Errno> {
    // SAFETY: the value is there; the program has said that it may be written there.
    let copied = unsafe { copy(place.cast(), (&raw const value).cast(), size_of::<T>()) };
    if copied == size_of::<T>() { Ok(0) } else { Err(Errno(libc::EFAULT)) }
}

/// Where a thread goes on that met what is not there, if it did so here.
pub(crate) fn end_of_access(at: i64) -> Option<i64> {
    let (first, end) = (&raw const FIRST, &raw const END);
    // SAFETY: they are of one array, the second behind its last.
    let accesses = unsafe { slice::from_raw_parts(first, end.offset_from(first) as usize) };
    let place = |far: &i32| &raw const *far as i64 + i64::from(*far);
    accesses.iter().find(|access| place(&access.at) == at).map(|access| place(&access.end))
}
