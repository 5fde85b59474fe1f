//! Disks in regular files and on block devices.

mod backing;
mod call;
mod device;
mod direct;
mod error;
mod extents;
mod job;
mod lock;
mod opening;
mod stability;
mod sync;
mod threads;
mod uring;

use crate::limits::checked_depth;
use crate::{Disk, Extent, Geometry, MemoryMap, Queue};
use backing::Backing;
pub(crate) use backing::check_logical_block;
pub use error::FileDiskError;
pub use lock::FileUsers;
use rustix::io::Errno;
pub(crate) use stability::Stability;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
pub use uring::{RING_REGISTRATIONS, RingQuota, RingsAhead};

/// Who carries a file's requests out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring, or threads where the system refuses io_uring (a container's seccomp filter, an old kernel).
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// A few threads of the queue's own, each making one blocking call at a time.
    Threads,
    /// The caller's own thread, inside [`Queue::submit`], one request at a time.
    Sync,
}

/// How to open a [`FileDisk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Refuse every change; the file is opened for reading only.
    pub read_only: bool,
    /// Who carries the requests out.
    pub engine: Engine,
    /// The disk's logical block size: a power of two from 512 to 65536. With `direct` it becomes as large as the file
    /// wants its transfers aligned; an [`crate::layers::AlignedDisk`] on top serves smaller blocks.
    pub logical_block_bytes: u32,
    /// Answer flushes at once, without making anything stable. Whatever the machine loses, the disk loses.
    pub cache_unsafe: bool,
    /// Go past the page cache (`O_DIRECT`). The geometry says how requests must be aligned then; others fail.
    pub direct: bool,
    /// Lock the file the way QEMU does, against other writers, and against other readers if this is a writer. Only for
    /// files opened by path: who brings an open file has locked it or not. A file system without locks is used without.
    pub lock: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            engine: Engine::Auto,
            logical_block_bytes: 512,
            cache_unsafe: false,
            direct: false,
            lock: true,
        }
    }
}

/// A disk in a regular file or on a block device.
///
/// The file may have any length: the capacity is rounded up to whole logical blocks, and the padding between the file's
/// end and the disk's reads as zeros. The file becomes that long when something else than zeros is written there.
///
/// With [`FileOptions::direct`], what lies in the file's last, incomplete page goes through the page cache all the
/// same: `O_DIRECT` moves whole blocks only. Nothing else does, so the two never meet in one page.
///
/// A block device is opened for writing only if nobody else in the system has it: not while it is mounted, say.
#[derive(Debug)]
pub struct FileDisk {
    backing: Arc<Backing>,
    engine: Engine,
    opened_bytes: u64,
    _rings: Option<uring::RingUser>,
}

/// Where a file that grows must end: the last whole block, of the largest size, of what a file offset holds.
const GROWING_BYTES_MAX: u64 = (i64::MAX as u64) & !0xffff;

impl FileDisk {
    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    /// When it cannot be opened, is neither a regular file nor a block device, is locked by somebody else, or an option
    /// is wrong. The error names the path.
    pub fn open(path: &Path, options: &FileOptions) -> Result<Self, FileDiskError> {
        check_logical_block(options.logical_block_bytes)?;
        let file = Self::open_file(path, options.read_only)?;
        Self::lock(&file, path, options)?;
        Self::on_opened(file, path, options)
    }

    /// Whether what is written can be made stable: for who writes to the file by other calls than queues'.
    pub(crate) fn stability(&self) -> Arc<Stability> {
        Arc::clone(&self.backing.stability)
    }

    /// Opens the file at `path` as [`FileDisk::open`] does, without locking it.
    pub(crate) fn open_file(path: &Path, read_only: bool) -> Result<File, FileDiskError> {
        opening::open(path, read_only)
    }

    /// The same, of a file that is open as a path only (`O_PATH`), and lies at `path`.
    pub(crate) fn open_seen(seen: OwnedFd, path: &Path, read_only: bool) -> Result<File, FileDiskError> {
        opening::open_seen(seen, path, read_only)
    }

    /// Takes a file that was opened and locked by [`FileDisk::open_file`] and [`FileDisk::lock`].
    pub(crate) fn on_opened(file: File, path: &Path, options: &FileOptions) -> Result<Self, FileDiskError> {
        check_logical_block(options.logical_block_bytes)?;
        Ok(Self::on(Backing::inspect(file, path, options)?, options))
    }

    /// Takes a file that is open already. Its position is moved by [`Disk::extents`]; its flags are left alone.
    ///
    /// # Errors
    /// When it is neither a regular file nor a block device, is not open for what the options ask, is open with
    /// `O_APPEND` or `O_DIRECT` ([`FileOptions::direct`] opens it again by itself), or an option is wrong.
    pub fn from_file(file: File, options: &FileOptions) -> Result<Self, FileDiskError> {
        Ok(Self::on(Backing::from_file(file, options)?, options))
    }

    fn on(backing: Backing, options: &FileOptions) -> Self {
        let opened_bytes = backing.length_bytes();
        Self { opened_bytes, ..Self::of(backing, options) }
    }

    fn of(backing: Backing, options: &FileOptions) -> Self {
        let engine = options.engine;
        let _rings = matches!(engine, Engine::Auto | Engine::Uring).then(uring::RingUser::new);
        Self { opened_bytes: 0, backing: Arc::new(backing), engine, _rings }
    }

    /// Takes a file that grows while the disk is in use: whoever opens it decides which ranges are asked for. The disk
    /// itself has no end; [`FileDisk::length_bytes`] still says how long the file was.
    ///
    /// # Errors
    /// As [`FileDisk::from_file`].
    pub fn growing(file: File, options: &FileOptions) -> Result<Self, FileDiskError> {
        let mut backing = Backing::from_file(file, options)?;
        let opened_bytes = backing.length_bytes();
        backing.set_length_bytes(GROWING_BYTES_MAX);
        backing.geometry.capacity_bytes = GROWING_BYTES_MAX;
        Ok(Self { opened_bytes, ..Self::of(backing, options) })
    }

    /// Locks a file that was opened by a path as [`FileDisk::open`] does, unless the options say not to.
    ///
    /// # Errors
    /// When somebody else has locked it.
    pub fn lock(file: &File, path: &Path, options: &FileOptions) -> Result<(), FileDiskError> {
        if options.lock { lock::lock(file, path, options.read_only) } else { Ok(()) }
    }

    /// The file's real length, as it was when the disk was opened; the capacity is this, rounded up.
    pub fn length_bytes(&self) -> u64 {
        self.opened_bytes
    }
}

impl Disk for FileDisk {
    fn geometry(&self) -> Geometry {
        self.backing.geometry
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.backing.extents(range)
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let depth = checked_depth(depth)?;
        let backing = &self.backing;
        match self.engine {
            Engine::Uring => uring::UringQueue::boxed(backing, memory, depth),
            Engine::Threads => threads::ThreadsQueue::boxed(backing, memory, depth),
            Engine::Sync => Ok(sync::SyncQueue::boxed(backing, memory)),
            Engine::Auto => match uring::UringQueue::boxed(backing, memory, depth) {
                Err(error) if is_refusal(&error) => threads::ThreadsQueue::boxed(backing, memory, depth),
                opened => opened,
            },
        }
    }
}

/// Whether the system does not let this process have an io_uring: a seccomp filter or a sysctl (EPERM, EACCES), a
/// kernel without it (ENOSYS), or RLIMIT_MEMLOCK on kernels that count rings against it (ENOMEM).
fn is_refusal(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::NOMEM))
}
