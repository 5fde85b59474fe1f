//! Whether the refcounts of what an image uses say so.

use super::{Problem, Scan, damage};
use crate::formats::qcow2::refblock::Refblock;
use crate::formats::qcow2::use_map::{Use, WORD_CLUSTERS, has_many, used};

impl Scan<'_> {
    /// Judges the refcounts of the window, all of whose uses were claimed, and puts right those that say that there is
    /// none.
    pub(super) fn check_refcounts(&self) -> Result<(), Problem> {
        let (window, per_block) = (self.uses.clusters(), self.refcounts_per_block());
        let mut ones = Refblock::empty(self.header.cluster_bits, self.header.refcount_order);
        (0..WORD_CLUSTERS as usize).for_each(|index| ones.set_to_one(index));
        ones.bytes.truncate((WORD_CLUSTERS as usize) << self.header.refcount_order >> 3);
        let mut is_mended = false;
        let first_block = window.start / per_block;
        for (refblock, index) in (first_block..window.end.div_ceil(per_block)).enumerate() {
            let clusters = (index * per_block).max(window.start)..((index + 1) * per_block).min(window.end);
            let (words, shared) = (self.uses.words_of(&clusters), self.shared.words_of(&clusters));
            if words.iter().any(|&word| word != 0) {
                self.go_on()?;
                match self.refblocks.get(refblock) {
                    None | Some(0) => return damage("clusters that are in use have no refcount"),
                    Some(&refblock) => {
                        is_mended |= self.check_refblock(refblock, clusters.start, (words, shared), &ones.bytes)?;
                    }
                }
            }
        }
        if is_mended { Ok(self.file.barrier()?) } else { Ok(()) }
    }

    /// The block at an offset, from the refcount of the cluster `first` on, by the words of how clusters are used, and
    /// of what is shared; `ones` is what those of a word are that are one. Whether something of it was put right, which
    /// is not stable yet.
    fn check_refblock(
        &self,
        offset: u64,
        first: u64,
        (words, shared): (&[u64], &[u64]),
        ones: &[u8],
    ) -> Result<bool, Problem> {
        let mut block = Refblock::read(self.file, self.header, offset)?;
        let mut is_mended = false;
        let first_word = (first % self.refcounts_per_block() / WORD_CLUSTERS) as usize;
        let shared = shared.iter().copied().chain(std::iter::repeat(0));
        for ((index, &word), shared) in (first_word..).zip(words).zip(shared) {
            let at = index * ones.len();
            let are_ones = block.bytes.get(at..at + ones.len()) == Some(ones);
            if word == 0 || (are_ones && !has_many(word) && !has_many(shared)) {
                continue;
            }
            for within in 0..WORD_CLUSTERS {
                let Some(how) = used(word, within) else { continue };
                let cluster = first + (index - first_word) as u64 * WORD_CLUSTERS + within;
                let index = index * WORD_CLUSTERS as usize + within as usize;
                let is_shared = used(shared, within) == Some(Use::Many);
                match (block.get(index), how) {
                    (0 | 1, _) if is_shared => {
                        return damage("clusters that a snapshot uses, too, have too low a refcount");
                    }
                    (count, Use::Many) if count < self.sharers_of(cluster) => {
                        return damage("compressed data that are in use have too low a refcount");
                    }
                    (0, _) => {
                        block.set_to_one(index);
                        is_mended = true;
                    }
                    (1, _) | (_, Use::Once | Use::Many) => {}
                    (_, Use::OnceInPlace) => {
                        return damage("a cluster that others use too is said to be used once");
                    }
                }
            }
        }
        if is_mended {
            self.file.write(&block.bytes, offset)?;
        }
        Ok(is_mended)
    }
}
