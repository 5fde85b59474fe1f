//! How often clusters of a file are referred to, and by what: two bytes for each.

use std::ops::Range;

/// Of a cluster: its refcount is one.
pub(super) const ONE: u8 = 1;
/// It is in use by a table,
pub(super) const METADATA: u8 = 1 << 1;
/// by data of the disk,
pub(super) const DATA: u8 = 1 << 2;
/// by compressed data,
pub(super) const COMPRESSED: u8 = 1 << 3;
/// by data of snapshots alone, which share it with the disk and with each other,
pub(super) const SNAPSHOT: u8 = 1 << 4;
/// or by two of them that cannot share it.
pub(super) const TWICE: u8 = 1 << 5;

/// Some of the file's clusters, a window; of others nothing is known here. Memory is taken where something is in use.
pub(super) struct UseCounts {
    window: Range<u64>,
    small: Vec<u8>,
    /// Those that are larger, if there are any, up to 2^32 - 1.
    large: Vec<u32>,
    flags: Vec<u8>,
}

impl UseCounts {
    /// The largest count of a cluster that takes no more than two bytes with its flags.
    pub(super) const SMALL_MAX: u64 = 254;

    pub(super) fn new(window: Range<u64>) -> Self {
        let clusters = (window.end - window.start) as usize;
        Self { window, small: vec![0; clusters], large: Vec::new(), flags: vec![0; clusters] }
    }

    /// Of no clusters.
    pub(super) fn none() -> Self {
        Self::new(u64::MAX..u64::MAX)
    }

    pub(super) fn window(&self) -> Range<u64> {
        self.window.clone()
    }

    fn index(&self, cluster: u64) -> Option<usize> {
        self.window.contains(&cluster).then(|| (cluster - self.window.start) as usize)
    }

    /// References to a cluster.
    pub(super) fn count(&self, cluster: u64) -> u64 {
        self.known(cluster).0
    }

    /// The same, and its flags.
    pub(super) fn known(&self, cluster: u64) -> (u64, u8) {
        let known =
            self.index(cluster).and_then(|index| Some((index, *self.small.get(index)?, *self.flags.get(index)?)));
        match known {
            None => (0, 0),
            Some((index, u8::MAX, flags)) => (self.large.get(index).copied().unwrap_or(0).into(), flags),
            Some((_, small, flags)) => (small.into(), flags),
        }
    }

    pub(super) fn flag(&mut self, cluster: u64, flag: u8) {
        let flags = self.index(cluster).and_then(|index| self.flags.get_mut(index));
        flags.into_iter().for_each(|flags| *flags |= flag);
    }

    pub(super) fn has(&self, cluster: u64, flag: u8) -> bool {
        let flags = self.index(cluster).and_then(|index| self.flags.get(index));
        flags.is_some_and(|flags| flags & flag != 0)
    }

    /// Counts that each of `clusters` is referred to `users` times, by `how`. False when something else uses one.
    pub(super) fn claim(&mut self, clusters: Range<u64>, how: u8, users: u64) -> bool {
        let clashes_with = match how {
            METADATA | DATA => METADATA | DATA | COMPRESSED,
            COMPRESSED => METADATA | DATA | SNAPSHOT,
            _ => METADATA | COMPRESSED,
        };
        let start = clusters.start.max(self.window.start) - self.window.start;
        let end = clusters.end.min(self.window.end).saturating_sub(self.window.start);
        let (start, end) = (start as usize, end as usize);
        let (Some(small), Some(flags)) = (self.small.get_mut(start..end), self.flags.get_mut(start..end)) else {
            // None of them is here.
            return true;
        };
        let mut is_sound = true;
        for (index, (small, flags)) in (start..).zip(small.iter_mut().zip(flags)) {
            if *flags & clashes_with != 0 {
                *flags |= TWICE;
                is_sound = false;
            }
            *flags |= how;
            let before = match *small {
                u8::MAX => self.large.get(index).copied().unwrap_or(0).into(),
                small => small.into(),
            };
            let count = users.saturating_add(before);
            if count <= Self::SMALL_MAX {
                *small = count as u8;
                continue;
            }
            *small = u8::MAX;
            if self.large.is_empty() {
                self.large = vec![0; (self.window.end - self.window.start) as usize];
            }
            let large = u32::try_from(count).unwrap_or(u32::MAX);
            self.large.get_mut(index).into_iter().for_each(|count| *count = large);
        }
        is_sound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_counted_in_the_window_alone() {
        let mut counts = UseCounts::new(100..200);
        for (users, sum) in [(1, 1), (253, 254), (1, 255), (1000, 1255), (u64::MAX, u32::MAX.into())] {
            assert!(counts.claim(0..150, COMPRESSED, users));
            let found = [99, 100, 149, 150, 200].map(|cluster| counts.count(cluster));
            assert_eq!(found, [0, sum, sum, 0, 0]);
        }
        assert!(counts.has(100, COMPRESSED) && !counts.has(99, COMPRESSED) && !counts.has(150, COMPRESSED));
    }

    #[test]
    fn what_cannot_be_shared_is_twice() {
        for (one, other, is_shared) in [
            (METADATA, METADATA, false),
            (METADATA, DATA, false),
            (DATA, DATA, false),
            (DATA, SNAPSHOT, true),
            (SNAPSHOT, SNAPSHOT, true),
            (COMPRESSED, COMPRESSED, true),
            (COMPRESSED, DATA, false),
            (COMPRESSED, SNAPSHOT, false),
        ] {
            let mut counts = UseCounts::new(0..10);
            assert!(counts.claim(3..5, one, 1));
            assert_eq!(counts.claim(4..6, other, 1), is_shared, "{one} and {other}");
            assert_eq!([3, 4, 5].map(|cluster| counts.has(cluster, TWICE)), [false, !is_shared, false]);
        }
    }
}
