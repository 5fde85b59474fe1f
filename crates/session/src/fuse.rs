//! A disk as a regular file, for programs that only know files.
//!
//! [`FuseFile::mount`] mounts a FUSE file system over a regular file; its root is no directory but the file itself, so
//! the path stays what it was and shows the disk's bytes instead. Unmodified dd, fio, mkfs, debugfs and qemu-img work
//! on it, without a loop device.
//!
//! The file behaves as a block device would, where that differs from a file:
//! - Its size is the disk's. truncate(2) to any other is refused (EPERM); a write past the end finds no space.
//! - Opening it with `O_TRUNC` discards the contents, as for any file: the whole disk reads as zeros. Programs that
//!   shall write a part of it must not truncate it (`dd conv=notrunc`).
//! - `O_DIRECT` bypasses the page cache, and takes any offset and length. Everybody else goes through the cache, which
//!   writes through; it is dropped when the file is opened, so what others did to the disk is seen from then on.
//! - fsync(2), and each write with `O_SYNC` or `O_DSYNC`, is on stable storage when it returns. close(2) is not fsync.
//! - `fallocate --punch-hole` and `--zero-range` make zeros; lseek(2) finds data and holes; nothing else is allocated.
//! - Permissions and owner are fixed: the caller's, 0600, or 0400 for a read-only disk.
//!
//! `Worker` threads read the kernel's messages, each with a queue and memory of its own; `pieces` and `claims` make
//! byte-granular writes out of blocks without losing a neighbour's. An unmounter process takes the mount away whatever
//! becomes of the server; where even that was killed, the next start over the same file clears it away.
//!
//! Whoever confines the process does so after mounting: the unmounter is split off before. The worker threads then
//! need, beside what the disk's queues do, `read`, `write`, `poll`/`ppoll`, and for the disk's extents `lseek`;
//! unmounting needs `recvfrom`, `sendto`, `shutdown`, `wait4`, `futex`, `munmap` and `madvise`. A process that is split
//! off after mounting and lives on without exec has to close its descriptors, or the connection outlives the server.
//!
//! Deliberately absent: directories, more than one file, the kernel's write-back cache (`connection` says why).

mod buffers;
mod claims;
mod connection;
mod errno;
mod fusermount;
mod message;
mod mount;
mod mountpoint;
mod pieces;
mod shared;
mod unmounter;
mod worker;

use blockyard_block::{Disk, Queue, explain, shown};
use buffers::{BUFFER_COUNT, Buffers};
use mountpoint::{MountIdentity, Mountpoint, Place};
pub use shared::EndReason;
use shared::{Ownership, Shared};
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
pub use unmounter::Unmounted;
use unmounter::Unmounter;
use worker::Worker;

/// More than that only get in each other's way: they all read from one device.
const THREADS_MAX: usize = 16;
/// Threads when nobody says how many: the memory of more, at work all at once, would be worth mentioning.
const THREADS_DEFAULT_MAX: usize = 4;
/// How far the kernel reads ahead of a program that reads in sequence, where we may say so: the longest request.
const READ_AHEAD_KIB: u32 = buffers::TRANSFER_BYTES_MAX / 1024;

/// Who may open the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowedUsers {
    /// The caller; not even root otherwise.
    #[default]
    Owner,
    /// The caller and root.
    OwnerAndRoot,
    /// Everybody: the file's mode is 0666, or 0444.
    Everyone,
}

/// How a disk is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuseOptions {
    /// How many threads serve it, each with a queue to the disk: 1 to 16. They inherit the caller's CPU affinity.
    pub threads: usize,
    /// Who may open it.
    pub access: AllowedUsers,
}

impl Default for FuseOptions {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self { threads: processors.min(THREADS_DEFAULT_MAX), access: AllowedUsers::Owner }
    }
}

/// Why a disk could not be mounted. Each is one sentence that names the remedy where there is one.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The file, or its directory, cannot be used.
    #[error("cannot use {}", shown(path))]
    Path {
        /// The file that the disk was to be mounted over.
        path: PathBuf,
        /// What looking at it, making it or opening its directory met.
        #[source]
        error: io::Error,
    },
    /// Only a regular file can show a disk's bytes.
    #[error("{} is a directory: name a regular file, or one that does not exist yet", shown(path))]
    Directory {
        /// The directory's path.
        path: PathBuf,
    },
    /// What a symbolic link points to may change.
    #[error("{} is a symbolic link: name the file that it points to", shown(path))]
    Symlink {
        /// The link's own path, which is not followed.
        path: PathBuf,
    },
    /// A socket, a pipe or a device.
    #[error("{} is not a regular file: name one, or one that does not exist yet", shown(path))]
    NotRegular {
        /// Where it is.
        path: PathBuf,
    },
    /// Another server serves the file.
    #[error("{} is served already: end that server, or unmount the file (umount, or fusermount3 -u)", shown(path))]
    AlreadyServed {
        /// The file that both would serve.
        path: PathBuf,
    },
    /// There is no FUSE here.
    #[error("there is no /dev/fuse: load the kernel module (modprobe fuse), or give the container the device")]
    NoDevice,
    /// FUSE is not for this process.
    #[error("cannot open /dev/fuse: {error}; root has to allow it (chmod 666 /dev/fuse), or run as root")]
    Device {
        /// What open(2) said, to us or to fusermount3.
        error: io::Error,
    },
    /// Root without the right to mount: most containers.
    #[error("this process may not mount: run it with CAP_SYS_ADMIN (in a container: --cap-add SYS_ADMIN)")]
    MayNotMount,
    /// Ordinary users need fusermount3.
    #[error("mounting as an ordinary user takes fusermount3: install the package fuse3, or run as root")]
    NoFusermount,
    /// fusermount3 refused.
    #[error("fusermount3 does not mount over {}: {said}", shown(path))]
    Fusermount {
        /// The file that the disk was to be mounted over.
        path: PathBuf,
        /// The last line that it wrote to stderr, without its own path.
        said: String,
    },
    /// Only root may let others in, unless root allows it.
    #[error("others may only be let in if /etc/fuse.conf has the line user_allow_other")]
    AllowOther,
    /// mount(2) refused.
    #[error("cannot mount over {}", shown(path))]
    Mount {
        /// The file that the disk was to be mounted over.
        path: PathBuf,
        /// What mount(2) said, or what starting or hearing fusermount3 met.
        #[source]
        error: io::Error,
    },
    /// The kernel and we do not agree, or there are no threads to be had.
    #[error("cannot serve {}", shown(path))]
    Serve {
        /// The file that the disk was to be mounted over.
        path: PathBuf,
        /// What the connection to the kernel, a thread or the unmounter met.
        #[source]
        error: io::Error,
    },
    /// The disk gave no queue.
    #[error("cannot open a queue to the disk")]
    Queue {
        /// What the disk said.
        #[source]
        error: io::Error,
    },
    /// It could not be taken away.
    #[error("{} is still mounted: {error}; run umount -l on it, or fusermount3 -u -z", shown(path))]
    Unmount {
        /// The file that the disk is mounted over.
        path: PathBuf,
        /// EPERM for whatever kept the unmounter from it, or how asking it failed.
        error: io::Error,
    },
}

/// A disk mounted over a regular file. Dropping it unmounts it, even under programs that have it open.
pub struct FuseFile {
    path: PathBuf,
    shared: Arc<Shared>,
    unmounter: Option<Unmounter>,
    workers: Vec<JoinHandle<()>>,
    /// Keeps the connection: when it and the workers' copies of the device are closed, what is still open fails.
    device: Option<OwnedFd>,
}

impl FuseFile {
    /// Mounts `disk` over the regular file at `path`. Where there is none, an empty one is made, and removed
    /// afterwards. What a file holds that was there before is hidden meanwhile.
    ///
    /// Whoever wants to confine the process does so after this: see the module's page.
    ///
    /// # Errors
    /// When the path, the system or the disk does not allow it; nothing is left mounted or made then.
    pub fn mount(disk: Arc<dyn Disk>, path: &Path, options: &FuseOptions) -> Result<Self, FuseError> {
        let geometry = disk.geometry();
        let threads = options.threads.clamp(1, THREADS_MAX);
        let queues = (0..threads)
            .map(|_| open_queue(&*disk))
            .collect::<io::Result<Vec<_>>>()
            .map_err(|error| FuseError::Queue { error })?;
        let mountpoint = Mountpoint::prepare(path)?;
        let serve_error = |error| FuseError::Serve { path: mountpoint.path.clone(), error };
        let mounted = Shared::new(disk, ownership(options.access, geometry.read_only), threads)
            .map_err(serve_error)
            .and_then(|shared| Ok((shared, mount::mount(&mountpoint, options.access, geometry.read_only)?)))
            .inspect_err(|_| mountpoint.remove())?;
        let (shared, mounted) = mounted;
        // From here on the unmounter cleans up, also after an error: it sees its socket closed.
        let unmounter = Unmounter::start(&mountpoint, mounted.fusermount.as_deref()).map_err(serve_error)?;
        mountpoint.end_turn();
        let device = mounted.device;
        connection::negotiate(&device).map_err(serve_error)?;
        let path = mountpoint.path.clone();
        let mut file =
            Self { path, shared: Arc::new(shared), unmounter: Some(unmounter), workers: Vec::new(), device: None };
        for (index, (queue, buffers)) in queues.into_iter().enumerate() {
            let device = device.try_clone().map_err(serve_error)?;
            let worker = Worker::new(index, Arc::clone(&file.shared), device, queue, buffers);
            let thread = thread::Builder::new().name(format!("fuse-{index}")).spawn(move || worker.run());
            file.workers.push(thread.map_err(serve_error)?);
        }
        file.device = Some(device);
        raise_read_ahead(&mountpoint.place);
        Ok(file)
    }

    /// Where it is mounted: absolute, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An event that becomes readable, and stays so, when the file is served no longer: somebody else unmounted it, or
    /// the disk broke. The owner then drops this.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.shared.ended()
    }

    /// Why, once [`Self::ended`] is readable.
    pub fn end_reason(&self) -> Option<&EndReason> {
        self.shared.end_reason()
    }

    /// Unmounts it, as dropping does, and says how that went. Requests that programs have made are answered first; who
    /// still has it open gets errors (ENOTCONN) from then on. Nothing is flushed that nobody asked to flush.
    ///
    /// # Errors
    /// When it is still mounted.
    pub fn unmount(mut self) -> Result<Unmounted, FuseError> {
        self.close()
    }

    /// Answers what programs have asked so far, and ends the connection.
    fn disconnect(&mut self) {
        self.shared.stop();
        for worker in self.workers.drain(..) {
            // A worker that panicked has said so.
            let _ = worker.join();
        }
        self.device = None;
    }

    fn close(&mut self) -> Result<Unmounted, FuseError> {
        let Some(mut unmounter) = self.unmounter.take() else { return Ok(Unmounted::Before) };
        if self.end_reason().is_some() {
            // Nobody answers any more: what the kernel would still write back has to fail, or it would wait for ever.
            self.disconnect();
        }
        // Else the workers still serve: what is mapped is written back before the mount goes.
        let unmounted = unmounter.unmount();
        self.disconnect();
        unmounted.map_err(|error| FuseError::Unmount { path: self.path.clone(), error })
    }
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        // Whoever wants to know calls `unmount`.
        let _ = self.close();
    }
}

impl std::fmt::Debug for FuseFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FuseFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A queue, with the memory for as many requests as a worker has in hand.
fn open_queue(disk: &dyn Disk) -> io::Result<(Box<dyn Queue>, Buffers)> {
    let buffers =
        Buffers::new(disk.geometry().logical_block_bytes).map_err(|error| io::Error::other(explain(&error)))?;
    let queue = disk.open_queue(buffers.memory(), BUFFER_COUNT)?;
    Ok((queue, buffers))
}

fn ownership(access: AllowedUsers, read_only: bool) -> Ownership {
    let permissions = match (access, read_only) {
        (AllowedUsers::Everyone, false) => 0o666,
        (AllowedUsers::Everyone, true) => 0o444,
        (_, false) => 0o600,
        (_, true) => 0o400,
    };
    Ownership {
        mode: libc::S_IFREG | permissions,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    }
}

/// Lets the kernel read ahead in requests of the longest kind. Only root may; everybody else keeps the kernel's 128
/// KiB.
fn raise_read_ahead(place: &Place) {
    if let Some(MountIdentity { device: (major, minor), .. }) = place.mount() {
        let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        let _ = fs::write(setting, READ_AHEAD_KIB.to_string());
    }
}
