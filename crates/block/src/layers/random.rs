//! Chance that comes out the same every time.

/// The next state, and output, of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators).
pub(super) fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number below `bound` from one below 2^64; zero for a bound of zero.
pub(super) fn below(chance: u64, bound: u64) -> u64 {
    ((u128::from(chance) * u128::from(bound)) >> 64) as u64
}

/// One number after the other.
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        below(mix(self.state), bound)
    }
}
