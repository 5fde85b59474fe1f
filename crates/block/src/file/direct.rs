//! Transfers past the page cache.

use super::{FileDiskError, FileOptions, device};
use crate::descriptor_path;
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// What is assumed of a file whose file system does not say: no storage has larger blocks unless its file system says
/// so.
const ALIGN_BYTES: u32 = 4096;

/// Largest alignment a disk can have: its logical block.
const ALIGN_MAX_BYTES: u32 = 65536;

/// As large as pages of the page cache get without being told to be larger.
const PAGE_MAX_BYTES: u64 = 65536;

/// Memory is mapped in pages of this size at least, so that nothing can be promised beyond.
const PAGE_MIN_BYTES: u32 = 4096;

/// The second opening of a disk's file, with `O_DIRECT`.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) file: File,
    pub(super) range: DirectRange,
    /// What a segment's address and length must be a multiple of.
    pub(super) memory_align_bytes: u32,
}

/// Which part of a file is transferred directly: the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectRange {
    pub(super) end_bytes: u64,
    /// What offsets and lengths must be a multiple of.
    pub(super) align_bytes: u32,
}

impl DirectRange {
    /// The range of a disk that uses the page cache.
    pub(super) const NONE: Self = Self { end_bytes: 0, align_bytes: 1 };

    pub(super) fn contains(self, offset_bytes: u64) -> bool {
        offset_bytes < self.end_bytes
    }

    /// How far a transfer from `offset_bytes` goes one way, direct or not.
    pub(super) fn room_bytes(self, offset_bytes: u64) -> u64 {
        if self.contains(offset_bytes) { self.end_bytes - offset_bytes } else { u64::MAX }
    }

    pub(super) fn is_aligned(self, bytes: u64) -> bool {
        bytes.is_multiple_of(u64::from(self.align_bytes))
    }
}

impl Direct {
    /// Opens `file` once more, with `O_DIRECT`.
    pub(super) fn open(
        file: &File,
        path: &Path,
        metadata: &Metadata,
        length_bytes: u64,
        options: &FileOptions,
    ) -> Result<Self, FileDiskError> {
        let failed = |source| FileDiskError::Direct { path: path.to_owned(), source };
        let unsupported = || failed(io::Error::other("its file system cannot do that"));
        // Through the descriptor, because the path may lead elsewhere by now, and an unnamed file has none.
        let opened = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .custom_flags(libc::O_DIRECT)
            .open(descriptor_path(file));
        let direct_file = opened.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::INVAL) => unsupported(),
            _ => failed(error),
        })?;
        let said = alignment(file, metadata).map_err(failed)?.ok_or_else(unsupported)?;
        let align_bytes = said.offset_bytes.next_power_of_two().max(512);
        if align_bytes > ALIGN_MAX_BYTES {
            return Err(failed(io::Error::other(format!("its blocks of {align_bytes} bytes are too large"))));
        }
        let range = DirectRange { end_bytes: direct_end_bytes(metadata, length_bytes, align_bytes), align_bytes };
        // Kernels before 6.18 want each segment as long as whole blocks, those before 6.0 as aligned, too.
        let memory_align_bytes = said.memory_bytes.max(align_bytes).min(PAGE_MIN_BYTES);
        Ok(Self { file: direct_file, range, memory_align_bytes })
    }
}

/// Where the part ends that is moved directly. A page never goes both ways, or what one writes could overtake what the
/// other has cached.
fn direct_end_bytes(metadata: &Metadata, length_bytes: u64, align_bytes: u32) -> u64 {
    if length_bytes.is_multiple_of(u64::from(align_bytes)) {
        return length_bytes;
    }
    length_bytes - length_bytes % PAGE_MAX_BYTES.max(metadata.blksize())
}

struct Alignment {
    offset_bytes: u32,
    memory_bytes: u32,
}

/// What the kernel says (statx(2), Linux 6.1), else what the device says, else a guess. `None`: no direct transfers.
fn alignment(file: &File, metadata: &Metadata) -> io::Result<Option<Alignment>> {
    let asked = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
    if let Ok(said) = statx(file, "", AtFlags::EMPTY_PATH, asked)
        && said.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        let (offset_bytes, memory_bytes) = (said.stx_dio_offset_align, said.stx_dio_mem_align);
        let possible = offset_bytes > 0 && memory_bytes > 0;
        return Ok(possible.then_some(Alignment { offset_bytes, memory_bytes }));
    }
    let of_device = metadata.file_type().is_block_device().then(|| device::logical_block_bytes(file)).flatten();
    let bytes = of_device.unwrap_or(ALIGN_BYTES);
    Ok(Some(Alignment { offset_bytes: bytes, memory_bytes: bytes }))
}
