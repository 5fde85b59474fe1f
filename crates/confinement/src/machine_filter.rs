//! What a process that runs a virtual machine may still ask of the kernel: to run it, and nothing else.
//!
//! Its guest is hostile, and may be thought to have taken the process over. All files and sockets that the machine
//! needs are open by then, and so is /dev/kvm, of which no more is left than what makes a vCPU and runs it. Nothing can
//! be opened, reached by a name, executed, traced or signalled but this process itself.

use crate::allow_list::{AllowList, is_data, masked};
use crate::kvm_requests;
use crate::process::own_wake_up;
use seccompiler::BackendError;
use std::io;

/// Takes from all threads of this process, and those that they make, what a running machine does not need.
///
/// # Errors
/// When the kernel has no filters.
pub fn filter_machine() -> io::Result<()> {
    allowed().map_err(io::Error::other)?.enter_everywhere()
}

fn allowed() -> Result<AllowList, BackendError> {
    let mut list = AllowList::new(&ALLOWED)?;
    // Memory is of no kind that no limit counts.
    let kind_mask = libc::MAP_SHARED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_GROWSDOWN;
    let counted = [libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::MAP_SHARED];
    let counted = counted.map(|kind| Ok(vec![is_data()?, masked(3, kind_mask as u64, kind as u64)?]));
    list.only(libc::SYS_mmap, counted.into_iter().collect::<Result<Vec<_>, BackendError>>()?)?;
    list.one_of(libc::SYS_ioctl, 1, &kvm_requests::VCPUS)?;
    own_wake_up(&mut list)?;
    Ok(list)
}

const ALLOWED: [i64; 39] = [
    // Data: serial ports, events.
    libc::SYS_read,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    // Descriptors.
    libc::SYS_close,
    libc::SYS_eventfd2,
    // Waiting.
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_restart_syscall,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_getrandom,
    // Threads.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_gettid,
    libc::SYS_getpid,
    // The end.
    libc::SYS_exit,
    libc::SYS_exit_group,
];
