//! What is in memory that requests point to: zeros, or the same as elsewhere.

use crate::shared_words::words_at;
use crate::{MemoryMap, Segment};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words that are looked at before it is decided whether to go on.
const WORDS_AT_ONCE: usize = 16;

impl MemoryMap {
    /// Whether a segment holds zeros only; `None` when it lies outside, or is not made of whole, aligned words of 8
    /// bytes.
    pub fn is_zero(&self, segment: Segment) -> Option<bool> {
        let words = self.segment_words(segment)?;
        let any = |words: &[AtomicU64]| words.iter().fold(0, |any, word| any | word.load(Ordering::Relaxed));
        Some(words.chunks(WORDS_AT_ONCE).all(|words| any(words) == 0))
    }

    /// Whether a little segment, made of any bytes, holds zeros only; `None` when it lies outside.
    pub(crate) fn is_padding(&self, segment: Segment) -> Option<bool> {
        let slice = self.slice(segment)?;
        let mut bytes = [0_u8; 512];
        let mut at = 0;
        while at < slice.len() {
            let piece = &mut bytes[..(slice.len() - at).min(512)];
            slice.subslice(at, piece.len()).ok()?.copy_to(piece);
            if piece.iter().any(|&byte| byte != 0) {
                return Some(false);
            }
            at += piece.len();
        }
        Some(true)
    }

    /// Whether two segments hold the same; `None` when one lies outside, or is not made of whole, aligned words of 8
    /// bytes.
    pub fn is_equal(&self, left: Segment, right: Segment) -> Option<bool> {
        self.is_equal_in(left, self, right)
    }

    /// The same of a segment here and one of `other`.
    pub(crate) fn is_equal_in(&self, left: Segment, other: &Self, right: Segment) -> Option<bool> {
        let (left, right) = (self.segment_words(left)?, other.segment_words(right)?);
        let differ = |(left, right): (&[AtomicU64], &[AtomicU64])| {
            let differ =
                |(left, right): (&AtomicU64, &AtomicU64)| left.load(Ordering::Relaxed) ^ right.load(Ordering::Relaxed);
            left.iter().zip(right).map(differ).fold(0, |any, word| any | word) != 0
        };
        let same_length = left.len() == right.len();
        Some(same_length && !left.chunks(WORDS_AT_ONCE).zip(right.chunks(WORDS_AT_ONCE)).any(differ))
    }

    fn segment_words(&self, segment: Segment) -> Option<&[AtomicU64]> {
        let place = self.resolve(segment)?;
        if !place.iov_len.is_multiple_of(8) {
            return None;
        }
        // SAFETY: `resolve` has found the bytes in a mapping that `self`, which the slice borrows, keeps; memory of a
        // map is reached through pointers and atomics only.
        unsafe { words_at(place.iov_base.cast(), place.iov_len / 8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::Bytes;

    fn segment(offset_bytes: u64, length_bytes: u32) -> Segment {
        Segment { region: 0, length_bytes, offset_bytes }
    }

    #[test]
    fn one_byte_anywhere_makes_the_difference() {
        let memory = MemoryMap::allocate(&[(0, 16384)]).unwrap();
        let (left, right) = (segment(0, 4096), segment(8192, 4096));
        assert_eq!((memory.is_zero(left), memory.is_equal(left, right)), (Some(true), Some(true)));
        for place in [0, 7, 8, 127, 128, 2049, 4095] {
            let byte = memory.slice(segment(place, 1)).unwrap();
            byte.write_obj(1_u8, 0).unwrap();
            assert_eq!((memory.is_zero(left), memory.is_equal(left, right)), (Some(false), Some(false)), "{place}");
            assert_eq!(memory.is_zero(right), Some(true));
            byte.write_obj(0_u8, 0).unwrap();
        }
    }

    /// The last bytes, too, of a segment that is not made of whole words, wherever it begins.
    #[test]
    fn one_byte_anywhere_is_no_padding() {
        let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
        for (start, length) in [(2567, 2), (0, 1), (1, 3), (5, 7), (3, 513), (0, 1026), (8, 2048)] {
            let padding = segment(start, length);
            assert_eq!(memory.is_padding(padding), Some(true), "{padding:?}");
            for place in start..start + u64::from(length) {
                let byte = memory.slice(segment(place, 1)).unwrap();
                byte.write_obj(1_u8, 0).unwrap();
                assert_eq!(memory.is_padding(padding), Some(false), "{padding:?}, {place}");
                byte.write_obj(0_u8, 0).unwrap();
            }
        }
    }

    #[test]
    fn what_is_no_words_is_not_judged() {
        let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
        for outside in [segment(4096, 8), segment(0, 4), segment(4, 8), segment(0, 8192)] {
            assert_eq!(memory.is_zero(outside), None, "{outside:?}");
        }
        assert_eq!(memory.is_equal(segment(0, 16), segment(0, 8)), Some(false));
    }
}
