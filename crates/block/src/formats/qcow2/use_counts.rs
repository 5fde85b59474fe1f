//! How often clusters of a file are referred to, and by what: three bytes for each, or five.

use std::collections::HashMap;
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
    counts: Counts,
    flags: Vec<u8>,
}

enum Counts {
    /// The largest number means that the count is there: at most one of so many references that this is little.
    Small(Vec<u16>, HashMap<u32, u32>),
    Large(Vec<u32>),
}

impl UseCounts {
    /// What a cluster takes where no reference counts more than [`UseCounts::FEW`] times, and else.
    pub(super) const SMALL_BYTES: u64 = 3;
    pub(super) const LARGE_BYTES: u64 = 5;

    /// How often a reference counts at most where counts are small. So it takes 1024 of them, which are 8 KiB of
    /// tables, to have one that is not.
    pub(super) const FEW: u64 = 64;

    /// Of a window, of at most 2^32 clusters; `are_large`: a reference may count more often than [`UseCounts::FEW`].
    pub(super) fn new(window: Range<u64>, are_large: bool) -> Self {
        let clusters = (window.end - window.start) as usize;
        let counts = match are_large {
            true => Counts::Large(vec![0; clusters]),
            false => Counts::Small(vec![0; clusters], HashMap::new()),
        };
        Self { window, counts, flags: vec![0; clusters] }
    }

    /// Of no clusters.
    pub(super) fn none() -> Self {
        Self::new(u64::MAX..u64::MAX, false)
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
        let Some(index) = self.index(cluster) else { return (0, 0) };
        (self.counts.get(index).into(), self.flags.get(index).copied().unwrap_or(0))
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
        let Some(flags) = self.flags.get_mut(start..end) else {
            // None of them is here.
            return true;
        };
        let mut is_sound = true;
        for (index, flags) in (start..).zip(flags) {
            if *flags & clashes_with != 0 {
                *flags |= TWICE;
                is_sound = false;
            }
            *flags |= how;
            self.counts.add(index, users);
        }
        is_sound
    }
}

impl Counts {
    fn get(&self, index: usize) -> u32 {
        match self {
            Self::Small(small, more) => match small.get(index) {
                Some(&u16::MAX) => more.get(&(index as u32)).copied().unwrap_or(u16::MAX.into()),
                small => small.copied().unwrap_or(0).into(),
            },
            Self::Large(large) => large.get(index).copied().unwrap_or(0),
        }
    }

    /// As far as the number goes.
    fn add(&mut self, index: usize, users: u64) {
        let count = u32::try_from(users.saturating_add(self.get(index).into())).unwrap_or(u32::MAX);
        match self {
            Self::Small(small, more) => {
                let Some(small) = small.get_mut(index) else { return };
                *small = u16::try_from(count).unwrap_or(u16::MAX);
                if *small == u16::MAX {
                    more.insert(index as u32, count);
                }
            }
            Self::Large(large) => large.get_mut(index).into_iter().for_each(|large| *large = count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_counted_in_the_window_alone() {
        for are_large in [false, true] {
            let mut counts = UseCounts::new(100..200, are_large);
            for (users, sum) in [(1, 1), (65533, 65534), (1, 65535), (1, 65536), (u64::MAX, u32::MAX.into())] {
                assert!(counts.claim(0..150, COMPRESSED, users));
                let found = [99, 100, 149, 150, 200].map(|cluster| counts.count(cluster));
                assert_eq!(found, [0, sum, sum, 0, 0]);
            }
            assert!(counts.has(100, COMPRESSED) && !counts.has(99, COMPRESSED) && !counts.has(150, COMPRESSED));
        }
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
            let mut counts = UseCounts::new(0..10, false);
            assert!(counts.claim(3..5, one, 1));
            assert_eq!(counts.claim(4..6, other, 1), is_shared, "{one} and {other}");
            assert_eq!([3, 4, 5].map(|cluster| counts.has(cluster, TWICE)), [false, !is_shared, false]);
        }
    }
}
