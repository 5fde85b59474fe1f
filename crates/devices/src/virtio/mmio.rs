//! Virtio over MMIO, version 2 (virtio 1.2 §4.2).

use super::{
    Activation, ActivationQueue, DeviceFailure, FailureCause, InterruptStatus, QueueConfig, QueueNotifier, VirtioDevice,
};
use crate::Interrupt;
use blockyard_block::EventFd;
use std::io;
use std::sync::Arc;
use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_ACKNOWLEDGE as ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER as DRIVER,
    VIRTIO_CONFIG_S_DRIVER_OK as DRIVER_OK, VIRTIO_CONFIG_S_FAILED as FAILED,
    VIRTIO_CONFIG_S_FEATURES_OK as FEATURES_OK, VIRTIO_CONFIG_S_NEEDS_RESET as NEEDS_RESET, VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_mmio as register;

/// Bytes of a device's window: the registers, then the configuration space.
pub const MMIO_WINDOW_BYTES: u64 = 0x1000;
/// Where in the window a doorbell is rung: a 4-byte write of the queue's index.
pub const MMIO_QUEUE_NOTIFY_OFFSET: u64 = register::VIRTIO_MMIO_QUEUE_NOTIFY as u64;

const CONFIG_OFFSET: u64 = register::VIRTIO_MMIO_CONFIG as u64;
/// "virt".
const MAGIC: u32 = 0x7472_6976;
const VERSION: u32 = 2;
/// "BYRD".
const VENDOR: u32 = 0x4452_5942;

/// A device behind a window of MMIO registers, as one driver sees it.
///
/// Accesses that the specification does not know (other widths than four bytes outside the configuration space, unknown
/// offsets, queues that do not exist) read as zero and write nothing. Whoever registers the
/// [`MmioTransport::doorbells`] with the hypervisor takes those writes away from here; the others ring the same
/// doorbells.
pub struct MmioTransport<D> {
    device: D,
    interrupt: Arc<InterruptStatus>,
    doorbells: Vec<Arc<EventFd>>,
    config_generation: u32,
    /// Without NEEDS_RESET, which is in `interrupt`.
    status: u32,
    device_features_select: u32,
    driver_features_select: u32,
    driver_features: u64,
    /// The driver wants features beyond the first 64.
    driver_features_beyond: bool,
    queue_select: u32,
    queues: Vec<QueueRegisters>,
}

#[derive(Clone, Copy)]
struct QueueRegisters {
    config: QueueConfig,
    ready: bool,
}

impl QueueRegisters {
    fn new(size_max: u16) -> Self {
        Self { config: QueueConfig::new(size_max), ready: false }
    }
}

impl<D: VirtioDevice> MmioTransport<D> {
    /// A device as after power-on, that interrupts through `interrupt`.
    ///
    /// # Errors
    /// When the process has no descriptors left for the doorbells.
    pub fn new(device: D, interrupt: Arc<dyn Interrupt>) -> io::Result<Self> {
        let sizes = device.queue_sizes_max();
        let doorbells = sizes.iter().map(|_| EventFd::new().map(Arc::new)).collect::<io::Result<_>>()?;
        let queues = sizes.iter().map(|&size| QueueRegisters::new(size)).collect();
        Ok(Self {
            device,
            interrupt: Arc::new(InterruptStatus::new(interrupt)),
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

    /// The doorbell of each queue: a 4-byte write of its index at [`MMIO_QUEUE_NOTIFY_OFFSET`] rings it.
    pub fn doorbells(&self) -> &[Arc<EventFd>] {
        &self.doorbells
    }

    /// The device behind the registers.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device's interrupt status.
    pub fn interrupt_status(&self) -> &Arc<InterruptStatus> {
        &self.interrupt
    }

    /// What the driver reads from the status register (§2.1).
    pub fn status(&self) -> u32 {
        if self.interrupt.is_reset_needed() { self.status | NEEDS_RESET } else { self.status }
    }

    /// The disk or whatever is behind the device has changed: the configuration space follows, and the driver is told.
    pub fn refresh_config(&mut self) {
        if self.device.refresh_config() {
            self.config_generation = self.config_generation.wrapping_add(1);
            if self.status & DRIVER_OK != 0 {
                self.interrupt.notify_config();
            }
        }
    }

    /// Takes the queues back and makes the device as after power-on. Returns when nothing touches the guest's memory
    /// any more; so must not be called by a thread that runs one of the queues.
    pub fn reset(&mut self) {
        self.device.reset();
        self.interrupt.reset();
        self.status = 0;
        self.device_features_select = 0;
        self.driver_features_select = 0;
        self.driver_features = 0;
        self.driver_features_beyond = false;
        self.queue_select = 0;
        let sizes = self.device.queue_sizes_max();
        self.queues = sizes.iter().map(|&size| QueueRegisters::new(size)).collect();
    }

    /// The driver reads `data` at `offset` from the start of the window.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if let Some(offset) = offset.checked_sub(CONFIG_OFFSET) {
            let config = usize::try_from(offset).ok().and_then(|offset| self.device.config().get(offset..));
            data.iter_mut().zip(config.unwrap_or_default()).for_each(|(byte, &value)| *byte = value);
        } else if let Ok(data) = <&mut [u8; 4]>::try_from(data) {
            *data = self.read_register(offset as u32).to_le_bytes();
        }
    }

    fn read_register(&self, offset: u32) -> u32 {
        match offset {
            register::VIRTIO_MMIO_MAGIC_VALUE => MAGIC,
            register::VIRTIO_MMIO_VERSION => VERSION,
            register::VIRTIO_MMIO_DEVICE_ID => self.device.device_type(),
            register::VIRTIO_MMIO_VENDOR_ID => VENDOR,
            register::VIRTIO_MMIO_DEVICE_FEATURES => match self.device_features_select {
                0 => self.device.features() as u32,
                1 => (self.device.features() >> 32) as u32,
                _ => 0,
            },
            register::VIRTIO_MMIO_QUEUE_NUM_MAX => {
                let sizes = self.device.queue_sizes_max();
                self.selected().and_then(|index| sizes.get(index)).map_or(0, |&size| size.into())
            }
            register::VIRTIO_MMIO_QUEUE_READY => self.selected().map_or(0, |index| u32::from(self.queues[index].ready)),
            register::VIRTIO_MMIO_INTERRUPT_STATUS => self.interrupt.pending(),
            register::VIRTIO_MMIO_STATUS => self.status(),
            // There are no shared memory regions: all lengths are -1 (§4.2.2), and so are the addresses.
            register::VIRTIO_MMIO_SHM_LEN_LOW
            | register::VIRTIO_MMIO_SHM_LEN_HIGH
            | register::VIRTIO_MMIO_SHM_BASE_LOW
            | register::VIRTIO_MMIO_SHM_BASE_HIGH => u32::MAX,
            register::VIRTIO_MMIO_CONFIG_GENERATION => self.config_generation,
            _ => 0,
        }
    }

    /// The driver writes `data` at `offset` from the start of the window.
    ///
    /// # Errors
    /// When that showed that the driver has set the device up in a way that cannot work, or the host cannot serve it.
    /// The driver has been told already (DEVICE_NEEDS_RESET); a VMM that goes on may ignore it.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), DeviceFailure> {
        if let Some(offset) = offset.checked_sub(CONFIG_OFFSET) {
            self.device.write_config(offset, data);
            return Ok(());
        }
        let Ok(data) = <[u8; 4]>::try_from(data) else { return Ok(()) };
        self.write_register(offset as u32, u32::from_le_bytes(data))
    }

    fn write_register(&mut self, offset: u32, value: u32) -> Result<(), DeviceFailure> {
        match offset {
            register::VIRTIO_MMIO_DEVICE_FEATURES_SEL => self.device_features_select = value,
            register::VIRTIO_MMIO_DRIVER_FEATURES => self.write_driver_features(value),
            register::VIRTIO_MMIO_DRIVER_FEATURES_SEL => self.driver_features_select = value,
            register::VIRTIO_MMIO_QUEUE_SEL => self.queue_select = value,
            register::VIRTIO_MMIO_QUEUE_READY => self.write_queue_ready(value),
            register::VIRTIO_MMIO_QUEUE_NOTIFY => {
                if let (DRIVER_OK, Some(doorbell)) = (self.status & DRIVER_OK, self.doorbells.get(value as usize)) {
                    doorbell.ring();
                }
            }
            register::VIRTIO_MMIO_INTERRUPT_ACK => self.interrupt.acknowledge(value),
            register::VIRTIO_MMIO_STATUS => return self.write_status(value),
            _ => self.write_queue_config(offset, value),
        }
        Ok(())
    }

    fn selected(&self) -> Option<usize> {
        usize::try_from(self.queue_select).ok().filter(|&index| index < self.queues.len())
    }

    fn write_driver_features(&mut self, value: u32) {
        // Features are fixed once they are agreed on, and nobody's before there is a driver (§3.1.1).
        if self.status & (DRIVER | FEATURES_OK) != DRIVER {
            return;
        }
        let value = u64::from(value);
        match self.driver_features_select {
            0 => self.driver_features = self.driver_features & !0xffff_ffff | value,
            1 => self.driver_features = self.driver_features & 0xffff_ffff | value << 32,
            _ => self.driver_features_beyond |= value != 0,
        }
    }

    fn features_are_acceptable(&self) -> bool {
        let unknown = self.driver_features & !self.device.features() != 0 || self.driver_features_beyond;
        !unknown && self.driver_features & 1 << VIRTIO_F_VERSION_1 != 0
    }

    /// Where and how large a queue is: only until it is ready.
    fn write_queue_config(&mut self, offset: u32, value: u32) {
        let Some(index) = self.selected() else { return };
        let QueueRegisters { config, ready: false } = &mut self.queues[index] else { return };
        let low = |address: &mut u64| *address = *address & !0xffff_ffff | u64::from(value);
        let high = |address: &mut u64| *address = *address & 0xffff_ffff | u64::from(value) << 32;
        match offset {
            register::VIRTIO_MMIO_QUEUE_NUM => config.size = value,
            register::VIRTIO_MMIO_QUEUE_DESC_LOW => low(&mut config.descriptor_table),
            register::VIRTIO_MMIO_QUEUE_DESC_HIGH => high(&mut config.descriptor_table),
            register::VIRTIO_MMIO_QUEUE_AVAIL_LOW => low(&mut config.available_ring),
            register::VIRTIO_MMIO_QUEUE_AVAIL_HIGH => high(&mut config.available_ring),
            register::VIRTIO_MMIO_QUEUE_USED_LOW => low(&mut config.used_ring),
            register::VIRTIO_MMIO_QUEUE_USED_HIGH => high(&mut config.used_ring),
            _ => {}
        }
    }

    fn write_queue_ready(&mut self, value: u32) {
        let Some(index) = self.selected() else { return };
        let live = self.status & DRIVER_OK != 0;
        match value {
            // A queue of a running device comes back only with a reset.
            1 if !live => self.queues[index].ready = true,
            0 if self.queues[index].ready => {
                self.queues[index].ready = false;
                if live {
                    self.device.stop_queue(index as u16);
                }
            }
            _ => {}
        }
    }

    fn write_status(&mut self, value: u32) -> Result<(), DeviceFailure> {
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
        if added & DRIVER_OK != 0 && !self.interrupt.is_reset_needed() {
            self.status |= DRIVER_OK;
            return self.activate().inspect_err(|_| self.interrupt.needs_reset());
        }
        Ok(())
    }

    fn activate(&mut self) -> Result<(), DeviceFailure> {
        if self.status & FEATURES_OK == 0 {
            let device = self.device.name().clone();
            return Err(DeviceFailure { device, queue: None, cause: FailureCause::FeaturesNotAccepted });
        }
        let ready = self.queues.iter().zip(&self.doorbells).enumerate().filter(|(_, (queue, _))| queue.ready);
        let queues = ready.map(|(index, (queue, doorbell))| ActivationQueue {
            index: index as u16,
            config: queue.config,
            doorbell: doorbell.clone(),
        });
        let activation =
            Activation { features: self.driver_features, queues: queues.collect(), notifier: self.interrupt.clone() };
        self.device.activate(activation)
    }
}
