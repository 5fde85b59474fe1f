//! When a driver is notified: at once where it waits for one request, in batches where it keeps many outstanding.
//!
//! A notification costs the driver an interrupt, and in a guest whose system calls are slow that is most of what a request costs.
//! Measured with User-Mode Linux, 4 KiB, depth 64 (one CPU each for guest and server): 74,000 requests a second when each is
//! notified, 130,000 at 32 to a notification; but at depth 1 the same waiting takes a third away.
//!
//! How deep a driver is cannot be seen: one that is told of each request at once never has more than a few outstanding. What can be
//! seen is whether it goes on while completions are held. So the batch grows for as long as it fills; where the driver fell
//! silent instead, it is as it was before, and the next try is later. And a disk that takes its time must not be kept from work
//! that the driver would have for it: then nothing is held for more than a part of that time.

/// Completions in a notification at most.
const BATCH_MAX: u32 = 32;
/// A driver that has made nothing available for so long, and to whom nothing was completed, waits for us. The measured guest takes
/// 8 µs from one request to the next.
const QUIET_NS: u64 = 15_000;
/// No completion is held longer, and while the disk has other requests not longer than this part of what they take.
const HELD_NS_MAX: u64 = 300_000;
const HELD_PART_OF_LATENCY: u64 = 8;
/// Notifications between two tries of a larger batch, at first and at most: a try that fails costs [`QUIET_NS`].
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
}

impl Default for Coalescing {
    fn default() -> Self {
        Self { batch: 1, trying: false, try_in: 0, try_interval: TRY_INTERVAL_MIN, held_since_ns: None, active_ns: 0 }
    }
}

impl Coalescing {
    /// Something was taken or completed.
    pub(super) fn active(&mut self, now_ns: u64) {
        self.active_ns = now_ns;
    }

    /// What to do now. When it says `Notify`, that is done.
    pub(super) fn decide(&mut self, now_ns: u64, held: Held) -> Decision {
        if held.count == 0 {
            return Decision::Nothing;
        }
        let held_since_ns = *self.held_since_ns.get_or_insert(now_ns);
        if held.count >= self.batch {
            self.filled();
        } else {
            let quiet_ns = self.active_ns + QUIET_NS;
            let held_ns = held.disk_latency_ns.map_or(HELD_NS_MAX, |latency| latency / HELD_PART_OF_LATENCY);
            let until_ns = quiet_ns.min(held_since_ns + held_ns.min(HELD_NS_MAX));
            if now_ns < until_ns {
                return Decision::HoldUntil(until_ns);
            }
            if now_ns >= quiet_ns {
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

    /// A driver that adds a request each `gap_ns` until `depth` are outstanding and takes back what it is notified of, on a disk
    /// that does all at once: how long completions are held on average, and how many there are to a notification.
    fn run(coalescing: &mut Coalescing, depth: u32, gap_ns: u64) -> (u64, f64) {
        let (mut now, mut added, mut held, mut completed, mut notifications) = (1_000_000, 0, 0, 0u64, 0u64);
        let mut unsignalled: Vec<u64> = Vec::new();
        while completed < 50_000 {
            if (unsignalled.len() as u32) < depth && now >= added + gap_ns {
                added = now;
                unsignalled.push(now);
                completed += 1;
                coalescing.active(now);
            }
            let count = unsignalled.len() as u32;
            if coalescing.decide(now, Held { count, disk_latency_ns: AT_ONCE }) == Decision::Notify {
                held += unsignalled.drain(..).map(|since| now - since).sum::<u64>();
                notifications += 1;
            }
            now += 100;
        }
        (held / completed, completed as f64 / notifications as f64)
    }

    #[test]
    fn one_at_a_time_is_notified_at_once() {
        for gap_ns in [1000, 8000, 50_000, 1_000_000] {
            let (held, batch) = run(&mut Coalescing::default(), 1, gap_ns);
            assert!(held < 50 && batch < 1.01, "a request each {gap_ns} ns: held {held} ns, {batch} to a notification");
        }
    }

    #[test]
    fn a_deep_driver_is_notified_in_batches() {
        for (depth, gap_ns) in [(64, 7700), (256, 500), (32, 7700)] {
            let (_, batch) = run(&mut Coalescing::default(), depth, gap_ns);
            assert!(batch > 30.0, "{depth} deep: {batch} to a notification");
        }
        let (_, batch) = run(&mut Coalescing::default(), 6, 7700);
        assert!((3.5..4.5).contains(&batch), "{batch} to a notification");
    }

    #[test]
    fn holding_ends_where_it_does_not_pay() {
        let (held, batch) = run(&mut Coalescing::default(), 8, 100_000);
        assert!(held < 50 && batch < 1.1, "held {held} ns, {batch} to a notification");
    }

    #[test]
    fn a_driver_may_change() {
        let mut coalescing = Coalescing::default();
        run(&mut coalescing, 64, 7700);
        assert!(run(&mut coalescing, 1, 8000).0 < 50, "it becomes shallow");
        assert!(run(&mut coalescing, 64, 7700).1 > 25.0, "and deep again");
    }

    #[test]
    fn nothing_is_held_for_ever() {
        for (disk_latency_ns, longest) in [(None, HELD_NS_MAX), (Some(80_000), 10_000), (Some(1 << 40), HELD_NS_MAX)] {
            let mut coalescing = Coalescing { batch: 32, ..Coalescing::default() };
            coalescing.active(0);
            assert_eq!(coalescing.decide(0, Held { count: 0, disk_latency_ns }), Decision::Nothing);
            let mut now = 0;
            while let Decision::HoldUntil(until) = coalescing.decide(now, Held { count: 1, disk_latency_ns }) {
                assert!(until > now);
                now += 5000;
                coalescing.active(now);
            }
            assert_eq!(now, longest);
        }
    }
}
