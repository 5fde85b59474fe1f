//! Who changes which part of the disk right now.
//!
//! A write of half a block is a read, a change and a write of the whole block; another write to that block in between
//! would be lost. So every change claims what it touches: whole blocks together with others, parts of blocks alone.
//! Nobody ever waits inside: a claim that cannot be had is tried again when another is released.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Claims are kept by megabyte, so that the longest transfer touches two stripes and a slow disk has many.
const STRIPE_BYTES: u64 = 1 << 20;
/// As many as a mask has bits; what is further apart on the disk than this shares stripes.
const STRIPE_COUNT: u64 = u64::BITS as u64;

/// Somebody has the stripe alone.
const ALONE: u32 = 1 << 31;
/// Somebody wants the stripe alone: no new sharers, or they would keep it for ever.
const WANTED: u32 = 1 << 30;

/// What a change touches, and whether it must be alone there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    stripes: u64,
    alone: bool,
}

impl Claim {
    /// For a change of `range`, which is not empty.
    pub(super) fn new(range: &Range<u64>, alone: bool) -> Self {
        let first = range.start / STRIPE_BYTES;
        let count = (range.end - 1) / STRIPE_BYTES - first + 1;
        let stripes = match count {
            STRIPE_COUNT.. => u64::MAX,
            _ => ((1_u64 << count) - 1).rotate_left((first % STRIPE_COUNT) as u32),
        };
        Self { stripes, alone }
    }

    /// Its stripes, in an order that is everybody's.
    fn stripes(self) -> impl Iterator<Item = usize> {
        (0..STRIPE_COUNT as usize).filter(move |stripe| self.stripes & 1 << stripe != 0)
    }
}

/// The claims of all workers: each stripe's sharers and the two flags above.
#[derive(Debug)]
pub(super) struct Claims {
    stripes: [AtomicU32; STRIPE_COUNT as usize],
    parked: AtomicUsize,
}

impl Claims {
    pub(super) fn new() -> Self {
        Self { stripes: std::array::from_fn(|_| AtomicU32::new(0)), parked: AtomicUsize::new(0) }
    }

    /// Makes the claim; false, and nothing claimed, when another one is in its way.
    pub(super) fn try_claim(&self, claim: Claim) -> bool {
        for (taken, stripe) in claim.stripes().enumerate() {
            let state = &self.stripes[stripe];
            let claimed = if claim.alone { try_alone(state) } else { try_shared(state) };
            if !claimed {
                claim.stripes().take(taken).for_each(|stripe| self.release_stripe(stripe, claim.alone));
                return false;
            }
        }
        true
    }

    /// Gives the claim back. True when somebody, somewhere, is parked and should try again.
    pub(super) fn release(&self, claim: Claim) -> bool {
        claim.stripes().for_each(|stripe| self.release_stripe(stripe, claim.alone));
        self.parked.load(Ordering::SeqCst) > 0
    }

    /// Says that a claim could not be had. The caller tries once more after this before it sleeps: whoever released
    /// the stripe in between did not know of it.
    pub(super) fn park(&self) {
        self.parked.fetch_add(1, Ordering::SeqCst);
    }

    /// Says that a parked claim was made after all.
    pub(super) fn unpark(&self) {
        self.parked.fetch_sub(1, Ordering::SeqCst);
    }

    fn release_stripe(&self, stripe: usize, alone: bool) {
        let state = &self.stripes[stripe];
        if alone {
            state.fetch_and(!ALONE, Ordering::SeqCst)
        } else {
            state.fetch_sub(1, Ordering::SeqCst)
        };
    }
}

fn try_shared(state: &AtomicU32) -> bool {
    let one_more = |sharers: u32| (sharers & (ALONE | WANTED) == 0).then_some(sharers + 1);
    state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
}

fn try_alone(state: &AtomicU32) -> bool {
    let only_me = |state: u32| (state & !WANTED == 0).then_some(ALONE);
    let claimed = state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, only_me).is_ok();
    if !claimed {
        state.fetch_or(WANTED, Ordering::SeqCst);
    }
    claimed
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = STRIPE_BYTES;

    #[test]
    fn whole_blocks_share_and_parts_of_blocks_are_alone() {
        let claims = Claims::new();
        let whole = Claim::new(&(0..4096), false);
        let part = Claim::new(&(1..2), true);
        assert!(claims.try_claim(whole) && claims.try_claim(whole));
        assert!(!claims.try_claim(part));
        claims.release(whole);
        claims.release(whole);
        assert!(claims.try_claim(part));
        assert!(!claims.try_claim(whole) && !claims.try_claim(part));
        assert!(claims.try_claim(Claim::new(&(MIB..MIB + 1), true)), "another stripe");
    }

    #[test]
    fn whoever_wants_to_be_alone_gets_the_next_turn() {
        let claims = Claims::new();
        let whole = Claim::new(&(0..4096), false);
        let part = Claim::new(&(1..2), true);
        assert!(claims.try_claim(whole));
        assert!(!claims.try_claim(part));
        assert!(!claims.try_claim(whole), "no new sharer while one waits to be alone");
        claims.release(whole);
        assert!(claims.try_claim(part));
        claims.release(part);
        assert!(claims.try_claim(whole));
    }

    #[test]
    fn a_claim_that_fails_half_way_leaves_nothing_behind() {
        let claims = Claims::new();
        let second = Claim::new(&(MIB..MIB + 1), true);
        assert!(claims.try_claim(second));
        let both = Claim::new(&(0..2 * MIB), false);
        assert!(!claims.try_claim(both));
        assert!(claims.try_claim(Claim::new(&(0..1), true)));
        assert_eq!(Claim::new(&(0..1 << 40), false).stripes, u64::MAX);
        assert_eq!(Claim::new(&(63 * MIB..65 * MIB), false).stripes, 1 << 63 | 1, "stripes wrap around");
    }

    #[test]
    fn the_parked_are_told_of_when_a_claim_is_released() {
        let claims = Claims::new();
        let part = Claim::new(&(1..2), true);
        assert!(claims.try_claim(part));
        assert!(!claims.try_claim(part));
        claims.park();
        assert!(claims.release(part));
        assert!(claims.try_claim(part));
        claims.unpark();
        assert!(!claims.release(part));
    }
}
