//! Ports. A string instruction moves many bytes in one exit.
//!
//! Ports reach nothing but the VMM, which trusts no guest: so none of this is `unsafe` to call.

use core::arch::asm;

/// Reads one byte.
pub fn read8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: port input changes nothing but the register.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Reads four bytes.
pub fn read32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: port input changes nothing but the register. Other memory may have changed when this returns, which is
    // why the compiler is not told that it has not: devices fill buffers while the guest waits here.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags)) };
    value
}

/// Writes one byte.
pub fn write8(port: u16, value: u8) {
    // SAFETY: port output changes nothing of the guest's.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// Fills `bytes` from a port.
pub fn read_bytes(port: u16, bytes: &mut [u8]) {
    // SAFETY: the instruction writes exactly these bytes; the direction flag is clear, as the ABI has it.
    unsafe {
        asm!(
            "rep insb",
            in("dx") port,
            inout("rdi") bytes.as_mut_ptr() => _,
            inout("rcx") bytes.len() => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Writes `bytes` to a port.
pub fn write_bytes(port: u16, bytes: &[u8]) {
    // SAFETY: the instruction reads exactly these bytes; the direction flag is clear, as the ABI has it.
    unsafe {
        asm!(
            "rep outsb",
            in("dx") port,
            inout("rsi") bytes.as_ptr() => _,
            inout("rcx") bytes.len() => _,
            options(nostack, preserves_flags),
        );
    }
}
