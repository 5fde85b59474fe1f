//! The virtio block device (virtio 1.2 §5.2).

use super::block_config::{CONFIG_BYTES, block_config, block_features};
use super::block_queue::BlockQueue;
use super::block_request::SERIAL_BYTES;
use super::block_virtqueue::BlockVirtqueueParts;
use super::{Activation, ActivationQueue, DeviceFailure, FailureCause, QueueControl, QueueStatistics, VirtioDevice};
use blockyard_block::{Disk, MemoryMap};
use std::sync::Arc;
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// Receives the queues of a device whenever a driver has set it up, to run them; empty when the driver enabled none.
/// Called on the thread that carries the driver's register write, and must not wait for the queues.
pub type QueueSink = Box<dyn FnMut(Vec<BlockQueue>) + Send>;

/// What a [`BlockDevice`] is beside its disk.
#[derive(Clone, Debug)]
pub struct BlockDeviceOptions {
    /// What it is called in messages.
    pub name: String,
    /// What GET_ID answers: at most 20 bytes.
    pub serial: String,
    /// Virtqueues.
    pub queues: u16,
    /// Entries of each virtqueue at most: a power of two from 4 to 32768.
    pub queue_size: u16,
}

/// Why a [`BlockDevice`] cannot be as the options say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockDeviceError {
    /// No queue at all.
    #[error("a block device needs a queue")]
    NoQueues,
    /// Not a power of two, or out of range.
    #[error("a queue size of {0} is not a power of two from 4 to 32768")]
    QueueSize(u16),
    /// Longer than the protocol has room for.
    #[error("the serial {0:?} has more than 20 bytes")]
    Serial(String),
}

/// A disk as a virtio block device. What it offers follows from the disk's geometry: capacity in 512-byte units
/// whatever the block size, block size and topology, read-only, discard, write-zeroes; flush always.
pub struct BlockDevice {
    name: Arc<str>,
    serial: [u8; SERIAL_BYTES],
    disk: Arc<dyn Disk>,
    disk_generation: u64,
    memory: MemoryMap,
    features: u64,
    config: [u8; CONFIG_BYTES],
    queue_sizes_max: Vec<u16>,
    statistics: Vec<Arc<QueueStatistics>>,
    running: Vec<(u16, Arc<QueueControl>)>,
    sink: QueueSink,
}

impl BlockDevice {
    /// A device on `disk` for a driver in `memory`; `sink` gets its queues to run.
    ///
    /// # Errors
    /// When the options are bad.
    pub fn new(
        disk: Arc<dyn Disk>,
        memory: MemoryMap,
        options: &BlockDeviceOptions,
        sink: QueueSink,
    ) -> Result<Self, BlockDeviceError> {
        let &BlockDeviceOptions { ref name, serial: ref text, queues, queue_size } = options;
        if queues == 0 {
            return Err(BlockDeviceError::NoQueues);
        }
        if !queue_size.is_power_of_two() || queue_size < 4 {
            return Err(BlockDeviceError::QueueSize(queue_size));
        }
        let mut serial = [0; SERIAL_BYTES];
        let text_bytes = text.as_bytes();
        let room = serial.get_mut(..text_bytes.len()).ok_or_else(|| BlockDeviceError::Serial(text.clone()))?;
        room.copy_from_slice(text_bytes);
        let disk_generation = disk.generation();
        let geometry = disk.geometry();
        Ok(Self {
            name: name.as_str().into(),
            serial,
            disk,
            disk_generation,
            memory,
            features: block_features(&geometry, queues),
            config: block_config(&geometry, queues, queue_size),
            queue_sizes_max: vec![queue_size; queues.into()],
            statistics: (0..queues).map(|_| Arc::default()).collect(),
            running: Vec::new(),
            sink,
        })
    }

    /// The counters of each queue, over all of the device's life.
    pub fn statistics(&self) -> &[Arc<QueueStatistics>] {
        &self.statistics
    }

    fn open(&self, queue: &ActivationQueue, features: u64) -> Result<BlockQueue, FailureCause> {
        let event_index = features & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
        let size_max = self.queue_sizes_max[usize::from(queue.index)];
        let ring = queue.config.ring(size_max, &self.memory, event_index)?;
        let parts = BlockVirtqueueParts {
            device: self.name.clone(),
            index: queue.index,
            ring,
            memory: self.memory.clone(),
            disk: self.disk.clone(),
            features,
            serial: self.serial,
            notifier: queue.notifier.clone(),
            statistics: self.statistics[usize::from(queue.index)].clone(),
            in_flight: None,
        };
        BlockQueue::open(parts, queue.doorbell.clone())
    }
}

impl VirtioDevice for BlockDevice {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn device_type(&self) -> u32 {
        VIRTIO_ID_BLOCK
    }

    fn features(&self) -> u64 {
        self.features
    }

    fn queue_sizes_max(&self) -> &[u16] {
        &self.queue_sizes_max
    }

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn refresh_config(&mut self) -> bool {
        let generation = self.disk.generation();
        if generation == self.disk_generation {
            return false;
        }
        self.disk_generation = generation;
        let geometry = self.disk.geometry();
        let queue_size = self.queue_sizes_max[0];
        let fresh = block_config(&geometry, self.queue_sizes_max.len() as u16, queue_size);
        std::mem::replace(&mut self.config, fresh) != fresh
    }

    fn activate(&mut self, activation: Activation) -> Result<(), DeviceFailure> {
        let Activation { features, queues } = activation;
        let mut opened = Vec::with_capacity(queues.len());
        for queue in &queues {
            let queue_opened = self.open(queue, features);
            opened.push(queue_opened.map_err(|cause| DeviceFailure {
                device: self.name.clone(),
                queue: Some(queue.index),
                cause,
            })?);
        }
        self.running = opened.iter().map(|queue| (queue.index(), queue.control().clone())).collect();
        (self.sink)(opened);
        Ok(())
    }

    fn stop_queue(&mut self, index: u16) {
        for (_, control) in self.running.extract_if(.., |(running, _)| *running == index) {
            control.stop();
            control.wait_until_gone();
        }
    }

    fn reset(&mut self) {
        self.running.iter().for_each(|(_, control)| control.stop());
        self.running.drain(..).for_each(|(_, control)| control.wait_until_gone());
    }
}

/// The queues are asked to stop, and finish on their own.
impl Drop for BlockDevice {
    fn drop(&mut self) {
        self.running.iter().for_each(|(_, control)| control.stop());
    }
}
