//! A virtio device behind memory-mapped registers, version 2 (virtio 1.2, section 4.2), as its driver brings it up.

use crate::mmio;
use crate::shared::QueueAddresses;
use blockyard_protocol::layout::{VIRTIO_MMIO, VIRTIO_MMIO_STRIDE};
use core::fmt;

/// Register offsets (section 4.2.2).
#[allow(missing_docs)]
pub mod register {
    pub const MAGIC: u64 = 0x000;
    pub const VERSION: u64 = 0x004;
    pub const DEVICE_ID: u64 = 0x008;
    pub const DEVICE_FEATURES: u64 = 0x010;
    pub const DEVICE_FEATURES_SELECT: u64 = 0x014;
    pub const DRIVER_FEATURES: u64 = 0x020;
    pub const DRIVER_FEATURES_SELECT: u64 = 0x024;
    pub const QUEUE_SELECT: u64 = 0x030;
    pub const QUEUE_SIZE_MAX: u64 = 0x034;
    pub const QUEUE_SIZE: u64 = 0x038;
    pub const QUEUE_READY: u64 = 0x044;
    pub const QUEUE_NOTIFY: u64 = 0x050;
    pub const INTERRUPT_STATUS: u64 = 0x060;
    pub const INTERRUPT_ACKNOWLEDGE: u64 = 0x064;
    pub const STATUS: u64 = 0x070;
    pub const QUEUE_DESCRIPTORS: u64 = 0x080;
    pub const QUEUE_AVAILABLE: u64 = 0x090;
    pub const QUEUE_USED: u64 = 0x0a0;
    pub const CONFIG_GENERATION: u64 = 0x0fc;
    pub const CONFIG: u64 = 0x100;
}

/// Bits of the status register (section 2.1).
#[allow(missing_docs)]
pub mod status {
    pub const ACKNOWLEDGE: u32 = 1;
    pub const DRIVER: u32 = 2;
    pub const DRIVER_OK: u32 = 4;
    pub const FEATURES_OK: u32 = 8;
    pub const NEEDS_RESET: u32 = 64;
    pub const FAILED: u32 = 128;
}

/// Features of any device (section 6).
#[allow(missing_docs)]
pub mod feature {
    pub const INDIRECT_DESCRIPTORS: u64 = 1 << 28;
    pub const EVENT_IDX: u64 = 1 << 29;
    pub const VERSION_1: u64 = 1 << 32;
}

const MAGIC: u32 = 0x7472_6976;
const VERSION: u32 = 2;
/// How often to look whether a device has reset itself, or its configuration holds still.
const ATTEMPTS: u32 = 1000;

/// Why a device cannot be driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeError {
    /// No virtio device is there: what the magic register says.
    Magic(u32),
    /// Not version 2 of the registers.
    Version(u32),
    /// Another kind of device.
    Device(u32),
    /// It does not finish its reset.
    Reset,
    /// It lacks features that are needed.
    FeaturesMissing(u64),
    /// It does not accept features that it offered.
    FeaturesRefused(u64),
    /// A virtqueue has too little room: what it can have.
    QueueSize(u32),
    /// A virtqueue is in use already.
    QueueBusy(u32),
    /// Its configuration never holds still.
    Configuration,
}

impl fmt::Display for ProbeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic(magic) => write!(formatter, "there is no virtio device: the magic number is {magic:#x}"),
            Self::Version(version) => write!(formatter, "it has version {version} of the registers, not 2"),
            Self::Device(id) => write!(formatter, "it is a device with id {id}"),
            Self::Reset => write!(formatter, "it does not finish its reset"),
            Self::FeaturesMissing(features) => write!(formatter, "it lacks the features {features:#x}"),
            Self::FeaturesRefused(features) => write!(formatter, "it does not accept the features {features:#x}"),
            Self::QueueSize(size) => write!(formatter, "a virtqueue can have only {size} descriptors"),
            Self::QueueBusy(index) => write!(formatter, "virtqueue {index} is in use already"),
            Self::Configuration => write!(formatter, "its configuration never holds still"),
        }
    }
}

/// A device's registers.
#[derive(Clone, Copy, Debug)]
pub struct VirtioMmio {
    base: u64,
}

impl VirtioMmio {
    /// The registers at `address`; `None` when no device's can be there.
    pub const fn new(address: u64) -> Option<Self> {
        let inside = address >= VIRTIO_MMIO.start && address < VIRTIO_MMIO.end;
        if inside && (address - VIRTIO_MMIO.start).is_multiple_of(VIRTIO_MMIO_STRIDE) {
            Some(Self { base: address })
        } else {
            None
        }
    }

    /// Reads a register.
    pub fn read(&self, register: u64) -> u32 {
        // SAFETY: no memory is there, whatever the offset within the block: only this device, or nothing.
        unsafe { mmio::read32(self.base + register % VIRTIO_MMIO_STRIDE) }
    }

    /// Writes a register. What devices do with what they are told stays in memory for sharing, unless they are told
    /// otherwise with addresses: that is why this is for drivers only.
    pub fn write(&self, register: u64, value: u32) {
        // SAFETY: no memory is there, whatever the offset within the block: only this device, or nothing.
        unsafe { mmio::write32(self.base + register % VIRTIO_MMIO_STRIDE, value) }
    }

    /// Writes a 64-bit register, low half first.
    pub fn write64(&self, register: u64, value: u64) {
        self.write(register, value as u32);
        self.write(register + 4, (value >> 32) as u32);
    }

    /// Finds out whether a device of kind `id` is there.
    ///
    /// # Errors
    /// When it is not.
    pub fn identify(&self, id: u32) -> Result<(), ProbeError> {
        match self.read(register::MAGIC) {
            MAGIC => {}
            magic => return Err(ProbeError::Magic(magic)),
        }
        match self.read(register::VERSION) {
            VERSION => {}
            version => return Err(ProbeError::Version(version)),
        }
        match self.read(register::DEVICE_ID) {
            found if found == id => Ok(()),
            found => Err(ProbeError::Device(found)),
        }
    }

    /// Resets the device.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn reset(&self) -> Result<(), ProbeError> {
        self.write(register::STATUS, 0);
        match (0..ATTEMPTS).any(|_| self.status() == 0) {
            true => Ok(()),
            false => Err(ProbeError::Reset),
        }
    }

    /// Resets the device and agrees on features: all of `needed`, and of `wanted` what it has. Returns those agreed
    /// upon.
    ///
    /// # Errors
    /// When it lacks a needed feature, or does not take what it offered.
    pub fn negotiate(&self, needed: u64, wanted: u64) -> Result<u64, ProbeError> {
        self.reset()?;
        self.write(register::STATUS, status::ACKNOWLEDGE);
        self.write(register::STATUS, status::ACKNOWLEDGE | status::DRIVER);
        let offered = self.offered_features();
        if needed & !offered != 0 {
            return Err(ProbeError::FeaturesMissing(needed & !offered));
        }
        let accepted = offered & (needed | wanted);
        for half in 0..2 {
            self.write(register::DRIVER_FEATURES_SELECT, half);
            self.write(register::DRIVER_FEATURES, (accepted >> (32 * half)) as u32);
        }
        self.write(register::STATUS, status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK);
        if self.status() & status::FEATURES_OK == 0 {
            return Err(ProbeError::FeaturesRefused(accepted));
        }
        Ok(accepted)
    }

    /// What the device can do.
    pub fn offered_features(&self) -> u64 {
        let half = |half| {
            self.write(register::DEVICE_FEATURES_SELECT, half);
            u64::from(self.read(register::DEVICE_FEATURES))
        };
        half(0) | half(1) << 32
    }

    /// Tells the device where virtqueue `index` is.
    ///
    /// # Errors
    /// When it cannot have that many descriptors, or has it already.
    pub fn set_up_queue(&self, index: u32, size: u16, addresses: &QueueAddresses) -> Result<(), ProbeError> {
        self.write(register::QUEUE_SELECT, index);
        if self.read(register::QUEUE_READY) != 0 {
            return Err(ProbeError::QueueBusy(index));
        }
        let size_max = self.read(register::QUEUE_SIZE_MAX);
        if size_max < u32::from(size) {
            return Err(ProbeError::QueueSize(size_max));
        }
        self.write_queue(u32::from(size), addresses);
        Ok(())
    }

    /// Tells the device size and place of the selected virtqueue, and that it is ready.
    pub fn write_queue(&self, size: u32, addresses: &QueueAddresses) {
        self.write(register::QUEUE_SIZE, size);
        self.write64(register::QUEUE_DESCRIPTORS, addresses.descriptors);
        self.write64(register::QUEUE_AVAILABLE, addresses.available);
        self.write64(register::QUEUE_USED, addresses.used);
        self.write(register::QUEUE_READY, 1);
    }

    /// Tells the device that its driver is ready.
    pub fn start(&self) {
        use status::{ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK};
        self.write(register::STATUS, ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
    }

    /// Tells the device that there is something in virtqueue `index`. A doorbell, no exit.
    pub fn notify(&self, index: u32) {
        self.write(register::QUEUE_NOTIFY, index);
    }

    /// The status register.
    pub fn status(&self) -> u32 {
        self.read(register::STATUS)
    }

    /// A byte of the device's configuration.
    pub fn config8(&self, offset: u64) -> u8 {
        // SAFETY: as for `read`.
        unsafe { mmio::read8(self.base + (register::CONFIG + offset) % VIRTIO_MMIO_STRIDE) }
    }

    /// 2 bytes of the device's configuration.
    pub fn config16(&self, offset: u64) -> u16 {
        // SAFETY: as for `read`.
        unsafe { mmio::read16(self.base + (register::CONFIG + offset) % VIRTIO_MMIO_STRIDE) }
    }

    /// 4 bytes of the device's configuration.
    pub fn config32(&self, offset: u64) -> u32 {
        self.read(register::CONFIG + offset)
    }

    /// 8 bytes of the device's configuration, in two halves that belong together.
    ///
    /// # Errors
    /// When they never do.
    pub fn config64(&self, offset: u64) -> Result<u64, ProbeError> {
        for _ in 0..ATTEMPTS {
            let generation = self.read(register::CONFIG_GENERATION);
            let value = u64::from(self.config32(offset)) | u64::from(self.config32(offset + 4)) << 32;
            if self.read(register::CONFIG_GENERATION) == generation {
                return Ok(value);
            }
        }
        Err(ProbeError::Configuration)
    }
}
