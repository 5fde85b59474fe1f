//! Panics. The VMM says that the guest did, and why.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    panic!("this guest panics on purpose");
}
