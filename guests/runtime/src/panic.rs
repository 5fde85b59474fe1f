//! A panic is an Error frame and the end.

use crate::text::text;
use crate::{serial, vcpu};
use blockyard_protocol::messages::{Error, GuestMessage, GuestOperation};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

static PANICKING: AtomicBool = AtomicBool::new(false);

#[panic_handler]
fn panic(information: &PanicInfo<'_>) -> ! {
    // Should telling the VMM panic too, then silently.
    if !PANICKING.swap(true, Ordering::Relaxed) {
        let detail = text(format_args!("{information}"));
        serial::send(&GuestMessage::Error(Error { operation: GuestOperation::Panic, detail, ..Error::default() }));
    }
    vcpu::halt()
}
