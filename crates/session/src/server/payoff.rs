//! Whether holding completions back pays: tried, not guessed.
//!
//! A driver whose time goes into interrupts gets more done when there are fewer. One that sends a request now and then
//! because it has no more to ask for only waits longer for its answers. From outside they look the same, but for one
//! thing: how fast requests come with and without. So both ways are tried in turn, the better one for longer.

/// Requests that one trial of the other way lasts, and that the better way lasts between two trials, at first and at
/// most.
const TRIAL: u32 = 1024;
const BETWEEN_MIN: u32 = 2048;
const BETWEEN_MAX: u32 = 131_072;
/// Requests by which each way is judged: its last ones, as a batch has to grow first.
const JUDGED: u32 = 512;
/// Holding must make requests come so much faster, in percent, to be worth what it adds to each.
const GAIN_PERCENT: u64 = 10;
/// Of a driver that takes longer for what is judged, either way, nothing can be said but that it has time for
/// interrupts.
const TRIAL_NS_MAX: u64 = 100_000_000;

/// A queue's trials. Times are nanoseconds of the thread's own clock.
#[derive(Debug)]
pub(super) struct Payoff {
    /// The better way, as far as is known.
    hold_is_better: bool,
    /// The other way is being tried.
    trying: bool,
    /// Requests until the next change, and between trials.
    left: u32,
    between: u32,
    /// How long the last requests before the trial took, and when those that are judged began.
    before_ns: u64,
    began_ns: u64,
}

impl Default for Payoff {
    fn default() -> Self {
        // One more than is judged, which begins the time: the first request may come long after the thread started.
        let left = JUDGED + 1;
        Self { hold_is_better: false, trying: false, left, between: BETWEEN_MIN, before_ns: 0, began_ns: 0 }
    }
}

impl Payoff {
    /// Whether completions may be held now.
    pub(super) fn may_hold(&self) -> bool {
        self.hold_is_better != self.trying
    }

    /// So many requests were taken. Whether a trial of holding begins with that.
    pub(super) fn taken(&mut self, now_ns: u64, count: u16) -> bool {
        let before = self.left;
        self.left = self.left.saturating_sub(count.into());
        if before > JUDGED && self.left <= JUDGED {
            self.began_ns = now_ns;
        }
        if self.left > 0 {
            return false;
        }
        let took_ns = now_ns - self.began_ns;
        if self.trying {
            self.judge(took_ns);
        } else {
            self.before_ns = took_ns;
            self.trying = true;
            self.left = TRIAL;
        }
        self.trying && self.may_hold()
    }

    fn judge(&mut self, trial_ns: u64) {
        let (held_ns, at_once_ns) =
            if self.hold_is_better { (self.before_ns, trial_ns) } else { (trial_ns, self.before_ns) };
        let busy = held_ns.max(at_once_ns) < TRIAL_NS_MAX;
        let pays = busy && held_ns * (100 + GAIN_PERCENT) <= at_once_ns * 100;
        self.between = match pays == self.hold_is_better {
            true => (self.between * 2).min(BETWEEN_MAX),
            false => BETWEEN_MIN,
        };
        self.hold_is_better = pays;
        self.trying = false;
        self.left = self.between;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 1,000,000 requests come while completions may be held, from a driver that takes so long for one,
    /// held or not.
    fn held(payoff: &mut Payoff, held_ns: u64, at_once_ns: u64) -> u32 {
        let mut now_ns = payoff.began_ns + 1_000_000;
        let mut held = 0;
        for _ in 0..1_000_000 {
            held += u32::from(payoff.may_hold());
            now_ns += if payoff.may_hold() { held_ns } else { at_once_ns };
            payoff.taken(now_ns, 1);
        }
        held
    }

    #[test]
    fn what_makes_requests_come_faster_is_kept() {
        assert!(held(&mut Payoff::default(), 8_000, 14_000) > 980_000);
    }

    #[test]
    fn what_does_not_is_hardly_tried() {
        for (held_ns, at_once_ns) in [(40_000, 40_000), (150_000, 100_000), (39_000, 40_000), (500_000, 1_000_000)] {
            let held = held(&mut Payoff::default(), held_ns, at_once_ns);
            assert!(held < 16_000, "{held_ns} ns and {at_once_ns} ns a request: {held} held");
        }
    }

    #[test]
    fn the_time_before_the_first_request_is_no_request_s() {
        for count in [1, 16] {
            let mut payoff = Payoff::default();
            let mut now_ns = 3_600_000_000_000;
            for _ in 0..=JUDGED + TRIAL {
                now_ns += 40_000 * u64::from(count);
                payoff.taken(now_ns, count);
            }
            assert!(!payoff.hold_is_better, "the thread had run for an hour; {count} at a time");
        }
    }

    #[test]
    fn a_driver_may_change() {
        let mut payoff = Payoff::default();
        held(&mut payoff, 8_000, 14_000);
        assert!(held(&mut payoff, 14_000, 14_000) < 80_000, "it has time now");
        assert!(held(&mut payoff, 8_000, 14_000) > 850_000, "and none again");
    }
}
