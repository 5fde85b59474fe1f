//! One system call of a request, described.

use super::backing::Backing;
use super::device;
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use std::os::fd::AsRawFd;

/// A system call that carries a request a step further. Each engine makes it in its own way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call<'a> {
    /// Nothing is left to ask of the kernel.
    Nothing,
    /// `preadv`.
    Read(Transfer<'a>),
    /// `pwritev2`.
    Write(Transfer<'a>),
    /// `fdatasync`.
    Sync,
    /// `fallocate`.
    Allocate { mode: FallocateFlags, offset_bytes: u64, length_bytes: u64 },
    /// A block device's own discard.
    Discard { offset_bytes: u64, length_bytes: u64 },
}

/// The memory and the place of a read or a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer<'a> {
    /// At least one, at most IOV_MAX.
    pub(super) iovecs: &'a [libc::iovec],
    pub(super) offset_bytes: u64,
    /// RWF_ flags, `preadv2(2)`.
    pub(super) flags: i32,
    /// Past the page cache.
    pub(super) direct: bool,
}

impl Transfer<'_> {
    pub(super) fn length_bytes(&self) -> u64 {
        self.iovecs.iter().map(|iovec| iovec.iov_len as u64).sum()
    }
}

impl Call<'_> {
    /// Makes the call here and now. The result is io_uring's: what the call returned, or a negated errno.
    ///
    /// # Safety
    /// The memory that the iovecs point to must stay mapped for as long as the call runs.
    pub(super) unsafe fn make(self, backing: &Backing) -> i32 {
        match self {
            Self::Nothing => 0,
            Self::Read(Transfer { iovecs, offset_bytes, direct, .. }) => {
                let (fd, count) = (backing.file_for(direct).as_raw_fd(), iovecs.len() as i32);
                // SAFETY: the iovecs are borrowed, and the caller keeps their memory mapped.
                transferred(unsafe { libc::preadv(fd, iovecs.as_ptr(), count, offset_bytes as i64) })
            }
            Self::Write(Transfer { iovecs, offset_bytes, flags, direct }) => {
                let (fd, count) = (backing.file_for(direct).as_raw_fd(), iovecs.len() as i32);
                // SAFETY: the iovecs are borrowed, and the caller keeps their memory mapped.
                transferred(unsafe { libc::pwritev2(fd, iovecs.as_ptr(), count, offset_bytes as i64, flags) })
            }
            Self::Sync => result(fdatasync(&backing.file)),
            Self::Allocate { mode, offset_bytes, length_bytes } => {
                result(fallocate(&backing.file, mode, offset_bytes, length_bytes))
            }
            Self::Discard { offset_bytes, length_bytes } => {
                result(device::discard(&backing.file, offset_bytes, length_bytes))
            }
        }
    }
}

/// Linux transfers at most 0x7ffff000 bytes in one call (`read(2)`), so what was returned fits.
fn transferred(returned: isize) -> i32 {
    if returned >= 0 {
        return returned as i32;
    }
    -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn result(returned: rustix::io::Result<()>) -> i32 {
    match returned {
        Ok(()) => 0,
        Err(errno) => -errno.raw_os_error(),
    }
}
