//! A shared library that User-Mode Linux is started with (`LD_PRELOAD`): it executes by descriptor with a path that cannot name anything.
//!
//! `execveat(fd, "", …, AT_EMPTY_PATH)` executes the open file `fd`, unless there is something at the address of `""`: then that names a
//! file. No filter of system calls can look there. But at the last byte of a process's address space there is room for the
//! end of a string and nothing else: whatever the process writes there, the kernel finds an empty path or fails. So that is the only
//! address that the appliance's filter lets through (`crates/session/src/program_filter.rs`), and this library, which takes the place of
//! libc's `syscall`, puts it in.

#![no_std]

use core::arch::asm;
use core::panic::PanicInfo;

const SYS_MMAP: usize = 9;
const SYS_EXECVEAT: usize = 322;
const AT_EMPTY_PATH: usize = 0x1000;
const PROT_READ: usize = 1;
/// `MAP_PRIVATE`, `MAP_ANONYMOUS`, `MAP_FIXED_NOREPLACE`.
const NEW_PAGE_THERE: usize = 0x2 | 0x20 | 0x10_0000;
const PAGE_BYTES: usize = 4096;
const EEXIST: isize = -17;
/// Where address spaces end: with five levels of page tables, and with four. The page before it is never there (Linux,
/// arch/x86/include/asm/page_64.h, `TASK_SIZE_MAX`).
const ENDS: [usize; 2] = [1 << 56, 1 << 47];

unsafe extern "C" {
    fn __errno_location() -> *mut i32;
}

/// syscall(2), but that `execveat` of an empty path has it at the end of the address space.
///
/// # Safety
/// As that call's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: usize,
    a: usize,
    mut b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    // SAFETY: the caller's path is a string.
    if number == SYS_EXECVEAT && e == AT_EMPTY_PATH && unsafe { *(b as *const u8) } == 0 {
        b = last_byte().unwrap_or(b);
    }
    // SAFETY: the caller's.
    let result = unsafe { call(number, [a, b, c, d, e, f]) };
    if !(-4095..0).contains(&result) {
        return result;
    }
    // SAFETY: libc's own, of this thread.
    unsafe { *__errno_location() = -result as i32 };
    -1
}

/// Address of the last byte of the address space, which is there when this returns; what else it may hold but zero is the caller's affair.
fn last_byte() -> Option<usize> {
    let page_is_there = |page| {
        // SAFETY: nothing that is there is replaced.
        let mapped = unsafe { call(SYS_MMAP, [page, PAGE_BYTES, PROT_READ, NEW_PAGE_THERE, usize::MAX, 0]) };
        // The stack ends there, with zeros, if addresses are not random.
        mapped == page as isize || mapped == EEXIST
    };
    let last_pages = ENDS.map(|end| end - 2 * PAGE_BYTES);
    last_pages.into_iter().find(|&page| page_is_there(page)).map(|page| page + PAGE_BYTES - 1)
}

/// # Safety
/// As that of the system call.
unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the caller's; the kernel changes these registers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}
