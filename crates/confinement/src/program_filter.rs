//! What a program that we execute may ask of the kernel: less once it has started.
//!
//! User-Mode Linux, whose guest is hostile, has to open files, connect to its disks and be executed; after that it does
//! none of it any more. Two seccomp filters say so. The first leaves the system calls that such a program needs, with
//! what their arguments may be, and holds from the start. The second asks us about those that are needed for the start
//! only (`SECCOMP_RET_USER_NOTIF`, seccomp_unotify(2)): [`AnsweredCalls::of_the_start`] lets all of them be, and
//! [`AnsweredCalls::judged`], after it, none. So nothing that the guest does can open a file, look whether there is
//! one, reach a socket that has a name or execute a program, whatever else the machine has to confine it with. What it
//! does with processes is asked about too: it may have so many, and send signals to its own.
//!
//! Newer ones (Linux 6.13) execute a program of their own, which they have open, for each process of the guest's. For
//! those there is one way to execute that stays, by descriptor and without a name ([`Executes::Descriptors`]). What is
//! executed is so what the guest has already; it has the same filters, and no privileges of a file's (no_new_privs).
//!
//! Calls that take a name are refused altogether and not by the name: that lies in memory, which the program can change
//! after we looked.

use crate::seccomp_rules::unknown_to_libc;
use blockyard_block::wait_ready;
use libc::c_ulong;
use rustix::event::{PollFd, PollFlags};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
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
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(number) = number.filter(|number| *number >= 3) {
            // SAFETY: as above.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// Has the next program that is executed where it is always, as User-Mode Linux wants itself: it would execute itself
/// again for that, and of newer ones that fails where there is no /proc. Whether it will be: the kernel may refuse it.
pub fn fix_addresses() -> bool {
    // SAFETY: no memory is touched; it is about programs that are executed later.
    unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as c_ulong) != -1 }
}

/// A program that is open, and what it is executed with, in a process without other threads: whatever has its name by
/// then.
#[derive(Debug)]
pub struct OpenedProgram {
    program: OwnedFd,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl OpenedProgram {
    /// `arguments` begin with its name, and variables are `NAME=VALUE`.
    ///
    /// # Errors
    /// When one of them has a zero byte.
    pub fn new(program: OwnedFd, arguments: &[&OsStr], environment: &[OsString]) -> io::Result<Self> {
        let arguments = arguments.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?;
        let environment = environment.iter().map(|set| CString::new(set.as_bytes())).collect::<Result<_, _>>()?;
        Ok(Self { program, arguments, environment })
    }

    /// Becomes it; why not, if this returns.
    pub fn execute(&self) -> io::Error {
        let pointers =
            |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        let (program, none, flag) = (self.program.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH);
        // SAFETY: signals that this program ignores are nothing to another. The lists are of strings, with a null
        // pointer at their end.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::syscall(libc::SYS_execveat, program, none, arguments.as_ptr(), environment.as_ptr(), flag);
        }
        io::Error::last_os_error()
    }

    /// Has a new process become it, and waits for its end.
    ///
    /// # Errors
    /// When there is no such process; in that process, when it does not become it.
    pub fn run(&self) -> io::Result<ExitStatus> {
        // SAFETY: this process has one thread, and so has its child.
        let child = match unsafe { libc::fork() } {
            0 => return Err(self.execute()),
            child => Pid::from_raw(child).filter(|_| child > 0).ok_or_else(io::Error::last_os_error)?,
        };
        let status = retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()))?;
        Ok(ExitStatus::from_raw(status.map_or(0, |(_, status)| status.as_raw())))
    }
}

/// Has nobody write to what is mounted at `path`, nor to what is mounted below it, execute set-ID programs there or
/// open devices.
///
/// # Errors
/// When the kernel refuses; before Linux 5.12 it knows no such call.
pub fn make_mounts_read_only(path: &CStr) -> io::Result<()> {
    const AT_RECURSIVE: libc::c_uint = 0x8000;
    /// `MOUNT_ATTR_RDONLY`, `MOUNT_ATTR_NOSUID`, `MOUNT_ATTR_NODEV`; nothing cleared, no propagation, no user namespace
    /// (mount_setattr(2)).
    const ATTRIBUTES: [u64; 4] = [0x1 | 0x2 | 0x4, 0, 0, 0];
    let (attributes, bytes) = (ATTRIBUTES.as_ptr(), size_of_val(&ATTRIBUTES));
    // SAFETY: the kernel reads a string, and a structure of that length.
    let done = unsafe {
        libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, path.as_ptr(), AT_RECURSIVE, attributes, bytes)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a program goes on executing when its start is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executes {
    /// No programs.
    Nothing,
    /// Files that it has open: `execveat` with `AT_EMPTY_PATH` and an empty path. A path that is not empty would count
    /// in spite of that flag, and a filter does not see it; so the path has to be at [`last_byte`], where no other
    /// string has room. These programs may also be shut in further with filters (seccomp(2)).
    Descriptors,
}

/// Address of the last byte that a process of this machine's can have: where page tables have five levels, it may ask
/// for more than usual (Linux, Documentation/arch/x86/x86_64/5level-paging.rst). The page that would follow is the
/// kernel's.
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

/// Which processes a program could send signals to if nothing but its filter kept it from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InReach {
    /// Its own: it has a process namespace, or Landlock keeps its signals in. The filter leaves them to that.
    OwnProcesses,
    /// All of its user's. It is this process that becomes the program: what names a process names this one, and
    /// [`AnsweredCalls::judged`] decides about kill(2).
    OthersToo,
}

/// Installs both filters in this thread, and so in every program that it executes. The descriptor, which is closed by
/// that, is for [`AnsweredCalls`] in another process; without one, because the kernel is old or another filter is asked
/// already, what would be asked stays allowed. To be called in a process that has one thread and no new privileges.
///
/// # Errors
/// When the kernel has no filters.
pub fn filter_program(executes: Executes, in_reach: InReach) -> io::Result<Option<OwnedFd>> {
    let filter = |built: Result<BpfProgram, seccompiler::BackendError>| built.map_err(io::Error::other);
    let listener =
        install(&as_question(filter(questions(executes, in_reach))?), libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    install(&filter(unknown_to_libc())?, 0)?;
    install(&filter(allowed(executes, in_reach))?, 0)?;
    let Ok(listener) = listener else { return Ok(None) };
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(listener) }))
}

/// Takes from the calling process, which has one thread and no new privileges, all but waiting for descriptors, killing
/// `group` and ending itself.
///
/// # Errors
/// When the kernel has no filters.
pub fn filter_guard(group: Pid) -> io::Result<()> {
    let calls = [
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigreturn,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    let all = group.as_raw_nonzero().get().wrapping_neg().cast_unsigned();
    let filter = || {
        let mut rules: Rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
        let kill = SeccompRule::new(vec![is(0, all.into())?, is(1, libc::SIGKILL as u64)?])?;
        rules.insert(libc::SYS_kill, vec![kill]);
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        SeccompFilter::new(rules, refused, SeccompAction::Allow, TargetArch::x86_64)?.try_into()
    };
    let filter: BpfProgram = filter().map_err(|error: seccompiler::BackendError| io::Error::other(error))?;
    install(&filter, 0).map(drop)
}

fn install(program: &BpfProgram, flags: c_ulong) -> io::Result<i32> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut().cast() };
    // Without, older kernels make the program slower than the filter does (seccomp(2)).
    let flags = flags | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel copies the program, whose length is right; seccompiler's instructions are laid out as the
    // kernel's are.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    i32::try_from(done).ok().filter(|done| *done >= 0).ok_or_else(io::Error::last_os_error)
}

/// Turns "trace", for which seccompiler has a word, into "ask", for which it has none.
fn as_question(mut program: BpfProgram) -> BpfProgram {
    const RETURN: u16 = 0x06;
    for instruction in &mut program {
        if instruction.code == RETURN && instruction.k == libc::SECCOMP_RET_TRACE {
            instruction.k = libc::SECCOMP_RET_USER_NOTIF;
        }
    }
    program
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// What [`AnsweredCalls`] answers.
fn questions(executes: Executes, in_reach: InReach) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: Rules = START.iter().chain(&CLONES).map(|&call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_mmap, vec![shared_anonymous_memory()?]);
    if in_reach == InReach::OthersToo {
        rules.insert(libc::SYS_kill, Vec::new());
    }
    if executes == Executes::Descriptors {
        let other_path = SeccompCondition::new(1, Qword, Ne, last_byte())?;
        let other_flags = SeccompCondition::new(4, Dword, Ne, libc::AT_EMPTY_PATH as u64)?;
        let asked = [other_path, other_flags].map(|condition| SeccompRule::new(vec![condition]));
        rules.insert(libc::SYS_execveat, asked.into_iter().collect::<Result<_, _>>()?);
    }
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Trace(0), TargetArch::x86_64)?.try_into()
}

fn allowed(executes: Executes, in_reach: InReach) -> Result<BpfProgram, seccompiler::BackendError> {
    let calls = START.iter().chain(&CLONES).chain(ALLOWED);
    let mut rules: Rules = calls.map(|&call| (call, Vec::new())).collect();
    for (call, argument, values) in ONE_OF {
        rules.insert(call, one_of(argument, values)?);
    }
    // Whoever has a socket for datagrams sends them to any name.
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        let stream = [is(0, libc::AF_UNIX as u64)?, masked(1, SOCKET_KIND, libc::SOCK_STREAM as u64)?];
        rules.insert(call, vec![SeccompRule::new(stream.into())?]);
    }
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![masked(0, !SHARED_WITH_CHILD, 0)?])?]);
    // A stack that grows is counted by no limit (Linux, mm/mmap.c, may_expand_vm).
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![masked(3, libc::MAP_GROWSDOWN as u64, 0)?])?]);
    if in_reach == InReach::OthersToo {
        let own = u64::from(std::process::id());
        rules.insert(libc::SYS_tgkill, one_of(0, &[own])?);
        let signalled = SeccompRule::new(vec![is(1, libc::F_SETOWN as u64)?, is(2, own)?])?;
        rules.entry(libc::SYS_fcntl).or_default().push(signalled);
    } else {
        rules.entry(libc::SYS_fcntl).or_default().extend(one_of(1, &[libc::F_SETOWN as u64])?);
    }
    if executes == Executes::Descriptors {
        // Filters that hold for all of a process, and nobody is asked by: they can only refuse.
        let flags = SeccompCondition::new(1, Qword, Eq, libc::SECCOMP_FILTER_FLAG_TSYNC)?;
        let filter = [is(0, u64::from(libc::SECCOMP_SET_MODE_FILTER))?, flags];
        rules.insert(libc::SYS_seccomp, vec![SeccompRule::new(filter.into())?]);
    }
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, TargetArch::x86_64)?.try_into()
}

fn is(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, Dword, Eq, value)
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, Qword, MaskedEq(mask), value)
}

fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    values.iter().map(|&value| SeccompRule::new(vec![is(argument, value)?])).collect()
}

/// Memory that no limit counts: it is neither a process's own data nor a file's.
fn shared_anonymous_memory() -> Result<SeccompRule, seccompiler::BackendError> {
    let both = (libc::MAP_ANONYMOUS | libc::MAP_SHARED) as u64;
    SeccompRule::new(vec![masked(3, both, both)?])
}

/// Of socket(2)'s second argument, what is no flag (Linux, include/linux/net.h, SOCK_TYPE_MASK).
const SOCKET_KIND: u64 = 0xf;

/// What a clone(2) may say: what the child shares, where its number goes, and the signal that tells its end. All else
/// makes namespaces, or hides from who traces.
const SHARED_WITH_CHILD: u64 = 0xff
    | (libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_VFORK
        // User-Mode Linux has its guests' processes make each other, and is the parent of all.
        | libc::CLONE_PARENT
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID
        | libc::CLONE_CHILD_SETTID
        | libc::CLONE_DETACHED) as u64;

/// Calls of which one argument is looked at: which, and what it may be.
const ONE_OF: [(i64, u8, &[u64]); 5] = [
    (libc::SYS_ioctl, 1, &IOCTLS),
    (libc::SYS_fcntl, 1, &DESCRIPTOR_COMMANDS),
    (libc::SYS_prctl, 0, &PROCESS_OPTIONS),
    (libc::SYS_ptrace, 0, &TRACES),
    // Of itself: with a number there, it is another process of the user's.
    (libc::SYS_prlimit64, 0, &[0]),
];

/// What may be asked of open descriptors.
const IOCTLS: [u64; 1] = [
    // Whether it is a terminal. There is none, and no more to ask then.
    libc::TCGETS,
];

/// What fcntl(2) may do, but for saying who gets a descriptor's signals.
const DESCRIPTOR_COMMANDS: [u64; 11] = [
    libc::F_DUPFD as u64,
    libc::F_DUPFD_CLOEXEC as u64,
    libc::F_GETFD as u64,
    libc::F_SETFD as u64,
    // Its serial line and its disks' sockets tell it by signal that there is something to read.
    libc::F_GETFL as u64,
    libc::F_SETFL as u64,
    F_SETSIG,
    // Its memory's file, so that no other kernel takes it.
    libc::F_GETLK as u64,
    libc::F_SETLK as u64,
    // The program that its guests' processes begin as, from 6.13 on, is sealed against changes.
    libc::F_ADD_SEALS as u64,
    libc::F_GET_SEALS as u64,
];

/// `asm-generic/fcntl.h`.
const F_SETSIG: u64 = 10;

/// What prctl(2) may do.
const PROCESS_OPTIONS: [u64; 3] = [
    // Names of threads.
    libc::PR_SET_NAME as u64,
    // Its processes end with it.
    libc::PR_SET_PDEATHSIG as u64,
    // It has them already; a process that gives itself a filter of its own says so again.
    libc::PR_SET_NO_NEW_PRIVS as u64,
];

/// What ptrace(2) may do: its own children ask to be traced; nobody else's process is anything to it.
const TRACES: [u64; 21] = [
    // Most frequent first: each system call of a guest takes several of these.
    libc::PTRACE_SETREGS as u64,
    PTRACE_SYSEMU,
    libc::PTRACE_GETREGS as u64,
    libc::PTRACE_SETREGSET as u64,
    libc::PTRACE_GETREGSET as u64,
    libc::PTRACE_SETFPREGS as u64,
    libc::PTRACE_GETFPREGS as u64,
    libc::PTRACE_CONT as u64,
    libc::PTRACE_SYSCALL as u64,
    PTRACE_SYSEMU_SINGLESTEP,
    libc::PTRACE_SINGLESTEP as u64,
    libc::PTRACE_GETSIGINFO as u64,
    libc::PTRACE_POKEUSER as u64,
    libc::PTRACE_PEEKUSER as u64,
    libc::PTRACE_POKEDATA as u64,
    libc::PTRACE_PEEKDATA as u64,
    libc::PTRACE_TRACEME as u64,
    libc::PTRACE_KILL as u64,
    PTRACE_OLDSETOPTIONS,
    libc::PTRACE_SETOPTIONS as u64,
    // A guest's thread has a base of its own for what is its own.
    PTRACE_ARCH_PRCTL,
];

/// `asm/ptrace-abi.h`.
const PTRACE_OLDSETOPTIONS: u64 = 21;
const PTRACE_ARCH_PRCTL: u64 = 30;
const PTRACE_SYSEMU: u64 = 31;
const PTRACE_SYSEMU_SINGLESTEP: u64 = 32;

/// What names a file, a socket or a program, and what else only a start takes.
const START: [i64; 30] = [
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_creat,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_socket,
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
    // fstat(3) is one of these in some C libraries. Whether there is a name nobody can see, and later nobody needs
    // either.
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_getdents64,
    // Its memory's file has a mode for its processes; no other file is open, and by name Landlock would not see it.
    libc::SYS_fchmod,
    libc::SYS_chdir,
    libc::SYS_getcwd,
    libc::SYS_memfd_create,
    // It executes itself again, without random addresses.
    libc::SYS_personality,
];

/// What makes processes: as many as [`AnsweredCalls::judged`] lets it have.
const CLONES: [i64; 3] = [libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork];

/// What it goes on needing: descriptors that are open, memory, time, its own processes.
const ALLOWED: &[i64] = &[
    // Data.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    // Descriptors.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fstat,
    libc::SYS_eventfd,
    libc::SYS_eventfd2,
    libc::SYS_pipe,
    libc::SYS_pipe2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Newer kernels wait for a tick's signal so.
    libc::SYS_signalfd4,
    // Its disks' sockets, which carry descriptors.
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
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
    libc::SYS_tgkill,
    // Processes of its own; they stay in its process group.
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
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
];

/// Somebody who answers what a program is asked about, until this is dropped. Where nobody does, it fails.
#[derive(Debug)]
pub struct AnsweredCalls {
    thread: Option<JoinHandle<()>>,
    /// Closed to end it.
    end: Option<io::PipeWriter>,
}

/// What a program that has started may do with processes.
#[derive(Clone, Copy, Debug)]
pub struct OwnProcesses {
    /// The first of its process group, which it cannot leave: those of that group are its own.
    pub group: Pid,
    /// Tasks (processes and their threads) that it may have at a time.
    pub tasks_max: usize,
}

impl AnsweredCalls {
    /// Begins to answer, in a thread: whatever it is, the program may do it. This is for a program that starts, as
    /// there is nothing hostile yet. `listener` is what [`filter_program`] gave to the program's process.
    ///
    /// # Errors
    /// When the system refuses a thread or a pipe.
    pub fn of_the_start(listener: OwnedFd) -> io::Result<Self> {
        Self::answer(listener, |_| Answer::GoesOn)
    }

    /// Begins to answer, in a thread: the program may make processes and send signals to those that are its own, and no
    /// more.
    ///
    /// # Errors
    /// As [`AnsweredCalls::of_the_start`].
    pub fn judged(listener: OwnedFd, own: OwnProcesses) -> io::Result<Self> {
        let mut processes = JudgedProcesses { own, left: 0 };
        Self::answer(listener, move |call| match i64::from(call.nr) {
            libc::SYS_kill => processes.signal(call.args[0], call.args[1]),
            call if CLONES.contains(&call) => processes.make(),
            _ => Answer::Fails(libc::EPERM),
        })
    }

    fn answer(
        listener: OwnedFd,
        mut judge: impl FnMut(&libc::seccomp_data) -> Answer + Send + 'static,
    ) -> io::Result<Self> {
        let (ended, end) = io::pipe()?;
        let answer = move || answer_all(&listener, &ended, &mut judge);
        let thread = thread::Builder::new().name("program calls".into()).spawn(answer)?;
        Ok(Self { thread: Some(thread), end: Some(end) })
    }
}

/// From when this returns, nobody is left to ask, if nobody else has the listener.
impl Drop for AnsweredCalls {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // It has closed the listener whatever became of it.
            let _ = thread.join();
        }
    }
}

/// What becomes of a call that was asked about.
enum Answer {
    /// The kernel does it.
    GoesOn,
    /// It has been done.
    Done,
    /// It fails with this error.
    Fails(i32),
}

/// Judges what a program does with processes.
struct JudgedProcesses {
    own: OwnProcesses,
    /// How many it may make before somebody counts again.
    left: usize,
}

impl JudgedProcesses {
    /// About kill(2): the signal goes to a process that was looked at, whoever has its number by then.
    fn signal(&self, target: u64, signal: u64) -> Answer {
        let (target, signal) = (target as i32, signal as i32);
        // Its own process group, which it cannot leave.
        if target == 0 {
            return Answer::GoesOn;
        }
        let Some(target) = Some(target).filter(|target| *target > 0).and_then(Pid::from_raw) else {
            return Answer::Fails(libc::EPERM);
        };
        let process = match pidfd_open(target, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(errno) => return Answer::Fails(errno.raw_os_error()),
        };
        if !is_in(self.own.group, target.as_raw_nonzero().get()) {
            return Answer::Fails(libc::EPERM);
        }
        let (number, none) = (process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: the kernel reads no memory of ours: there is no information about the signal.
        match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, number, signal, none, 0) } {
            0 => Answer::Done,
            _ => Answer::Fails(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EPERM)),
        }
    }

    /// About clone(2) and its like.
    fn make(&mut self) -> Answer {
        if self.left == 0 {
            // Half of what there is room for, or every call would have somebody count.
            self.left = self.own.tasks_max.saturating_sub(tasks_of(self.own.group)).div_ceil(2);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Answer::GoesOn
            }
            None => Answer::Fails(libc::EAGAIN),
        }
    }
}

/// Tasks of a process group; none where there is no /proc to count them in.
fn tasks_of(group: Pid) -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = numbers.filter(|&number| is_in(group, number));
    own.map(|number| fs::read_dir(format!("/proc/{number}/task")).map_or(0, Iterator::count)).sum()
}

/// Whether a process is in a process group.
fn is_in(group: Pid, process: i32) -> bool {
    // SAFETY: no memory is touched. The group of a process may be one that has no number here: that is 0.
    unsafe { libc::getpgid(process) == group.as_raw_nonzero().get() }
}

/// Answers until it is told to end, or nobody is left who asks.
fn answer_all(listener: &OwnedFd, ended: &io::PipeReader, judge: &mut impl FnMut(&libc::seccomp_data) -> Answer) {
    /// linux/seccomp.h.
    const SYNC_WAKE_UP: u64 = 1;
    // Who asks and who answers take turns, so that one processor does for both: from Linux 6.6 on, and it works
    // without. SAFETY: the request takes a number.
    unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
    loop {
        let mut descriptors = [PollFd::new(listener, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        if wait_ready(&mut descriptors, None).is_err() || !descriptors[1].revents().is_empty() {
            return;
        }
        if descriptors[0].revents().contains(PollFlags::IN) {
            answer_one(listener, judge);
        } else if descriptors[0].revents().contains(PollFlags::HUP) {
            return;
        }
    }
}

fn answer_one(listener: &OwnedFd, judge: &mut impl FnMut(&libc::seccomp_data) -> Answer) {
    // SAFETY: all of its fields are numbers; the kernel wants them to be zero.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure that this request names.
    let received = unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) };
    if received != 0 {
        // Whoever asked was killed meanwhile.
        return;
    }
    let (error, flags) = match judge(&asked.data) {
        // What is judged is in registers alone, so that it is what the kernel then does.
        Answer::GoesOn => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Answer::Done => (0, 0),
        Answer::Fails(error) => (-error, 0),
    };
    let mut answer = libc::seccomp_notif_resp { id: asked.id, val: 0, error, flags };
    // SAFETY: the kernel reads the structure that this request names. If whoever asked is gone, so is the question.
    unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
}
