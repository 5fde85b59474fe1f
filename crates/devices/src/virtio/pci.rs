//! Virtio over PCI (virtio 1.2 §4.1), without the interface of drivers older than 1.0.

use super::device_state::{DeviceState, set_high, set_low};
use super::pci_interrupts::{NO_VECTOR, PciInterrupts};
use super::{DeviceFailure, VirtioDevice};
use crate::Interrupt;
use crate::pci::{Bar, BarDoorbell, Capability, Identity, PciFunction, Signalling};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use virtio_bindings::virtio_ids::{VIRTIO_ID_BLOCK, VIRTIO_ID_FS};

const VENDOR: u16 = 0x1af4;
/// Of a device of type 0; the others follow.
const FIRST_DEVICE: u16 = 0x1040;
/// What is not in question: from 0x40 on, so that no old driver takes it.
const SUBSYSTEM: u16 = 0x1100;
const CLASS_MASS_STORAGE: u32 = 0x01_8000;
const CLASS_OTHER: u32 = 0xff_0000;

/// Everything is in one BAR, each structure on pages of its own.
const BAR: u8 = 0;
const COMMON: Range<u64> = 0..0x38;
const ISR: u64 = 0x1000;
const CONFIG: Range<u64> = 0x2000..0x3000;
const NOTIFY: u64 = 0x3000;
/// From one queue's doorbell to the next's.
const NOTIFY_STEP: u64 = 4;

/// Offsets in the common configuration (§4.1.4.3).
mod common {
    pub(super) const DEVICE_FEATURE_SELECT: u64 = 0x00;
    pub(super) const DEVICE_FEATURE: u64 = 0x04;
    pub(super) const DRIVER_FEATURE_SELECT: u64 = 0x08;
    pub(super) const DRIVER_FEATURE: u64 = 0x0c;
    pub(super) const CONFIG_VECTOR: u64 = 0x10;
    pub(super) const NUM_QUEUES: u64 = 0x12;
    pub(super) const DEVICE_STATUS: u64 = 0x14;
    pub(super) const CONFIG_GENERATION: u64 = 0x15;
    pub(super) const QUEUE_SELECT: u64 = 0x16;
    pub(super) const QUEUE_SIZE: u64 = 0x18;
    pub(super) const QUEUE_VECTOR: u64 = 0x1a;
    pub(super) const QUEUE_ENABLE: u64 = 0x1c;
    pub(super) const QUEUE_NOTIFY_OFFSET: u64 = 0x1e;
    pub(super) const QUEUE_DESCRIPTORS: u64 = 0x20;
    pub(super) const QUEUE_DRIVER: u64 = 0x28;
    pub(super) const QUEUE_DEVICE: u64 = 0x30;
}

/// Bytes of the field of the common configuration that begins at `offset`; of those of 64 bits, each half is one.
fn field_bytes(offset: u64) -> Option<usize> {
    match offset {
        common::DEVICE_FEATURE_SELECT
        | common::DEVICE_FEATURE
        | common::DRIVER_FEATURE_SELECT
        | common::DRIVER_FEATURE => Some(4),
        common::DEVICE_STATUS | common::CONFIG_GENERATION => Some(1),
        common::CONFIG_VECTOR
        | common::NUM_QUEUES
        | common::QUEUE_SELECT
        | common::QUEUE_SIZE
        | common::QUEUE_VECTOR
        | common::QUEUE_ENABLE
        | common::QUEUE_NOTIFY_OFFSET => Some(2),
        common::QUEUE_DESCRIPTORS..=0x34 if offset.is_multiple_of(4) => Some(4),
        _ => None,
    }
}

/// Where drivers that set a device up wrongly, and a host that cannot serve it, are reported.
pub type FailureSink = Box<dyn Fn(&DeviceFailure) + Send>;

/// A device as a PCI function, as one driver sees it.
///
/// Accesses that the specification does not know (other widths than the field's, unknown offsets, queues that do not
/// exist) read as zero and write nothing. Each queue has a doorbell of its own address.
pub struct PciTransport<D> {
    state: DeviceState<D, PciInterrupts>,
    bars: [Bar; 1],
    failures: FailureSink,
}

impl<D: VirtioDevice> PciTransport<D> {
    /// Vectors that a device wants: one for each queue, and one for its configuration.
    pub fn vectors_wanted(device: &D) -> usize {
        device.queue_sizes_max().len() + 1
    }

    /// A device as after power-on, that interrupts through `vectors`.
    ///
    /// # Errors
    /// When the process has no descriptors left for the doorbells.
    pub fn new(device: D, vectors: Vec<Arc<dyn Interrupt>>, failures: FailureSink) -> io::Result<Self> {
        let queues = device.queue_sizes_max().len();
        let bytes = (NOTIFY + NOTIFY_STEP * queues as u64).next_power_of_two() as u32;
        let state = DeviceState::new(device, PciInterrupts::new(vectors, queues))?;
        Ok(Self { state, bars: [Bar { index: BAR, bytes }], failures })
    }

    /// The device behind the registers.
    pub fn device(&self) -> &D {
        self.state.device()
    }

    /// The disk or whatever is behind the device has changed: the configuration space follows, and the driver is told.
    pub fn refresh_config(&mut self) {
        self.state.refresh_config();
    }

    fn notify_bytes(&self) -> u64 {
        u64::from(self.bars[0].bytes) - NOTIFY
    }

    /// A field of the common configuration, or a half of one.
    fn read_common(&self, offset: u64) -> u32 {
        let state = &self.state;
        let config = || state.queue().map(|queue| queue.config);
        let half = |select: fn(&super::QueueConfig) -> u64, at: u64| {
            config().map_or(0, |config| if offset == at { select(&config) } else { select(&config) >> 32 }) as u32
        };
        match offset {
            common::DEVICE_FEATURE_SELECT => state.device_features_select,
            common::DEVICE_FEATURE => state.device_features(),
            common::DRIVER_FEATURE_SELECT => state.driver_features_select,
            common::DRIVER_FEATURE => state.driver_features(),
            common::CONFIG_VECTOR => state.interrupts().config_vector().into(),
            common::NUM_QUEUES => state.doorbells().len() as u32,
            common::DEVICE_STATUS => state.status(),
            common::CONFIG_GENERATION => state.config_generation(),
            common::QUEUE_SELECT => state.queue_select,
            common::QUEUE_SIZE => config().map_or(0, |config| config.size),
            common::QUEUE_VECTOR => {
                state.selected().map_or(NO_VECTOR, |queue| state.interrupts().queue_vector(queue)).into()
            }
            common::QUEUE_ENABLE => state.queue().map_or(0, |queue| queue.is_ready.into()),
            common::QUEUE_NOTIFY_OFFSET => state.selected().map_or(0, |queue| queue as u32),
            common::QUEUE_DESCRIPTORS..common::QUEUE_DRIVER => {
                half(|config| config.descriptor_table, common::QUEUE_DESCRIPTORS)
            }
            common::QUEUE_DRIVER..common::QUEUE_DEVICE => half(|config| config.available_ring, common::QUEUE_DRIVER),
            _ => half(|config| config.used_ring, common::QUEUE_DEVICE),
        }
    }

    fn write_common(&mut self, offset: u64, value: u32) -> Result<(), DeviceFailure> {
        let state = &mut self.state;
        match offset {
            common::DEVICE_FEATURE_SELECT => state.device_features_select = value,
            common::DRIVER_FEATURE_SELECT => state.driver_features_select = value,
            common::DRIVER_FEATURE => state.write_driver_features(value),
            common::CONFIG_VECTOR => state.interrupts().set_config_vector(value as u16),
            common::DEVICE_STATUS => return state.write_status(value),
            common::QUEUE_SELECT => state.queue_select = value,
            common::QUEUE_VECTOR => {
                if let Some(queue) = state.selected() {
                    state.interrupts().set_queue_vector(queue, value as u16);
                }
            }
            // It is disabled by a reset only (§4.1.4.3.2).
            common::QUEUE_ENABLE if value == 1 => state.set_queue_ready(),
            _ => self.write_queue_config(offset, value),
        }
        Ok(())
    }

    fn write_queue_config(&mut self, offset: u64, value: u32) {
        let Some(config) = self.state.queue_config() else { return };
        const HIGH: u64 = 4;
        match offset {
            common::QUEUE_SIZE => config.size = value,
            common::QUEUE_DESCRIPTORS => set_low(&mut config.descriptor_table, value),
            offset if offset == common::QUEUE_DESCRIPTORS + HIGH => set_high(&mut config.descriptor_table, value),
            common::QUEUE_DRIVER => set_low(&mut config.available_ring, value),
            offset if offset == common::QUEUE_DRIVER + HIGH => set_high(&mut config.available_ring, value),
            common::QUEUE_DEVICE => set_low(&mut config.used_ring, value),
            offset if offset == common::QUEUE_DEVICE + HIGH => set_high(&mut config.used_ring, value),
            _ => {}
        }
    }
}

/// The fields that an access of `length` bytes at `offset` of the common configuration is made of: one of that width,
/// or both halves of one of 64 bits.
fn fields(offset: u64, length: usize) -> Range<u64> {
    let width = field_bytes(offset);
    let is_wide = length == 8 && offset >= common::QUEUE_DESCRIPTORS && offset.is_multiple_of(8) && width.is_some();
    match width {
        Some(width) if width == length => offset..offset + 1,
        _ if is_wide => offset..offset + 5,
        _ => 0..0,
    }
}

impl<D: VirtioDevice> PciFunction for PciTransport<D> {
    fn identity(&self) -> Identity {
        let device_type = self.device().device_type();
        let class = if device_type == VIRTIO_ID_BLOCK || device_type == VIRTIO_ID_FS {
            CLASS_MASS_STORAGE
        } else {
            CLASS_OTHER
        };
        Identity {
            vendor: VENDOR,
            device: FIRST_DEVICE + device_type as u16,
            revision: 1,
            class,
            subsystem_vendor: VENDOR,
            subsystem: SUBSYSTEM,
        }
    }

    fn bars(&self) -> &[Bar] {
        &self.bars
    }

    fn signalling(&self) -> Signalling {
        Signalling::MsiX
    }

    fn capabilities(&self) -> Vec<Capability> {
        let notify_step = (NOTIFY_STEP as u32).to_le_bytes();
        vec![
            structure(1, COMMON.start, COMMON.end - COMMON.start, &[]),
            structure(2, NOTIFY, self.notify_bytes(), &notify_step),
            structure(3, ISR, 1, &[]),
            structure(4, CONFIG.start, CONFIG.end - CONFIG.start, &[]),
            bar_window(),
        ]
    }

    fn doorbells(&self) -> Vec<BarDoorbell> {
        let doorbells = (NOTIFY..).step_by(NOTIFY_STEP as usize).zip(self.state.doorbells());
        doorbells.map(|(offset, event)| BarDoorbell { bar: BAR, offset, event: event.clone() }).collect()
    }

    fn read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if COMMON.contains(&offset) {
            for (field, bytes) in fields(offset, data.len()).step_by(4).zip(data.chunks_mut(4)) {
                let value = self.read_common(field).to_le_bytes();
                bytes.copy_from_slice(&value[..bytes.len()]);
            }
        } else if CONFIG.contains(&offset) {
            self.state.read_config(offset - CONFIG.start, data);
        } else if let (ISR, [isr, ..]) = (offset, data) {
            *isr = self.state.interrupts().take_isr();
        }
    }

    fn write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
        if COMMON.contains(&offset) {
            for (field, bytes) in fields(offset, data.len()).step_by(4).zip(data.chunks(4)) {
                let value = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
                if let Err(failure) = self.write_common(field, value) {
                    (self.failures)(&failure);
                }
            }
        } else if CONFIG.contains(&offset) {
            self.state.write_config(offset - CONFIG.start, data);
        } else if let Some(offset) = offset.checked_sub(NOTIFY) {
            self.state.ring((offset / NOTIFY_STEP) as usize);
        }
    }
}

/// A capability that says where a structure is (§4.1.4).
fn structure(kind: u8, offset: u64, length: u64, more: &[u8]) -> Capability {
    const VENDOR_SPECIFIC: u8 = 9;
    /// Identity, link, length, kind, BAR, a number and padding, offset, length.
    const BYTES: u8 = 16;
    let mut body = vec![BYTES + more.len() as u8, kind, BAR, 0, 0, 0];
    body.extend((offset as u32).to_le_bytes());
    body.extend((length as u32).to_le_bytes());
    body.extend(more);
    Capability { id: VENDOR_SPECIFIC, body, writable: Vec::new(), is_bar_window: false }
}

/// VIRTIO_PCI_CAP_PCI_CFG: the BAR for who cannot reach it by addresses (§4.1.4.9). BAR, offset, length and data are
/// the driver's.
fn bar_window() -> Capability {
    let mut capability = structure(5, 0, 0, &[0; 4]);
    capability.writable = vec![0; capability.body.len()];
    capability.writable[2] = 0xff;
    capability.writable[6..].fill(0xff);
    Capability { is_bar_window: true, ..capability }
}
