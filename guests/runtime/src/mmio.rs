//! Device registers in memory: one plain `mov` for each access, which any VMM's decoder knows.

use core::arch::asm;

/// Reads a byte.
///
/// # Safety
/// `address` is a device's register.
pub unsafe fn read8(address: u64) -> u8 {
    let value: u8;
    // SAFETY: the caller says that it is a register.
    unsafe { asm!("mov {}, byte ptr [{}]", out(reg_byte) value, in(reg) address, options(nostack, preserves_flags)) };
    value
}

/// Reads 2 bytes.
///
/// # Safety
/// `address` is a device's register.
pub unsafe fn read16(address: u64) -> u16 {
    let value: u16;
    // SAFETY: the caller says that it is a register.
    unsafe { asm!("mov {:x}, word ptr [{}]", out(reg) value, in(reg) address, options(nostack, preserves_flags)) };
    value
}

/// Reads 4 bytes.
///
/// # Safety
/// `address` is a device's register.
pub unsafe fn read32(address: u64) -> u32 {
    let value: u32;
    // SAFETY: the caller says that it is a register.
    unsafe { asm!("mov {:e}, dword ptr [{}]", out(reg) value, in(reg) address, options(nostack, preserves_flags)) };
    value
}

/// Writes 4 bytes.
///
/// # Safety
/// `address` is a device's register, and the device does nothing with what it is told that this program does not
/// expect.
pub unsafe fn write32(address: u64, value: u32) {
    // SAFETY: the caller says that it is a register.
    unsafe { asm!("mov dword ptr [{}], {:e}", in(reg) address, in(reg) value, options(nostack, preserves_flags)) };
}
