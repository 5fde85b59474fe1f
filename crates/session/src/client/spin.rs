//! Looking before sleeping.

use crate::one_cpu::machine_has_one_cpu;
use std::time::{Duration, Instant};

/// How often to look before the clock is read again.
const LOOKS: u32 = 32;
/// What has not come by then takes a while: other threads may use the CPU meanwhile, if any waits for it. With more
/// threads that look than CPUs, whoever is looked for might be one of them.
const YIELD_AFTER: Duration = Duration::from_micros(5);
/// The first step up from not looking at all.
const STEP: Duration = Duration::from_micros(5);

/// Of how many sleeps without a look one is preceded by the longest look nevertheless. Falling asleep and waking up may
/// take longer than the answer does, so that sleeps alone would never show that looking pays.
const TRIAL: u32 = 16;

/// For how long to look whether something has come, before sleeping until it does. The time doubles while the sleep
/// turns out shorter than the longest look, and is halved otherwise: where answers take long, next to nothing is spent
/// on looking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spin {
    now: Duration,
    max: Duration,
    /// Sleeps without a look.
    sleeps: u32,
}

impl Spin {
    pub(super) fn new(max: Duration) -> Self {
        let max = if machine_has_one_cpu() { Duration::ZERO } else { max };
        Self { now: max, max, sleeps: 0 }
    }

    /// Looks for as long as it is worth, at least once. Whether `ready` has become true.
    pub(super) fn look(&mut self, ready: impl Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        let most = self.next_look();
        if most.is_zero() {
            return false;
        }
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if ready() {
                    self.now = most;
                    return true;
                }
            }
            let elapsed = start.elapsed();
            if elapsed >= most {
                return false;
            }
            if elapsed >= YIELD_AFTER {
                std::thread::yield_now();
            }
        }
    }

    fn next_look(&mut self) -> Duration {
        if !self.now.is_zero() {
            return self.now;
        }
        self.sleeps = self.sleeps.wrapping_add(1);
        if self.sleeps.is_multiple_of(TRIAL) { self.max } else { Duration::ZERO }
    }

    /// Learns from a sleep: whether it ended with what was waited for, and how long it and the look before it took
    /// together.
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
        let mut spin = Spin { now: max, max, sleeps: 0 };
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
        let mut never = Spin { now: Duration::ZERO, max: Duration::ZERO, sleeps: 0 };
        never.learn(true, Duration::ZERO);
        assert_eq!(never.now, Duration::ZERO);
        assert!((0..100).all(|_| never.next_look().is_zero()));
    }

    #[test]
    fn one_sleep_in_some_is_preceded_by_a_look_whatever_was_learnt() {
        let max = Duration::from_micros(50);
        let mut spin = Spin { now: Duration::ZERO, max, sleeps: 0 };
        let looks = (0..10 * TRIAL).filter(|_| !spin.next_look().is_zero()).count();
        assert_eq!(looks, 10);
    }
}
