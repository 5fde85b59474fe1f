//! Memory that a program names, which may not be there: the kernel would say so (EFAULT), where a copy in this process
//! would end it.
//!
//! One instruction copies, or reads a byte. Where it meets what is not there, the handler of SIGSEGV and SIGBUS
//! (`signals`) goes on behind it. In a thread that has blocked these, the kernel copies.

use crate::errno::Errno;
use crate::signals;
use libc::{c_char, c_int, iovec};
use std::mem::zeroed;

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

// The byte at the argument; -1 if it is not there. Of one byte, `rep movsb` takes ten times as long.
std::arch::global_asm!(
    ".hidden blockyard_byte",
    ".globl blockyard_byte",
    ".hidden blockyard_byte_access",
    ".globl blockyard_byte_access",
    ".hidden blockyard_byte_end",
    ".globl blockyard_byte_end",
    ".type blockyard_byte, @function",
    "blockyard_byte:",
    "blockyard_byte_access:",
    "movzx eax, byte ptr [rdi]",
    "ret",
    "blockyard_byte_end:",
    "mov eax, -1",
    "ret",
);

unsafe extern "C" {
    fn blockyard_byte(place: *const u8) -> c_int;
    static blockyard_byte_access: u8;
    static blockyard_byte_end: u8;
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
    count - unsafe { blockyard_copy(to, from, count) }
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
        // SAFETY: what of the program's is there may be read; a fault is caught.
        let byte = unsafe { blockyard_byte(place) };
        u8::try_from(byte).map_err(|_| Errno(libc::EFAULT))
    }
}

/// Gives the program a value where it has said that there is room for one.
pub(crate) fn put<T: Copy>(place: *mut T, value: T) -> Result<c_int, Errno> {
    // SAFETY: the value is there; the program has said that it may be written there.
    let copied = unsafe { copy(place.cast(), (&raw const value).cast(), size_of::<T>()) };
    if copied == size_of::<T>() { Ok(0) } else { Err(Errno(libc::EFAULT)) }
}

/// Where a thread goes on that met what is not there, if it did so here.
pub(crate) fn end_of_copy(at: i64) -> Option<i64> {
    let ends = [
        (&raw const blockyard_copy_access, &raw const blockyard_copy_end),
        (&raw const blockyard_byte_access, &raw const blockyard_byte_end),
    ];
    ends.into_iter().find(|&(access, _)| access as i64 == at).map(|(_, end)| end as i64)
}
