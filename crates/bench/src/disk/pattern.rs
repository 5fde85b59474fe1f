//! Blocks that know where and when they were written.
//!
//! Data to be verified are written in stamped blocks of 512 bytes, 64 little-endian words: a magic number, the block's
//! offset on the disk, the run's seed, the run, the generation (how often this run has written that unit), filler made
//! from these, and a checksum of everything before it. So a block that is read says whether it is damaged, was meant
//! for another place, or is older than it should be.

use crate::random::splitmix64;
use std::fmt;

/// Bytes in a stamped block: the smallest logical block there is.
pub const STAMPED_BYTES: usize = 512;

const MAGIC: u64 = u64::from_le_bytes(*b"blkyard3");
const WORDS: usize = STAMPED_BYTES / 8;
const STAMP_WORDS: usize = 5;
/// Bytes of unknown contents that an error shows.
const SHOWN_BYTES: usize = 16;

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Where it was written, in bytes from the disk's start.
    pub offset_bytes: u64,
    /// The workload's seed.
    pub seed: u64,
    /// Which run wrote it: when that started, in nanoseconds since 1970.
    pub run: u64,
    /// How often the run had written there, this time included.
    pub generation: u64,
}

/// What a block should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expectation {
    pub(crate) seed: u64,
    /// Run and generation; `None` if any will do.
    pub(crate) written: Option<(u64, u64)>,
}

/// A block that does not hold what was written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Where on the disk the block starts.
    pub offset_bytes: u64,
    expected: Expectation,
    /// What is there instead.
    pub found: Found,
}

/// What is in a block that should hold something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing but zeros.
    Zeros,
    /// A block that is whole and was written elsewhere, earlier, or with another seed.
    Other(Stamp),
    /// A block that says it is in the right place, but whose checksum is wrong.
    Damaged,
    /// Neither zeros nor anything of ours: its first bytes.
    Foreign([u8; SHOWN_BYTES]),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset_bytes, expected, found } = self;
        write!(f, "the {STAMPED_BYTES} bytes at offset {offset_bytes} should hold what ")?;
        match expected.written {
            Some((_, generation)) => write!(f, "was written there (generation {generation})")?,
            None => write!(f, "a run with seed {} wrote there", expected.seed)?,
        }
        match *found {
            Found::Zeros => write!(f, ", but hold zeros"),
            Found::Damaged => write!(f, ", but are damaged: their checksum is wrong"),
            Found::Foreign(bytes) => write!(f, ", but begin with {bytes:02x?}"),
            Found::Other(stamp) if stamp.seed != expected.seed => {
                write!(f, ", but hold what a run with seed {} wrote", stamp.seed)
            }
            Found::Other(stamp) if stamp.offset_bytes != *offset_bytes => {
                write!(f, ", but hold what was written to offset {}", stamp.offset_bytes)
            }
            Found::Other(stamp) if expected.written.is_some_and(|(run, _)| run != stamp.run) => {
                write!(f, ", but hold what another run wrote there")
            }
            Found::Other(stamp) => write!(f, ", but hold generation {}", stamp.generation),
        }
    }
}

/// Fills `data`, which goes to `stamp`'s offset, with stamped blocks.
pub(crate) fn fill(data: &mut [u8], stamp: &Stamp) {
    for (index, block) in data.chunks_exact_mut(STAMPED_BYTES).enumerate() {
        let offset_bytes = stamp.offset_bytes + (index * STAMPED_BYTES) as u64;
        Stamp { offset_bytes, ..*stamp }.fill_block(block);
    }
}

/// Checks `data`, read from `offset_bytes`, block by block: calls `wrong` for each block that is not what it should be.
pub(crate) fn check(data: &[u8], offset_bytes: u64, expected: &Expectation, mut wrong: impl FnMut(Mismatch)) {
    for (index, block) in data.chunks_exact(STAMPED_BYTES).enumerate() {
        let offset_bytes = offset_bytes + (index * STAMPED_BYTES) as u64;
        let found = match Stamp::read_block(block) {
            Ok(stamp) if expected.suits(offset_bytes, &stamp) => continue,
            Ok(stamp) => Found::Other(stamp),
            Err(stamp) if stamp.is_some_and(|stamp| expected.suits(offset_bytes, &stamp)) => Found::Damaged,
            Err(_) if block.iter().all(|&byte| byte == 0) => Found::Zeros,
            Err(_) => Found::Foreign(std::array::from_fn(|index| block[index])),
        };
        wrong(Mismatch { offset_bytes, expected: *expected, found });
    }
}

impl Expectation {
    fn suits(&self, offset_bytes: u64, stamp: &Stamp) -> bool {
        let written = self.written.is_none_or(|written| written == (stamp.run, stamp.generation));
        written && stamp.seed == self.seed && stamp.offset_bytes == offset_bytes
    }
}

impl Stamp {
    fn words(&self) -> [u64; STAMP_WORDS] {
        [MAGIC, self.offset_bytes, self.seed, self.run, self.generation]
    }

    fn fill_block(&self, block: &mut [u8]) {
        let mut filler = self.words().into_iter().fold(0, |mixed, word| splitmix64(mixed ^ word));
        let stamp = self.words().into_iter().chain(std::iter::repeat_with(|| {
            filler = filler.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            filler
        }));
        let mut checksum = Checksum::default();
        let (words, _) = block.as_chunks_mut::<8>();
        for (place, word) in words[..WORDS - 1].iter_mut().zip(stamp) {
            checksum.add(word);
            *place = word.to_le_bytes();
        }
        words[WORDS - 1] = checksum.0.to_le_bytes();
    }

    /// The block's stamp; an error, with the stamp if there is the semblance of one, when its checksum is wrong.
    fn read_block(block: &[u8]) -> Result<Self, Option<Self>> {
        let word = |index: usize| u64::from_le_bytes(std::array::from_fn(|byte| block[index * 8 + byte]));
        let stamp = Self { offset_bytes: word(1), seed: word(2), run: word(3), generation: word(4) };
        let mut checksum = Checksum::default();
        (0..WORDS - 1).for_each(|index| checksum.add(word(index)));
        match (word(0) == MAGIC, checksum.0 == word(WORDS - 1)) {
            (true, true) => Ok(stamp),
            (true, false) => Err(Some(stamp)),
            (false, _) => Err(None),
        }
    }
}

/// Each word, and its place, changes every bit that follows: each step is a bijection of the sum and of the word.
#[derive(Default)]
struct Checksum(u64);

impl Checksum {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { offset_bytes: 8192, seed: 7, run: 99, generation: 3 };
    const EXPECTED: Expectation = Expectation { seed: 7, written: Some((99, 3)) };

    fn found(data: &[u8], offset_bytes: u64, expected: &Expectation) -> Vec<(u64, Found)> {
        let mut mismatches = Vec::new();
        check(data, offset_bytes, expected, |one| mismatches.push((one.offset_bytes, one.found)));
        mismatches
    }

    fn filled() -> Vec<u8> {
        let mut data = vec![0; 4 * STAMPED_BYTES];
        fill(&mut data, &STAMP);
        data
    }

    #[test]
    fn what_was_written_is_what_is_expected() {
        assert_eq!(found(&filled(), 8192, &EXPECTED), []);
        assert_eq!(found(&filled(), 8192, &Expectation { seed: 7, written: None }), []);
    }

    #[test]
    fn any_bit_that_changes_is_seen() {
        let data = filled();
        for bit in 0..STAMPED_BYTES * 8 {
            let mut damaged = data.clone();
            damaged[STAMPED_BYTES + bit / 8] ^= 1 << (bit % 8);
            let mismatches = found(&damaged, 8192, &EXPECTED);
            assert!(matches!(mismatches[..], [(8704, _)]), "bit {bit}: {mismatches:?}");
        }
    }

    #[test]
    fn what_is_found_is_told_apart() {
        let data = filled();
        let one = |expected, found| Mismatch { offset_bytes: 8192, expected, found }.to_string();
        let moved = found(&data[..512], 0, &EXPECTED);
        assert_eq!(moved, [(0, Found::Other(STAMP))]);
        assert!(one(EXPECTED, Found::Other(Stamp { offset_bytes: 4096, ..STAMP })).contains("to offset 4096"));

        assert_eq!(found(&data[..512], 8192, &Expectation { seed: 7, written: Some((99, 4)) }).len(), 1);
        assert!(one(EXPECTED, Found::Other(Stamp { generation: 2, ..STAMP })).ends_with("hold generation 2"));
        assert!(one(EXPECTED, Found::Other(Stamp { run: 98, ..STAMP })).contains("another run"));
        assert!(one(EXPECTED, Found::Other(Stamp { seed: 8, ..STAMP })).contains("seed 8"));

        assert_eq!(found(&[0; 512], 8192, &EXPECTED), [(8192, Found::Zeros)]);
        assert_eq!(found(&[0xab; 512], 8192, &EXPECTED), [(8192, Found::Foreign([0xab; 16]))]);
        assert!(one(EXPECTED, Found::Foreign([0xab; 16])).contains("[ab, ab"));
        let mut torn = data[..512].to_vec();
        torn[256..].fill(0);
        assert_eq!(found(&torn, 8192, &EXPECTED), [(8192, Found::Damaged)]);
    }
}
