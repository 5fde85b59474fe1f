//! Memory that the kernel can put into huge pages, for us and for a guest alike.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::fs::File;
use std::io;
use std::os::raw::c_void;
use std::ptr;

/// What a huge page has on x86-64, and what a smaller mapping has no use for.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A mapping that lies as its guest-physical address does in a huge page, without which KVM cannot give the guest any
/// (Documentation/virt/kvm/x86/mmu.rst). Memory that nobody touches is not there. Unmapped when this is dropped.
#[derive(Debug)]
pub(crate) struct HugeMapping {
    base: *mut u8,
    length: usize,
}

// SAFETY: it owns a range of addresses, and touches nothing in it.
unsafe impl Send for HugeMapping {}
// SAFETY: as above.
unsafe impl Sync for HugeMapping {}

impl HugeMapping {
    /// Maps `length` bytes of zeros, or those of a file of memory, for guest-physical `address`.
    pub(crate) fn new(address: u64, length: usize, file: Option<&File>) -> io::Result<Self> {
        let too_long = || io::Error::from(io::ErrorKind::OutOfMemory);
        let length = length.checked_next_multiple_of(4096).ok_or_else(too_long)?;
        let reserved_bytes = length.checked_add(HUGE_PAGE_BYTES).ok_or_else(too_long)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new range, of which nobody knows.
        let reserved = unsafe { mmap_anonymous(ptr::null_mut(), reserved_bytes, ProtFlags::empty(), flags) }?;
        let page = address as usize / 4096 * 4096;
        let front = page.wrapping_sub(reserved as usize) % HUGE_PAGE_BYTES;
        let base = reserved.wrapping_byte_add(front);
        // Whatever happens next, the addresses around it are given back.
        // SAFETY: both ranges lie in the reserved one, page by page, and outside the mapping.
        unsafe {
            unmap(reserved, front);
            unmap(base.wrapping_byte_add(length), HUGE_PAGE_BYTES - front);
        }
        let mapping = Self { base: base.cast(), length };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let fixed = MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: it takes the place of a part of the reserved range, which is ours, and in which nothing is yet.
        unsafe {
            match file {
                Some(file) => mmap(base, length, access, fixed | MapFlags::SHARED, file, 0)?,
                None => mmap_anonymous(base, length, access, fixed | MapFlags::PRIVATE)?,
            }
        };
        mapping.advise(Advice::LinuxHugepage);
        if file.is_none() {
            // A program that we start would make each page a copy, until it is that program.
            mapping.advise(Advice::LinuxDontFork);
        }
        Ok(mapping)
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// A kernel that does not know the advice does without.
    fn advise(&self, advice: Advice) {
        // SAFETY: the range is ours, and neither advice that is given changes what is in it.
        let _ = unsafe { madvise(self.base.cast(), self.length, advice) };
    }
}

impl Drop for HugeMapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and who has this has let go of it.
        unsafe { unmap(self.base.cast(), self.length) };
    }
}

/// # Safety
///
/// Nobody may use the range.
unsafe fn unmap(base: *mut c_void, length: usize) {
    if length > 0 {
        // SAFETY: as the caller says. It fails only where there are too many mappings: then the range stays reserved.
        let _ = unsafe { munmap(base, length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_lies_in_huge_pages_as_its_address_does() {
        for (address, expected) in
            [(0_u64, 0), (0x1000, 0x1000), (0x1f_f000, 0x1f_f000), (1 << 32, 0), (0x104d, 0x1000)]
        {
            let mapping = HugeMapping::new(address, HUGE_PAGE_BYTES + 5, None).unwrap();
            assert_eq!(mapping.base() as usize % HUGE_PAGE_BYTES, expected);
        }
        assert!(HugeMapping::new(0, usize::MAX - 5, None).is_err());
    }
}
