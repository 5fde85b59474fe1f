//! Numbers that look random and are the same for the same seed.

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Stream number `stream` of `seed`: streams of one seed have nothing to do with each other.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        // Only zero would stay what it is.
        Self(splitmix64(splitmix64(seed) ^ stream).max(1))
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`; 0 if that is 0. Each as likely as any other, but for one part in 2⁶⁴ / `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Fills `bytes` with data that neither compresses nor repeats.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.next_u64().to_le_bytes()[..piece.len()]);
        }
    }
}

/// Spreads a number over all bits (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
pub(crate) fn splitmix64(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_below_the_bound_is_as_likely() {
        const DRAWS: u64 = 100_000;
        for bound in [1, 2, 7, 100] {
            let mut random = Random::new(1, bound);
            let mut counts = vec![0_u64; bound as usize];
            (0..DRAWS).for_each(|_| counts[random.below(bound) as usize] += 1);
            let expected = DRAWS as f64 / bound as f64;
            let worst = counts.iter().map(|&count| (count as f64 - expected).abs()).fold(0.0, f64::max);
            // Five standard deviations.
            assert!(worst <= 5.0 * expected.sqrt(), "{bound}: {counts:?}");
        }
    }

    #[test]
    fn seeds_and_streams_differ_and_repeat() {
        let first = |seed, stream| Random::new(seed, stream).next_u64();
        assert_eq!(first(3, 4), first(3, 4));
        assert!(first(3, 4) != first(4, 3) && first(0, 0) != first(0, 1) && first(0, 0) != 0);
    }
}
