//! One message, in the configuration space (PCI Local Bus 3.0 §6.8.1).

use super::config_space::ConfigSpace;
use super::{Capability, Message, MessageVector};
use std::sync::Arc;

const ID: u8 = 0x05;
/// In the message control: 64-bit addresses, and one message.
const WIDE: u16 = 1 << 7;
const ENABLE: u16 = 1 << 0;
/// From the capability's start.
const CONTROL: usize = 2;
const ADDRESS_LOW: usize = 4;
const ADDRESS_HIGH: usize = 8;
const DATA: usize = 12;
const BODY_BYTES: usize = 12;

/// The capability's side that acts. Without masks for single vectors, which one vector does not need.
pub(super) struct Msi {
    vector: Arc<dyn MessageVector>,
    capability: usize,
    routed: Option<Message>,
}

impl Msi {
    pub(super) fn capability() -> Capability {
        let mut body = vec![0; BODY_BYTES];
        body[..2].copy_from_slice(&WIDE.to_le_bytes());
        let mut writable = vec![0; BODY_BYTES];
        writable[0] = ENABLE as u8;
        // Of an address the two lowest bits are zero; of the data there are 16.
        writable[2..].copy_from_slice(&[0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        Capability { id: ID, body, writable, is_bar_window: false }
    }

    pub(super) fn new(vector: Arc<dyn MessageVector>, capability: usize) -> Self {
        Self { vector, capability, routed: None }
    }

    /// Does as the configuration space says.
    pub(super) fn follow(&mut self, config: &ConfigSpace) {
        let at = |offset| self.capability + offset;
        let enabled = config.get16(at(CONTROL)) & ENABLE != 0;
        let [low, high] = [ADDRESS_LOW, ADDRESS_HIGH].map(|offset| u64::from(config.get32(at(offset))));
        let message = Message { address: high << 32 | low, data: config.get16(at(DATA)).into() };
        route(&*self.vector, &mut self.routed, enabled.then_some(message));
    }
}

/// Routes a vector anew, or masks it, if that is not how it is already.
pub(super) fn route(vector: &dyn MessageVector, routed: &mut Option<Message>, wanted: Option<Message>) {
    if *routed == wanted {
        return;
    }
    *routed = wanted;
    match wanted {
        Some(message) => vector.unmask(message),
        None => vector.mask(),
    }
}
