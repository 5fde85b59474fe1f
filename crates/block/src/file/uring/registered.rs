//! What a ring knows in advance: files, so that a request need not look them up, and memory, so that it need not pin
//! it.

use crate::MemoryMap;
use crate::file::backing::Backing;
use io_uring::{Submitter, squeue};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};

/// Most memory that is registered. Registering pins all of it, used or not: for an I/O buffer that pays at once, for
/// the memory of a large guest it would take what the guest never touches. Below the kernel's own limit of 1 GiB a
/// buffer.
const REGISTERED_BYTES_MAX: u64 = 256 << 20;

/// Most regions that a request's memory is looked for in.
const BUFFERS_MAX: usize = 16;

pub(super) struct Registered {
    /// Through the page cache, and directly.
    files: [File; 2],
    /// Registered memory, as addresses. The index is the buffer's.
    buffers: Vec<Range<usize>>,
}

/// How a submission names a file.
#[derive(Clone, Copy)]
pub(super) struct File {
    /// A descriptor, or an index into the registered files.
    pub(super) number: RawFd,
    /// Says which of the two.
    pub(super) flags: squeue::Flags,
}

impl Registered {
    /// Registers what can be registered. What the system refuses is named in full with each request instead.
    ///
    /// # Safety
    /// `memory` must stay mapped as long as the ring lives.
    pub(super) unsafe fn with(submitter: &Submitter<'_>, backing: &Backing, memory: &MemoryMap) -> Self {
        let descriptors = [false, true].map(|direct| backing.file_for(direct).as_raw_fd());
        let files = match submitter.register_files(&descriptors) {
            Ok(()) => [0, 1].map(|number| File { number, flags: squeue::Flags::FIXED_FILE }),
            Err(_) => descriptors.map(|number| File { number, flags: squeue::Flags::empty() }),
        };
        let mut buffers = Vec::new();
        // Through the page cache they were measured to gain nothing.
        if backing.direct.is_some() {
            // SAFETY: the caller keeps the memory mapped.
            buffers = unsafe { register_memory(submitter, memory) }.unwrap_or_default();
        }
        Self { files, buffers }
    }

    pub(super) fn file(&self, direct: bool) -> File {
        self.files[usize::from(direct)]
    }

    /// The registered buffer that the memory lies in.
    pub(super) fn buffer(&self, iovec: &libc::iovec, direct: bool) -> Option<u16> {
        if !direct {
            return None;
        }
        let start = iovec.iov_base as usize;
        let end = start.checked_add(iovec.iov_len)?;
        let index = self.buffers.iter().position(|buffer| buffer.start <= start && end <= buffer.end)?;
        // There are BUFFERS_MAX at most.
        Some(index as u16)
    }
}

/// Registers all regions, or none. The memory counts against RLIMIT_MEMLOCK unless the process may lock any amount;
/// memory in a file on a disk cannot be registered.
///
/// # Safety
/// `memory` must stay mapped as long as the ring lives.
unsafe fn register_memory(submitter: &Submitter<'_>, memory: &MemoryMap) -> io::Result<Vec<Range<usize>>> {
    let iovecs: Vec<_> = memory.mappings().collect();
    let total_bytes = iovecs.iter().map(|iovec| iovec.iov_len as u64).sum::<u64>();
    if total_bytes > REGISTERED_BYTES_MAX || iovecs.len() > BUFFERS_MAX {
        return Ok(Vec::new());
    }
    // SAFETY: the iovecs are mappings that the caller keeps.
    unsafe { submitter.register_buffers(&iovecs) }?;
    Ok(iovecs.iter().map(|iovec| iovec.iov_base as usize..iovec.iov_base as usize + iovec.iov_len).collect())
}
