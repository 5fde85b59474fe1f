//! Rings: what they may do, and those that are made ahead.
//!
//! A ring asks the kernel for anything, files and sockets among it, without a system call that a filter could see. So
//! each is restricted, for good, to what requests take. A process that confines itself makes the rings that it will
//! need before that ([`RingsAhead`]), and from then on no others: who has taken it over finds none that does more.
//! Queues of which there may be more than rings have a [`RingQuota`], so that they leave others theirs.

use super::super::FileDisk;
use super::entry::OPCODES;
use io_uring::register::Restriction;
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Entries of a ring that is made ahead: QEMU's queues have 128 requests, User-Mode Linux's 256, and a long one takes
/// several.
const ENTRIES_AHEAD: u32 = 512;
/// Most rings that are made ahead; each takes a descriptor and 50 KiB.
const AHEAD_MAX: usize = 256;

/// Queues to a file that are opened when something is to be copied out of it.
const READERS: usize = 1;

/// What a ring may be told with io_uring_register(2): IORING_REGISTER_BUFFERS, IORING_UNREGISTER_BUFFERS,
/// IORING_REGISTER_FILES and IORING_UNREGISTER_FILES (linux/io_uring.h).
pub const RING_REGISTRATIONS: [u8; 4] = [0, 1, 2, 3];

/// Files whose queues may want a ring.
static FILES: AtomicUsize = AtomicUsize::new(0);

/// Rings that were made ahead; `None` where rings are made when they are wanted.
static AHEAD: Mutex<Option<Pool>> = Mutex::new(None);

thread_local! {
    /// What queues that this thread opens are counted on.
    static QUOTA: RefCell<Option<Arc<RingQuota>>> = const { RefCell::new(None) };
}

/// For how many queues a process makes rings ahead, each to every file that is open as a disk then; and one more to
/// each, for the thread of an image in front of that file that reads what it copies, from when it first has to
/// ([`DiskReader`](crate::DiskReader)).
#[derive(Clone, Copy, Debug, Default)]
pub struct RingsAhead {
    /// Queues that have their rings whatever others there are, besides that thread's.
    pub queues: usize,
    /// [Quotas](RingQuota) of others that there are at a time.
    pub quotas: usize,
    /// Queues that each of those is for.
    pub quota_queues: usize,
}

/// Some queues, and how many of the rings that were made ahead they may have at a time, all together:
/// [as many](RingsAhead::quota_queues) as whoever made them has said, or fewer where there are not so many.
#[derive(Debug, Default)]
pub struct RingQuota {
    taken: AtomicUsize,
}

impl RingQuota {
    /// Has the queues that `open` opens in this thread count on this quota.
    pub fn apply<T>(self: &Arc<Self>, open: impl FnOnce() -> T) -> T {
        let before = QUOTA.replace(Some(Arc::clone(self)));
        let opened = open();
        QUOTA.set(before);
        opened
    }
}

/// Rings that nobody uses.
struct Pool {
    rings: Vec<IoUring>,
    /// Of all rings, those that are for queues without a quota, and how many such queues have one.
    kept: usize,
    kept_taken: usize,
    /// How many each quota is for.
    quota_rings: usize,
}

impl Pool {
    fn take(&mut self, quota: Option<&RingQuota>) -> Option<IoUring> {
        match quota {
            None => self.kept_taken += usize::from(!self.rings.is_empty()),
            Some(quota) => {
                let taken = quota.taken.load(Ordering::Relaxed);
                if taken >= self.quota_rings || self.rings.len() <= self.kept.saturating_sub(self.kept_taken) {
                    return None;
                }
                quota.taken.store(taken + 1, Ordering::Relaxed);
            }
        }
        self.rings.pop()
    }

    fn give_back(&mut self, ring: IoUring, quota: Option<&RingQuota>) {
        match quota {
            None => self.kept_taken = self.kept_taken.saturating_sub(1),
            Some(quota) => _ = quota.taken.fetch_sub(1, Ordering::Relaxed),
        }
        self.rings.push(ring);
    }
}

/// An open file whose queues may want a ring.
#[derive(Debug)]
pub(in crate::file) struct RingUser;

impl RingUser {
    pub(in crate::file) fn new() -> Self {
        FILES.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for RingUser {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FileDisk {
    /// Makes rings for a process that is about to lose the right to make any. From then on queues are opened on these
    /// rings only; where they are too few, or the kernel has none that can be restricted (Linux before 5.10), threads
    /// carry requests out, or [`Engine::Uring`](crate::Engine::Uring) is refused.
    pub fn make_rings_ahead(wanted: RingsAhead) {
        let files = FILES.load(Ordering::Relaxed);
        let RingsAhead { queues, quotas, quota_queues } = wanted;
        let queues = queues.saturating_add(READERS);
        let count = quotas.saturating_mul(quota_queues).saturating_add(queues).saturating_mul(files).min(AHEAD_MAX);
        let rings: Vec<_> = (0..count).map_while(|_| restricted(ENTRIES_AHEAD).ok()).collect();
        let kept = files.saturating_mul(queues).min(rings.len());
        let quota_rings = (rings.len() - kept) / quotas.max(1);
        *ahead() = Some(Pool { rings, kept, kept_taken: 0, quota_rings });
    }
}

fn ahead() -> MutexGuard<'static, Option<Pool>> {
    AHEAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A queue's ring, and what it counts on.
pub(super) type Taken = (IoUring, Option<Arc<RingQuota>>);

/// A ring for a queue of `depth`, or fewer.
pub(super) fn take(depth: u32) -> io::Result<Taken> {
    if let Some(pool) = &mut *ahead() {
        let quota = QUOTA.with_borrow(Option::clone);
        let ring = pool.take(quota.as_deref()).ok_or(Errno::PERM)?;
        return Ok((ring, quota));
    }
    made(depth).map(|ring| (ring, None))
}

fn made(depth: u32) -> io::Result<IoUring> {
    match restricted(depth) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            let ring = IoUring::builder().dontfork().build(depth)?;
            has_all(&ring).map(|_| ring)
        }
        made => made,
    }
}

/// Takes back a ring that nothing is registered with and nothing is in flight on.
pub(super) fn give_back((ring, quota): Taken) {
    if let Some(pool) = &mut *ahead() {
        pool.give_back(ring, quota.as_deref());
    }
}

/// A ring that completes requests when their thread enters the kernel anyway, rather than interrupting it (Linux 5.19),
/// and says in its flags that it waits for that.
///
/// Not IORING_SETUP_SINGLE_ISSUER and DEFER_TASKRUN: those bind a ring to the thread that first used it, and a queue
/// may be handed on, be it only to be dropped.
fn restricted(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_r_disabled();
    let plain = builder.clone();
    let ring = match builder.setup_coop_taskrun().setup_taskrun_flag().build(entries) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => plain.build(entries),
        made => made,
    }?;
    // A kernel refuses restrictions that name what it does not know.
    let command = has_all(&ring)?.then_some(opcode::UringCmd16::CODE);
    let operations = OPCODES.iter().copied().chain(command).map(Restriction::sqe_op);
    let registrations = RING_REGISTRATIONS.into_iter().map(Restriction::register_op);
    let flags = Restriction::sqe_flags_allowed((squeue::Flags::FIXED_FILE | squeue::Flags::ASYNC).bits());
    let mut restrictions: Vec<_> = operations.chain(registrations).chain([flags]).collect();
    ring.submitter().register_restrictions(&mut restrictions)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

/// Whether the kernel knows commands beside what requests always take.
///
/// # Errors
/// ENOSYS when it does not know all of those.
fn has_all(ring: &IoUring) -> io::Result<bool> {
    static KNOWN: OnceLock<(bool, bool)> = OnceLock::new();
    let ask = || {
        let mut probe = Probe::new();
        let probed = ring.submitter().register_probe(&mut probe).is_ok();
        let is_known = |&code: &u8| probed && probe.is_supported(code);
        (OPCODES.iter().all(is_known), is_known(&opcode::UringCmd16::CODE))
    };
    match *KNOWN.get_or_init(ask) {
        (true, has_commands) => Ok(has_commands),
        (false, _) => Err(Errno::NOSYS.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::types::Fd;

    /// What a ring answers to a submission.
    fn answer(entry: squeue::Entry) -> i32 {
        let mut ring = made(2).unwrap();
        // SAFETY: what the entry points to is static.
        unsafe { ring.submission().push(&entry) }.unwrap();
        ring.submit_and_wait(1).unwrap();
        ring.completion().next().unwrap().result()
    }

    #[test]
    fn a_ring_does_what_requests_take_and_nothing_else() {
        if let Err(error) = restricted(2) {
            return eprintln!("rings cannot be had, or not be restricted ({error}): not tried");
        }
        assert_eq!(answer(opcode::Nop::new().build()), 0);
        static ADDRESS: libc::sockaddr_un = libc::sockaddr_un { sun_family: 1, sun_path: [0; 108] };
        let message = std::ptr::null();
        let address = (&raw const ADDRESS).cast();
        for (what, entry) in [
            ("socket", opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build()),
            ("connect", opcode::Connect::new(Fd(0), address, size_of_val(&ADDRESS) as u32).build()),
            ("accept", opcode::Accept::new(Fd(0), std::ptr::null_mut(), std::ptr::null_mut()).build()),
            ("sendmsg", opcode::SendMsg::new(Fd(0), message).build()),
            ("openat", opcode::OpenAt::new(Fd(libc::AT_FDCWD), c"/".as_ptr()).build()),
            ("unlinkat", opcode::UnlinkAt::new(Fd(libc::AT_FDCWD), c"/nothing".as_ptr()).build()),
            ("close", opcode::Close::new(Fd(0)).build()),
            ("a linked operation", opcode::Nop::new().build().flags(squeue::Flags::IO_LINK)),
        ] {
            assert_eq!(answer(entry), -libc::EACCES, "{what}");
        }
        let ring = made(2).unwrap();
        assert!(ring.submitter().register_restrictions(&mut [Restriction::sqe_op(opcode::Socket::CODE)]).is_err());
        assert!(ring.submitter().register_probe(&mut Probe::new()).is_err());
    }
}
