//! Virtio over MMIO, version 2 (virtio 1.2 §4.2).

use super::device_state::{DeviceState, set_high, set_low};
use super::{DeviceFailure, InterruptStatus, VirtioDevice};
use crate::Interrupt;
use blockyard_block::EventFd;
use std::io;
use std::sync::Arc;
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
    state: DeviceState<D, InterruptStatus>,
}

impl<D: VirtioDevice> MmioTransport<D> {
    /// A device as after power-on, that interrupts through `interrupt`.
    ///
    /// # Errors
    /// When the process has no descriptors left for the doorbells.
    pub fn new(device: D, interrupt: Arc<dyn Interrupt>) -> io::Result<Self> {
        Ok(Self { state: DeviceState::new(device, InterruptStatus::new(interrupt))? })
    }

    /// The doorbell of each queue: a 4-byte write of its index at [`MMIO_QUEUE_NOTIFY_OFFSET`] rings it.
    pub fn doorbells(&self) -> &[Arc<EventFd>] {
        self.state.doorbells()
    }

    /// The device behind the registers.
    pub fn device(&self) -> &D {
        self.state.device()
    }

    /// The device's interrupt status.
    pub fn interrupt_status(&self) -> &Arc<InterruptStatus> {
        self.state.interrupts()
    }

    /// What the driver reads from the status register (§2.1).
    pub fn status(&self) -> u32 {
        self.state.status()
    }

    /// The disk or whatever is behind the device has changed: the configuration space follows, and the driver is told.
    pub fn refresh_config(&mut self) {
        self.state.refresh_config();
    }

    /// Takes the queues back and makes the device as after power-on. Returns when nothing touches the guest's memory
    /// any more; so must not be called by a thread that runs one of the queues.
    pub fn reset(&mut self) {
        self.state.reset();
    }

    /// The driver reads `data` at `offset` from the start of the window.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        if let Some(offset) = offset.checked_sub(CONFIG_OFFSET) {
            self.state.read_config(offset, data);
        } else if let Ok(data) = <&mut [u8; 4]>::try_from(&mut *data) {
            *data = self.read_register(offset as u32).to_le_bytes();
        } else {
            data.fill(0);
        }
    }

    fn read_register(&self, offset: u32) -> u32 {
        let state = &self.state;
        match offset {
            register::VIRTIO_MMIO_MAGIC_VALUE => MAGIC,
            register::VIRTIO_MMIO_VERSION => VERSION,
            register::VIRTIO_MMIO_DEVICE_ID => state.device().device_type(),
            register::VIRTIO_MMIO_VENDOR_ID => VENDOR,
            register::VIRTIO_MMIO_DEVICE_FEATURES => state.device_features(),
            register::VIRTIO_MMIO_QUEUE_NUM_MAX => state.queue_size_max().into(),
            register::VIRTIO_MMIO_QUEUE_READY => state.queue().map_or(0, |queue| queue.is_ready.into()),
            register::VIRTIO_MMIO_INTERRUPT_STATUS => state.interrupts().pending(),
            register::VIRTIO_MMIO_STATUS => state.status(),
            // There are no shared memory regions: all lengths are -1 (§4.2.2), and so are the addresses.
            register::VIRTIO_MMIO_SHM_LEN_LOW
            | register::VIRTIO_MMIO_SHM_LEN_HIGH
            | register::VIRTIO_MMIO_SHM_BASE_LOW
            | register::VIRTIO_MMIO_SHM_BASE_HIGH => u32::MAX,
            register::VIRTIO_MMIO_CONFIG_GENERATION => state.config_generation(),
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
            self.state.write_config(offset, data);
            return Ok(());
        }
        let Ok(data) = <[u8; 4]>::try_from(data) else { return Ok(()) };
        self.write_register(offset as u32, u32::from_le_bytes(data))
    }

    fn write_register(&mut self, offset: u32, value: u32) -> Result<(), DeviceFailure> {
        let state = &mut self.state;
        match offset {
            register::VIRTIO_MMIO_DEVICE_FEATURES_SEL => state.device_features_select = value,
            register::VIRTIO_MMIO_DRIVER_FEATURES => state.write_driver_features(value),
            register::VIRTIO_MMIO_DRIVER_FEATURES_SEL => state.driver_features_select = value,
            register::VIRTIO_MMIO_QUEUE_SEL => state.queue_select = value,
            register::VIRTIO_MMIO_QUEUE_READY => match value {
                0 => state.stop_queue(),
                1 => state.set_queue_ready(),
                _ => {}
            },
            register::VIRTIO_MMIO_QUEUE_NOTIFY => state.ring(value as usize),
            register::VIRTIO_MMIO_INTERRUPT_ACK => state.interrupts().acknowledge(value),
            register::VIRTIO_MMIO_STATUS => return state.write_status(value),
            _ => self.write_queue_config(offset, value),
        }
        Ok(())
    }

    fn write_queue_config(&mut self, offset: u32, value: u32) {
        let Some(config) = self.state.queue_config() else { return };
        match offset {
            register::VIRTIO_MMIO_QUEUE_NUM => config.size = value,
            register::VIRTIO_MMIO_QUEUE_DESC_LOW => set_low(&mut config.descriptor_table, value),
            register::VIRTIO_MMIO_QUEUE_DESC_HIGH => set_high(&mut config.descriptor_table, value),
            register::VIRTIO_MMIO_QUEUE_AVAIL_LOW => set_low(&mut config.available_ring, value),
            register::VIRTIO_MMIO_QUEUE_AVAIL_HIGH => set_high(&mut config.available_ring, value),
            register::VIRTIO_MMIO_QUEUE_USED_LOW => set_low(&mut config.used_ring, value),
            register::VIRTIO_MMIO_QUEUE_USED_HIGH => set_high(&mut config.used_ring, value),
            _ => {}
        }
    }
}
