//! Executes an undefined instruction. The VMM says that the guest crashed, and where.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;
use core::arch::asm;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    // SAFETY: it does not come back.
    unsafe { asm!("ud2", options(noreturn)) };
}
