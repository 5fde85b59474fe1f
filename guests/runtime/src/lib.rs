//! What a flat guest needs that has no operating system below it and no standard library above: an entry point
//! ([`entry!`]), [`port`]s and device registers ([`mmio`]), frames to and from the VMM ([`serial`]), text for people
//! ([`debug!`]), memory shared with devices ([`shared`]), virtio devices and among them disks ([`virtio_mmio`],
//! [`block`]), waiting and halting ([`vcpu`]), the memory functions that compilers call, and a panic handler that tells
//! the VMM.
//!
//! A guest runs in 64-bit mode with memory at its own addresses, as protocol's `layout` says, interrupts off, on one
//! vCPU.
//!
//! Deliberately absent: interrupts, allocation, threads.
#![no_std]

pub mod block;
pub mod mmio;
pub mod port;
pub mod serial;
pub mod shared;
pub mod text;
pub mod vcpu;
pub mod virtio_mmio;

mod memory_functions;
mod panic;

/// Makes `fn main()` the guest's first function: its binary's first byte is the way there. The guest halts when it
/// returns.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        // The stack pointer is as after a call (protocol's STACK_TOP), so this is a jump.
        ::core::arch::global_asm!(
            ".section .text.entry, \"ax\", @progbits",
            ".global _start",
            "_start:",
            "cld",
            "jmp {enter}",
            ".text",
            enter = sym __enter,
        );

        extern "C" fn __enter() -> ! {
            let main: fn() = $main;
            main();
            $crate::vcpu::halt()
        }
    };
}
