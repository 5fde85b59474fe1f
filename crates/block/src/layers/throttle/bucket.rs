//! A token bucket in one atomic number.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SECOND_NS: u128 = 1_000_000_000;

/// A token bucket, kept as the time up to which its tokens are spent. That is the generic cell rate algorithm of ITU-T
/// I.371 (virtual scheduling): the level in tokens is the time since then, at most the burst, and a level below zero is
/// debt. Each reservation is one compare-and-swap, so the queues of a disk share a bucket without a lock, and get on in
/// the order in which they came.
pub(super) struct Bucket {
    tokens_per_second: NonZeroU64,
    burst_ns: u64,
    spent_until_ns: AtomicU64,
}

/// What the bucket's times are ahead of the clock's, so that a burst before the clock's zero can be said. 292 years.
const AHEAD_NS: u64 = 1 << 63;

impl Bucket {
    /// A full bucket.
    pub(super) fn new(tokens_per_second: NonZeroU64, burst: Duration) -> Self {
        let burst_ns = u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX).min(AHEAD_NS);
        Self { tokens_per_second, burst_ns, spent_until_ns: AtomicU64::new(0) }
    }

    /// Spends `tokens`; gives the time of the clock from which that is allowed.
    pub(super) fn reserve(&self, tokens: u64, now_ns: u64) -> u64 {
        // Rounded up, so that many small ones do not add up to more than the rate.
        let cost_ns = (u128::from(tokens) * SECOND_NS).div_ceil(self.tokens_per_second.get().into());
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        let full_ns = now_ns.saturating_add(AHEAD_NS) - self.burst_ns;
        let spend = |spent_ns: u64| Some(spent_ns.max(full_ns).saturating_add(cost_ns));
        let (Ok(spent_ns) | Err(spent_ns)) =
            self.spent_until_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend);
        spent_ns.max(full_ns).saturating_sub(AHEAD_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(rate: u64, burst: Duration) -> Bucket {
        Bucket::new(NonZeroU64::new(rate).unwrap(), burst)
    }

    #[test]
    fn without_a_burst_requests_go_one_by_one() {
        let bucket = bucket(1000, Duration::ZERO);
        let times: Vec<_> = (0..4).map(|_| bucket.reserve(1, 0)).collect();
        assert_eq!(times, [0, 1_000_000, 2_000_000, 3_000_000]);
        // Time in which nothing was spent is lost.
        assert_eq!(bucket.reserve(1, 10_000_000), 10_000_000);
        assert_eq!(bucket.reserve(1, 10_000_000), 11_000_000);
    }

    #[test]
    fn a_burst_is_there_from_the_start_and_again_after_a_pause() {
        let bucket = bucket(1000, Duration::from_millis(3));
        for now_ns in [0, 1_000_000_000] {
            let waits: Vec<_> = (0..6).map(|_| bucket.reserve(1, now_ns).saturating_sub(now_ns)).collect();
            // What fits the burst, the one that empties it, then one a millisecond.
            assert_eq!(waits, [0, 0, 0, 0, 1_000_000, 2_000_000]);
        }
    }

    #[test]
    fn more_than_fits_the_bucket_passes_and_is_owed() {
        let bucket = bucket(1 << 20, Duration::from_millis(1));
        assert_eq!(bucket.reserve(10 << 20, 0), 0);
        assert_eq!(bucket.reserve(1, 0), 10_000_000_000 - 1_000_000);
    }

    #[test]
    fn the_longest_debt_does_not_overflow() {
        let bucket = bucket(1, Duration::MAX);
        bucket.reserve(u64::MAX, 0);
        assert!(bucket.reserve(u64::MAX, u64::MAX) > 1 << 62);
    }

    /// In no stretch of time may more be spent than the burst and the rate allow, but for what is spent last, which may
    /// be as much as it likes.
    #[test]
    fn fuzz_no_stretch_of_time_allows_too_much() {
        let input = blockyard_fuzz::check!(100_000).with_type::<(u32, u16, Vec<(u16, u16)>)>();
        input.for_each(|(rate, burst_us, spending)| {
            let (rate, burst) = (u64::from(*rate) + 1, Duration::from_micros((*burst_us).into()));
            let bucket = bucket(rate, burst);
            let (mut now_ns, mut last_ns) = (0, 0);
            let mut spent: Vec<(u64, u64)> = Vec::new();
            for &(tokens, later_us) in spending {
                now_ns += u64::from(later_us) * 1000;
                let at_ns = bucket.reserve(tokens.into(), now_ns).max(now_ns);
                assert!(at_ns >= last_ns);
                last_ns = at_ns;
                spent.push((at_ns, tokens.into()));
            }
            for (first, &(start_ns, _)) in spent.iter().enumerate() {
                let mut sum = 0;
                for &(at_ns, tokens) in &spent[first..] {
                    let allowed = (u128::from(at_ns - start_ns) + burst.as_nanos()) * u128::from(rate);
                    assert!(u128::from(sum) * SECOND_NS <= allowed, "{sum} in {} ns", at_ns - start_ns);
                    sum += tokens;
                }
            }
        });
    }
}
