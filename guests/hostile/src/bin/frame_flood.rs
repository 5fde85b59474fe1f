//! Sends good frames without end. The VMM's timeout ends it: stages are no progress.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;
use blockyard_guest_runtime::serial;
use blockyard_protocol::messages::{GuestMessage, Init, Stage};

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    loop {
        serial::send(&GuestMessage::Init(Init { stage: Stage::Copying }));
    }
}
