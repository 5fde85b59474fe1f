//! How the clusters of a file are used: two bits for each.

use std::ops::Range;

/// Clusters of a word.
pub(super) const WORD_CLUSTERS: u64 = 32;

/// The first cluster of a word, and so every one's lower bit if it is multiplied.
const EACH: u64 = u64::MAX / 3;

/// How a cluster is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// By one table or one cluster of the disk.
    Once = 1,
    /// The same, and the entry that refers to it says that it may be written in place.
    OnceInPlace = 2,
    /// By any number: of compressed clusters, or, in a map of what is shared, of a disk and its snapshots.
    Many = 3,
}

/// Some of the file's clusters; of others nothing is known here. Memory is taken where something is in use.
#[derive(Clone)]
pub(super) struct UseMap {
    /// The first of them, with which a word begins.
    first: u64,
    words: Vec<u64>,
}

impl UseMap {
    /// Of clusters from a multiple of [`WORD_CLUSTERS`] on.
    pub(super) fn new(clusters: Range<u64>) -> Self {
        let words = (clusters.end - clusters.start).div_ceil(WORD_CLUSTERS);
        Self { first: clusters.start, words: vec![0; words as usize] }
    }

    pub(super) fn clusters(&self) -> Range<u64> {
        self.first..self.first + self.words.len() as u64 * WORD_CLUSTERS
    }

    /// Those of a range of the map's clusters, at the ends of words.
    pub(super) fn words_of(&self, clusters: &Range<u64>) -> &[u64] {
        let index = |cluster: u64| (cluster.saturating_sub(self.first) / WORD_CLUSTERS) as usize;
        self.words.get(index(clusters.start)..index(clusters.end)).unwrap_or_default()
    }

    /// Says how clusters are used, as far as the map goes.
    ///
    /// # Errors
    /// The first that is in use already.
    pub(super) fn claim(&mut self, clusters: Range<u64>, how: Use) -> Result<(), u64> {
        let own = self.clusters();
        // From their first on.
        let end = clusters.end.min(own.end).saturating_sub(self.first);
        let mut at = clusters.start.saturating_sub(self.first);
        while at < end {
            let (index, within) = (at / WORD_CLUSTERS, at % WORD_CLUSTERS);
            let count = (WORD_CLUSTERS - within).min(end - at);
            let mask = u64::MAX >> (2 * (WORD_CLUSTERS - count)) << (2 * within);
            let Some(word) = self.words.get_mut(index as usize) else { break };
            let taken = *word & mask;
            if taken != 0 {
                return Err(self.first + index * WORD_CLUSTERS + u64::from(taken.trailing_zeros() / 2));
            }
            *word |= mask & (EACH * how as u64);
            at += count;
        }
        Ok(())
    }

    pub(super) fn get(&self, cluster: u64) -> Option<Use> {
        let cluster = cluster.checked_sub(self.first)?;
        used(*self.words.get((cluster / WORD_CLUSTERS) as usize)?, cluster % WORD_CLUSTERS)
    }
}

/// How a cluster of a word is used.
pub(super) fn used(word: u64, within: u64) -> Option<Use> {
    match word >> (2 * within) & 3 {
        0 => None,
        1 => Some(Use::Once),
        2 => Some(Use::OnceInPlace),
        _ => Some(Use::Many),
    }
}

/// Whether clusters of a word are used by any number.
pub(super) fn has_many(word: u64) -> bool {
    word & word >> 1 & EACH != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_claimed_once_across_words() {
        for (start, end) in [(0, 1), (31, 33), (5, 100), (64, 96), (0, 128), (127, 128)] {
            let mut map = UseMap::new(0..128);
            map.claim(start..end, Use::OnceInPlace).unwrap();
            let found: Vec<_> = (0..128).filter(|&cluster| map.get(cluster) == Some(Use::OnceInPlace)).collect();
            assert_eq!(found, (start..end).collect::<Vec<_>>());
            assert_eq!(map.claim(0..128, Use::Once), Err(start));
            assert_eq!(map.claim(end - 1..end + 5, Use::Once), Err(end - 1));
        }
    }

    #[test]
    fn what_lies_behind_is_nobodys() {
        let mut map = UseMap::new(0..33);
        assert_eq!(map.clusters(), 0..64);
        map.claim(60..u64::MAX, Use::Once).unwrap();
        map.claim(64..70, Use::Once).unwrap();
        assert_eq!((map.get(63), map.get(64)), (Some(Use::Once), None));
    }

    #[test]
    fn what_lies_before_and_behind_is_not_known() {
        let mut map = UseMap::new(64..128);
        map.claim(0..65, Use::Once).unwrap();
        map.claim(0..64, Use::Once).unwrap();
        map.claim(127..1000, Use::Once).unwrap();
        let used: Vec<_> = (0..200).filter(|&cluster| map.get(cluster).is_some()).collect();
        assert_eq!((used, map.claim(100..128, Use::Once)), (vec![64, 127], Err(127)));
    }

    #[test]
    fn clusters_of_many_are_seen_among_others() {
        let mut map = UseMap::new(0..32);
        map.claim(0..7, Use::Once).unwrap();
        map.claim(7..20, Use::OnceInPlace).unwrap();
        assert!(!has_many(map.words_of(&(0..32))[0]));
        map.claim(31..32, Use::Many).unwrap();
        assert!(has_many(map.words_of(&(0..32))[0]));
    }
}
