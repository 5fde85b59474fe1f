//! When the calling thread gets its turn.

use std::io;

/// What happens when a thread wakes up on a CPU that another has. Threads begin with [`WakeUp::Preempts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUp {
    /// It is the other's turn no more, unless it has had very little (SCHED_OTHER).
    Preempts,
    /// It waits until the other waits, or has had its turn (SCHED_BATCH).
    Waits,
}

impl WakeUp {
    /// The kernel's number of the policy.
    pub const fn policy(self) -> i32 {
        match self {
            Self::Preempts => libc::SCHED_OTHER,
            Self::Waits => libc::SCHED_BATCH,
        }
    }

    /// Has the calling thread do so from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn choose(self) -> io::Result<()> {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters are read during the call alone.
        match unsafe { libc::sched_setscheduler(0, self.policy(), &parameters) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_change_its_mind() {
        std::thread::spawn(|| {
            for choice in [WakeUp::Waits, WakeUp::Preempts] {
                choice.choose().unwrap();
                // SAFETY: it only answers.
                assert_eq!(unsafe { libc::sched_getscheduler(0) }, choice.policy());
            }
        })
        .join()
        .unwrap();
    }
}
