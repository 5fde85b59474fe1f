//! What the threads of a process that runs a virtual machine give up besides what all of it has
//! ([`Confinement::machine`](crate::Confinement::machine)).
//!
//! A guest talks to vCPU threads and I/O threads, so these are the first that it could take over. What only the thread
//! has that makes machines (memory with a descriptor, virtual machines, the terminal, connections, other processes)
//! they cannot ask for by themselves.

use crate::allow_list::{AllowList, is};
use crate::process::of_a_machine;
use crate::{kvm_requests, process};
use seccompiler::BackendError;
use std::io;

/// A thread of a running machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineThread {
    /// Runs a vCPU, and what it asks of the devices: it opens their queues.
    Vcpu {
        /// Whether disks of the machine are sessions: a queue of one shares memory of its own with the server, by a
        /// descriptor.
        sessions: bool,
    },
    /// Carries requests out, as do the threads that it starts. It runs no vCPU.
    Io,
    /// Reads standard input, and does nothing else.
    ConsoleInput,
    /// Writes standard output, and does nothing else.
    ConsoleOutput,
    /// Tells the guest that something was typed.
    Typing,
}

impl MachineThread {
    /// Takes from the calling thread, for good, what such a thread does not need. Comes after the process has shut
    /// itself in, which wants all threads alike.
    ///
    /// # Errors
    /// When the kernel has no filters.
    pub fn enter(self) -> io::Result<()> {
        self.allowed().map_err(io::Error::other)?.enter_here()
    }

    fn allowed(self) -> Result<AllowList, BackendError> {
        match self {
            Self::Vcpu { sessions } => {
                let mut list = serving(&kvm_requests::RUNNING)?;
                list.forbid(&[libc::SYS_sched_setscheduler]);
                if sessions {
                    list.allow(&[libc::SYS_memfd_create]);
                }
                Ok(list)
            }
            Self::Io => serving(&kvm_requests::EVENTS),
            Self::ConsoleInput => talking(&[libc::STDIN_FILENO], &[libc::STDERR_FILENO]),
            Self::ConsoleOutput => talking(&[], &[libc::STDOUT_FILENO, libc::STDERR_FILENO]),
            Self::Typing => {
                let mut list = talking(&[], &[])?;
                list.allow(&[libc::SYS_write]);
                Ok(list)
            }
        }
    }
}

/// What it takes to carry requests out, and `requests` of KVM.
fn serving(requests: &[u64]) -> Result<AllowList, BackendError> {
    let mut list = of_a_machine(&[requests, &process::IOCTLS].concat())?;
    list.forbid(&OF_MAKERS);
    Ok(list)
}

/// What it takes to hand bytes on: from these descriptors, to those.
fn talking(from: &[i32], to: &[i32]) -> Result<AllowList, BackendError> {
    let mut list = AllowList::new(&TALKING)?;
    for (call, descriptors) in [(libc::SYS_read, from), (libc::SYS_write, to)] {
        let sets = descriptors.iter().map(|&descriptor| Ok(vec![is(0, descriptor as u64)?]));
        let sets = sets.collect::<Result<Vec<_>, BackendError>>()?;
        // No set of conditions would be none to meet.
        if !sets.is_empty() {
            list.only(call, sets)?;
        }
    }
    list.forbid(&[libc::SYS_clone, libc::SYS_fcntl, libc::SYS_sendto, libc::SYS_prctl]);
    Ok(list)
}

/// What only the thread needs that makes a machine, or leaves it.
const OF_MAKERS: [i64; 10] = [
    libc::SYS_memfd_create,
    libc::SYS_socketpair,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_sched_setaffinity,
    libc::SYS_pipe2,
    libc::SYS_getuid,
    libc::SYS_geteuid,
];

const TALKING: [i64; 22] = [
    libc::SYS_futex,
    libc::SYS_poll,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_membarrier,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
