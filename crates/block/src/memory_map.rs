//! The memory that requests may point into.

use crate::huge_mapping::{HUGE_PAGE_BYTES, HugeMapping};
use crate::mapped::{Mapped, Place};
use crate::shared_words::{SharedWords, Word, words_at};
use crate::truncation_guard::TruncationGuard;
use rustix::fs::{FileType, MemfdFlags, SealFlags, Stat, fcntl_add_seals, fstat, fstatfs, ftruncate, memfd_create};
use rustix::mm::{Advice, madvise};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use vm_memory::mmap::{MmapRegionBuilder, MmapRegionError};
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
    MemoryRegionAddress, MmapRegion, VolatileSlice,
};

/// Zeros to write from, aligned for any device.
pub(crate) static ZERO_PAGE: &[u8; 4096] = &ZEROS.0;
static ZEROS: Page = Page([0; 4096]);

#[repr(align(4096))]
struct Page([u8; 4096]);

/// File systems whose files another process may share as its memory (Linux, include/uapi/linux/magic.h): tmpfs, which
/// memfds are of, hugetlbfs, ext2 to ext4, XFS and Btrfs. Their pages come out of memory or off a disk of this machine.
/// A mapping of any other file may stop the thread that touches it for as long as somebody likes: a FUSE file system's
/// server, a file server that is gone, or either of them below an overlay.
const MEMORY_FILE_SYSTEMS: [u64; 5] = [0x0102_1994, 0x9584_58f6, 0xef53, 0x5846_5342, 0x9123_683e];

/// Whether the pages of a file system's files come without anybody being asked for them: a file system by its number in
/// `statfs`.
pub fn gives_pages(file_system: u64) -> bool {
    MEMORY_FILE_SYSTEMS.contains(&file_system)
}

/// What statfs says of overlayfs.
const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;

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
    #[error("cannot get memory for requests{}", remedy(.0))]
    Allocate(#[from] io::Error),
    /// The regions overlap, are empty or wrap around.
    #[error("bad layout of guest memory: {0}")]
    Layout(String),
}

/// What helps, where it is known: memory that is shared is a file to the limit of files' sizes.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EFBIG) => ", which is more than `ulimit -f` lets a file have: raise that limit",
        _ => "",
    }
}

/// A set of memory regions, mapped here and in a hypervisor, and, where each is in a memfd of sealed size, in a guest
/// process and another process's disk server as the case may be. Cheap to clone; the mappings live as long as any
/// clone.
#[derive(Clone, Debug)]
pub struct MemoryMap {
    mapped: Arc<Mapped>,
}

impl MemoryMap {
    /// Allocates zeroed regions of (guest-physical address, length in bytes), which other processes can map, too. Long
    /// ones have huge pages where the system gives memory of several processes any: where
    /// /sys/kernel/mm/transparent_hugepage/shmem_enabled says `advise` or more, which it does not by itself.
    ///
    /// # Errors
    /// When the layout is bad or no memory can be had.
    pub fn allocate(layout: &[(u64, usize)]) -> Result<Self, MemoryMapError> {
        Self::allocate_by(layout, |address, length| {
            region(address, length, Some(File::from(sealed_memfd(length as u64)?)))
        })
    }

    /// The same as memory of this process alone, in huge pages where they are not switched off. Each is there once one
    /// of its bytes is touched.
    ///
    /// # Errors
    /// As [`MemoryMap::allocate`].
    pub fn allocate_private(layout: &[(u64, usize)]) -> Result<Self, MemoryMapError> {
        Self::allocate_by(layout, |address, length| region(address, length, None))
    }

    fn allocate_by(
        layout: &[(u64, usize)],
        region: impl Fn(u64, usize) -> Result<(GuestRegionMmap, Option<HugeMapping>), MemoryMapError>,
    ) -> Result<Self, MemoryMapError> {
        let regions = layout.iter().map(|&(address, length)| region(address, length));
        let (regions, huge): (Vec<_>, Vec<_>) = regions.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        Self::new(regions, |_| None, huge.into_iter().flatten().map(Arc::new).collect())
    }

    /// Maps regions that another process made and may cut short at any time. Their size at this moment is checked.
    /// Where a file is cut short later, the kernel's accesses fail, and ours find zeros and make
    /// [`MemoryMap::is_intact`] false.
    ///
    /// # Errors
    /// When the layout is bad, a region reaches past the end of its file, lies on a file system whose pages could be
    /// kept from us for ever, or cannot be mapped.
    pub fn from_files<F: AsFd>(regions: Vec<SharedRegion<F>>) -> Result<Self, MemoryMapError> {
        Self::from_admitted_files(regions, &AdmittedMemory::default())
    }

    /// As [`MemoryMap::from_files`], where one file on overlayfs is admitted, too.
    ///
    /// # Errors
    /// As there.
    pub fn from_admitted_files<F: AsFd>(
        regions: Vec<SharedRegion<F>>,
        admitted: &AdmittedMemory,
    ) -> Result<Self, MemoryMapError> {
        let regions = regions.iter().map(|region| region.map(admitted)).collect::<Result<Vec<_>, _>>()?;
        Self::new(regions, |region| Some(TruncationGuard::new(region.as_ptr(), region.size())), Vec::new())
    }

    fn new(
        mut regions: Vec<GuestRegionMmap>,
        guard: impl FnMut(&GuestRegionMmap) -> Option<io::Result<TruncationGuard>>,
        huge: Vec<Arc<HugeMapping>>,
    ) -> Result<Self, MemoryMapError> {
        regions.sort_by_key(GuestMemoryRegion::start_addr);
        let guest_memory =
            GuestMemoryMmap::from_regions(regions).map_err(|error| MemoryMapError::Layout(error.to_string()))?;
        let guards = guest_memory.iter().filter_map(guard).collect::<io::Result<_>>()?;
        Ok(Self { mapped: Arc::new(Mapped::new(guest_memory, guards, huge)) })
    }

    /// This map with one more region, of zeroed memory, behind its own, which keep their indices; and the new one's
    /// index.
    ///
    /// # Errors
    /// When there is no memory, or no address behind the last region.
    pub(crate) fn with_region(&self, length_bytes: usize) -> Result<(Self, u32), MemoryMapError> {
        let end = self.guest_memory().iter().map(|region| region.start_addr().0.checked_add(region.len())).max();
        let no_room = || MemoryMapError::Layout("no address is free behind the last region".to_owned());
        let address = end.unwrap_or(Some(0)).and_then(|end| end.checked_next_multiple_of(4096)).ok_or_else(no_room)?;
        let (added, mapping) = region(address, length_bytes, Some(File::from(sealed_memfd(length_bytes as u64)?)))?;
        let huge = self.mapped.huge.iter().cloned().chain(mapping.map(Arc::new)).collect();
        let guest_memory = self
            .mapped
            .guest_memory
            .insert_region(Arc::new(added))
            .map_err(|error| MemoryMapError::Layout(error.to_string()))?;
        let index = guest_memory.iter().count() - 1;
        let mapped = Mapped::new(guest_memory, Arc::clone(&self.mapped.guards), huge);
        Ok((Self { mapped: Arc::new(mapped) }, index as u32))
    }

    /// The regions as rust-vmm's crates want them: not as a type that can be cloned, as a clone would outlive the
    /// mappings.
    pub fn guest_memory(&self) -> &impl GuestMemoryBackend<R = GuestRegionMmap> {
        &self.mapped.guest_memory
    }

    /// The regions, in order of address: (address, length in bytes).
    pub fn regions(&self) -> impl Iterator<Item = (u64, u64)> {
        self.mapped.places.iter().map(|place| (place.address, place.length_bytes))
    }

    /// The regions for another process: (address, length in bytes, memfd, offset in the memfd). `None` where they are
    /// this process's alone ([`MemoryMap::allocate_private`]).
    pub fn shared_regions(&self) -> Option<impl Iterator<Item = (u64, u64, &File, u64)>> {
        let files: Option<Vec<_>> = self.mapped.guest_memory.iter().map(GuestRegionMmap::file_offset).collect();
        let regions = self.regions().zip(files?);
        Some(regions.map(|((address, length_bytes), file)| (address, length_bytes, file.file(), file.start())))
    }

    /// False from when an access of ours met the end of a file that was cut short. What is in that region, and what was
    /// written to it, means nothing any more.
    pub fn is_intact(&self) -> bool {
        self.mapped.guards.iter().all(TruncationGuard::is_intact)
    }

    /// Appends the segments that make up `length_bytes` bytes from guest-physical `address`: one, or more where the
    /// range crosses from a region into the next. False, and nothing appended, when any of it lies outside the map.
    pub fn find(&self, address: u64, length_bytes: u32, segments: &mut Vec<Segment>) -> bool {
        let before = segments.len();
        let (mut address, mut left) = (address, u64::from(length_bytes));
        while left > 0 {
            let Some((region, offset_bytes, room)) = self.mapped.locate(address) else {
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
        let region = self.guest_memory().iter().nth(segment.region as usize)?;
        region.get_slice(MemoryRegionAddress(segment.offset_bytes), segment.length_bytes as usize).ok()
    }

    /// Whether the segment lies in the map.
    pub(crate) fn contains(&self, segment: Segment) -> bool {
        self.resolve(segment).is_some()
    }

    /// Copies the bytes at guest-physical `address`, each read once; `None` when any lies outside.
    pub fn read<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        match self.mapped.pointer(address, N) {
            // SAFETY: the `N` bytes lie in a mapping that `self` keeps. The guest may be writing them: then they are
            // some mixture of old and new, which is what hostile memory is judged as anyway. Nothing else points to
            // `bytes`.
            Some(source) => unsafe { std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), N) },
            None => self.guest_memory().read_slice(&mut bytes, GuestAddress(address)).ok()?,
        }
        Some(bytes)
    }

    /// Writes a byte at guest-physical `address`; false when it lies outside.
    pub fn write_byte(&self, address: u64, value: u8) -> bool {
        let Some(pointer) = self.mapped.pointer(address, 1) else { return false };
        // SAFETY: the byte lies in a mapping that `self` keeps.
        unsafe { pointer.write_volatile(value) };
        true
    }

    /// `count` words at guest-physical `address`, as memory that others change at any time; `None` when they do not lie
    /// in one region or are not aligned there.
    pub fn words<T: Word>(&self, address: u64, count: usize) -> Option<&[T]> {
        let pointer = self.mapped.pointer(address, count.checked_mul(size_of::<T>())?)?;
        // SAFETY: the words lie in a mapping that `self`, which the slice borrows, keeps.
        unsafe { words_at(pointer, count) }
    }

    /// The same words for as long as they are wanted: they keep the map.
    pub fn keep_words<T: Word>(&self, address: u64, count: usize) -> Option<SharedWords<T>> {
        let words = self.words(address, count)?;
        // SAFETY: the words lie in the mapping that is handed over with them.
        Some(unsafe { SharedWords::new(words, Arc::clone(&self.mapped)) })
    }

    /// Fills the segment with zeros; false, and nothing done, when it lies outside.
    pub(crate) fn zero(&self, segment: Segment) -> bool {
        let Some(place) = self.resolve(segment) else { return false };
        // SAFETY: `resolve` has found the bytes in a mapping that `self` keeps.
        unsafe { place.iov_base.cast::<u8>().write_bytes(0, place.iov_len) };
        true
    }

    /// The regions as this process sees them, in order. Valid as long as a clone of this map lives.
    pub(crate) fn mappings(&self) -> impl Iterator<Item = libc::iovec> {
        let whole = |place: &Place| libc::iovec { iov_base: place.base.cast(), iov_len: place.length_bytes as usize };
        self.mapped.places.iter().map(whole)
    }

    /// The segment's bytes as this process sees them, for handing to the kernel; `None` when it lies outside.
    ///
    /// The pointer is valid for `length_bytes` bytes as long as a clone of this map lives. The guest may change what
    /// it points to at any time.
    pub(crate) fn resolve(&self, segment: Segment) -> Option<libc::iovec> {
        let place = self.mapped.places.get(segment.region as usize)?;
        let end = segment.offset_bytes.checked_add(u64::from(segment.length_bytes))?;
        if end > place.length_bytes {
            return None;
        }
        // The offset is within the mapping, so it fits a pointer.
        let base = place.base.wrapping_add(segment.offset_bytes as usize);
        Some(libc::iovec { iov_base: base.cast(), iov_len: segment.length_bytes as usize })
    }
}

/// A region of memory that lies in a file of another process.
///
/// Whose descriptor it is decides how that is closed, as it may be anything. The map has one of its own of what was
/// found to be a file of memory.
#[derive(Debug)]
pub struct SharedRegion<F = File> {
    /// Its guest-physical address.
    pub address: u64,
    /// Its length.
    pub length_bytes: u64,
    /// The file, open for reading and writing.
    pub file: F,
    /// Where the region starts in the file.
    pub file_offset_bytes: u64,
}

/// Which file on overlayfs may be another process's memory: none, unless this was made by
/// [`AdmittedMemory::first_file`].
///
/// What is below an overlay cannot be seen, so no file there is known to be harmless. A process that we started
/// ourselves, in a directory that we chose, and that has met nothing hostile yet, may say which file is its memory;
/// whatever becomes of it, it cannot change that.
#[derive(Clone, Debug, Default)]
pub struct AdmittedMemory(Option<Arc<OnceLock<(u64, u64)>>>);

impl AdmittedMemory {
    /// Admits the first file on overlayfs that is mapped, by its device and inode, and no other ever; clones admit the
    /// same file.
    pub fn first_file() -> Self {
        Self(Some(Arc::default()))
    }

    fn admits(&self, stat: &Stat) -> bool {
        let found = (stat.st_dev, stat.st_ino);
        self.0.as_ref().is_some_and(|first| *first.get_or_init(|| found) == found)
    }
}

impl<F: AsFd> SharedRegion<F> {
    fn map(&self, admitted: &AdmittedMemory) -> Result<GuestRegionMmap, MemoryMapError> {
        let &Self { address, length_bytes, ref file, file_offset_bytes } = self;
        let layout = |what: &str| MemoryMapError::Layout(format!("region at {address:#x} {what}"));
        let end = file_offset_bytes.checked_add(length_bytes).ok_or_else(|| layout("wraps around"))?;
        let stat = fstat(file).map_err(io::Error::from)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(layout("is not in a file"));
        }
        if (stat.st_size as u64) < end {
            return Err(layout("reaches past the end of its file"));
        }
        let file_system = fstatfs(file).map_err(io::Error::from)?.f_type as u64;
        let is_admitted = || file_system == OVERLAYFS_SUPER_MAGIC && admitted.admits(&stat);
        if !gives_pages(file_system) && !is_admitted() {
            return Err(layout(
                "is in a file of a file system that could keep us waiting: give the guest its memory from a memfd, or from a file in \
                 /dev/shm (User-Mode Linux: TMPDIR=/dev/shm)",
            ));
        }
        let length = usize::try_from(length_bytes).map_err(|_| layout("is larger than an address space"))?;
        let file = File::from(file.as_fd().try_clone_to_owned()?);
        let mapping = MmapRegion::from_file(FileOffset::new(file, file_offset_bytes), length)
            .map_err(|error| layout(&format!("cannot be mapped: {error}")))?;
        keep_out_of_cores(&mapping);
        GuestRegionMmap::new(mapping, GuestAddress(address)).ok_or_else(|| layout("wraps around"))
    }
}

/// A region in the file, or in none, and where it lies if huge pages are worth having.
fn region(
    address: u64,
    length: usize,
    file: Option<File>,
) -> Result<(GuestRegionMmap, Option<HugeMapping>), MemoryMapError> {
    let bad = |error: MmapRegionError| MemoryMapError::Layout(error.to_string());
    let huge = (length >= HUGE_PAGE_BYTES).then(|| HugeMapping::new(address, length, file.as_ref())).transpose()?;
    let flags =
        libc::MAP_NORESERVE | if file.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
    let mut builder =
        MmapRegionBuilder::new(length).with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE).with_mmap_flags(flags);
    if let Some(file) = file {
        builder = builder.with_file_offset(FileOffset::new(file, 0));
    }
    if let Some(huge) = &huge {
        // SAFETY: the mapping is as long, and is kept beside the region and dropped after it (`Mapped`), which hands
        // no region out for longer.
        builder = unsafe { builder.with_raw_mmap_pointer(huge.base()) };
    }
    let mapping = builder.build().map_err(bad)?;
    keep_out_of_cores(&mapping);
    let region = GuestRegionMmap::new(mapping, GuestAddress(address))
        .ok_or_else(|| MemoryMapError::Layout(format!("region at {address:#x} wraps around")))?;
    Ok((region, huge))
}

/// What a guest has in its memory, keys for instance, is in no core dump of this process.
fn keep_out_of_cores(mapping: &MmapRegion) {
    // SAFETY: the mapping is there, and the advice changes nothing that is in it. A kernel that does not know it does
    // without.
    let _ = unsafe { madvise(mapping.as_ptr().cast(), mapping.size(), Advice::LinuxDontDump) };
}

/// A memfd that can neither grow nor shrink: whoever maps it never meets SIGBUS.
fn sealed_memfd(length: u64) -> io::Result<OwnedFd> {
    let memfd = memfd_create("blockyard-guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memfd, length)?;
    fcntl_add_seals(&memfd, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(memfd)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says of the mapping at an address (proc_pid_smaps(5)).
    fn flags(address: u64) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bounds = range
                .and_then(|(from, to)| Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?)));
            !bounds.is_some_and(|(from, to)| (from..to).contains(&address))
        });
        lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap().to_owned()
    }

    #[test]
    fn a_guests_memory_is_in_no_core() {
        // Of huge pages, and of small ones.
        for length in [HUGE_PAGE_BYTES, 65536] {
            let ours = MemoryMap::allocate(&[(0, length)]).unwrap();
            let file = File::from(sealed_memfd(length as u64).unwrap());
            let region = SharedRegion { address: 0, length_bytes: length as u64, file, file_offset_bytes: 0 };
            let theirs = MemoryMap::from_files(vec![region]).unwrap();
            for memory in [ours, theirs] {
                let address = memory.guest_memory().get_host_address(GuestAddress(0)).unwrap() as u64;
                assert!(flags(address).split(' ').any(|flag| flag == "dd"), "{}", flags(address));
            }
        }
    }
}
