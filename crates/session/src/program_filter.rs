//! What a program that we execute may ask of the kernel: less once it has started.
//!
//! User-Mode Linux, whose guest is hostile, has to open files, connect to its disks and be executed; after that it does none of it
//! any more. Two seccomp filters say so. The first leaves the system calls that such a program needs, and holds from the start. The
//! second asks us about those that are needed for the start only: [`StartCalls`] answers them until it is ended, and from then on the
//! kernel refuses them all (`SECCOMP_RET_USER_NOTIF`, seccomp_unotify(2)). So nothing that the guest does can open a file, connect to a
//! socket or execute a program, whatever else the machine has to confine it with.
//!
//! Newer ones (Linux 6.13) execute a program of their own, which they have open, for each process of the guest's. For those there is one way
//! to execute that stays, by descriptor and without a name ([`Executes::Descriptors`]). What is executed is so what the guest has already; it
//! has the same filters, and no privileges of a file's (no_new_privs).

use crate::confinement::unknown_to_libc;
use blockyard_block::wait_ready;
use libc::c_ulong;
use rustix::event::{PollFd, PollFlags};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::thread::{self, JoinHandle};

/// Marks every descriptor but standard input, output and error to be closed when the next program is executed.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_standard_descriptors_only() -> io::Result<()> {
    // SAFETY: no descriptor is closed, nor any memory touched.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 {
        return Ok(());
    }
    // Linux before 5.11 does not know that.
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(number) = number.filter(|number| *number >= 3) {
            // SAFETY: as above.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// Has the next program that is executed where it is always, as User-Mode Linux wants itself: it would execute itself again for that, and of
/// newer ones that fails where there is no /proc. Where the kernel refuses, the program has to see.
pub fn fix_addresses() {
    // SAFETY: no memory is touched; it is about programs that are executed later.
    unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as c_ulong) };
}

/// What a program goes on executing when its start is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executes {
    /// No programs.
    Nothing,
    /// Files that it has open: `execveat` with `AT_EMPTY_PATH` and an empty path. A path that is not empty would count in spite of that
    /// flag, and a filter does not see it; so the path has to be at [`last_byte`], where no other string has room. These programs may also
    /// be shut in further with filters (seccomp(2)).
    Descriptors,
}

/// Address of the last byte that a process of this machine's can have: where page tables have five levels, it may ask for more
/// than usual (Linux, Documentation/arch/x86/x86_64/5level-paging.rst). The page that would follow is the kernel's.
pub fn last_byte() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let last_page = |end: u64| end - 2 * PAGE_BYTES;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let wanted = last_page(1 << 56);
    // SAFETY: a page of its own, for which nothing makes way.
    let page = unsafe { libc::mmap(wanted as *mut _, PAGE_BYTES as usize, libc::PROT_NONE, flags, -1, 0) };
    let is_there = page as u64 == wanted;
    if page != libc::MAP_FAILED {
        // SAFETY: nobody has been told about that page.
        unsafe { libc::munmap(page, PAGE_BYTES as usize) };
    }
    (if is_there { wanted } else { last_page(1 << 47) }) + PAGE_BYTES - 1
}

/// Installs both filters in this thread, and so in every program that it executes. The descriptor, which is closed by that, is for
/// [`StartCalls`] in another process; without one, because the kernel is old or another filter is asked already, the calls of the start
/// stay allowed. To be called in a process that has one thread and no new privileges.
///
/// # Errors
/// When the kernel has no filters.
pub fn filter_program(executes: Executes) -> io::Result<Option<OwnedFd>> {
    let filter = |built: Result<BpfProgram, seccompiler::BackendError>| built.map_err(io::Error::other);
    let listener = install(&asked(filter(of_the_start(executes))?), libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    install(&filter(unknown_to_libc())?, 0)?;
    install(&filter(allowed(executes))?, 0)?;
    let Ok(listener) = listener else { return Ok(None) };
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(listener) }))
}

fn install(program: &BpfProgram, flags: c_ulong) -> io::Result<i32> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut().cast() };
    // Without, older kernels make the program slower than the filter does (seccomp(2)).
    let flags = flags | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel copies the program, whose length is right; seccompiler's instructions are laid out as the kernel's are.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    i32::try_from(done).ok().filter(|done| *done >= 0).ok_or_else(io::Error::last_os_error)
}

/// Turns "trace", for which seccompiler has a word, into "ask", for which it has none.
fn asked(mut program: BpfProgram) -> BpfProgram {
    const RETURN: u16 = 0x06;
    for instruction in &mut program {
        if instruction.code == RETURN && instruction.k == libc::SECCOMP_RET_TRACE {
            instruction.k = libc::SECCOMP_RET_USER_NOTIF;
        }
    }
    program
}

fn of_the_start(executes: Executes) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = START.map(|call| (call, Vec::new())).into_iter().collect();
    if executes == Executes::Descriptors {
        let other_path = SeccompCondition::new(1, Qword, Ne, last_byte())?;
        let other_flags = SeccompCondition::new(4, Dword, Ne, libc::AT_EMPTY_PATH as u64)?;
        let asked = [other_path, other_flags].map(|condition| SeccompRule::new(vec![condition]));
        rules.insert(libc::SYS_execveat, asked.into_iter().collect::<Result<_, _>>()?);
    }
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Trace(0), TargetArch::x86_64)?.try_into()
}

fn allowed(executes: Executes) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().chain(&START).map(|&call| (call, Vec::new())).collect();
    let only =
        |conditions: Vec<SeccompCondition>| Ok::<_, seccompiler::BackendError>(vec![SeccompRule::new(conditions)?]);
    let unix = || SeccompCondition::new(0, Dword, Eq, libc::AF_UNIX as u64);
    rules.insert(libc::SYS_socket, only(vec![unix()?])?);
    rules.insert(libc::SYS_socketpair, only(vec![unix()?])?);
    rules.insert(libc::SYS_clone, only(vec![SeccompCondition::new(0, Qword, MaskedEq(NAMESPACES), 0)?])?);
    // Its own children ask to be traced; nobody else's process is anything to it.
    let not = |request| SeccompCondition::new(0, Dword, Ne, request);
    let attaching = [libc::PTRACE_ATTACH, libc::PTRACE_SEIZE].map(|request| not(u64::from(request)));
    rules.insert(libc::SYS_ptrace, only(attaching.into_iter().collect::<Result<_, _>>()?)?);
    // Not to put characters into a terminal's input (ioctl_tty(2)).
    let typing = [libc::TIOCSTI, TIOCLINUX].map(|request| SeccompCondition::new(1, Dword, Ne, request));
    rules.insert(libc::SYS_ioctl, only(typing.into_iter().collect::<Result<_, _>>()?)?);
    if executes == Executes::Descriptors {
        // Filters that hold for all of a process, and nobody is asked by: they can only refuse.
        let filter = SeccompCondition::new(0, Dword, Eq, u64::from(libc::SECCOMP_SET_MODE_FILTER))?;
        let flags = SeccompCondition::new(1, Qword, Eq, libc::SECCOMP_FILTER_FLAG_TSYNC)?;
        rules.insert(libc::SYS_seccomp, only(vec![filter, flags])?);
    }
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, TargetArch::x86_64)?.try_into()
}

/// `asm-generic/ioctls.h`.
const TIOCLINUX: u64 = 0x541c;

/// Flags of clone(2) that make a namespace.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// What names a file, a socket or a program.
const START: [i64; 26] = [
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_creat,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_statfs,
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    libc::SYS_chdir,
    libc::SYS_getcwd,
    libc::SYS_memfd_create,
];

/// What it goes on needing: descriptors that are open, memory, time, its own processes.
const ALLOWED: [i64; 113] = [
    // Data.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    // Descriptors.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    // fstat(3) is this one today; without the start's calls, there is little to give it a name of.
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_fchmod,
    libc::SYS_getdents64,
    libc::SYS_eventfd,
    libc::SYS_eventfd2,
    libc::SYS_pipe,
    libc::SYS_pipe2,
    libc::SYS_signalfd4,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Sockets that are connected.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_listen,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_sendmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // Waiting.
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_create,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_futex,
    libc::SYS_pause,
    libc::SYS_restart_syscall,
    // Time.
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_setitimer,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_brk,
    libc::SYS_getrandom,
    libc::SYS_arch_prctl,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    // Processes of its own; they stay in its process group.
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone3,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgrp,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_personality,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
];

/// Somebody who lets a program start: every call that it asks about is its own again, until this is dropped.
#[derive(Debug)]
pub struct StartCalls {
    thread: Option<JoinHandle<()>>,
    /// Closed to end it.
    end: Option<io::PipeWriter>,
}

impl StartCalls {
    /// Begins to answer, in a thread. `listener` is what [`filter_program`] gave to the program's process.
    ///
    /// # Errors
    /// When the system refuses a thread or a pipe.
    pub fn new(listener: OwnedFd) -> io::Result<Self> {
        let (ended, end) = io::pipe()?;
        let thread = thread::Builder::new().name("program start".into()).spawn(move || answer(&listener, &ended))?;
        Ok(Self { thread: Some(thread), end: Some(end) })
    }
}

/// From when this returns, calls of the start fail: nobody is left to ask.
impl Drop for StartCalls {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // It has closed the listener whatever became of it.
            let _ = thread.join();
        }
    }
}

/// Answers until it is told to end, or nobody is left who asks.
fn answer(listener: &OwnedFd, ended: &io::PipeReader) {
    loop {
        let mut descriptors = [PollFd::new(listener, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        if wait_ready(&mut descriptors, None).is_err() || !descriptors[1].revents().is_empty() {
            return;
        }
        if descriptors[0].revents().contains(PollFlags::IN) {
            answer_one(listener);
        } else if descriptors[0].revents().contains(PollFlags::HUP) {
            return;
        }
    }
}

fn answer_one(listener: &OwnedFd) {
    // SAFETY: all of its fields are numbers; the kernel wants them to be zero.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure that this request names.
    let received = unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) };
    if received != 0 {
        // Whoever asked was killed meanwhile.
        return;
    }
    let goes_on = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut answer = libc::seccomp_notif_resp { id: asked.id, val: 0, error: 0, flags: goes_on };
    // SAFETY: the kernel reads the structure that this request names. That the call is not judged is the point: there is nothing
    // hostile yet. If whoever asked is gone, so is the question.
    unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
}
