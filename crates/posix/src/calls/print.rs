//! printf(3) into a descriptor, which libc writes to by itself.

use crate::calls::disk;
use crate::next::calls;
use libc::{c_char, c_int, c_void};
use std::arch::naked_asm;
use std::ptr::null_mut;

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, list: *mut c_void) -> c_int;
    fn __vasprintf_chk(text: *mut *mut c_char, flag: c_int, format: *const c_char, list: *mut c_void) -> c_int;
}

calls! {
    fn [vdprintf](descriptor: c_int, format: *const c_char, list: *mut c_void) -> c_int |own| {
        // SAFETY: the caller's.
        disk(descriptor).map_or_else(own, |_| printed(descriptor, |text| unsafe { vasprintf(text, format, list) }))
    }
    fn [__vdprintf_chk](descriptor: c_int, flag: c_int, format: *const c_char, list: *mut c_void) -> c_int |own| {
        // SAFETY: the caller's.
        let print = |text: &mut _| unsafe { __vasprintf_chk(text, flag, format, list) };
        disk(descriptor).map_or_else(own, |_| printed(descriptor, print))
    }
}

/// Writes what libc prints into memory.
fn printed(descriptor: c_int, print: impl FnOnce(&mut *mut c_char) -> c_int) -> c_int {
    let mut text = null_mut();
    let Ok(length) = usize::try_from(print(&mut text)) else { return -1 };
    let mut written = 0;
    while written < length {
        // SAFETY: so much was printed there.
        match unsafe { libc::write(descriptor, text.add(written).cast(), length - written) } {
            count @ 1.. => written += count as usize,
            _ => break,
        }
    }
    // SAFETY: libc made it for whoever asked.
    unsafe { libc::free(text.cast()) };
    if written == length { length as c_int } else { -1 }
}

/// Functions that take any number of arguments behind `$fixed` ones, and are another that takes a list of them
/// (`va_list`, System V ABI of x86-64, 3.5.7) in `$register`.
macro_rules! with_lists {
    ($($name:ident, $fixed:literal, $register:literal, $list:ident;)*) => {$(
        /// # Safety
        /// As libc's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "sub rsp, 216",
                // From 32 on what came in registers, numbers of 8 bytes and then vectors of 16.
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                // Where the next number and vector are, what came on the stack, and where the registers are.
                "mov dword ptr [rsp], {numbers}",
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $register, ", rsp"),
                "call {list}",
                "add rsp, 216",
                "ret",
                numbers = const 8 * $fixed,
                list = sym $list,
            )
        }
    )*};
}

with_lists! {
    dprintf, 2, "rdx", vdprintf;
    __dprintf_chk, 3, "rcx", __vdprintf_chk;
}
