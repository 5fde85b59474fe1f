//! When a driver is notified: at once where it waits for one request, in batches where it keeps many outstanding.
//!
//! A notification costs the driver an interrupt, and in a guest whose system calls are slow that is most of what a
//! request costs. Measured with User-Mode Linux, 4 KiB, depth 64 (one CPU each for guest and server): 74,000 requests a
//! second when each is notified, 130,000 at 32 to a notification; but at depth 1 the same waiting takes a third away.
//!
//! Whether it pays is tried (`payoff.rs`): a driver that is not kept busy by interrupts would only wait for longer.
//!
//! How deep a driver is cannot be seen: one that is told of each request at once never has more than a few outstanding.
//! What can be seen is whether it goes on while completions are held. So the batch grows for as long as it fills; where
//! the driver fell silent instead, it is as it was before, and the next try is later. And a disk that takes its time
//! must not be kept from work that the driver would have for it: then nothing is held for more than a part of that
//! time.

use super::payoff::Payoff;

/// Completions in a notification at most.
const BATCH_MAX: u32 = 32;
/// A driver that has made nothing available for so many of its usual gaps between two requests waits for us; gaps in a
/// guest whose system calls go through ptrace were 8 µs on one machine and 39 µs on another.
const QUIET_GAPS: u64 = 6;
const QUIET_NS_MIN: u64 = 15_000;
const QUIET_NS_MAX: u64 = 400_000;
/// No completion is held for longer than a full batch takes at the driver's pace, and for no longer than this part of
/// what the disk's requests take when it has others.
const HELD_NS_MIN: u64 = 300_000;
const HELD_NS_MAX: u64 = 2_000_000;
const HELD_PART_OF_LATENCY: u64 = 8;
/// Notifications between two tries of a larger batch, at first and at most: a try that fails costs what is quiet.
const TRY_INTERVAL_MIN: u32 = 32;
const TRY_INTERVAL_MAX: u32 = 1024;

/// What to do about the completions that a driver was not notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// There are none.
    Nothing,
    Notify,
    /// Look again then, at the latest.
    HoldUntil(u64),
}

/// What a queue has to be notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Completions that the driver was not notified of.
    pub(super) count: u32,
    /// How long the disk's requests take, if it has some now.
    pub(super) disk_latency_ns: Option<u64>,
}

/// A queue's policy. Times are nanoseconds of the thread's own clock.
#[derive(Debug)]
pub(super) struct Coalescing {
    batch: u32,
    /// The batch was made larger, and has not been filled yet.
    trying: bool,
    /// Notifications until a larger one is tried.
    try_in: u32,
    try_interval: u32,
    /// When the first completion that is held came.
    held_since_ns: Option<u64>,
    /// When something last happened on the queue.
    active_ns: u64,
    /// When requests were last taken.
    taken_ns: u64,
    /// How long the driver takes from one request to the next while it is at it.
    gap_ns: u64,
    payoff: Payoff,
}

impl Default for Coalescing {
    fn default() -> Self {
        Self {
            batch: 1,
            trying: false,
            try_in: 0,
            try_interval: TRY_INTERVAL_MIN,
            held_since_ns: None,
            active_ns: 0,
            taken_ns: 0,
            gap_ns: 0,
            payoff: Payoff::default(),
        }
    }
}

impl Coalescing {
    /// So many requests were taken, or something was completed.
    pub(super) fn active(&mut self, now_ns: u64, taken: u16) {
        self.active_ns = now_ns;
        if taken > 0 {
            if self.payoff.taken(now_ns, taken) {
                // What kept the batch small before may have passed.
                (self.trying, self.try_in, self.try_interval) = (false, 0, TRY_INTERVAL_MIN);
            }
            let gap_ns = (now_ns - self.taken_ns) / u64::from(taken);
            self.taken_ns = now_ns;
            // A gap in which it waits for us is no more than silence.
            self.gap_ns = (7 * self.gap_ns + gap_ns.min(QUIET_NS_MAX)) / 8;
        }
    }

    fn quiet_ns(&self) -> u64 {
        (QUIET_GAPS * self.gap_ns).clamp(QUIET_NS_MIN, QUIET_NS_MAX)
    }

    /// What to do now. When it says `Notify`, that is done.
    pub(super) fn decide(&mut self, now_ns: u64, held: Held) -> Decision {
        if held.count == 0 {
            return Decision::Nothing;
        }
        if !self.payoff.may_hold() {
            self.held_since_ns = None;
            return Decision::Notify;
        }
        let held_since_ns = *self.held_since_ns.get_or_insert(now_ns);
        if held.count >= self.batch {
            self.filled();
        } else {
            let quiet_from_ns = self.active_ns + self.quiet_ns();
            let batch_ns = (u64::from(BATCH_MAX) * self.gap_ns).clamp(HELD_NS_MIN, HELD_NS_MAX);
            let held_ns = held.disk_latency_ns.map_or(batch_ns, |latency| latency / HELD_PART_OF_LATENCY);
            let until_ns = quiet_from_ns.min(held_since_ns + held_ns.min(batch_ns));
            if now_ns < until_ns {
                return Decision::HoldUntil(until_ns);
            }
            if now_ns >= quiet_from_ns {
                self.fell_silent(held.count);
            }
        }
        self.held_since_ns = None;
        Decision::Notify
    }

    fn filled(&mut self) {
        if std::mem::replace(&mut self.trying, false) {
            self.try_interval = TRY_INTERVAL_MIN;
        }
        if self.try_in > 0 {
            self.try_in -= 1;
        } else if self.batch < BATCH_MAX {
            self.batch *= 2;
            self.trying = true;
        }
    }

    fn fell_silent(&mut self, count: u32) {
        if std::mem::replace(&mut self.trying, false) {
            self.batch /= 2;
            self.try_interval = (self.try_interval * 2).min(TRY_INTERVAL_MAX);
        } else {
            self.batch = (count / 2).max(1);
            self.try_interval = TRY_INTERVAL_MIN;
        }
        self.try_in = self.try_interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Option<u64> = None;

    /// A driver that takes `gap_ns` for each request, and `interrupt_ns` for each notification, and has at most `depth`
    /// outstanding, on a disk that does all at once.
    #[derive(Clone, Copy)]
    struct Driver {
        depth: u32,
        gap_ns: u64,
        interrupt_ns: u64,
    }

    /// How long completions are held on average, and how many there are to a notification, over the last half of
    /// 400,000 requests.
    fn run(coalescing: &mut Coalescing, driver: Driver) -> (u64, f64) {
        const REQUESTS: u64 = 400_000;
        let (mut now, mut completed, mut held, mut notifications) = (coalescing.active_ns + 1_000_000, 0, 0, 0u64);
        let mut ready = now;
        let mut unsignalled: Vec<u64> = Vec::new();
        while completed < REQUESTS {
            if (unsignalled.len() as u32) < driver.depth && now >= ready {
                ready = now + driver.gap_ns;
                unsignalled.push(now);
                completed += 1;
                coalescing.active(now, 1);
            }
            let count = unsignalled.len() as u32;
            if coalescing.decide(now, Held { count, disk_latency_ns: AT_ONCE }) == Decision::Notify {
                let counted = u64::from(completed > REQUESTS / 2);
                held += counted * unsignalled.drain(..).map(|since| now - since).sum::<u64>();
                notifications += counted;
                ready = ready.max(now) + driver.interrupt_ns;
            }
            now = if unsignalled.is_empty() { ready.max(now + 200) } else { now + 200 };
        }
        (held / (REQUESTS / 2), (REQUESTS / 2) as f64 / notifications as f64)
    }

    #[test]
    fn one_at_a_time_is_notified_at_once() {
        for gap_ns in [1000, 8000, 50_000, 1_000_000] {
            let driver = Driver { depth: 1, gap_ns, interrupt_ns: 5000 };
            let (held, batch) = run(&mut Coalescing::default(), driver);
            assert!(held < 50 && batch < 1.01, "a request each {gap_ns} ns: held {held} ns, {batch} to a notification");
        }
    }

    #[test]
    fn a_deep_driver_whose_time_goes_into_interrupts_is_notified_in_batches() {
        for (depth, gap_ns, interrupt_ns) in
            [(64, 7700, 6000), (256, 600, 6000), (32, 7700, 6000), (64, 39_000, 30_000)]
        {
            let (_, batch) = run(&mut Coalescing::default(), Driver { depth, gap_ns, interrupt_ns });
            assert!(batch > 18.0, "{depth} deep, {gap_ns} ns: {batch} to a notification");
        }
        let (_, batch) = run(&mut Coalescing::default(), Driver { depth: 6, gap_ns: 7700, interrupt_ns: 6000 });
        assert!((2.5..4.5).contains(&batch), "{batch} to a notification");
    }

    #[test]
    fn holding_ends_where_it_does_not_pay() {
        for (depth, gap_ns) in [(8, 100_000), (64, 40_000), (256, 10_000)] {
            let (held, batch) = run(&mut Coalescing::default(), Driver { depth, gap_ns, interrupt_ns: 500 });
            assert!(held < gap_ns / 5 && batch < 1.1, "{gap_ns} ns: held {held} ns, {batch} to a notification");
        }
    }

    #[test]
    fn a_driver_may_change() {
        let mut coalescing = Coalescing::default();
        run(&mut coalescing, Driver { depth: 64, gap_ns: 7700, interrupt_ns: 6000 });
        let shallow = Driver { depth: 1, gap_ns: 8000, interrupt_ns: 6000 };
        assert!(run(&mut coalescing, shallow).0 < 50, "it becomes shallow");
        let deep = Driver { depth: 64, gap_ns: 7700, interrupt_ns: 6000 };
        assert!(run(&mut coalescing, deep).1 > 18.0, "and deep again");
    }

    #[test]
    fn nothing_is_held_for_ever() {
        for (disk_latency_ns, longest) in [(None, HELD_NS_MIN), (Some(80_000), 10_000), (Some(1 << 40), HELD_NS_MIN)] {
            let mut coalescing = Coalescing { batch: 32, ..Coalescing::default() };
            while !coalescing.payoff.may_hold() {
                coalescing.active(0, 1);
            }
            assert_eq!(coalescing.decide(0, Held { count: 0, disk_latency_ns }), Decision::Nothing);
            let mut now = 0;
            while let Decision::HoldUntil(until) = coalescing.decide(now, Held { count: 1, disk_latency_ns }) {
                assert!(until > now);
                now += 5000;
                coalescing.active(now, 0);
            }
            assert_eq!(now, longest);
        }
    }
}
