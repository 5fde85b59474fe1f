//! Runs off its stack, through everything below it and over its own code, which the numbers on the stack turn into an
//! undefined instruction. The VMM says that the guest crashed.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;
use core::arch::asm;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    // SAFETY: it does not come back.
    unsafe { asm!("2:", "push rax", "jmp 2b", in("rax") 0x0b0f_0b0f_0b0f_0b0f_u64, options(noreturn)) };
}
