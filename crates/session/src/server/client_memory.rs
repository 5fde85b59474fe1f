//! A client's memory, as its regions come and go.

use super::message::Region;
use blockyard_block::{MemoryMap, MemoryMapError, SharedRegion};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// Regions a client may have (VHOST_USER_GET_MAX_MEM_SLOTS): as many as KVM offered once, and plenty.
pub(super) const REGIONS_MAX: usize = 32;

/// The regions, and the map made of them.
#[derive(Debug, Default)]
pub(super) struct ClientMemory {
    regions: Vec<(Region, File)>,
    map: Option<MemoryMap>,
}

impl ClientMemory {
    /// All of it; `None` before there is any.
    pub(super) fn map(&self) -> Option<&MemoryMap> {
        self.map.as_ref()
    }

    /// Memory of these regions and no others.
    pub(super) fn of(regions: Vec<(Region, OwnedFd)>) -> Result<Self, MemoryMapError> {
        let regions = regions.into_iter().map(|(region, file)| (region, File::from(file))).collect();
        Self { regions, map: None }.mapped()
    }

    /// Memory with one region more.
    pub(super) fn with(&self, region: Region, file: OwnedFd) -> Result<Self, MemoryMapError> {
        if self.regions.len() == REGIONS_MAX {
            return Err(MemoryMapError::Layout(format!("more than {REGIONS_MAX} regions")));
        }
        let mut regions = self.cloned_regions()?;
        regions.push((region, File::from(file)));
        Self { regions, map: None }.mapped()
    }

    /// Memory without a region.
    pub(super) fn without(&self, region: &Region) -> Result<Self, MemoryMapError> {
        let same = |(other, _): &(Region, File)| {
            let of = |region: &Region| (region.guest_address, region.length_bytes, region.user_address);
            of(other) == of(region)
        };
        let mut regions = self.cloned_regions()?;
        let index = regions.iter().position(same);
        let missing = || MemoryMapError::Layout(format!("no region at {:#x} to be removed", region.guest_address));
        regions.remove(index.ok_or_else(missing)?);
        Self { regions, map: None }.mapped()
    }

    fn cloned_regions(&self) -> io::Result<Vec<(Region, File)>> {
        self.regions.iter().map(|(region, file)| Ok((*region, file.try_clone()?))).collect()
    }

    fn mapped(mut self) -> Result<Self, MemoryMapError> {
        if self.regions.is_empty() {
            return Ok(self);
        }
        let shared = self.cloned_regions()?.into_iter().map(|(region, file)| SharedRegion {
            address: region.guest_address,
            length_bytes: region.length_bytes,
            file,
            file_offset_bytes: region.file_offset_bytes,
        });
        self.map = Some(MemoryMap::from_files(shared.collect())?);
        Ok(self)
    }

    /// The guest-physical address of what the client itself has at `user_address`.
    pub(super) fn guest_address(&self, user_address: u64) -> Option<u64> {
        self.regions.iter().find_map(|(region, _)| {
            let offset = user_address.checked_sub(region.user_address)?;
            // The map was made, so this is within it and does not wrap around.
            (offset < region.length_bytes).then(|| region.guest_address + offset)
        })
    }
}
