//! A virtio device as its transport sees it.

use super::{DeviceFailure, QueueConfig, QueueNotifier};
use blockyard_block::EventFd;
use std::sync::Arc;

/// A kind of virtio device, without its transport.
pub trait VirtioDevice: Send {
    /// What it is called in messages.
    fn name(&self) -> &Arc<str>;

    /// The device type (virtio 1.2 §5).
    fn device_type(&self) -> u32;

    /// The features it offers, bit n for feature n.
    fn features(&self) -> u64;

    /// The largest size of each of its queues: powers of two.
    fn queue_sizes_max(&self) -> &[u16];

    /// Its configuration space.
    fn config(&self) -> &[u8];

    /// The driver writes `data` at `offset_bytes` of the configuration space. Most have nothing to write there.
    fn write_config(&mut self, offset_bytes: u64, data: &[u8]) {
        let _ = (offset_bytes, data);
    }

    /// Makes the configuration space say what is true now; whether it changed.
    fn refresh_config(&mut self) -> bool {
        false
    }

    /// The driver has set DRIVER_OK: the device starts to use its queues.
    ///
    /// # Errors
    /// When a queue is not as it has to be, or the host cannot serve it. The device then runs none of them.
    fn activate(&mut self, activation: Activation) -> Result<(), DeviceFailure>;

    /// Stops using one queue. Returns when nothing touches it any more.
    fn stop_queue(&mut self, index: u16);

    /// Stops using all queues and forgets the driver. Returns when nothing touches the guest's memory any more.
    fn reset(&mut self);
}

/// What a driver and its device agreed on.
pub struct Activation {
    /// The features accepted by both, bit n for feature n.
    pub features: u64,
    /// The queues that the driver enabled, in order.
    pub queues: Vec<ActivationQueue>,
}

/// A queue that the driver enabled.
pub struct ActivationQueue {
    /// Which one.
    pub index: u16,
    /// Where it is: unchecked.
    pub config: QueueConfig,
    /// Becomes readable when the driver rings it.
    pub doorbell: Arc<EventFd>,
    /// How it reaches the driver.
    pub notifier: Arc<dyn QueueNotifier>,
}
