//! Rings: what they may do, and those that are made ahead.
//!
//! A ring asks the kernel for anything, files and sockets among it, without a system call that a filter could see. So
//! each is restricted, for good, to what requests take. A process that confines itself makes the rings that it will
//! need before that ([`RingsAhead`]), and from then on no others: who has taken it over finds none that does more.

use super::super::FileDisk;
use super::entry::OPCODES;
use io_uring::register::Restriction;
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Entries of a ring that is made ahead: QEMU's queues have 128 requests, User-Mode Linux's 256, and a long one takes
/// several.
const ENTRIES_AHEAD: u32 = 512;
/// Most rings that are made ahead; each takes a descriptor and 50 KiB.
const AHEAD_MAX: usize = 256;

/// What a ring may be told with io_uring_register(2): IORING_REGISTER_BUFFERS, IORING_UNREGISTER_BUFFERS,
/// IORING_REGISTER_FILES and IORING_UNREGISTER_FILES (linux/io_uring.h).
pub const RING_REGISTRATIONS: [u8; 4] = [0, 1, 2, 3];

/// Files whose queues may want a ring.
static FILES: AtomicUsize = AtomicUsize::new(0);

/// Rings that were made ahead; `None` where rings are made when they are wanted.
static AHEAD: Mutex<Option<Vec<IoUring>>> = Mutex::new(None);

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
    /// Makes the rings of `queues` queues to each file that is open as a disk, for a process that is about to lose the
    /// right to make any. From then on queues are opened on these rings only; where they are too few, or the kernel has
    /// none that can be restricted (Linux before 5.10), threads carry requests out, or
    /// [`Engine::Uring`](crate::Engine::Uring) is refused.
    pub fn make_rings_ahead(queues: usize) {
        let wanted = FILES.load(Ordering::Relaxed).saturating_mul(queues).min(AHEAD_MAX);
        let rings = (0..wanted).map_while(|_| restricted(ENTRIES_AHEAD).ok()).collect();
        *ahead() = Some(rings);
    }
}

fn ahead() -> MutexGuard<'static, Option<Vec<IoUring>>> {
    AHEAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A ring for a queue of `depth`, or fewer.
pub(super) fn take(depth: u32) -> io::Result<IoUring> {
    if let Some(rings) = &mut *ahead() {
        return rings.pop().ok_or_else(|| Errno::PERM.into());
    }
    match restricted(depth) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            let ring = IoUring::builder().dontfork().build(depth)?;
            has_all(&ring).map(|_| ring)
        }
        made => made,
    }
}

/// Takes back a ring that nothing is registered with and nothing is in flight on.
pub(super) fn give_back(ring: IoUring) {
    if let Some(rings) = &mut *ahead() {
        rings.push(ring);
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
        let mut ring = take(2).unwrap();
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
        let ring = take(2).unwrap();
        assert!(ring.submitter().register_restrictions(&mut [Restriction::sqe_op(opcode::Socket::CODE)]).is_err());
        assert!(ring.submitter().register_probe(&mut Probe::new()).is_err());
    }
}
