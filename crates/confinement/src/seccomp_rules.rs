//! What filters of this process and filters of programs have in common.

use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::Ne;
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};

/// A filter cannot look at clone3's arguments, which lie in memory: libc takes `clone` when the kernel does not know
/// it.
pub(crate) fn unknown_to_libc() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = [(libc::SYS_clone3, Vec::new())].into_iter().collect();
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, unknown, TargetArch::x86_64)?.try_into()
}

/// What fcntl(2) may not do: say who gets a descriptor's signals, and which (F_SETOWN, F_SETSIG, F_SETOWN_EX:
/// `asm-generic/fcntl.h`).
const SIGNALLING: [u64; 3] = [8, 10, 15];

/// A call of fcntl(2) that has nobody signalled.
///
/// # Errors
/// When seccompiler takes no such rule, which is a mistake here.
pub fn fcntl_without_signals() -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions = SIGNALLING.map(|command| SeccompCondition::new(1, Dword, Ne, command));
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}
