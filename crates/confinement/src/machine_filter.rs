//! What a process that runs a virtual machine may still ask of the kernel: to run it, and nothing else.
//!
//! Its guest is hostile, and may be thought to have taken the process over. All files and sockets that the machine
//! needs are open by then, and so is /dev/kvm, of which no more is left than what makes a vCPU and runs it. Nothing can
//! be opened, reached by a name, executed, traced or signalled but this process itself.

use crate::seccomp_rules::{fcntl_without_signals, unknown_to_libc};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};
use std::collections::BTreeMap;
use std::io;

/// Takes from all threads of this process, and those that they make, what a running machine does not need.
///
/// # Errors
/// When the kernel has no filters.
pub fn filter_machine() -> io::Result<()> {
    let built = |filter: Result<BpfProgram, seccompiler::BackendError>| filter.map_err(io::Error::other);
    for filter in [built(unknown_to_libc())?, built(allowed())?] {
        seccompiler::apply_filter_all_threads(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

fn allowed() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    let rule = |conditions| SeccompRule::new(conditions);
    // Threads, but no processes.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![rule(vec![SeccompCondition::new(0, Qword, MaskedEq(thread), thread)?])?]);
    // Memory is for data: no mapping may be executed. Nor may any be of a kind that no limit counts.
    let data = SeccompCondition::new(2, Dword, MaskedEq(libc::PROT_EXEC as u64), 0)?;
    let kind_mask = libc::MAP_SHARED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_GROWSDOWN;
    let counted = [libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::MAP_SHARED].map(|kind| {
        let kind = SeccompCondition::new(3, Qword, MaskedEq(kind_mask as u64), kind as u64)?;
        rule(vec![data.clone(), kind])
    });
    rules.insert(libc::SYS_mmap, counted.into_iter().collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_mprotect, vec![rule(vec![data])?]);
    for (call, argument, values) in
        [(libc::SYS_ioctl, 1, &IOCTLS[..]), (libc::SYS_prctl, 0, &[libc::PR_SET_NAME as u64])]
    {
        let one_of = values.iter().map(|&value| rule(vec![SeccompCondition::new(argument, Dword, Eq, value)?]));
        rules.insert(call, one_of.collect::<Result<_, _>>()?);
    }
    // Signals to this process alone: a descriptor could have them sent to others.
    let own = SeccompCondition::new(0, Dword, Eq, std::process::id().into())?;
    rules.insert(libc::SYS_tgkill, vec![rule(vec![own])?]);
    rules.insert(libc::SYS_fcntl, vec![fcntl_without_signals()?]);
    // Over what is connected.
    let nowhere = SeccompCondition::new(4, Qword, Eq, 0)?;
    rules.insert(libc::SYS_sendto, vec![rule(vec![nowhere])?]);
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, TargetArch::x86_64)?.try_into()
}

/// What may be asked of open descriptors (`linux/kvm.h`): to make a vCPU and to run it.
const IOCTLS: [u64; 9] = [
    KVM_RUN,
    KVM_CREATE_VCPU,
    KVM_SET_CPUID2,
    KVM_GET_LAPIC,
    KVM_SET_LAPIC,
    KVM_GET_SREGS,
    KVM_SET_SREGS,
    KVM_GET_REGS,
    KVM_SET_REGS,
];

const KVM_CREATE_VCPU: u64 = 0xae41;
const KVM_RUN: u64 = 0xae80;
const KVM_GET_REGS: u64 = 0x8090_ae81;
const KVM_SET_REGS: u64 = 0x4090_ae82;
const KVM_GET_SREGS: u64 = 0x8138_ae83;
const KVM_SET_SREGS: u64 = 0x4138_ae84;
const KVM_GET_LAPIC: u64 = 0x8400_ae8e;
const KVM_SET_LAPIC: u64 = 0x4400_ae8f;
const KVM_SET_CPUID2: u64 = 0x4008_ae90;

const ALLOWED: [i64; 37] = [
    // Data: serial ports, events.
    libc::SYS_read,
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
