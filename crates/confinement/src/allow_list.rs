//! A list of the system calls that a thread, or all of a process, may go on making.

use crate::seccomp_rules::{fcntl_without_signals, unknown_to_libc};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
    apply_filter_all_threads,
};
use std::collections::BTreeMap;
use std::io;

/// System calls, each with the arguments that it may have: one of several sets of conditions, or any where there is
/// none. All others fail with EPERM rather than killing the process: a library that tries a new call and falls back
/// goes on working, and who has the terminal gives it back.
pub(crate) struct AllowList(BTreeMap<i64, Vec<SeccompRule>>);

impl AllowList {
    /// `calls` with any arguments, and those that every process here makes, with what keeps them to this process:
    /// threads but no processes, no executable memory, signals and names for itself alone, data over connected sockets.
    pub(crate) fn new(calls: &[i64]) -> Result<Self, BackendError> {
        let mut list = Self(BTreeMap::new());
        list.allow(calls);
        let thread = masked(0, libc::CLONE_THREAD as u64, libc::CLONE_THREAD as u64)?;
        list.only(libc::SYS_clone, [vec![thread]])?;
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            list.only(call, [vec![is_data()?]])?;
        }
        list.one_of(libc::SYS_prctl, 0, &[libc::PR_SET_NAME as u64])?;
        list.one_of(libc::SYS_tgkill, 0, &[std::process::id().into()])?;
        list.0.insert(libc::SYS_fcntl, vec![fcntl_without_signals()?]);
        list.only(libc::SYS_sendto, [vec![SeccompCondition::new(4, Qword, Eq, 0)?]])?;
        Ok(list)
    }

    /// Allows `calls` with any arguments.
    pub(crate) fn allow(&mut self, calls: &[i64]) {
        self.0.extend(calls.iter().map(|&call| (call, Vec::new())));
    }

    /// Takes `calls` off the list.
    pub(crate) fn forbid(&mut self, calls: &[i64]) {
        calls.iter().for_each(|call| drop(self.0.remove(call)));
    }

    /// Allows `call` where all of one of these sets of conditions hold.
    pub(crate) fn only(
        &mut self,
        call: i64,
        sets: impl IntoIterator<Item = Vec<SeccompCondition>>,
    ) -> Result<(), BackendError> {
        self.0.insert(call, sets.into_iter().map(SeccompRule::new).collect::<Result<_, _>>()?);
        Ok(())
    }

    /// Allows `call` where the lower half of this argument, all of an `int`, is one of `values`.
    pub(crate) fn one_of(&mut self, call: i64, argument: u8, values: &[u64]) -> Result<(), BackendError> {
        let sets = values.iter().map(|&value| Ok(vec![is(argument, value)?]));
        self.only(call, sets.collect::<Result<Vec<_>, BackendError>>()?)
    }

    /// From now on, all threads of this process are kept to the list, and those that they make. It may be entered by
    /// one thread, once, before any has entered another by itself.
    pub(crate) fn enter_everywhere(self) -> io::Result<()> {
        let allowed = self.program().map_err(io::Error::other)?;
        for filter in [unknown_to_libc().map_err(io::Error::other)?, allowed] {
            apply_filter_all_threads(&filter).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// From now on, the calling thread and those that it makes are kept to the list, besides what it is kept to
    /// already.
    pub(crate) fn enter_here(self) -> io::Result<()> {
        apply_filter(&self.program().map_err(io::Error::other)?).map_err(io::Error::other)
    }

    fn program(self) -> Result<BpfProgram, BackendError> {
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        SeccompFilter::new(self.0, refused, SeccompAction::Allow, TargetArch::x86_64)?.try_into()
    }
}

/// The lower half of this argument is `value`.
pub(crate) fn is(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Dword, Eq, value)
}

/// Of this argument, the bits of `mask` are those of `value`.
pub(crate) fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Qword, MaskedEq(mask), value)
}

/// The protection that mmap(2) and mprotect(2) are asked for lets nothing be executed.
pub(crate) fn is_data() -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(2, Dword, MaskedEq(libc::PROT_EXEC as u64), 0)
}
