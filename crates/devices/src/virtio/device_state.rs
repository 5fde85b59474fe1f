//! What a driver and its device have told each other so far, whatever the registers of their transport.

use super::{Activation, ActivationQueue, DeviceFailure, FailureCause, QueueConfig, QueueNotifier, VirtioDevice};
use blockyard_block::EventFd;
use std::io;
use std::sync::Arc;
use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_ACKNOWLEDGE as ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER as DRIVER,
    VIRTIO_CONFIG_S_DRIVER_OK as DRIVER_OK, VIRTIO_CONFIG_S_FAILED as FAILED,
    VIRTIO_CONFIG_S_FEATURES_OK as FEATURES_OK, VIRTIO_CONFIG_S_NEEDS_RESET as NEEDS_RESET, VIRTIO_F_VERSION_1,
};

/// How a transport interrupts, shared with the threads that run the queues.
pub(super) trait TransportInterrupts: Send + Sync + 'static {
    /// How a queue reaches the driver.
    fn queue_notifier(self: &Arc<Self>, queue: u16) -> Arc<dyn QueueNotifier>;

    /// The device's configuration has changed.
    fn notify_config(&self);

    /// The device has met an error it cannot recover from.
    fn needs_reset(&self);

    /// Whether it has.
    fn is_reset_needed(&self) -> bool;

    /// As after power-on. No queue may be running.
    fn reset(&self);
}

/// A device and what its driver has negotiated: status, features, queues. A transport's registers read and write this.
pub(super) struct DeviceState<D, I> {
    device: D,
    interrupts: Arc<I>,
    doorbells: Vec<Arc<EventFd>>,
    config_generation: u32,
    /// Without NEEDS_RESET, which is in `interrupts`.
    status: u32,
    /// Which 32 of the device's features are read.
    pub(super) device_features_select: u32,
    /// Which 32 of the driver's features are written.
    pub(super) driver_features_select: u32,
    driver_features: u64,
    /// The driver wants features beyond the first 64.
    driver_features_beyond: bool,
    /// Which queue the registers are of.
    pub(super) queue_select: u32,
    queues: Vec<QueueState>,
}

/// A queue as the driver has set it up.
#[derive(Clone, Copy)]
pub(super) struct QueueState {
    pub(super) config: QueueConfig,
    pub(super) is_ready: bool,
}

impl QueueState {
    fn new(size_max: u16) -> Self {
        Self { config: QueueConfig::new(size_max), is_ready: false }
    }
}

impl<D: VirtioDevice, I: TransportInterrupts> DeviceState<D, I> {
    /// As after power-on.
    ///
    /// # Errors
    /// When the process has no descriptors left for the doorbells.
    pub(super) fn new(device: D, interrupts: I) -> io::Result<Self> {
        let sizes = device.queue_sizes_max();
        let doorbells = sizes.iter().map(|_| EventFd::new().map(Arc::new)).collect::<io::Result<_>>()?;
        let queues = sizes.iter().map(|&size| QueueState::new(size)).collect();
        Ok(Self {
            device,
            interrupts: Arc::new(interrupts),
            doorbells,
            config_generation: 0,
            status: 0,
            device_features_select: 0,
            driver_features_select: 0,
            driver_features: 0,
            driver_features_beyond: false,
            queue_select: 0,
            queues,
        })
    }

    pub(super) fn device(&self) -> &D {
        &self.device
    }

    pub(super) fn interrupts(&self) -> &Arc<I> {
        &self.interrupts
    }

    /// The doorbell of each queue.
    pub(super) fn doorbells(&self) -> &[Arc<EventFd>] {
        &self.doorbells
    }

    /// What the driver reads from the status register (§2.1).
    pub(super) fn status(&self) -> u32 {
        if self.interrupts.is_reset_needed() { self.status | NEEDS_RESET } else { self.status }
    }

    pub(super) fn config_generation(&self) -> u32 {
        self.config_generation
    }

    /// The configuration space follows what is behind the device, and the driver is told if it changed.
    pub(super) fn refresh_config(&mut self) {
        if self.device.refresh_config() {
            self.config_generation = self.config_generation.wrapping_add(1);
            if self.status & DRIVER_OK != 0 {
                self.interrupts.notify_config();
            }
        }
    }

    /// Takes the queues back and makes the device as after power-on. Returns when nothing touches the guest's memory
    /// any more.
    pub(super) fn reset(&mut self) {
        self.device.reset();
        self.interrupts.reset();
        self.status = 0;
        self.device_features_select = 0;
        self.driver_features_select = 0;
        self.driver_features = 0;
        self.driver_features_beyond = false;
        self.queue_select = 0;
        let sizes = self.device.queue_sizes_max();
        self.queues = sizes.iter().map(|&size| QueueState::new(size)).collect();
    }

    /// Reads of the configuration space; behind its end there are zeros.
    pub(super) fn read_config(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let config = usize::try_from(offset).ok().and_then(|offset| self.device.config().get(offset..));
        data.iter_mut().zip(config.unwrap_or_default()).for_each(|(byte, &value)| *byte = value);
    }

    pub(super) fn write_config(&mut self, offset: u64, data: &[u8]) {
        self.device.write_config(offset, data);
    }

    /// The 32 features of the device that are selected.
    pub(super) fn device_features(&self) -> u32 {
        selected_half(self.device.features(), self.device_features_select)
    }

    /// The 32 features of the driver that are selected.
    pub(super) fn driver_features(&self) -> u32 {
        selected_half(self.driver_features, self.driver_features_select)
    }

    pub(super) fn write_driver_features(&mut self, value: u32) {
        // Features are fixed once they are agreed on, and nobody's before there is a driver (§3.1.1).
        if self.status & (DRIVER | FEATURES_OK) != DRIVER {
            return;
        }
        match self.driver_features_select {
            0 => set_low(&mut self.driver_features, value),
            1 => set_high(&mut self.driver_features, value),
            _ => self.driver_features_beyond |= value != 0,
        }
    }

    fn features_are_acceptable(&self) -> bool {
        let unknown = self.driver_features & !self.device.features() != 0 || self.driver_features_beyond;
        !unknown && self.driver_features & 1 << VIRTIO_F_VERSION_1 != 0
    }

    /// The index of the queue that is selected, if there is such a queue.
    pub(super) fn selected(&self) -> Option<usize> {
        usize::try_from(self.queue_select).ok().filter(|&index| index < self.queues.len())
    }

    /// The queue that is selected.
    pub(super) fn queue(&self) -> Option<&QueueState> {
        self.selected().map(|index| &self.queues[index])
    }

    /// Entries that the selected queue can have; zero if there is none.
    pub(super) fn queue_size_max(&self) -> u16 {
        let sizes = self.device.queue_sizes_max();
        self.selected().and_then(|index| sizes.get(index)).copied().unwrap_or(0)
    }

    /// Where and how large the selected queue is: may be changed only until it is ready.
    pub(super) fn queue_config(&mut self) -> Option<&mut QueueConfig> {
        let index = self.selected()?;
        let queue = &mut self.queues[index];
        (!queue.is_ready).then_some(&mut queue.config)
    }

    /// The selected queue may be used. A queue of a running device comes back only with a reset.
    pub(super) fn set_queue_ready(&mut self) {
        if let Some(index) = self.selected().filter(|_| self.status & DRIVER_OK == 0) {
            self.queues[index].is_ready = true;
        }
    }

    /// The selected queue is no longer used. Returns when nothing touches it any more.
    pub(super) fn stop_queue(&mut self) {
        let Some(index) = self.selected().filter(|&index| self.queues[index].is_ready) else { return };
        self.queues[index].is_ready = false;
        if self.status & DRIVER_OK != 0 {
            self.device.stop_queue(index as u16);
        }
    }

    /// The driver rings for a queue by a register write that the hypervisor did not take.
    pub(super) fn ring(&self, queue: usize) {
        if let (DRIVER_OK, Some(doorbell)) = (self.status & DRIVER_OK, self.doorbells.get(queue)) {
            doorbell.ring();
        }
    }

    /// The driver writes the status register.
    ///
    /// # Errors
    /// When that showed that it has set the device up in a way that cannot work, or the host cannot serve it. It has
    /// been told already.
    pub(super) fn write_status(&mut self, value: u32) -> Result<(), DeviceFailure> {
        if value == 0 {
            self.reset();
            return Ok(());
        }
        // Bits are only ever added (§2.1.1).
        let added = value & !self.status;
        self.status |= added & (ACKNOWLEDGE | DRIVER | FAILED);
        if added & FEATURES_OK != 0 && self.features_are_acceptable() {
            self.status |= FEATURES_OK;
        }
        if added & DRIVER_OK != 0 && !self.interrupts.is_reset_needed() {
            self.status |= DRIVER_OK;
            return self.activate().inspect_err(|_| self.interrupts.needs_reset());
        }
        Ok(())
    }

    fn activate(&mut self) -> Result<(), DeviceFailure> {
        if self.status & FEATURES_OK == 0 {
            let device = self.device.name().clone();
            return Err(DeviceFailure { device, queue: None, cause: FailureCause::FeaturesNotAccepted });
        }
        let ready = self.queues.iter().zip(&self.doorbells).zip(0..).filter(|((queue, _), _)| queue.is_ready);
        let queues = ready.map(|((queue, doorbell), index)| ActivationQueue {
            index,
            config: queue.config,
            doorbell: doorbell.clone(),
            notifier: self.interrupts.queue_notifier(index),
        });
        self.device.activate(Activation { features: self.driver_features, queues: queues.collect() })
    }
}

fn selected_half(features: u64, select: u32) -> u32 {
    match select {
        0 => features as u32,
        1 => (features >> 32) as u32,
        _ => 0,
    }
}

/// Sets the low half of a register of 64 bits.
pub(super) fn set_low(register: &mut u64, value: u32) {
    *register = *register & !0xffff_ffff | u64::from(value);
}

/// Sets the high half.
pub(super) fn set_high(register: &mut u64, value: u32) {
    *register = *register & 0xffff_ffff | u64::from(value) << 32;
}
