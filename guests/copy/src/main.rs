//! x
#![no_std]
#![no_main]
use core::arch::global_asm;
global_asm!(".section .text.entry,\"ax\"", ".global _start", "_start: call {m}", "1: hlt", "jmp 1b", m = sym main);
extern "C" fn main() {}
#[panic_handler]
fn p(_: &core::panic::PanicInfo) -> ! { loop {} }
