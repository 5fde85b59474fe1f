//! The interrupts of a virtio device on PCI: which of its vectors is for what (virtio 1.2 §4.1.4.3, §4.1.4.5).

use super::QueueNotifier;
use super::device_state::TransportInterrupts;
use crate::Interrupt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, Ordering};

/// No vector: then nothing is signalled.
pub(super) const NO_VECTOR: u16 = 0xffff;
/// Causes in the ISR status.
const USED: u8 = 1;
const CONFIG: u8 = 2;

/// ISR status and DEVICE_NEEDS_RESET of a device, and its vectors.
pub(super) struct PciInterrupts {
    isr: AtomicU8,
    needs_reset: AtomicBool,
    vectors: Vec<Arc<dyn Interrupt>>,
    config_vector: AtomicU16,
    queue_vectors: Vec<AtomicU16>,
}

impl PciInterrupts {
    pub(super) fn new(vectors: Vec<Arc<dyn Interrupt>>, queues: usize) -> Self {
        Self {
            isr: AtomicU8::new(0),
            needs_reset: AtomicBool::new(false),
            vectors,
            config_vector: AtomicU16::new(NO_VECTOR),
            queue_vectors: (0..queues).map(|_| AtomicU16::new(NO_VECTOR)).collect(),
        }
    }

    /// Causes since this was last called.
    pub(super) fn take_isr(&self) -> u8 {
        self.isr.swap(0, Ordering::SeqCst)
    }

    pub(super) fn config_vector(&self) -> u16 {
        self.config_vector.load(Ordering::SeqCst)
    }

    /// A vector that is not there is none.
    pub(super) fn set_config_vector(&self, vector: u16) {
        self.config_vector.store(self.existing(vector), Ordering::SeqCst);
    }

    pub(super) fn queue_vector(&self, queue: usize) -> u16 {
        self.queue_vectors.get(queue).map_or(NO_VECTOR, |vector| vector.load(Ordering::SeqCst))
    }

    /// As for the configuration's vector; so for a queue that is not there.
    pub(super) fn set_queue_vector(&self, queue: usize, vector: u16) {
        if let Some(place) = self.queue_vectors.get(queue) {
            place.store(self.existing(vector), Ordering::SeqCst);
        }
    }

    fn existing(&self, vector: u16) -> u16 {
        if usize::from(vector) < self.vectors.len() { vector } else { NO_VECTOR }
    }

    fn raise(&self, cause: u8, vector: &AtomicU16) {
        // Also with MSI-X, for a driver that polls.
        self.isr.fetch_or(cause, Ordering::SeqCst);
        if let Some(vector) = self.vectors.get(usize::from(vector.load(Ordering::SeqCst))) {
            vector.signal();
        }
    }
}

impl TransportInterrupts for PciInterrupts {
    fn queue_notifier(self: &Arc<Self>, queue: u16) -> Arc<dyn QueueNotifier> {
        Arc::new(PciQueueNotifier { interrupts: Arc::clone(self), queue: queue.into() })
    }

    fn notify_config(&self) {
        self.raise(CONFIG, &self.config_vector);
    }

    fn needs_reset(&self) {
        self.needs_reset.store(true, Ordering::SeqCst);
        self.notify_config();
    }

    fn is_reset_needed(&self) -> bool {
        self.needs_reset.load(Ordering::SeqCst)
    }

    fn reset(&self) {
        self.needs_reset.store(false, Ordering::SeqCst);
        self.isr.store(0, Ordering::SeqCst);
        let vectors = self.queue_vectors.iter().chain([&self.config_vector]);
        vectors.for_each(|vector| vector.store(NO_VECTOR, Ordering::SeqCst));
    }
}

/// A queue's side.
struct PciQueueNotifier {
    interrupts: Arc<PciInterrupts>,
    queue: usize,
}

impl QueueNotifier for PciQueueNotifier {
    fn notify_used(&self) {
        self.interrupts.raise(USED, &self.interrupts.queue_vectors[self.queue]);
    }

    fn needs_reset(&self) {
        self.interrupts.needs_reset();
    }
}
