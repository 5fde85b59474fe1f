//! Ending a process that does not end when a signal asks it to.

use crate::EventFd;
use rustix::time::{ClockId, clock_gettime};
use signal_hook::low_level::{emulate_default_handler, register};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Signals of which the second ends the process, as each would by itself, whatever the first is waiting for. Those that
/// come together with the first are one with it: timeout(1) sends each signal twice, and a key may bounce.
#[derive(Clone, Debug)]
pub struct SecondSignal {
    /// When the first came, in nanoseconds of the monotonic clock; 0: none has.
    first: Arc<AtomicU64>,
    /// `None` where the process has no descriptors left.
    event: Option<Arc<EventFd>>,
}

impl Default for SecondSignal {
    fn default() -> Self {
        Self { first: Arc::default(), event: EventFd::new().ok().map(Arc::new) }
    }
}

impl SecondSignal {
    /// From now on, one of `signals` that comes at least so much `later` than the first of them ends the process.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn ends(&self, signals: &[i32], later: Duration) -> io::Result<()> {
        for &signal in signals {
            let (first, event) = (Arc::clone(&self.first), self.event.clone());
            let taken = move || {
                let now = nanoseconds();
                match first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => event.iter().for_each(|event| event.ring()),
                    Err(first) if Duration::from_nanos(now.saturating_sub(first)) >= later => {
                        // Nothing else is to be done when that fails.
                        let _ = emulate_default_handler(signal);
                    }
                    _ => {}
                }
            };
            // SAFETY: what it does is allowed in a signal handler: it reads the clock and an atomic number, and writes
            // to a descriptor, neither allocates nor takes a lock, and cannot panic.
            unsafe { register(signal, taken) }?;
        }
        Ok(())
    }

    /// What is readable from the first one until that is forgotten.
    pub fn event(&self) -> Option<Arc<EventFd>> {
        self.event.clone()
    }

    /// Whether one came so long ago, and was not forgotten.
    pub fn came_before(&self, ago: Duration) -> bool {
        let first = self.first.load(Ordering::Relaxed);
        first != 0 && Duration::from_nanos(nanoseconds().saturating_sub(first)) >= ago
    }

    /// The next is a first one.
    pub fn forget(&self) {
        if let Some(event) = &self.event {
            event.take();
        }
        self.first.store(0, Ordering::Relaxed);
    }
}

/// Since the machine has started, which is never 0.
fn nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64).max(1)
}
