//! The functions that compilers call for memory. In assembly, so that no compiler turns one into a call of itself.

use core::arch::{asm, naked_asm};

/// Copies `count` bytes that do not overlap.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(destination: *mut u8, source: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller owns both ranges; the direction flag is clear, as the ABI has it.
    unsafe {
        asm!(
            "rep movsb",
            inout("rdi") destination => _,
            inout("rsi") source => _,
            inout("rcx") count => _,
            options(nostack, preserves_flags),
        );
    }
    destination
}

/// Copies `count` bytes that may overlap.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(destination: *mut u8, source: *const u8, count: usize) -> *mut u8 {
    // Forwards is right unless the destination begins inside the source.
    if destination.addr().wrapping_sub(source.addr()) >= count {
        // SAFETY: as for this function, and no byte is overwritten before it is read.
        return unsafe { memcpy(destination, source, count) };
    }
    // SAFETY: the caller owns both ranges; the direction flag is set for this instruction only.
    unsafe {
        asm!(
            "std",
            "rep movsb",
            "cld",
            inout("rdi") destination.wrapping_add(count).wrapping_sub(1) => _,
            inout("rsi") source.wrapping_add(count).wrapping_sub(1) => _,
            inout("rcx") count => _,
            options(nostack),
        );
    }
    destination
}

/// Sets `count` bytes.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(destination: *mut u8, value: i32, count: usize) -> *mut u8 {
    // SAFETY: the caller owns the range; the direction flag is clear, as the ABI has it.
    unsafe {
        asm!(
            "rep stosb",
            inout("rdi") destination => _,
            inout("rcx") count => _,
            in("al") value as u8,
            options(nostack, preserves_flags),
        );
    }
    destination
}

/// Compares `count` bytes.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn memcmp(first: *const u8, second: *const u8, count: usize) -> i32 {
    // rdi, rsi, rdx are the arguments. No bytes are equal bytes: the first comparison sets the flags for them.
    naked_asm!(
        "mov rcx, rdx",
        "cmp eax, eax",
        "repe cmpsb",
        "je 2f",
        "movzx eax, byte ptr [rdi - 1]",
        "movzx ecx, byte ptr [rsi - 1]",
        "sub eax, ecx",
        "ret",
        "2:",
        "xor eax, eax",
        "ret",
    )
}

/// Whether `count` bytes differ.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(first: *const u8, second: *const u8, count: usize) -> i32 {
    // SAFETY: as for this function.
    unsafe { memcmp(first, second, count) }
}
