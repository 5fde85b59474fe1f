//! Halts without a word about the copy. The VMM says that the guest stopped before it was done.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
}
