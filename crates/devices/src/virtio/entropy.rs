//! The virtio entropy device (virtio 1.2 §5.4).

use super::{Activation, DeviceFailure, EntropyQueue, VirtioDevice};
use crate::QueueControl;
use blockyard_block::MemoryMap;
use std::sync::Arc;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ids::VIRTIO_ID_RNG;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// Entries of its queue at most.
const QUEUE_SIZE: u16 = 64;

/// Receives the device's queue whenever a driver has set it up, to run it.
pub type EntropySink = Box<dyn FnMut(EntropyQueue) + Send>;

/// Random bytes of the host's for the guest.
pub struct EntropyDevice {
    name: Arc<str>,
    memory: MemoryMap,
    running: Option<Arc<QueueControl>>,
    sink: EntropySink,
}

impl EntropyDevice {
    /// A device for a driver in `memory`; `sink` gets its queue to run.
    pub fn new(name: &str, memory: MemoryMap, sink: EntropySink) -> Self {
        Self { name: name.into(), memory, running: None, sink }
    }
}

impl VirtioDevice for EntropyDevice {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn device_type(&self) -> u32 {
        VIRTIO_ID_RNG
    }

    fn features(&self) -> u64 {
        [VIRTIO_F_VERSION_1, VIRTIO_RING_F_INDIRECT_DESC, VIRTIO_RING_F_EVENT_IDX].iter().map(|bit| 1 << bit).sum()
    }

    fn queue_sizes_max(&self) -> &[u16] {
        &[QUEUE_SIZE]
    }

    fn config(&self) -> &[u8] {
        &[]
    }

    fn activate(&mut self, activation: Activation) -> Result<(), DeviceFailure> {
        let Activation { features, queues } = activation;
        for queue in &queues {
            let opened = EntropyQueue::open(&self.name, queue, features, QUEUE_SIZE, &self.memory);
            let opened =
                opened.map_err(|cause| DeviceFailure { device: self.name.clone(), queue: Some(queue.index), cause })?;
            self.running = Some(opened.control().clone());
            (self.sink)(opened);
        }
        Ok(())
    }

    fn stop_queue(&mut self, _index: u16) {
        self.reset();
    }

    fn reset(&mut self) {
        if let Some(control) = self.running.take() {
            control.stop();
            control.wait_until_gone();
        }
    }
}

/// The queue is asked to stop, and finishes on its own.
impl Drop for EntropyDevice {
    fn drop(&mut self) {
        self.running.iter().for_each(|control| control.stop());
    }
}
