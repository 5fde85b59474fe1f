//! Interrupts that are messages.

use crate::Interrupt;

/// What a function writes to interrupt: an address at which interrupt controllers listen, and what it writes there.
/// Both are the guest's choice, and mean nothing here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Where it is written.
    pub address: u64,
    /// What is written.
    pub data: u32,
}

/// An interrupt that the guest routes and masks, given to a function by the VMM. It begins masked.
pub trait MessageVector: Interrupt {
    /// From now on signals send `message`. What was signalled while the vector was masked is sent at once.
    fn unmask(&self, message: Message);

    /// From now on signals are kept until the vector is unmasked.
    fn mask(&self);

    /// Whether a signal is being kept.
    fn is_pending(&self) -> bool;
}
