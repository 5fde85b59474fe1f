//! Memory that the guest shares with devices: the virtqueues' and the DMA pool's, as atomics.
//!
//! Program, stack and ordinary variables lie elsewhere (protocol's `layout`), so slices of atomics there are nobody
//! else's view of anything: handing out any number of them is fine.

use blockyard_protocol::layout::{DMA_POOL, INPUT_VIRTQUEUES, QUEUE_SIZE, Region, VIRTQUEUE_STRIDE};
use blockyard_virtqueue::{
    AVAILABLE_ALIGN, DESCRIPTOR_ALIGN, Rings, USED_ALIGN, available_bytes, available_words, descriptor_bytes,
    descriptor_words, used_bytes, used_words,
};
use core::ptr::with_exposed_provenance;
use core::slice;
use core::sync::atomic::{AtomicU16, AtomicU64};

/// Where the parts of a virtqueue lie in its room.
const AVAILABLE_OFFSET: u64 = descriptor_bytes(QUEUE_SIZE) as u64;
const USED_OFFSET: u64 = (AVAILABLE_OFFSET + available_bytes(QUEUE_SIZE) as u64).next_multiple_of(USED_ALIGN as u64);

const _: () = {
    assert!(USED_OFFSET + used_bytes(QUEUE_SIZE) as u64 <= VIRTQUEUE_STRIDE, "a virtqueue fits its room");
    assert!(VIRTQUEUE_STRIDE.is_multiple_of(DESCRIPTOR_ALIGN as u64));
    assert!(AVAILABLE_OFFSET.is_multiple_of(AVAILABLE_ALIGN as u64));
};

/// Where a virtqueue's parts lie, as the device is told.
#[derive(Clone, Copy, Debug)]
pub struct QueueAddresses {
    /// The descriptor table.
    pub descriptors: u64,
    /// The available ring: the driver's area.
    pub available: u64,
    /// The used ring: the device's area.
    pub used: u64,
}

impl QueueAddresses {
    /// Those of virtqueue `index` of the device whose virtqueues lie in `region`.
    pub const fn new(region: Region, index: usize) -> Self {
        let start = region.start + index as u64 * VIRTQUEUE_STRIDE;
        Self { descriptors: start, available: start + AVAILABLE_OFFSET, used: start + USED_OFFSET }
    }

    /// The virtqueue there, of [`QUEUE_SIZE`] descriptors.
    ///
    /// # Panics
    /// When the addresses are not in memory for sharing.
    pub fn rings(&self) -> Rings<'static> {
        let descriptors = words64(self.descriptors, descriptor_words(QUEUE_SIZE));
        let available = words16(self.available, available_words(QUEUE_SIZE));
        let used = words16(self.used, used_words(QUEUE_SIZE));
        match Rings::new(QUEUE_SIZE, descriptors, available, used) {
            Ok(rings) => rings,
            Err(_) => unreachable!("the parts have the size's lengths"),
        }
    }
}

/// `count` words of 8 bytes at `address`.
///
/// # Panics
/// When they are not aligned, or not in memory for sharing.
pub fn words64(address: u64, count: usize) -> &'static [AtomicU64] {
    check(address, count, size_of::<AtomicU64>());
    // SAFETY: it is memory, aligned, and only ever seen as atomics.
    unsafe { slice::from_raw_parts(with_exposed_provenance(address as usize), count) }
}

/// `count` words of 2 bytes at `address`.
///
/// # Panics
/// When they are not aligned, or not in memory for sharing.
pub fn words16(address: u64, count: usize) -> &'static [AtomicU16] {
    check(address, count, size_of::<AtomicU16>());
    // SAFETY: it is memory, aligned, and only ever seen as atomics.
    unsafe { slice::from_raw_parts(with_exposed_provenance(address as usize), count) }
}

fn check(address: u64, count: usize, word_bytes: usize) {
    let shared = INPUT_VIRTQUEUES.start..DMA_POOL.end;
    let bytes = count as u64 * word_bytes as u64;
    assert!(shared.contains(&address) && bytes <= shared.end - address, "not in memory for sharing");
    assert!(address.is_multiple_of(word_bytes as u64), "not aligned");
}
