//! The virtual CPU: waiting and halting.

use crate::port;
use blockyard_protocol::layout::WAIT_PORT;
use core::arch::asm;

/// Sleeps until a device interrupts, or one has since the last time: bit n is set for device n.
pub fn wait() -> u32 {
    port::read32(WAIT_PORT)
}

/// Ends the guest: the VMM does not come back from it.
pub fn halt() -> ! {
    loop {
        // SAFETY: it stops the vCPU and does nothing else.
        unsafe { asm!("hlt", options(nostack)) };
    }
}
