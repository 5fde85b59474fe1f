//! Where a virtqueue's three parts lie, and how long they are.

use core::fmt;
use core::sync::atomic::{AtomicU16, AtomicU64};

/// Most descriptors that a virtqueue can have.
pub const QUEUE_SIZE_MAX: u16 = 32768;
/// Alignment of the descriptor table, in bytes.
pub const DESCRIPTOR_ALIGN: usize = 16;
/// Alignment of the available ring, in bytes.
pub const AVAILABLE_ALIGN: usize = 2;
/// Alignment of the used ring, in bytes.
pub const USED_ALIGN: usize = 4;

/// Words in a descriptor table of `size` descriptors: two of 8 bytes each.
pub const fn descriptor_words(size: u16) -> usize {
    2 * size as usize
}

/// Words in an available ring: flags, index, an entry for each descriptor, used_event.
pub const fn available_words(size: u16) -> usize {
    3 + size as usize
}

/// Words in a used ring: flags, index, four for each descriptor (id and length), avail_event.
pub const fn used_words(size: u16) -> usize {
    3 + 4 * size as usize
}

/// Bytes in a descriptor table of `size` descriptors.
pub const fn descriptor_bytes(size: u16) -> usize {
    8 * descriptor_words(size)
}

/// Bytes in an available ring.
pub const fn available_bytes(size: u16) -> usize {
    2 * available_words(size)
}

/// Bytes in a used ring.
pub const fn used_bytes(size: u16) -> usize {
    2 * used_words(size)
}

/// The memory of a virtqueue that driver and device share.
#[derive(Clone, Copy, Debug)]
pub struct Rings<'memory> {
    pub(crate) descriptors: &'memory [AtomicU64],
    pub(crate) available: &'memory [AtomicU16],
    pub(crate) used: &'memory [AtomicU16],
    pub(crate) size: u16,
}

/// Why rings cannot be those of a virtqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingsError {
    /// The size is not a power of two, or more than [`QUEUE_SIZE_MAX`].
    Size(u16),
    /// A part is shorter than the size asks for.
    TooShort,
}

impl fmt::Display for RingsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(formatter, "a virtqueue cannot have {size} descriptors"),
            Self::TooShort => write!(formatter, "the memory for a virtqueue is too short"),
        }
    }
}

impl core::error::Error for RingsError {}

impl<'memory> Rings<'memory> {
    /// The parts of a virtqueue of `size` descriptors, in memory that is aligned as the constants here say and that
    /// nobody but this driver and its device uses.
    ///
    /// # Errors
    /// When there can be no such virtqueue, or its parts are shorter than it takes.
    pub const fn new(
        size: u16,
        descriptors: &'memory [AtomicU64],
        available: &'memory [AtomicU16],
        used: &'memory [AtomicU16],
    ) -> Result<Self, RingsError> {
        if !size.is_power_of_two() || size > QUEUE_SIZE_MAX {
            return Err(RingsError::Size(size));
        }
        if descriptors.len() < descriptor_words(size)
            || available.len() < available_words(size)
            || used.len() < used_words(size)
        {
            return Err(RingsError::TooShort);
        }
        Ok(Self { descriptors, available, used, size })
    }

    /// Descriptors in the virtqueue.
    pub const fn size(&self) -> u16 {
        self.size
    }
}
