//! What the workers of one file have in common.

use super::claims::Claims;
use super::message::Attributes;
use blockyard_block::{Disk, ExtentKind};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// Extents looked at for one answer; what is beyond counts as data.
const EXTENTS_MAX: usize = 4096;
/// Extents looked at to say how much of the disk is allocated, which `stat` shows and nothing depends on.
const EXTENTS_COUNTED_MAX: usize = 256;
/// How old that may be: counting takes system calls, and a busy file's attributes are asked for often.
const ALLOCATED_VALID: Duration = Duration::from_secs(1);
/// Shown at least: some programs take a file of no blocks as one of no data, and do not read it.
const ALLOCATED_BYTES_MIN: u64 = 512;
/// What programs take as a good length when the disk names none.
const BLOCK_BYTES_DEFAULT: u32 = 4096;

/// Why a file is no longer served.
#[derive(Debug, thiserror::Error)]
pub enum EndReason {
    /// Somebody unmounted it, or aborted the connection.
    #[error("it was unmounted")]
    Unmounted,
    /// The disk's queue broke.
    #[error("its disk failed")]
    Disk(#[source] io::Error),
    /// /dev/fuse failed.
    #[error("/dev/fuse failed")]
    Device(#[source] io::Error),
    /// A mistake of ours, or of a disk's.
    #[error("a thread that serves it panicked")]
    Panicked,
}

/// How one worker is woken by others.
struct Bell {
    event: OwnedFd,
    rung: AtomicBool,
    resting: AtomicBool,
}

/// Who owns the file, and who may do what with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ownership {
    /// Type and permissions, as of stat(2).
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// See the module's page.
pub(super) struct Shared {
    disk: Arc<dyn Disk>,
    pub(super) read_only: bool,
    /// The disk's logical blocks.
    pub(super) block_bytes: u32,
    pub(super) claims: Claims,
    ownership: Ownership,
    capacity_bytes: AtomicU64,
    /// Nanoseconds since the epoch.
    modified_ns: AtomicI64,
    /// The time above is older than the last change.
    modified: AtomicBool,
    allocated_bytes: AtomicU64,
    /// When that was counted, in milliseconds since `made`; none yet is `u64::MAX`.
    allocated_ms: AtomicU64,
    made: Instant,
    bells: Vec<Bell>,
    stopping: AtomicBool,
    ended: OwnedFd,
    end_reason: OnceLock<EndReason>,
}

impl Shared {
    pub(super) fn new(disk: Arc<dyn Disk>, ownership: Ownership, workers: usize) -> io::Result<Self> {
        let geometry = disk.geometry();
        let bell = || {
            let event = new_event()?;
            io::Result::Ok(Bell { event, rung: AtomicBool::new(false), resting: AtomicBool::new(false) })
        };
        Ok(Self {
            disk,
            read_only: geometry.read_only,
            block_bytes: geometry.logical_block_bytes,
            claims: Claims::new(),
            ownership,
            capacity_bytes: AtomicU64::new(geometry.capacity_bytes),
            modified_ns: AtomicI64::new(0),
            modified: AtomicBool::new(true),
            allocated_bytes: AtomicU64::new(0),
            allocated_ms: AtomicU64::new(u64::MAX),
            made: Instant::now(),
            bells: (0..workers).map(|_| bell()).collect::<Result<_, _>>()?,
            stopping: AtomicBool::new(false),
            ended: new_event()?,
            end_reason: OnceLock::new(),
        })
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    /// What `stat` shows. The kernel asks again every second at most, and then notices a disk that grew.
    pub(super) fn attributes(&self) -> Attributes {
        let geometry = self.disk.geometry();
        self.capacity_bytes.store(geometry.capacity_bytes, Ordering::Relaxed);
        if self.modified.swap(false, Ordering::Relaxed) {
            let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.modified_ns.store(i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX), Ordering::Relaxed);
        }
        let modified_ns = u64::try_from(self.modified_ns.load(Ordering::Relaxed)).unwrap_or(0);
        let block_bytes = match geometry.optimal_io_bytes {
            0 => geometry.physical_block_bytes.max(BLOCK_BYTES_DEFAULT),
            optimal => optimal,
        };
        Attributes {
            size_bytes: geometry.capacity_bytes,
            allocated_bytes: self.allocated_bytes(geometry.capacity_bytes),
            modified: SystemTime::UNIX_EPOCH + Duration::from_nanos(modified_ns),
            mode: self.ownership.mode,
            uid: self.ownership.uid,
            gid: self.ownership.gid,
            block_bytes,
        }
    }

    /// Says that the disk changed now: the time is only taken when somebody asks for it.
    pub(super) fn mark_modified(&self) {
        self.modified.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_modified(&self, seconds: i64, nanoseconds: u32) {
        let since_epoch = seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(nanoseconds));
        self.modified.store(false, Ordering::Relaxed);
        self.modified_ns.store(since_epoch, Ordering::Relaxed);
    }

    /// How much of the disk holds data, or did a moment ago.
    fn allocated_bytes(&self, capacity_bytes: u64) -> u64 {
        let now_ms = self.made.elapsed().as_millis() as u64;
        let age_ms = now_ms.checked_sub(self.allocated_ms.load(Ordering::Relaxed));
        if age_ms.is_none_or(|age_ms| u128::from(age_ms) >= ALLOCATED_VALID.as_millis()) {
            let counted = self.count_allocated(capacity_bytes).max(ALLOCATED_BYTES_MIN);
            self.allocated_bytes.store(counted, Ordering::Relaxed);
            self.allocated_ms.store(now_ms, Ordering::Relaxed);
        }
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// Counts what holds data, so that programs see whether it is worth asking for holes.
    fn count_allocated(&self, capacity_bytes: u64) -> u64 {
        let (mut offset, mut allocated) = (0, 0);
        for _ in 0..EXTENTS_COUNTED_MAX {
            if offset >= capacity_bytes {
                return allocated;
            }
            let Ok(extent) = self.disk.extents(offset..capacity_bytes) else { break };
            if extent.kind != ExtentKind::Hole {
                allocated += extent.length_bytes;
            }
            offset += extent.length_bytes.max(1);
        }
        allocated + capacity_bytes.saturating_sub(offset)
    }

    /// lseek(2) for data and holes: zeros count as a hole. Where that takes too long, the rest counts as data.
    pub(super) fn seek(&self, offset: u64, whence: i32) -> Result<u64, Errno> {
        let capacity = self.capacity_bytes();
        let data_wanted = match whence {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return Err(Errno::INVAL),
        };
        if offset >= capacity {
            return Err(Errno::NXIO);
        }
        let mut position = offset;
        for _ in 0..EXTENTS_MAX {
            let extent = self.disk.extents(position..capacity).map_err(|_| Errno::IO)?;
            if (extent.kind == ExtentKind::Data) == data_wanted {
                return Ok(position);
            }
            position = position.saturating_add(extent.length_bytes.max(1));
            if position >= capacity {
                return if data_wanted { Err(Errno::NXIO) } else { Ok(capacity) };
            }
        }
        Ok(if data_wanted { position } else { capacity })
    }

    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Tells every worker to finish what it has in hand and return.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.bells.iter().for_each(Bell::ring);
    }

    /// Says that the file is served no longer; the first reason counts.
    pub(super) fn end(&self, reason: EndReason) {
        if self.end_reason.set(reason).is_ok() {
            ring(&self.ended);
        }
        self.stop();
    }

    pub(super) fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    pub(super) fn end_reason(&self) -> Option<&EndReason> {
        self.end_reason.get()
    }

    /// Readable when the worker was kicked.
    pub(super) fn kick_event(&self, worker: usize) -> BorrowedFd<'_> {
        self.bells[worker].event.as_fd()
    }

    /// Forgets a kick; the worker looks at everything afterwards.
    pub(super) fn take_kick(&self, worker: usize) {
        let bell = &self.bells[worker];
        if bell.rung.load(Ordering::SeqCst) {
            // Between the flag and the event the ringer may be interrupted: then the event is still to come.
            let taken = rustix::io::read(&bell.event, &mut [0_u8; 8][..]).is_ok();
            bell.rung.store(!taken, Ordering::SeqCst);
        }
    }

    pub(super) fn kick_others(&self, worker: usize) {
        self.bells.iter().enumerate().filter(|&(other, _)| other != worker).for_each(|(_, bell)| bell.ring());
    }

    /// The worker does not listen for requests until somebody calls for help.
    pub(super) fn rest(&self, worker: usize) {
        self.bells[worker].resting.store(true, Ordering::SeqCst);
    }

    pub(super) fn resting(&self, worker: usize) -> bool {
        self.bells[worker].resting.load(Ordering::SeqCst)
    }

    /// Wakes a worker that rests, if any.
    pub(super) fn call_for_help(&self) {
        let resting = |bell: &&Bell| bell.resting.load(Ordering::Relaxed) && bell.resting.swap(false, Ordering::SeqCst);
        if let Some(bell) = self.bells.iter().find(resting) {
            bell.ring();
        }
    }
}

impl Bell {
    fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            ring(&self.event);
        }
    }
}

fn new_event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn ring(event: &OwnedFd) {
    // An eventfd refuses only what would overflow it, and then it is readable already.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}
