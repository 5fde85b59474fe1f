//! The opened file or block device that a disk and its queues share.

use super::direct::{Direct, DirectRange};
use super::stability::Stability;
use super::{FileDiskError, FileOptions, device};
use crate::limits::{LOGICAL_BLOCK_MAX_BYTES, LOGICAL_BLOCK_MIN_BYTES, SEGMENTS_MAX};
use crate::{Geometry, RequestError, descriptor_path};
use rustix::fs::{OFlags, fcntl_getfl, fstat, ftruncate};
use rustix::io::Errno;
use rustix::process::getpid;
use rustix::thread::sched_getaffinity;
use std::fs::{self, File, FileType, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An opened file or block device.
#[derive(Debug)]
pub(crate) struct Backing {
    /// The file, through the page cache.
    pub(super) file: File,
    /// The file once more, past the page cache.
    pub(super) direct: Option<Direct>,
    pub(super) geometry: Geometry,
    length_bytes: AtomicU64,
    pub(super) is_block_device: bool,
    pub(super) cache_unsafe: bool,
    pub(super) stability: Arc<Stability>,
    pub(super) discard: Support,
    pub(super) punch_hole: Support,
    pub(super) zero_range: Support,
    /// Long transfers are made by two CPUs at once. Where this process has one alone, telling another thread only costs
    /// system calls.
    pub(super) shares_transfers: bool,
}

/// Whether a way to give storage back or to zero it works on this file: assumed, until it was refused once.
#[derive(Debug, Default)]
pub(super) struct Support {
    refused: AtomicBool,
}

impl Support {
    pub(super) fn is_likely(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }
}

/// Whether this process may use several CPUs, which its first thread says: others are placed.
fn has_several_cpus() -> bool {
    sched_getaffinity(Some(getpid())).map_or(true, |cpus| cpus.count() > 1)
}

/// Whether a logical block may be this large.
pub(crate) fn check_logical_block(bytes: u32) -> Result<(), FileDiskError> {
    let in_range = (LOGICAL_BLOCK_MIN_BYTES..=LOGICAL_BLOCK_MAX_BYTES).contains(&bytes);
    if in_range && bytes.is_power_of_two() { Ok(()) } else { Err(FileDiskError::LogicalBlock(bytes)) }
}

impl Backing {
    pub(super) fn from_file(file: File, options: &FileOptions) -> Result<Self, FileDiskError> {
        check_logical_block(options.logical_block_bytes)?;
        let path = path_of(&file);
        let flags =
            fcntl_getfl(&file).map_err(|errno| FileDiskError::Inspect { path: path.clone(), source: errno.into() })?;
        if let Some(problem) = unsuitable(flags, options) {
            return Err(FileDiskError::Unsuitable { path, problem });
        }
        Self::inspect(file, &path, options)
    }

    pub(super) fn inspect(file: File, path: &Path, options: &FileOptions) -> Result<Self, FileDiskError> {
        let failed = |source| FileDiskError::Inspect { path: path.to_owned(), source };
        let metadata = file.metadata().map_err(failed)?;
        check_kind(path, metadata.file_type())?;
        let is_block_device = metadata.file_type().is_block_device();
        if is_block_device && !options.read_only && device::is_read_only(&file).map_err(failed)? {
            return Err(FileDiskError::DeviceReadOnly { path: path.to_owned() });
        }
        let length_bytes = if is_block_device { device::size_bytes(&file).map_err(failed)? } else { metadata.len() };
        let direct = match options.direct {
            true => Some(Direct::open(&file, path, &metadata, length_bytes, options)?),
            false => None,
        };
        let geometry = geometry(&file, &metadata, length_bytes, direct.as_ref(), options);
        Ok(Self {
            stability: Arc::new(Stability::of(&file)),
            file,
            direct,
            geometry,
            length_bytes: AtomicU64::new(length_bytes),
            is_block_device,
            cache_unsafe: options.cache_unsafe,
            discard: Support::default(),
            punch_hole: Support::default(),
            zero_range: Support::default(),
            shares_transfers: has_several_cpus(),
        })
    }

    /// The file's own length when it was opened; the capacity is this, rounded up to logical blocks.
    pub(super) fn length_bytes(&self) -> u64 {
        self.length_bytes.load(Ordering::Acquire)
    }

    /// Takes a file whose end is not the disk's.
    pub(super) fn set_length_bytes(&mut self, length_bytes: u64) {
        *self.length_bytes.get_mut() = length_bytes;
    }

    /// Makes the file as long as the disk: up to its last block there is something to keep.
    pub(super) fn fill_last_block(&self) -> Result<(), RequestError> {
        let failed = |errno: Errno| RequestError::Os(errno.raw_os_error());
        if self.is_block_device {
            return Err(failed(Errno::NOSPC));
        }
        let length_bytes = u64::try_from(fstat(&self.file).map_err(failed)?.st_size).unwrap_or(0);
        if length_bytes < self.length_bytes() {
            return Err(RequestError::Truncated);
        }
        if length_bytes < self.geometry.capacity_bytes {
            ftruncate(&self.file, self.geometry.capacity_bytes).map_err(failed)?;
        }
        self.length_bytes.store(self.geometry.capacity_bytes, Ordering::Release);
        Ok(())
    }

    /// Which part of the file is transferred past the page cache.
    pub(super) fn direct_range(&self) -> DirectRange {
        self.direct.as_ref().map_or(DirectRange::NONE, |direct| direct.range)
    }

    /// The opening that a transfer goes through.
    pub(super) fn file_for(&self, direct: bool) -> &File {
        match &self.direct {
            Some(opened) if direct => &opened.file,
            _ => &self.file,
        }
    }
}

fn geometry(
    file: &File,
    metadata: &Metadata,
    length_bytes: u64,
    direct: Option<&Direct>,
    options: &FileOptions,
) -> Geometry {
    let align_bytes = direct.map_or(1, |direct| direct.range.align_bytes);
    let logical_block_bytes = options.logical_block_bytes.max(align_bytes);
    let of_device = metadata.file_type().is_block_device().then(|| device::abilities(metadata));
    Geometry {
        // A file is at most i64::MAX long, so this cannot overflow.
        capacity_bytes: length_bytes.next_multiple_of(u64::from(logical_block_bytes)),
        logical_block_bytes,
        physical_block_bytes: physical_block_bytes(file, metadata).max(logical_block_bytes),
        optimal_io_bytes: 0,
        segments_max: SEGMENTS_MAX,
        transfer_bytes_max: u64::MAX,
        memory_align_bytes: direct.map_or(1, |direct| direct.memory_align_bytes),
        read_only: options.read_only,
        discard: !options.read_only && of_device.is_none_or(|can| can.discard),
        write_zeroes: !options.read_only && of_device.is_none_or(|can| can.write_zeroes),
    }
}

pub(super) fn check_kind(path: &Path, file_type: FileType) -> Result<(), FileDiskError> {
    let kind = match file_type {
        kind if kind.is_file() || kind.is_block_device() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_char_device() => "a character device",
        kind if kind.is_socket() => "a socket",
        _ => "something else",
    };
    Err(FileDiskError::NotADisk { path: path.to_owned(), kind })
}

/// What makes a file opened with these flags useless as a disk.
fn unsuitable(flags: OFlags, options: &FileOptions) -> Option<&'static str> {
    let access = flags & OFlags::ACCMODE;
    if flags.contains(OFlags::PATH) || access == OFlags::WRONLY {
        return Some("is not open for reading");
    }
    if !options.read_only && access != OFlags::RDWR {
        return Some("is not open for writing");
    }
    if flags.contains(OFlags::APPEND) {
        return Some("is open for appending, which would move every write to its end");
    }
    flags
        .contains(OFlags::DIRECT)
        .then_some("is open with O_DIRECT, which the disk opens by itself where it is asked to")
}

/// The path an open file was opened by, as well as the kernel knows it; for messages.
fn path_of(file: &File) -> PathBuf {
    fs::read_link(descriptor_path(file))
        .unwrap_or_else(|_| PathBuf::from(format!("file descriptor {}", file.as_raw_fd())))
}

/// The unit the storage is written in: what the device says, or the file system's block.
fn physical_block_bytes(file: &File, metadata: &Metadata) -> u32 {
    let said = if metadata.file_type().is_block_device() {
        device::physical_block_bytes(file).unwrap_or(0)
    } else {
        u32::try_from(metadata.blksize()).unwrap_or(0)
    };
    let believable = said.is_power_of_two() && said <= LOGICAL_BLOCK_MAX_BYTES;
    if believable { said } else { LOGICAL_BLOCK_MIN_BYTES }
}
