//! How a device model reaches a guest's processor.

use blockyard_block::EventFd;
use std::sync::Arc;

/// A device's interrupt, given to the model by the VMM. Called from any thread.
pub trait Interrupt: Send + Sync {
    /// Interrupts the guest. Interrupts that the guest has not seen yet may merge.
    fn signal(&self);
}

/// An irqfd, or any event that somebody waits for.
impl Interrupt for EventFd {
    fn signal(&self) {
        self.ring();
    }
}

impl<T: Interrupt + ?Sized> Interrupt for Arc<T> {
    fn signal(&self) {
        (**self).signal();
    }
}
