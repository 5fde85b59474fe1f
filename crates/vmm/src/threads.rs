//! What a machine's threads are told before they do anything.

use crate::placement::Placement;
use std::io;
use std::sync::Arc;

/// What a thread of a machine is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadKind {
    /// Runs a vCPU.
    Vcpu,
    /// Serves devices' queues, or starts threads that do.
    Io,
}

/// Called by each thread of a machine, once it is where it runs, before the guest can ask anything of it. A thread that
/// gets an error does not go on.
pub type ThreadBegin = Arc<dyn Fn(ThreadKind) -> io::Result<()> + Send + Sync>;

/// How a machine's threads begin.
#[derive(Clone)]
pub struct Threads {
    /// Where they run.
    pub placement: Placement,
    /// What they do first.
    pub begin: ThreadBegin,
}

impl From<Placement> for Threads {
    /// They do nothing first.
    fn from(placement: Placement) -> Self {
        Self { placement, begin: Arc::new(|_| Ok(())) }
    }
}
