//! The processes that receive what clients send, so that no descriptor which could hold a server up is ever one of its
//! own.
//!
//! Closing a file on a FUSE file system waits for that file system's server for as long as it likes, and nothing ends
//! the wait, SIGKILL neither: who has such a descriptor cannot even end. Looking at one may wait, too; and who receives
//! it has it. So each client's messages are received by a small process of its own, which passes them on, one datagram
//! each, with descriptors that are harmless. A message with any other it does not pass on; it says why, and ends,
//! however long that takes: nobody waits for it. When the session is over, a signal of the kernel's ends a process that
//! is still looking at something ([`Door`]).
//!
//! These processes are split off by another one, the doorkeeper, which was split off before the server gave up making
//! processes. It makes one for each client and has no descriptor of theirs itself.

use super::descriptor_kind::{is_unix_socket, kind_of};
use super::message::PAYLOAD_BYTES_MAX;
use crate::vhost_user::{HEADER_BYTES, TABLE_REGIONS_MAX};
use blockyard_block::{gives_pages, wait_ready};
use blockyard_confinement::fcntl_without_signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat, fstatfs};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The first byte of a datagram: a message of the client's follows, or why there are no more.
pub(super) const MESSAGE: u8 = 0;
pub(super) const REFUSED: u8 = 1;
/// Longest datagram.
pub(super) const DATAGRAM_BYTES_MAX: usize = 1 + HEADER_BYTES + PAYLOAD_BYTES_MAX;

/// What statfs says of eventfds and their like, and of sockets (Linux, include/uapi/linux/magic.h).
const ANON_INODE_FS_MAGIC: u64 = 0x0904_1934;
const SOCKFS_MAGIC: u64 = 0x534f_434b;

/// A process that can be asked to receive what a client sends. It ends when the last clone of this is dropped.
#[derive(Clone, Debug)]
pub struct Doorkeeper(Arc<OwnedFd>);

/// The server's ends of two sockets of the process that receives what one client sends.
#[derive(Debug)]
pub(super) struct Door {
    /// Where it is passed on.
    pub(super) messages: OwnedFd,
    /// Closed, however the session or the server ends, it has the kernel end that process with a signal, which also
    /// ends most of what it may wait for.
    _life: OwnedFd,
}

impl Doorkeeper {
    /// Splits the process off. To be called before the caller's process gives up making processes; one without threads
    /// is copied fastest.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start() -> io::Result<Self> {
        let filter = |who| filter(who).map_err(io::Error::other);
        let (doorkeeper, receiver) = (filter(Who::Doorkeeper)?, filter(Who::Receiver)?);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // SAFETY: the child calls nothing but `keep_door`, which allocates nothing, takes no lock and does not return.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => keep_door(theirs, &doorkeeper, &receiver),
            _ => Ok(Self(Arc::new(ours))),
        }
    }

    /// Has what `client` sends received from now on.
    pub(super) fn receive_from(&self, client: impl AsFd) -> io::Result<Door> {
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let ((messages, their_messages), (life, their_life)) = (pair()?, pair()?);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [client.as_fd(), their_messages.as_fd(), their_life.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL;
        rustix::io::retry_on_intr(|| sendmsg(&*self.0, &[IoSlice::new(&[0])], &mut ancillary, flags))?;
        Ok(Door { messages, _life: life })
    }
}

/// What clone(2) may not make (clone(2), namespaces(7)).
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Which of these processes a filter is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    /// It makes the others, which have to say what ends them and to take their own filter.
    Doorkeeper,
    /// One that receives what a client sends, before it receives anything.
    Receiver,
}

/// What these processes do: nothing with names.
fn filter(who: Who) -> Result<BpfProgram, seccompiler::BackendError> {
    let allowed = [
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_getsockopt,
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_fstatfs,
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_close,
        libc::SYS_close_range,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_restart_syscall,
        libc::SYS_gettid,
        libc::SYS_getpid,
        libc::SYS_futex,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = allowed.map(|call| (call, Vec::new())).into_iter().collect();
    rules.insert(libc::SYS_fcntl, vec![fcntl_without_signals()?]);
    if who == Who::Doorkeeper {
        let is = |argument, value: i32| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value as u64)
        };
        rules.entry(libc::SYS_fcntl).or_default().push(SeccompRule::new(vec![is(1, libc::F_SETOWN)?])?);
        rules.insert(libc::SYS_prctl, vec![SeccompRule::new(vec![is(0, libc::PR_SET_NO_NEW_PRIVS)?])?]);
        let no_namespaces = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(NAMESPACES), 0)?;
        rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![no_namespaces])?]);
        let others = [libc::SYS_pipe2, libc::SYS_fork, libc::SYS_set_robust_list, libc::SYS_seccomp];
        rules.extend(others.map(|call| (call, Vec::new())));
    }
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, TargetArch::x86_64)?.try_into()
}

/// The life of the doorkeeper, in a child of a process that may have threads: system calls only.
fn keep_door(control: OwnedFd, filter: &BpfProgram, of_receivers: &BpfProgram) -> ! {
    // SAFETY: these change this process alone, which has no other thread and uses no descriptor but `control`.
    unsafe {
        libc::setsid();
        close_all_but(control.as_raw_fd());
        libc::chdir(c"/".as_ptr());
        // Whoever ends the server with a signal to its whole group or session does not mean this; and nobody waits for
        // its children.
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE, libc::SIGUSR1, libc::SIGCHLD] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // What ends one of these whose session is over: whoever started the server may have had it ignored.
        libc::signal(libc::SIGIO, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"blockyard-door".as_ptr());
    }
    if blockyard_confinement::give_up_capabilities().is_err() || seccompiler::apply_filter(filter).is_err() {
        end();
    }
    loop {
        let mut polled = [PollFd::new(&control, PollFlags::IN)];
        // When the server is gone, nobody wants to hear what clients have sent.
        if wait_ready(&mut polled, None).is_err() || polled[0].revents().contains(PollFlags::HUP) {
            end();
        }
        let Ok((taken, takes)) = pipe_with(PipeFlags::CLOEXEC) else {
            pause();
            continue;
        };
        // SAFETY: as in `start`: the child calls nothing but `pass_on`.
        match unsafe { libc::fork() } {
            -1 => pause(),
            0 => {
                drop(taken);
                pass_on(control, takes, of_receivers)
            }
            _ => {
                drop(takes);
                // Until the child has taken what there is, or has ended: the next is for another.
                let _ = rustix::io::retry_on_intr(|| rustix::io::read(&taken, &mut [0_u8]));
            }
        }
    }
}

/// Waits for a moment: the machine, or the user, may have room for one process more by then.
fn pause() {
    let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 }));
}

/// Ends this process, as what it was copied from must not be cleaned up after.
fn end() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Closes every descriptor but one.
///
/// # Safety
/// The process must use none of them any more.
unsafe fn close_all_but(kept: i32) {
    let kept = kept as libc::c_uint;
    // SAFETY: as promised by the caller; numbers that are not open are passed over.
    unsafe {
        if kept > 0 {
            libc::syscall(libc::SYS_close_range, 0 as libc::c_uint, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept + 1, libc::c_uint::MAX, 0);
    }
}

/// The life of a process that receives what one client sends.
fn pass_on(control: OwnedFd, takes: OwnedFd, filter: &BpfProgram) -> ! {
    let mut given = Descriptors::default();
    let received = receive(control.as_fd(), &mut [0], &mut given, RecvFlags::empty());
    drop((control, takes));
    let [Some(client), Some(server), Some(life), ..] = &given.0 else { end() };
    // The session may be over by now.
    let is_shut_in = end_with(life).is_ok() && seccompiler::apply_filter(filter).is_ok();
    if received.is_err() || !is_shut_in {
        end();
    }
    // Who hung up has nothing more to say, and a server that did wants to hear nothing.
    let _ = pass_messages(client.as_fd(), server.as_fd());
    end()
}

/// Has the kernel end this process with SIGIO, whatever it does, when the other end of a socket is closed on which
/// nothing is ever sent.
fn end_with(life: &OwnedFd) -> io::Result<()> {
    let set = |command: i32, argument: i32| {
        // SAFETY: no memory is touched.
        match unsafe { libc::fcntl(life.as_raw_fd(), command, argument) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    set(libc::F_SETOWN, rustix::process::getpid().as_raw_nonzero().get())?;
    set(libc::F_SETFL, libc::O_ASYNC)?;
    // It may have been closed before.
    let mut polled = [PollFd::new(life, PollFlags::empty())];
    match rustix::io::retry_on_intr(|| poll(&mut polled, Some(&Timespec::default())))? {
        0 => Ok(()),
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Descriptors that came with a message.
#[derive(Default)]
struct Descriptors([Option<OwnedFd>; TABLE_REGIONS_MAX]);

/// Why a message is not passed on.
enum Refusal {
    /// One of its descriptors, and what that is.
    Descriptor(&'static str),
    TooMany,
}

/// Bytes that came, and descriptors with them; `None` when there is nothing now.
fn receive(
    from: BorrowedFd<'_>,
    into: &mut [u8],
    descriptors: &mut Descriptors,
    flags: RecvFlags,
) -> rustix::io::Result<Option<(usize, Result<(), Refusal>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TABLE_REGIONS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = match recvmsg(from, &mut [IoSliceMut::new(into)], &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC) {
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        received => received?,
    };
    let mut judged = Ok(());
    if received.flags.contains(ReturnFlags::CTRUNC) {
        judged = Err(Refusal::TooMany);
    }
    for message in ancillary.drain() {
        let RecvAncillaryMessage::ScmRights(rights) = message else { continue };
        for descriptor in rights {
            match descriptors.0.iter_mut().find(|place| place.is_none()) {
                Some(place) => *place = Some(descriptor),
                None => {
                    judged = Err(Refusal::TooMany);
                    // Not closed here, where that may take for ever: first the server hears of it.
                    std::mem::forget(descriptor);
                }
            }
        }
    }
    Ok(Some((received.bytes, judged)))
}

/// Passes on whole messages until one side has hung up or something is refused.
fn pass_messages(client: BorrowedFd<'_>, server: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut datagram = [0_u8; DATAGRAM_BYTES_MAX];
    datagram[0] = MESSAGE;
    let mut filled = 0;
    let mut descriptors = Descriptors::default();
    loop {
        let mut polled =
            [PollFd::from_borrowed_fd(client, PollFlags::IN), PollFd::from_borrowed_fd(server, PollFlags::empty())];
        rustix::io::retry_on_intr(|| poll(&mut polled, None))?;
        if !polled[1].revents().is_empty() {
            return Ok(());
        }
        let wanted = message_bytes(&datagram[1..=filled]);
        let into = &mut datagram[1 + filled..1 + wanted];
        let Some((count, judged)) = receive(client, into, &mut descriptors, RecvFlags::DONTWAIT)? else { continue };
        let judged = judged.and_then(|()| descriptors.0.iter().flatten().try_for_each(judge));
        if let Err(refusal) = judged {
            let _ = refuse(server, &refusal);
            // They are not closed first: what that waits for no signal ends, and a process that ends does not wait
            // (since Linux 6.3).
            end();
        }
        filled += count;
        // A message without its end is passed on when there will be none.
        if count == 0 && filled == 0 {
            return Ok(());
        }
        if count == 0 || filled >= HEADER_BYTES && filled == message_bytes(&datagram[1..=filled]) {
            send(server, &[IoSlice::new(&datagram[..=filled])], &descriptors)?;
            (filled, descriptors) = (0, Descriptors::default());
        }
        if count == 0 {
            return Ok(());
        }
    }
}

/// How long the message is that begins so, as far as that is known. What is longer than any message is the server's to
/// refuse.
fn message_bytes(begun: &[u8]) -> usize {
    let Some(length) = begun.get(8..HEADER_BYTES).and_then(|bytes| bytes.try_into().ok()) else { return HEADER_BYTES };
    let payload_bytes = u32::from_ne_bytes(length) as usize;
    HEADER_BYTES + if payload_bytes > PAYLOAD_BYTES_MAX { 0 } else { payload_bytes }
}

fn send(to: BorrowedFd<'_>, bytes: &[IoSlice<'_>], descriptors: &Descriptors) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TABLE_REGIONS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let mut borrowed = [to; TABLE_REGIONS_MAX];
    let mut count = 0;
    for descriptor in descriptors.0.iter().flatten() {
        borrowed[count] = descriptor.as_fd();
        count += 1;
    }
    if count > 0 {
        ancillary.push(SendAncillaryMessage::ScmRights(&borrowed[..count]));
    }
    rustix::io::retry_on_intr(|| sendmsg(to, bytes, &mut ancillary, SendFlags::NOSIGNAL)).map(drop)
}

fn refuse(server: BorrowedFd<'_>, refusal: &Refusal) -> rustix::io::Result<()> {
    let none = Descriptors::default();
    let words: [&[u8]; 4] = match refusal {
        Refusal::TooMany => [&[REFUSED], b"a message came with more than 8 descriptors", b"", b""],
        Refusal::Descriptor(kind) => [
            &[REFUSED],
            b"the client has sent ",
            kind.as_bytes(),
            b", and not an eventfd, a unix socket or a file of memory (a memfd, or on tmpfs, hugetlbfs, ext4, XFS or Btrfs; \
              User-Mode Linux: TMPDIR=/dev/shm)",
        ],
    };
    send(server, &words.map(IoSlice::new), &none)
}

/// Whether nobody can make those wait who have this descriptor. It may itself take for ever.
fn judge(descriptor: &OwnedFd) -> Result<(), Refusal> {
    let refused = || Refusal::Descriptor(kind_of(descriptor));
    let file_system = fstatfs(descriptor).map_err(|_| refused())?.f_type as u64;
    let is_file = || fstat(descriptor).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    let is_harmless = match file_system {
        ANON_INODE_FS_MAGIC => true,
        SOCKFS_MAGIC => is_unix_socket(descriptor),
        other => gives_pages(other) && is_file(),
    };
    if is_harmless { Ok(()) } else { Err(refused()) }
}
