//! The memory in which a client keeps a record of requests in flight ("Inflight I/O tracking").

use super::client_descriptor::ClientDescriptor;
use super::message::InFlightArea;
use blockyard_block::{MemoryMap, MemoryMapError, SharedRegion};
use blockyard_devices::virtio::InFlightRecord;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io;
use std::os::fd::OwnedFd;

/// The client's area, mapped.
#[derive(Debug)]
pub(super) struct InFlightMemory {
    area: InFlightArea,
    map: MemoryMap,
}

impl InFlightMemory {
    /// A new area: zeroed, so that it says nothing is in flight.
    pub(super) fn create(queues: u16, queue_size: u16) -> io::Result<(InFlightArea, OwnedFd)> {
        let length_bytes = u64::from(queues) * InFlightRecord::region_bytes(queue_size);
        let memfd = memfd_create("blockyard-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memfd, length_bytes)?;
        fcntl_add_seals(&memfd, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok((InFlightArea { length_bytes, file_offset_bytes: 0, queues, queue_size }, memfd))
    }

    /// Maps what is needed of the area that a client has kept.
    pub(super) fn map(area: InFlightArea, file: ClientDescriptor) -> Result<Self, MemoryMapError> {
        let needed = u64::from(area.queues) * InFlightRecord::region_bytes(area.queue_size);
        if area.length_bytes < needed {
            return Err(MemoryMapError::Layout(format!("{} bytes for a record of {needed}", area.length_bytes)));
        }
        let file_offset_bytes = area.file_offset_bytes;
        let region = SharedRegion { address: 0, length_bytes: needed, file, file_offset_bytes };
        Ok(Self { area, map: MemoryMap::from_files(vec![region])? })
    }

    /// The record of queue `index`; `None` if the area has none for a queue of that size.
    pub(super) fn record(&self, index: u16, size: u16) -> Option<InFlightRecord> {
        if index >= self.area.queues || size > self.area.queue_size {
            return None;
        }
        let address = u64::from(index) * InFlightRecord::region_bytes(self.area.queue_size);
        InFlightRecord::new(self.map.keep_words(address, InFlightRecord::words(size))?, size)
    }
}
