//! Which L2 tables of an image were read, and for which part of the disk: so that none is read for two.
//!
//! An L1 table has up to four million entries, which may lead to as many tables that take no storage. So of each table
//! no more is kept than the index of its L1 entry and some bits of its offset's hash: whether it is the one that is
//! looked for, that entry says, which is read again for one in so many.

use std::hash::{BuildHasher, RandomState};
use std::io;

/// Most tables that are kept of a whole chain: those of the largest L1 table.
pub(super) const KNOWN_MAX: u64 = super::header::TABLE_MAX_BYTES / 8;

/// A hash table with open addressing, of at least a quarter of whose slots are free. Memory is taken where tables are
/// kept, at most 22 MiB.
pub(super) struct KnownTables {
    /// Zero, or an index below bits that are not all zero.
    slots: Vec<u32>,
    index_bits: u32,
    known: u64,
    known_max: u64,
    hasher: RandomState,
}

impl KnownTables {
    /// Of an image whose L1 table has so many entries, at most [`KNOWN_MAX`].
    pub(super) fn new(l1_entries: u64) -> Self {
        let index_bits = (u64::BITS - l1_entries.saturating_sub(1).leading_zeros()).max(1);
        Self { slots: Vec::new(), index_bits, known: 0, known_max: l1_entries.max(1), hasher: RandomState::new() }
    }

    /// Keeps no more than so many at once: once there are more, those before are forgotten.
    pub(super) fn keep_at_most(&mut self, known_max: u64) {
        self.known_max = known_max.max(1);
    }

    /// Keeps that the table at `offset` is for the L1 entry with an index, unless it is for another one: false. Where
    /// the entry with an index leads, `offset_of` says.
    pub(super) fn is_for(
        &mut self,
        index: u64,
        offset: u64,
        offset_of: impl Fn(u64) -> io::Result<u64>,
    ) -> io::Result<bool> {
        if self.known >= self.known_max {
            self.known = 0;
            self.slots.fill(0);
        }
        if self.slots.is_empty() {
            self.slots = vec![0; (self.known_max + self.known_max / 3 + 1) as usize];
        }
        let hash = self.hasher.hash_one(offset);
        let slots = self.slots.len();
        let first = ((u128::from(hash) * slots as u128) >> u64::BITS) as usize;
        let mark = (hash as u32 & (u32::MAX >> self.index_bits)).max(1);
        let own = mark << self.index_bits | index as u32;
        // One is free: this ends.
        let (before, after) = self.slots.split_at_mut(first);
        for slot in after.iter_mut().chain(before) {
            if *slot == 0 {
                (*slot, self.known) = (own, self.known + 1);
                return Ok(true);
            }
            if *slot == own {
                return Ok(true);
            }
            let other = *slot & ((1 << self.index_bits) - 1);
            if *slot >> self.index_bits == mark && offset_of(other.into())? == offset {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_table_is_for_one_entry() {
        const ENTRIES: u64 = 100_000;
        let looked_at = Cell::new(0);
        let offset_of = |index: u64| {
            looked_at.set(looked_at.get() + 1);
            Ok((index % (ENTRIES / 2) + 1) << 9)
        };
        let mut known = KnownTables::new(ENTRIES);
        let is_for =
            |known: &mut KnownTables, index| known.is_for(index, offset_of(index).unwrap(), offset_of).unwrap();
        for index in (0..ENTRIES / 2).chain(0..ENTRIES / 2) {
            assert!(is_for(&mut known, index), "{index}");
        }
        let before = looked_at.get();
        assert!(before < ENTRIES + 1000, "{before}");
        assert!((ENTRIES / 2..ENTRIES).all(|index| !is_for(&mut known, index)));
        assert!(is_for(&mut known, 0));
        assert_eq!(known.known, ENTRIES / 2);
    }

    #[test]
    fn the_largest_table_is_kept_in_22_mib() {
        let mut known = KnownTables::new(KNOWN_MAX);
        let offset_of = |index: u64| Ok((index + 1) << 21);
        for index in (0..KNOWN_MAX).step_by(1 << 12).chain([KNOWN_MAX - 1]) {
            assert!(known.is_for(index, (index + 1) << 21, offset_of).unwrap());
            assert!(!known.is_for(index ^ 1, (index + 1) << 21, offset_of).unwrap(), "{index}");
        }
        assert!(known.slots.capacity() * 4 <= 22 << 20);
    }

    #[test]
    fn what_is_too_much_is_forgotten() {
        let mut known = KnownTables::new(1000);
        known.keep_at_most(10);
        let offset_of = |index: u64| Ok((index + 1) << 16);
        for index in 0..995 {
            assert!(known.is_for(index, (index + 1) << 16, offset_of).unwrap());
        }
        assert!(known.slots.len() < 20);
        assert!(!known.is_for(1, 995 << 16, offset_of).unwrap(), "the last ones are known");
    }
}
