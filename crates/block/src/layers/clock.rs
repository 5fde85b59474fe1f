//! Where layers take the time from: the tests turn a clock of their own.

use std::time::Instant;

/// A clock that never goes back.
pub(super) trait Clock: Send + Sync {
    /// Nanoseconds since some moment.
    fn now_ns(&self) -> u64;
}

/// CLOCK_MONOTONIC, from when this was made.
pub(super) struct MonotonicClock {
    start: Instant,
}

impl MonotonicClock {
    pub(super) fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        // 64 bits of nanoseconds are 584 years.
        self.start.elapsed().as_nanos() as u64
    }
}
