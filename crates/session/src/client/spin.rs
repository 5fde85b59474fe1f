//! Looking before sleeping.

use std::time::{Duration, Instant};

/// How often to look before the clock is read again.
const LOOKS: u32 = 32;
/// The first step up from not looking at all.
const STEP: Duration = Duration::from_micros(5);

/// For how long to look whether something has come, before sleeping until it does. The time doubles while the sleep turns out
/// shorter than the longest look, and is halved otherwise: where answers take long, nothing is spent on looking.
#[derive(Debug)]
pub(super) struct Spin {
    now: Duration,
    max: Duration,
}

impl Spin {
    pub(super) fn new(max: Duration) -> Self {
        // With one CPU, looking keeps the other side from working.
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        let max = if alone { Duration::ZERO } else { max };
        Self { now: max, max }
    }

    /// Looks for as long as it is worth, at least once. Whether `ready` has become true.
    pub(super) fn look(&self, ready: impl Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        if self.now.is_zero() {
            return false;
        }
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if ready() {
                    return true;
                }
            }
            if start.elapsed() >= self.now {
                return false;
            }
        }
    }

    /// Learns from a sleep: whether it ended with what was waited for, and how long it and the look before it took together.
    pub(super) fn learn(&mut self, came: bool, waited: Duration) {
        if came && waited <= self.max {
            self.now = (self.now * 2).max(STEP).min(self.max);
        } else {
            self.now /= 2;
            if self.now < STEP {
                self.now = Duration::ZERO;
            }
        }
    }

    pub(super) fn may_pay(&self) -> bool {
        !self.max.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_stops_where_it_does_not_pay_and_begins_again_where_it_would_have() {
        let max = Duration::from_micros(50);
        let mut spin = Spin { now: max, max };
        for _ in 0..10 {
            spin.learn(true, Duration::from_millis(1));
        }
        assert_eq!(spin.now, Duration::ZERO);
        spin.learn(true, Duration::from_micros(40));
        assert_eq!(spin.now, STEP);
        for _ in 0..10 {
            spin.learn(true, Duration::from_micros(40));
        }
        assert_eq!(spin.now, max);
        let mut never = Spin { now: Duration::ZERO, max: Duration::ZERO };
        never.learn(true, Duration::ZERO);
        assert_eq!(never.now, Duration::ZERO);
    }
}
