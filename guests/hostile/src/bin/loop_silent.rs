//! Does nothing, endlessly. The VMM's timeout ends it.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    loop {
        core::hint::spin_loop();
    }
}
