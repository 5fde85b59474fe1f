//! The interrupt status of a device, shared between its transport and the threads that run its queues.

use super::device_state::TransportInterrupts;
use crate::Interrupt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use virtio_bindings::virtio_mmio::{VIRTIO_MMIO_INT_CONFIG, VIRTIO_MMIO_INT_VRING};

/// What a queue tells its driver. A transport's or a vhost-user session's side of a queue.
pub trait QueueNotifier: Send + Sync {
    /// Buffers were used and the driver wants to know.
    fn notify_used(&self);

    /// The device has met an error it cannot recover from: DEVICE_NEEDS_RESET (virtio 1.2 §2.1.2).
    fn needs_reset(&self);
}

/// InterruptStatus and DEVICE_NEEDS_RESET of a device with one interrupt for everything.
pub struct InterruptStatus {
    pending: AtomicU32,
    needs_reset: AtomicBool,
    interrupt: Arc<dyn Interrupt>,
}

impl InterruptStatus {
    /// Nothing pending; `interrupt` is signalled whenever something is.
    pub fn new(interrupt: Arc<dyn Interrupt>) -> Self {
        Self { pending: AtomicU32::new(0), needs_reset: AtomicBool::new(false), interrupt }
    }

    /// Pending causes: bit 0 for used buffers, bit 1 for a change of the configuration (§4.2.2).
    pub fn pending(&self) -> u32 {
        self.pending.load(Ordering::SeqCst)
    }

    /// The driver has handled these causes.
    pub fn acknowledge(&self, causes: u32) {
        self.pending.fetch_and(!causes, Ordering::SeqCst);
    }

    /// Whether the device needs a reset.
    pub fn is_reset_needed(&self) -> bool {
        self.needs_reset.load(Ordering::SeqCst)
    }

    /// The device's configuration has changed.
    pub fn notify_config(&self) {
        self.raise(VIRTIO_MMIO_INT_CONFIG);
    }

    /// As after power-on. No queue may be running.
    pub fn reset(&self) {
        self.needs_reset.store(false, Ordering::SeqCst);
        self.pending.store(0, Ordering::SeqCst);
    }

    fn raise(&self, cause: u32) {
        self.pending.fetch_or(cause, Ordering::SeqCst);
        self.interrupt.signal();
    }
}

impl QueueNotifier for InterruptStatus {
    fn notify_used(&self) {
        self.raise(VIRTIO_MMIO_INT_VRING);
    }

    fn needs_reset(&self) {
        self.needs_reset.store(true, Ordering::SeqCst);
        self.notify_config();
    }
}

impl TransportInterrupts for InterruptStatus {
    fn queue_notifier(self: &Arc<Self>, _queue: u16) -> Arc<dyn QueueNotifier> {
        self.clone()
    }

    fn notify_config(&self) {
        self.notify_config();
    }

    fn needs_reset(&self) {
        QueueNotifier::needs_reset(self);
    }

    fn is_reset_needed(&self) -> bool {
        self.is_reset_needed()
    }

    fn reset(&self) {
        self.reset();
    }
}
