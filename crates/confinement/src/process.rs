//! What a process that serves disks may still do once its files and sockets are open: serve them, and nothing else.
//!
//! Three walls. A seccomp allow-list: no new program, no file opened by name, no socket made (unless it has to
//! reconnect), nothing sent to a socket by its name, no tracing, no signals to other processes. An io_uring could do
//! most of that without a system call that the list sees: so the rings that will be needed are made before
//! ([`FileDisk::make_rings_ahead`]), can do what requests take and nothing else, and no others can be made. And
//! Landlock, where the kernel has it: no files but its own sockets' names, no TCP. Root's capabilities go, too, but for
//! what removing its sockets or connecting again takes. All of this holds for every thread, those that were there
//! before among them.
//!
//! A process that runs a virtual machine ([`Confinement::machine`]) serves its guest's disks, too, and has the same
//! walls, with what KVM and a console take in the place of clients.
//!
//! A refused system call fails with EPERM rather than killing the process: a library that tries a new call and falls
//! back goes on working.

use crate::allow_list::{AllowList, is, masked};
use crate::every_thread::{self, GivenUp};
use crate::kvm_requests;
use blockyard_block::{FileDisk, RING_REGISTRATIONS, RingsAhead, WakeUp};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{BackendError, SeccompCondition};
use std::fs;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

/// What the process needs beyond the files and sockets that it has.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// Directories in which it removes its sockets at the end.
    pub removes_in: Vec<PathBuf>,
    /// Directories in which it gives files that it wrote their names, in the place of others.
    pub replaces_in: Vec<PathBuf>,
    /// Whether it connects to unix sockets: a session that outlives its server does.
    pub connects: bool,
    /// For the queues that it opens to its disk afterwards.
    pub rings: RingsAhead,
    /// The directory whose files it serves, if it serves no disk.
    pub tree: Option<Tree>,
    /// Whether it runs a virtual machine on KVM, and makes another when the guest reboots, with a console that may be a
    /// terminal. It has no clients then, and its memory is in no core dump. Threads give up more
    /// ([`MachineThread`](crate::MachineThread)).
    pub machine: bool,
    /// Whether it only makes one stream of another, of descriptors that it has: it opens and locks nothing, removes
    /// nothing, has one thread, and its memory is limited by whoever starts it.
    pub filters: bool,
}

/// A directory with all that is below it, in which a process opens, makes and removes what it is asked to. It makes no
/// devices, FIFOs or sockets there, and gives nothing another owner.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The directory, open in any way.
    pub directory: Arc<OwnedFd>,
    /// Whether nothing there may change. The list of system calls keeps that by itself, so that it does not depend on
    /// how much of Landlock there is: openat(2) has its flags looked at, and openat2(2), whose flags are in memory
    /// where no filter sees them, is not among the calls.
    pub read_only: bool,
}

/// How far Landlock could be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landlock {
    /// All of it that this program knows.
    Full,
    /// An older kernel's part of it.
    Partial,
    /// The kernel has none.
    Absent,
}

/// Why a process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// The seccomp filter.
    #[error("cannot confine this process to its system calls: {0}")]
    Seccomp(String),
    /// The Landlock ruleset.
    #[error("cannot confine this process to its files: {0}")]
    Landlock(String),
    /// Capabilities, or anything in threads that were there before.
    #[error("cannot confine the threads of this process")]
    Threads(#[source] std::io::Error),
}

/// The version of Landlock that the kernel has.
///
/// # Errors
/// When it has none, or it is switched off.
pub fn landlock_abi() -> std::io::Result<u32> {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
    let (none, size) = (std::ptr::null::<libc::c_void>(), 0usize);
    // SAFETY: with this flag, the call looks at nothing and returns a number.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, size, LANDLOCK_CREATE_RULESET_VERSION) };
    u32::try_from(abi).map_err(|_| std::io::Error::last_os_error())
}

impl Confinement {
    /// Gives up, for good, what is not needed.
    ///
    /// # Errors
    /// When the kernel refuses; it has no seccomp filters, for instance.
    pub fn enter(&self) -> Result<Landlock, ConfinementError> {
        FileDisk::make_rings_ahead(self.rings);
        let locks = if self.tree.is_none() && !self.filters { lock_any_amount() } else { 0 };
        let kept_capabilities = self.kept_capabilities().map(|kept| kept | locks);
        let landlock_error = |error: landlock::RulesetError| ConfinementError::Landlock(error.to_string());
        let ruleset = self.ruleset().map_err(landlock_error)?;
        // A copy that cannot be had leaves other threads with the filter alone.
        let twin = ruleset.try_clone().ok().and_then(Option::<OwnedFd>::from);
        let given_up = GivenUp { landlock: twin.as_ref().map(AsFd::as_fd), kept_capabilities };
        given_up.elsewhere().map_err(ConfinementError::Threads)?;
        let landlock = match ruleset.restrict_self().map_err(landlock_error)?.ruleset {
            RulesetStatus::FullyEnforced => Landlock::Full,
            RulesetStatus::PartiallyEnforced => Landlock::Partial,
            RulesetStatus::NotEnforced => Landlock::Absent,
        };
        given_up.here().map_err(ConfinementError::Threads)?;
        if self.machine {
            set_dumpable_behavior(DumpableBehavior::NotDumpable)
                .map_err(|errno| ConfinementError::Threads(errno.into()))?;
        }
        let list = self.allowed().map_err(|error| ConfinementError::Seccomp(error.to_string()))?;
        list.enter_everywhere().map_err(|error| ConfinementError::Seccomp(error.to_string()))?;
        Ok(landlock)
    }

    /// Capabilities that must stay; `None` when all do. Whoever gives files their names needs what made them.
    fn kept_capabilities(&self) -> Option<u64> {
        if !self.replaces_in.is_empty() {
            return None;
        }
        if self.tree.is_some() {
            return Some(0);
        }
        let (own, connects) = (rustix::process::geteuid().as_raw(), self.connects);
        let needs = |directory: &PathBuf| {
            let Ok(found) = fs::metadata(directory) else { return 0 };
            let is_own = found.uid() == own;
            let may_write = is_own && found.mode() & 0o200 != 0 || found.mode() & 0o002 != 0;
            let may_remove = is_own || found.mode() & 0o1000 == 0;
            u64::from(!may_write) << CAP_DAC_OVERRIDE | u64::from(!may_remove) << CAP_FOWNER
        };
        let removing = self.removes_in.iter().map(needs).fold(0, std::ops::BitOr::bitor);
        // The server's socket may be another user's.
        Some(removing | u64::from(connects) << CAP_DAC_OVERRIDE)
    }

    /// The files that stay.
    fn ruleset(&self) -> Result<RulesetCreated, landlock::RulesetError> {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI::V7))?
            .handle_access(AccessNet::from_all(ABI::V7))?
            .scope(Scope::from_all(ABI::V7))?
            .create()?;
        // A directory that cannot be opened has no socket to remove.
        let directories = self.removes_in.iter().filter_map(|path| PathFd::new(path).ok());
        let remove = BitFlags::from(AccessFs::RemoveFile);
        let rules = directories.map(|directory| Ok::<_, landlock::RulesetError>(PathBeneath::new(directory, remove)));
        let names = AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Refer;
        let replaces = self.replaces_in.iter().filter_map(|path| PathFd::new(path).ok());
        let replaces = replaces.map(|directory| Ok::<_, landlock::RulesetError>(PathBeneath::new(directory, names)));
        let trees = self.tree.iter();
        let trees =
            trees.map(|tree| Ok::<_, landlock::RulesetError>(PathBeneath::new(&*tree.directory, tree.access())));
        ruleset.add_rules(rules)?.add_rules(replaces)?.add_rules(trees)
    }

    fn allowed(&self) -> Result<AllowList, BackendError> {
        if self.filters {
            return filtering();
        }
        let mut list = if self.machine { making_machines()? } else { serving(&IOCTLS)? };
        if let Some(tree) = &self.tree {
            tree.change(&mut list)?;
        }
        // A datagram socket, be it one of a pair, sends to any other by its name; a stream does not. Nor does one of
        // packets, whose peer cannot be changed.
        let unix = |kind: libc::c_int| {
            Ok::<_, BackendError>(vec![is(0, libc::AF_UNIX as u64)?, masked(1, SOCKET_TYPE_MASK, kind as u64)?])
        };
        list.only(libc::SYS_socketpair, [unix(libc::SOCK_STREAM)?, unix(libc::SOCK_SEQPACKET)?])?;
        if !self.replaces_in.is_empty() {
            list.allow(&[libc::SYS_linkat, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_fchmod]);
        }
        if self.tree.is_some() {
            list.forbid(&OF_DISKS);
        }
        if self.connects {
            list.only(libc::SYS_socket, [unix(libc::SOCK_STREAM)?])?;
            list.allow(&[libc::SYS_connect]);
        }
        Ok(list)
    }
}

/// What serving takes, and these of ioctl(2)'s requests.
fn serving(requests: &[u64]) -> Result<AllowList, BackendError> {
    let mut list = AllowList::new(&ALLOWED)?;
    list.one_of(libc::SYS_ioctl, 1, requests)?;
    list.one_of(libc::SYS_io_uring_register, 1, &RING_REGISTRATIONS.map(u64::from))?;
    Ok(list)
}

/// What making one stream of another takes.
fn filtering() -> Result<AllowList, BackendError> {
    let mut list = AllowList::new(&FILTERING)?;
    list.forbid(&[libc::SYS_clone, libc::SYS_fcntl, libc::SYS_prctl, libc::SYS_sendto]);
    Ok(list)
}

/// What serving a virtual machine of this process's own takes, and these of ioctl(2)'s requests.
pub(crate) fn of_a_machine(requests: &[u64]) -> Result<AllowList, BackendError> {
    let mut list = serving(requests)?;
    list.forbid(&OF_SERVERS);
    // Its threads have their places, and no other process has one of this.
    list.one_of(libc::SYS_sched_setaffinity, 0, &[0])?;
    own_wake_up(&mut list)?;
    Ok(list)
}

/// Each thread may choose what happens when it wakes up.
pub(crate) fn own_wake_up(list: &mut AllowList) -> Result<(), BackendError> {
    let choices = [WakeUp::Preempts, WakeUp::Waits].map(|choice| Ok(vec![is(0, 0)?, is(1, choice.policy() as u64)?]));
    list.only(libc::SYS_sched_setscheduler, choices.into_iter().collect::<Result<Vec<_>, BackendError>>()?)
}

/// What making virtual machines takes, from the first to the last, and threads that give more up by themselves.
fn making_machines() -> Result<AllowList, BackendError> {
    use kvm_requests::{EVENTS, MACHINES, VCPUS};
    let mut list = of_a_machine(&[&VCPUS[..], &EVENTS, &MACHINES, &IOCTLS, &TERMINAL].concat())?;
    // Of filters, one more for the calling thread: nothing that listens to others, nor that takes any away.
    let plain = vec![is(0, libc::SECCOMP_SET_MODE_FILTER.into())?, SeccompCondition::new(1, Qword, Eq, 0)?];
    list.only(libc::SYS_seccomp, [plain])?;
    list.one_of(libc::SYS_prctl, 0, &[libc::PR_SET_NAME, libc::PR_SET_NO_NEW_PRIVS].map(|option| option as u64))?;
    Ok(list)
}

impl Tree {
    fn access(&self) -> BitFlags<AccessFs> {
        let reading = AccessFs::ReadFile | AccessFs::ReadDir;
        let changing = AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::MakeDir
            | AccessFs::MakeSym
            | AccessFs::RemoveFile
            | AccessFs::RemoveDir
            | AccessFs::Refer;
        if self.read_only { reading } else { reading | changing }
    }

    /// Adds the system calls that it takes.
    fn change(&self, list: &mut AllowList) -> Result<(), BackendError> {
        list.allow(&OF_TREES);
        if !self.read_only {
            list.allow(&CHANGING);
            return Ok(());
        }
        list.forbid(&CHANGING);
        list.forbid(&[libc::SYS_openat2]);
        let changing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
        list.only(libc::SYS_openat, [vec![is_read_only(changing)?]])
    }
}

/// Of the flags that openat(2) has, none is one of `changing`.
fn is_read_only(changing: libc::c_int) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(2, Dword, MaskedEq(changing as u64), 0)
}

/// What a process that serves a directory needs, and one that serves a disk does not.
const OF_TREES: [i64; 9] = [
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat2,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_umask,
    libc::SYS_statfs,
];

/// What changes something in a directory by a call of its own, rather than by how a file was opened before; or would
/// with a file that was.
const CHANGING: [i64; 12] = [
    libc::SYS_mkdirat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_fchmodat,
    libc::SYS_utimensat,
    libc::SYS_fsetxattr,
    libc::SYS_fremovexattr,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_copy_file_range,
];

/// What a process needs that reads, computes and writes.
const FILTERING: [i64; 22] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// What only disks take.
const OF_DISKS: [i64; 7] = [
    libc::SYS_unlink,
    libc::SYS_splice,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_sync_file_range,
];

/// What only those take who have clients.
const OF_SERVERS: [i64; 9] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_splice,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_destroy,
];

/// `linux/capability.h`.
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_FOWNER: u32 = 3;
const CAP_IPC_LOCK: u32 = 14;

/// The kernel's SOCK_TYPE_MASK: the rest are flags.
const SOCKET_TYPE_MASK: u64 = 0xf;

/// Who may lock any amount of memory still may afterwards, as direct I/O registers the memory of requests: by the
/// limit, or else by CAP_IPC_LOCK, which then has to stay.
fn lock_any_amount() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let unlimited = Rlimit { current: None, maximum: None };
    let is_unlimited = getrlimit(Resource::Memlock).current.is_none();
    if is_unlimited || setrlimit(Resource::Memlock, unlimited).is_ok() { 0 } else { 1 << CAP_IPC_LOCK }
}

/// Lets this process, and those that it makes, have as many descriptors as it may at most, and says how many that are.
/// What each opens is bounded by itself; nothing here uses select(2), which the usual limit of 1024 is for.
pub fn raise_descriptor_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let descriptors = if raised.is_ok() { limit.maximum } else { limit.current };
    descriptors.and_then(|descriptors| usize::try_from(descriptors).ok()).unwrap_or(usize::MAX)
}

/// Drops the calling thread's capabilities. Makes system calls only, as a process that is split off must.
///
/// # Errors
/// When the kernel refuses.
pub fn give_up_capabilities() -> std::io::Result<()> {
    // SAFETY: takes rights away, nothing else.
    match unsafe { every_thread::keep_capabilities(0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Descriptors beyond standard input, output and error that whoever started this process left it.
#[derive(Debug)]
pub struct Inherited(Vec<OwnedFd>);

impl Inherited {
    /// Takes them over: they are closed by [`Inherited::close`] at the latest, and in programs that are executed
    /// before. To be called first, before anything is opened.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn take() -> std::io::Result<Self> {
        crate::program_filter::keep_standard_descriptors_only()?;
        // Without /proc, those numbers that are seen to be used.
        let listed = fs::read_dir("/proc/self/fd").map(|entries| {
            let number = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
            entries.filter_map(number).collect::<Vec<RawFd>>()
        });
        let numbers = listed.unwrap_or_else(|_| (3..1024).collect());
        // SAFETY: only asks whether the number is used: the directory's own is closed by now.
        let is_open = |number: &RawFd| *number > 2 && unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0;
        // SAFETY: this process has opened nothing yet, as the caller promises, so nobody else closes these.
        let owned = |number| unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Self(numbers.into_iter().filter(is_open).map(owned).collect()))
    }

    /// Closes them.
    pub fn close(self) {
        drop(self.0);
    }
}

/// What may be asked of open descriptors; not, for instance, to put characters into a terminal's input.
pub(crate) const IOCTLS: [u64; 13] = [
    libc::TCGETS,
    libc::TIOCGWINSZ,
    libc::FIONBIO,
    libc::FIONREAD,
    libc::FIOCLEX,
    BLKROGET,
    BLKFLSBUF,
    BLKSSZGET,
    BLKDISCARD,
    BLKPBSZGET,
    BLKZEROOUT,
    BLKGETSIZE64,
    FUSE_DEV_IOC_CLONE,
];

/// What gives a terminal back as it was (`asm-generic/termbits.h`).
const TERMINAL: [u64; 4] = [libc::TCSETS, libc::TCFLSH, TCGETS2, TCSETS2];
const TCGETS2: u64 = 0x802c_542a;
const TCSETS2: u64 = 0x402c_542b;

/// `linux/fs.h`.
const BLKROGET: u64 = 0x125e;
const BLKFLSBUF: u64 = 0x1261;
const BLKSSZGET: u64 = 0x1268;
const BLKDISCARD: u64 = 0x1277;
const BLKPBSZGET: u64 = 0x127b;
const BLKZEROOUT: u64 = 0x127f;
const BLKGETSIZE64: u64 = 0x8008_1272;
/// `linux/fuse.h`.
const FUSE_DEV_IOC_CLONE: u64 = 0x8004_e500;

/// What serving takes: descriptors that are open already, memory, time, threads.
const ALLOWED: [i64; 90] = [
    // Data.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fadvise64,
    libc::SYS_splice,
    libc::SYS_io_uring_enter,
    // Descriptors.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_fstatfs,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_memfd_create,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    // Clients. They are rung by asynchronous I/O.
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_destroy,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    // Waiting.
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_getrandom,
    libc::SYS_sysinfo,
    // Threads.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    // The end; of processes that were started before, too.
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
