//! Writes to address 0, and reads where nothing is: no memory, no device, not even page tables. One backend stops it at
//! the first, the other at the second: either way it crashed.
#![no_std]
#![no_main]

use blockyard_guest_hostile::{begin, report};
use blockyard_protocol::messages::GuestOperation;
use core::arch::asm;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    // SAFETY: nothing of this program is at address 0, and it does not come back from the other.
    unsafe {
        asm!("mov dword ptr [{}], 1", in(reg) 0_u64, options(nostack));
        asm!("mov {0:e}, dword ptr [{0}]", inout(reg) 0x7000_0000_u64 => _, options(nostack));
    }
    report(GuestOperation::Read, 0, format_args!("read 0x70000000"));
}
