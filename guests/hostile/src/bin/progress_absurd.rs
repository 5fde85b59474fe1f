//! Reports progress backwards, beyond the whole, and of no whole, then a stage that does not exist, then stops. The VMM
//! shows nonsense at worst, and says that the guest stopped before it was done.
#![no_std]
#![no_main]

use blockyard_guest_hostile::begin;
use blockyard_guest_runtime::serial;
use blockyard_protocol::messages::{GuestMessage, Init, Progress, Stage};

blockyard_guest_runtime::entry!(main);

fn main() {
    begin();
    for (bytes, total) in [(1 << 40, 5), (0, 0), (u64::MAX, u64::MAX), (1, 2), (u64::MAX, 0)] {
        serial::send(&GuestMessage::Progress(Progress { bytes, total }));
    }
    serial::send(&GuestMessage::Init(Init { stage: Stage(-7) }));
}
