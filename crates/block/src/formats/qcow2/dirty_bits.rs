//! Which of a disk's bytes were written since its image was opened, for the bitmaps that are kept of that.
//!
//! One set of bits serves all of them: it is as fine as the finest, and what is set in it when the image is closed is
//! set in each. Queues set bits before they send what they are for, without a lock; memory is taken where something is
//! written for the first time. Where the bits of a large disk would be more than [`BITS_MAX`], each stands for more
//! bytes: then a bitmap says that more was written than was, and never less.

use super::bitmaps::run_of;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// 16 MiB of them: 8 TiB of a disk in pieces of 64 KiB.
const BITS_MAX: u64 = 1 << 27;

/// Words whose memory is taken at once: 32 KiB.
const PAGE_WORDS: u64 = 4096;
const PAGE_BITS: u64 = PAGE_WORDS * 64;

pub(super) struct DirtyBits {
    granularity_bits: u32,
    size_bytes: u64,
    /// Its bits.
    count: u64,
    pages: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl DirtyBits {
    /// Of a disk, for bitmaps of which the finest has this granularity.
    pub(super) fn new(size_bytes: u64, granularity_bits: u8) -> Self {
        Self::bounded(size_bytes, granularity_bits, BITS_MAX)
    }

    fn bounded(size_bytes: u64, granularity_bits: u8, bits_max: u64) -> Self {
        let mut granularity_bits = u32::from(granularity_bits);
        while size_bytes.div_ceil(1 << granularity_bits) > bits_max {
            granularity_bits += 1;
        }
        let count = size_bytes.div_ceil(1 << granularity_bits);
        let pages = (0..count.div_ceil(PAGE_BITS)).map(|_| OnceLock::new()).collect();
        Self { granularity_bits, size_bytes, count, pages }
    }

    /// Says that a range is about to be written.
    pub(super) fn mark(&self, offset_bytes: u64, length_bytes: u64) {
        if length_bytes == 0 {
            return;
        }
        let end = offset_bytes.saturating_add(length_bytes).div_ceil(1 << self.granularity_bits).min(self.count);
        let mut bit = offset_bytes >> self.granularity_bits;
        while bit < end {
            let word_end = ((bit / 64 + 1) * 64).min(end);
            let bits = u64::MAX >> (64 - (word_end - bit)) << (bit % 64);
            let Some(page) = self.pages.get((bit / PAGE_BITS) as usize) else { return };
            let words = page.get_or_init(|| (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect());
            let word = &words[(bit / 64 % PAGE_WORDS) as usize];
            // Mostly they are set, and then the word stays where all threads share it. Whoever reads them comes after
            // all queues.
            if word.load(Ordering::Relaxed) & bits != bits {
                word.fetch_or(bits, Ordering::Relaxed);
            }
            bit = word_end;
        }
    }

    /// The first run of bytes from one on that were written; it may go on in another.
    pub(super) fn next_run(&self, from: u64) -> Option<Range<u64>> {
        let mut bit = from.div_ceil(1 << self.granularity_bits);
        while bit < self.count {
            let page = bit / PAGE_BITS;
            let end = ((page + 1) * PAGE_BITS).min(self.count);
            if let Some(words) = self.pages.get(page as usize).and_then(OnceLock::get) {
                let first = page * PAGE_BITS;
                let word = |index: usize| words.get(index).map_or(0, |word| word.load(Ordering::Relaxed));
                if let Some(run) = run_of(word, bit - first..end - first) {
                    let end = (first + run.end) << self.granularity_bits;
                    return Some((first + run.start) << self.granularity_bits..end.min(self.size_bytes));
                }
            }
            bit = end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(bits: &DirtyBits) -> Vec<Range<u64>> {
        let (mut runs, mut at): (Vec<Range<u64>>, _) = (Vec::new(), 0);
        while let Some(run) = bits.next_run(at) {
            at = run.end;
            match runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
        }
        runs
    }

    #[test]
    fn what_is_marked_is_found() {
        let bits = DirtyBits::new(1 << 30, 9);
        assert_eq!(runs(&bits), []);
        bits.mark(5000, 1);
        bits.mark(9001, 0);
        bits.mark((64 << 9) - 1, 2);
        bits.mark(128 << 20, 256 << 20);
        bits.mark((1 << 30) - 1, 4096);
        bits.mark(4 << 30, 1);
        let wanted = [4608..5120, 63 << 9..65 << 9, 128 << 20..384 << 20, (1 << 30) - 512..1 << 30];
        assert_eq!(runs(&bits), wanted);
    }

    #[test]
    fn a_large_disk_is_told_coarser_and_nothing_is_missed() {
        let bits = DirtyBits::bounded(1 << 40, 9, 1 << 20);
        bits.mark((5 << 20) + 512, 512);
        assert!(runs(&bits).iter().eq([&(5 << 20..6 << 20)]));
        // Nor is anything found behind the end, which is in the middle of what a bit stands for.
        let bits = DirtyBits::bounded((1 << 20) + 512, 9, 8);
        bits.mark(1 << 20, 512);
        assert!(runs(&bits).iter().eq([&(1 << 20..(1 << 20) + 512)]));
    }
}
