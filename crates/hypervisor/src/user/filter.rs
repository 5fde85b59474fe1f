//! What a guest process may still ask of the kernel: the trap handler's calls, with the handler's own arguments.
//!
//! The guest can make each of them too. It can then wait for itself (a kick ends that), fill the trap pipe (it then
//! waits for the VMM, or is found out), ring doorbells that are its own to ring, and return from a signal that was none
//! (which changes nothing but its own registers, signal mask and signal stack). What is written is a constant that it
//! cannot change, so it cannot put an absurd number into an eventfd that somebody else then blocks on.

use super::layout::{CONTROL_BASE, Control, EVENT_FD_FIRST, FILTER_MAX, STUB_BASE, TRAP_FD};
use crate::Error;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, Ge, Lt};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};
use std::mem::offset_of;

/// The filter for a guest that holds `events` doorbells' eventfds, as `struct sock_filter` in words.
pub(super) fn filter(events: u32) -> Result<Vec<u64>, Error> {
    let words: Vec<u64> = program(events)
        .map_err(|error| Error::Refused(format!("cannot compile the guest's seccomp filter: {error}")))?
        .iter()
        .map(|filter| {
            u64::from(filter.code) | u64::from(filter.jt) << 16 | u64::from(filter.jf) << 24 | u64::from(filter.k) << 32
        })
        .collect();
    if words.len() > FILTER_MAX {
        return Err(Error::Refused(format!("the guest's seccomp filter has {} instructions", words.len())));
    }
    Ok(words)
}

fn program(events: u32) -> Result<BpfProgram, seccompiler::BackendError> {
    let turn = CONTROL_BASE + offset_of!(Control, turn) as u64;
    let wake_vmm = SeccompRule::new(vec![
        SeccompCondition::new(0, Dword, Eq, TRAP_FD.into())?,
        SeccompCondition::new(1, Qword, Eq, STUB_BASE)?,
        SeccompCondition::new(2, Qword, Eq, 1)?,
    ])?;
    let ring = SeccompRule::new(vec![
        SeccompCondition::new(0, Dword, Ge, EVENT_FD_FIRST.into())?,
        SeccompCondition::new(0, Dword, Lt, (EVENT_FD_FIRST + events).into())?,
        SeccompCondition::new(1, Qword, Eq, STUB_BASE)?,
        SeccompCondition::new(2, Qword, Eq, 8)?,
    ])?;
    let wait = SeccompRule::new(vec![
        SeccompCondition::new(0, Qword, Eq, turn)?,
        SeccompCondition::new(1, Dword, Eq, libc::FUTEX_WAIT as u64)?,
        SeccompCondition::new(3, Qword, Eq, 0)?,
    ])?;
    let rules =
        [(libc::SYS_write, vec![wake_vmm, ring]), (libc::SYS_futex, vec![wait]), (libc::SYS_rt_sigreturn, Vec::new())];
    let rules = rules.into_iter().collect();
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, TargetArch::x86_64)?.try_into()
}
