//! What a process that serves disks may still do once its files and sockets are open: serve them, and nothing else.
//!
//! Two walls, because neither is enough. A seccomp allow-list holds for every thread: no new program, no file opened by
//! name, no socket made (unless it has to reconnect), no tracing. Landlock holds for what the allow-list cannot see: an
//! io_uring opens files without a system call of its own. It takes hold of the calling thread and of those that it starts from
//! then on, so [`Confinement::enter`] comes before the I/O threads.
//!
//! A refused system call fails with EPERM rather than killing the process: a library that tries a new call and falls back
//! goes on working.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the process needs beyond the files and sockets that it has.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// Directories in which it removes its sockets at the end.
    pub removes_in: Vec<PathBuf>,
    /// Directories in which it gives files that it wrote their names, in the place of others.
    pub replaces_in: Vec<PathBuf>,
    /// Whether it connects to unix sockets: a session that outlives its server does.
    pub connects: bool,
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
    #[error("cannot confine the server to its system calls: {0}")]
    Seccomp(String),
    /// The Landlock ruleset.
    #[error("cannot confine the server to its files: {0}")]
    Landlock(String),
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
        let landlock = self.restrict_files().map_err(|error| ConfinementError::Landlock(error.to_string()))?;
        let seccomp = |error: &dyn std::fmt::Display| ConfinementError::Seccomp(error.to_string());
        let allowed = self.allowed().map_err(|error| seccomp(&error))?;
        let unknown = unknown_to_libc().map_err(|error| seccomp(&error))?;
        for filter in [unknown, allowed] {
            seccompiler::apply_filter_all_threads(&filter).map_err(|error| seccomp(&error))?;
        }
        Ok(landlock)
    }

    fn restrict_files(&self) -> Result<Landlock, landlock::RulesetError> {
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
        let status = ruleset.add_rules(rules)?.add_rules(replaces)?.restrict_self()?;
        Ok(match status.ruleset {
            RulesetStatus::FullyEnforced => Landlock::Full,
            RulesetStatus::PartiallyEnforced => Landlock::Partial,
            RulesetStatus::NotEnforced => Landlock::Absent,
        })
    }

    fn allowed(&self) -> Result<BpfProgram, seccompiler::BackendError> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
        // Threads, but no processes.
        let thread = SeccompCondition::new(0, Qword, MaskedEq(libc::CLONE_THREAD as u64), libc::CLONE_THREAD as u64)?;
        rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![thread])?]);
        // Memory is for data: no mapping may be executed.
        for (call, protection) in [(libc::SYS_mmap, 2), (libc::SYS_mprotect, 2)] {
            let data = SeccompCondition::new(protection, Dword, MaskedEq(libc::PROT_EXEC as u64), 0)?;
            rules.insert(call, vec![SeccompRule::new(vec![data])?]);
        }
        for (call, argument, values) in
            [(libc::SYS_ioctl, 1, &IOCTLS[..]), (libc::SYS_prctl, 0, &[libc::PR_SET_NAME as u64])]
        {
            let one_of =
                values.iter().map(|&value| SeccompRule::new(vec![SeccompCondition::new(argument, Dword, Eq, value)?]));
            rules.insert(call, one_of.collect::<Result<_, _>>()?);
        }
        if !self.replaces_in.is_empty() {
            let calls = [libc::SYS_linkat, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_fchmod];
            rules.extend(calls.map(|call| (call, Vec::new())));
        }
        if self.connects {
            let unix = SeccompCondition::new(0, Dword, Eq, libc::AF_UNIX as u64)?;
            rules.insert(libc::SYS_socket, vec![SeccompRule::new(vec![unix])?]);
            rules.insert(libc::SYS_connect, Vec::new());
        }
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        SeccompFilter::new(rules, refused, SeccompAction::Allow, TargetArch::x86_64)?.try_into()
    }
}

/// A filter cannot look at clone3's arguments, which lie in memory: libc takes `clone` when the kernel does not know it.
pub(crate) fn unknown_to_libc() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = [(libc::SYS_clone3, Vec::new())].into_iter().collect();
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, unknown, TargetArch::x86_64)?.try_into()
}

/// What may be asked of open descriptors; not, for instance, to put characters into a terminal's input.
const IOCTLS: [u64; 13] = [
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
const ALLOWED: [i64; 95] = [
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
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Descriptors.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
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
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
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
    libc::SYS_tgkill,
    // The end; of processes that were started before, too.
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
