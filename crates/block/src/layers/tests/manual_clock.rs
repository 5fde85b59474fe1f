//! Time that passes when a test says so.

use crate::layers::clock::Clock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that stands still until it is moved.
#[derive(Default)]
pub(crate) struct ManualClock {
    now_ns: AtomicU64,
}

impl ManualClock {
    pub(crate) fn advance(&self, by_ns: u64) {
        self.now_ns.fetch_add(by_ns, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }
}
