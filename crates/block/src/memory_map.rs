//! The memory that requests may point into.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
    MemoryRegionAddress, MmapRegion, VolatileSlice,
};

/// Zeros to copy from and to write from, aligned for any device.
pub(crate) static ZERO_PAGE: &[u8; 4096] = &ZEROS.0;
static ZEROS: Page = Page([0; 4096]);

#[repr(align(4096))]
struct Page([u8; 4096]);

/// A place in a [`MemoryMap`]: plain data, checked against the map by the queue that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of the region, in order of address.
    pub region: u32,
    /// Length of the segment.
    pub length_bytes: u32,
    /// Offset from the start of the region.
    pub offset_bytes: u64,
}

/// Why memory could not be had or found.
#[derive(Debug, thiserror::Error)]
pub enum MemoryMapError {
    /// The operating system gave no memory.
    #[error("no memory for the guest: {0}")]
    Allocate(#[from] io::Error),
    /// The regions overlap, are empty or wrap around.
    #[error("bad layout of guest memory: {0}")]
    Layout(String),
}

/// A set of memory regions, each a memfd of sealed size, mapped here and, as the case may be, in a guest process, a
/// hypervisor and another process's disk server. Cheap to clone; the mappings live as long as any clone.
#[derive(Clone, Debug)]
pub struct MemoryMap {
    guest_memory: GuestMemoryMmap,
}

impl MemoryMap {
    /// Allocates zeroed regions of (guest-physical address, length in bytes).
    ///
    /// # Errors
    /// When the layout is bad or no memory can be had.
    pub fn allocate(layout: &[(u64, usize)]) -> Result<Self, MemoryMapError> {
        let regions = layout.iter().map(|&(address, length)| region(address, length)).collect::<Result<Vec<_>, _>>()?;
        Self::new(regions)
    }

    /// Maps regions that another process made. Its size at this moment holds; a file that is cut short later makes the
    /// kernel's accesses fail, and ours raise SIGBUS.
    ///
    /// # Errors
    /// When the layout is bad, a region reaches past the end of its file, or it cannot be mapped.
    pub fn from_files(regions: Vec<SharedRegion>) -> Result<Self, MemoryMapError> {
        let regions = regions.into_iter().map(SharedRegion::map).collect::<Result<Vec<_>, _>>()?;
        Self::new(regions)
    }

    fn new(mut regions: Vec<GuestRegionMmap>) -> Result<Self, MemoryMapError> {
        regions.sort_by_key(GuestMemoryRegion::start_addr);
        let guest_memory =
            GuestMemoryMmap::from_regions(regions).map_err(|error| MemoryMapError::Layout(error.to_string()))?;
        Ok(Self { guest_memory })
    }

    /// This map with one more region, of zeroed memory, behind its own, which keep their indices; and the new one's index.
    ///
    /// # Errors
    /// When there is no memory, or no address behind the last region.
    pub(crate) fn with_region(&self, length_bytes: usize) -> Result<(Self, u32), MemoryMapError> {
        let end = self.guest_memory.iter().map(|region| region.start_addr().0.checked_add(region.len())).max();
        let no_room = || MemoryMapError::Layout("no address is free behind the last region".to_owned());
        let address = end.unwrap_or(Some(0)).and_then(|end| end.checked_next_multiple_of(4096)).ok_or_else(no_room)?;
        let added = Arc::new(region(address, length_bytes)?);
        let guest_memory =
            self.guest_memory.insert_region(added).map_err(|error| MemoryMapError::Layout(error.to_string()))?;
        let index = guest_memory.iter().count() - 1;
        Ok((Self { guest_memory }, index as u32))
    }

    /// The regions as rust-vmm's crates want them.
    pub fn guest_memory(&self) -> &GuestMemoryMmap {
        &self.guest_memory
    }

    /// The regions, in order of address: (address, length in bytes, memfd, offset in the memfd).
    pub fn regions(&self) -> impl Iterator<Item = (u64, u64, &File, u64)> {
        self.guest_memory.iter().map(|region| {
            let file = region.file_offset().expect("every region was made from a memfd");
            (region.start_addr().0, region.len(), file.file(), file.start())
        })
    }

    /// Appends the segments that make up `length_bytes` bytes from guest-physical `address`: one, or more where the
    /// range crosses from a region into the next. False, and nothing appended, when any of it lies outside the map.
    pub fn find(&self, address: u64, length_bytes: u32, segments: &mut Vec<Segment>) -> bool {
        let before = segments.len();
        let (mut address, mut left) = (address, u64::from(length_bytes));
        while left > 0 {
            let found = self.guest_memory.iter().enumerate().find_map(|(index, region)| {
                let offset_bytes = address.checked_sub(region.start_addr().0)?;
                (offset_bytes < region.len()).then(|| (index as u32, offset_bytes, region.len() - offset_bytes))
            });
            let Some((region, offset_bytes, room)) = found else {
                segments.truncate(before);
                return false;
            };
            let length_bytes = left.min(room) as u32;
            segments.push(Segment { region, length_bytes, offset_bytes });
            left -= u64::from(length_bytes);
            match address.checked_add(u64::from(length_bytes)) {
                Some(next) => address = next,
                None if left == 0 => break,
                None => {
                    segments.truncate(before);
                    return false;
                }
            }
        }
        true
    }

    /// The segment's bytes, for copying into and out of; `None` when it lies outside.
    pub fn slice(&self, segment: Segment) -> Option<VolatileSlice<'_>> {
        let region = self.guest_memory.iter().nth(segment.region as usize)?;
        region.get_slice(MemoryRegionAddress(segment.offset_bytes), segment.length_bytes as usize).ok()
    }

    /// Fills the segment with zeros; false, and nothing done, when it lies outside.
    pub(crate) fn zero(&self, segment: Segment) -> bool {
        let Some(slice) = self.slice(segment) else { return false };
        let mut done = 0;
        while done < slice.len() {
            let length = (slice.len() - done).min(ZERO_PAGE.len());
            let Ok(piece) = slice.subslice(done, length) else { return false };
            piece.copy_from(&ZERO_PAGE[..length]);
            done += length;
        }
        true
    }

    /// The regions as this process sees them, in order. Valid as long as a clone of this map lives.
    pub(crate) fn mappings(&self) -> impl Iterator<Item = libc::iovec> {
        self.guest_memory
            .iter()
            .map(|region| libc::iovec { iov_base: region.as_ptr().cast(), iov_len: region.len() as usize })
    }

    /// The segment's bytes as this process sees them, for handing to the kernel; `None` when it lies outside.
    ///
    /// The pointer is valid for `length_bytes` bytes as long as a clone of this map lives. The guest may change what
    /// it points to at any time.
    pub(crate) fn resolve(&self, segment: Segment) -> Option<libc::iovec> {
        let region = self.guest_memory.iter().nth(segment.region as usize)?;
        let end = segment.offset_bytes.checked_add(u64::from(segment.length_bytes))?;
        if end > region.len() {
            return None;
        }
        // The offset is within the mapping, so it fits a pointer.
        let base = region.as_ptr().wrapping_add(segment.offset_bytes as usize);
        Some(libc::iovec { iov_base: base.cast(), iov_len: segment.length_bytes as usize })
    }
}

/// A region of memory that lies in a file of another process.
#[derive(Debug)]
pub struct SharedRegion {
    /// Its guest-physical address.
    pub address: u64,
    /// Its length.
    pub length_bytes: u64,
    /// The file, open for reading and writing.
    pub file: File,
    /// Where the region starts in the file.
    pub file_offset_bytes: u64,
}

impl SharedRegion {
    fn map(self) -> Result<GuestRegionMmap, MemoryMapError> {
        let Self { address, length_bytes, file, file_offset_bytes } = self;
        let layout = |what: &str| MemoryMapError::Layout(format!("region at {address:#x} {what}"));
        let end = file_offset_bytes.checked_add(length_bytes).ok_or_else(|| layout("wraps around"))?;
        if file.metadata()?.len() < end {
            return Err(layout("reaches past the end of its file"));
        }
        let length = usize::try_from(length_bytes).map_err(|_| layout("is larger than an address space"))?;
        let mapping = MmapRegion::from_file(FileOffset::new(file, file_offset_bytes), length)
            .map_err(|error| layout(&format!("cannot be mapped: {error}")))?;
        GuestRegionMmap::new(mapping, GuestAddress(address)).ok_or_else(|| layout("wraps around"))
    }
}

fn region(address: u64, length: usize) -> Result<GuestRegionMmap, MemoryMapError> {
    let memfd = sealed_memfd(length as u64)?;
    let mapping = MmapRegion::from_file(FileOffset::new(File::from(memfd), 0), length)
        .map_err(|error| MemoryMapError::Layout(error.to_string()))?;
    GuestRegionMmap::new(mapping, GuestAddress(address))
        .ok_or_else(|| MemoryMapError::Layout(format!("region at {address:#x} wraps around")))
}

/// A memfd that can neither grow nor shrink: whoever maps it never meets SIGBUS.
fn sealed_memfd(length: u64) -> io::Result<OwnedFd> {
    let memfd = memfd_create("blockyard-guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memfd, length)?;
    fcntl_add_seals(&memfd, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(memfd)
}
