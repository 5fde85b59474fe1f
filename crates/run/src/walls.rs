//! What the process of a machine on KVM gives up before the guest's first instruction.
//!
//! Disks, kernel, /dev/kvm and the terminal are open by then, and processes that serve directories have been started. A
//! guest that reboots gets a new machine inside the same walls, so the thread that makes machines may go on doing that;
//! those that the guest talks to may not.

use crate::Audience;
use crate::configuration::Configuration;
use anyhow::Result;
use blockyard_block::RingsAhead;
use blockyard_block::specification::Kind;
use blockyard_confinement::{Confinement, ConfinementError, Landlock, MachineThread};
use blockyard_vmm::threads::{ThreadBegin, ThreadKind};
use std::io;
use std::sync::Arc;

/// What is left of this process's rights, for threads that are to have fewer.
#[derive(Clone, Copy)]
pub(crate) struct Walls {
    /// Whether the kernel has filters of system calls.
    filters: bool,
    /// Whether disks of the machine are sessions.
    sessions: bool,
}

impl Walls {
    /// Shuts this process in. `audience` hears what the kernel lacks for that; the machine runs all the same, as an
    /// appliance does.
    ///
    /// # Errors
    /// When capabilities or files cannot be given up.
    pub(crate) fn enter(configuration: &Configuration, audience: &dyn Audience) -> Result<Self> {
        // A session whose server goes away is connected to again.
        let sessions = configuration.disks.iter().any(|disk| disk.name.kind() == Kind::Session);
        let rings = RingsAhead { queues: configuration.cpus as usize, ..RingsAhead::default() };
        let note = |sentence: &str| audience.watch().note(sentence);
        match (Confinement { connects: sessions, rings, machine: true, ..Confinement::default() }).enter() {
            Ok(Landlock::Absent) => note("this kernel has no Landlock: only the machine's system calls are confined"),
            Ok(Landlock::Full | Landlock::Partial) => {}
            Err(ConfinementError::Seccomp(why)) => {
                note(&format!("no filter of system calls for the machine: {why}"));
                return Ok(Self { filters: false, sessions });
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Self { filters: true, sessions })
    }

    /// Takes from the calling thread what it does not need.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn narrow(self, thread: MachineThread) -> io::Result<()> {
        if self.filters { thread.enter() } else { Ok(()) }
    }

    /// What threads that the guest talks to do first.
    pub(crate) fn begin(self) -> ThreadBegin {
        Arc::new(move |kind| {
            self.narrow(match kind {
                ThreadKind::Vcpu => MachineThread::Vcpu { sessions: self.sessions },
                ThreadKind::Io => MachineThread::Io,
            })
        })
    }
}
