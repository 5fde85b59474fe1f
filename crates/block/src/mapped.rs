//! Regions of memory where this process has mapped them.

use crate::huge_mapping::HugeMapping;
use crate::truncation_guard::TruncationGuard;
use std::sync::Arc;
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap};

/// The regions of a memory map. They are mapped as long as this lives.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// First, so that they let go of the addresses before those are unmapped.
    pub(crate) guards: Arc<[TruncationGuard]>,
    /// The regions again, side by side: every descriptor is looked up here.
    pub(crate) places: Box<[Place]>,
    pub(crate) guest_memory: GuestMemoryMmap,
    /// Last: where regions lie that do not unmap themselves.
    pub(crate) huge: Vec<Arc<HugeMapping>>,
}

/// Where a region lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) address: u64,
    pub(crate) length_bytes: u64,
    pub(crate) base: *mut u8,
}

// SAFETY: the pointer is into a shared mapping that lives as long as the map; every access to it takes races with the
// guest into account, and so with other threads.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Mapped {
    pub(crate) fn new(
        guest_memory: GuestMemoryMmap,
        guards: Arc<[TruncationGuard]>,
        huge: Vec<Arc<HugeMapping>>,
    ) -> Self {
        let place = |region: &GuestRegionMmap| Place {
            address: region.start_addr().0,
            length_bytes: region.len(),
            base: region.as_ptr(),
        };
        let places = guest_memory.iter().map(place).collect();
        Self { guards, places, guest_memory, huge }
    }

    /// The region that `address` lies in: its index, the offset there, and the bytes from there to its end.
    pub(crate) fn locate(&self, address: u64) -> Option<(u32, u64, u64)> {
        // Few regions, and the guest's memory is mostly in the largest, which is mostly the last.
        self.places.iter().enumerate().rev().find_map(|(index, place)| {
            let offset_bytes = address.checked_sub(place.address)?;
            (offset_bytes < place.length_bytes).then(|| (index as u32, offset_bytes, place.length_bytes - offset_bytes))
        })
    }

    /// Where `length_bytes` bytes from guest-physical `address` are, if they lie in one region.
    pub(crate) fn pointer(&self, address: u64, length_bytes: usize) -> Option<*mut u8> {
        let (region, offset_bytes, room) = self.locate(address)?;
        // The offset is within the mapping, so it fits a pointer.
        let base = self.places[region as usize].base;
        (length_bytes as u64 <= room).then(|| base.wrapping_add(offset_bytes as usize))
    }
}
