//! The L2 tables of an image and its snapshots, each with how many L1 entries lead to it: eight bytes for each.

use super::check::CLUSTERS_MAX;
use std::ops::Range;

/// So many more than there are may be named twice before they are put together.
const LOOSE_MIN: usize = 1 << 16;

/// An L2 table; the cluster in which it lies is in its upper bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UsedTable(u64);

const CLUSTER_SHIFT: u32 = 35;
/// It is in use by something else, too, and is not looked into.
const UNSOUND: u64 = 1 << 34;
/// It was asked for ([`UsedTables::is_first_time`]).
const SEEN: u64 = 1 << 33;
/// How many entries of the disk's own L1 table lead there: none, one, or more.
const ACTIVE_SHIFT: u32 = 31;
const ACTIVE_MAX: u64 = 2;
/// Data lie there, too, of which a repair writes nothing over.
const HOLDS_DATA: u64 = 1 << 30;
/// How many entries do, up to so many.
const USERS: u64 = HOLDS_DATA - 1;

const _: () = assert!(CLUSTERS_MAX <= 1 << (u64::BITS - CLUSTER_SHIFT));

impl UsedTable {
    fn new(cluster: u64, users: u64, active: u64) -> Self {
        Self(cluster << CLUSTER_SHIFT | active.min(ACTIVE_MAX) << ACTIVE_SHIFT | users.min(USERS))
    }

    pub(super) fn cluster(self) -> u64 {
        self.0 >> CLUSTER_SHIFT
    }

    pub(super) fn users(self) -> u64 {
        self.0 & USERS
    }

    fn active(self) -> u64 {
        self.0 >> ACTIVE_SHIFT & 3
    }

    /// Whether the disk itself uses it.
    pub(super) fn is_active(self) -> bool {
        self.active() > 0
    }

    /// Whether it is for two parts of the disk.
    pub(super) fn is_twice_active(self) -> bool {
        self.active() == ACTIVE_MAX
    }

    pub(super) fn is_sound(self) -> bool {
        self.0 & UNSOUND == 0
    }

    pub(super) fn set_unsound(&mut self) {
        self.0 |= UNSOUND;
    }

    pub(super) fn holds_data(self) -> bool {
        self.0 & HOLDS_DATA != 0
    }

    pub(super) fn set_holds_data(&mut self) {
        self.0 |= HOLDS_DATA;
    }
}

/// They are in the order in which they lie in the file.
#[derive(Default)]
pub(super) struct UsedTables {
    tables: Vec<UsedTable>,
    /// Those from here on are in no order, and may be there already.
    loose_from: usize,
}

impl UsedTables {
    /// Adds that `users` entries lead to the table in a cluster of the file.
    pub(super) fn add(&mut self, cluster: u64, users: u64, is_active: bool) {
        self.tables.push(UsedTable::new(cluster, users, is_active.into()));
        if self.tables.len() - self.loose_from > self.loose_from + LOOSE_MIN {
            self.put_together();
        }
    }

    /// Counts those that were added more than once as one.
    pub(super) fn put_together(&mut self) {
        self.tables.sort_unstable();
        self.tables.dedup_by(|next, kept| {
            let is_same = next.cluster() == kept.cluster();
            if is_same {
                let users = kept.users() + next.users();
                *kept = UsedTable::new(kept.cluster(), users, kept.active() + next.active());
            }
            is_same
        });
        self.loose_from = self.tables.len();
    }

    pub(super) fn all(&self) -> &[UsedTable] {
        &self.tables
    }

    /// Whether there is a sound table in a cluster that was not asked for.
    pub(super) fn is_first_time(&mut self, cluster: u64) -> bool {
        let found = self.within(cluster..cluster.saturating_add(1)).first_mut();
        found.filter(|table| table.0 & (SEEN | UNSOUND) == 0).map(|table| table.0 |= SEEN).is_some()
    }

    /// From here on, no table was asked for.
    pub(super) fn forget_seen(&mut self) {
        self.tables.iter_mut().for_each(|table| table.0 &= !SEEN);
    }

    /// Those that lie in clusters of a range.
    pub(super) fn within(&mut self, clusters: Range<u64>) -> &mut [UsedTable] {
        let at = |cluster: u64| self.tables.partition_point(|table| table.cluster() < cluster);
        let range = at(clusters.start)..at(clusters.end);
        self.tables.get_mut(range).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_counted_together() {
        let mut tables = UsedTables::default();
        let all = LOOSE_MIN as u64 * 5;
        for index in (0..all).chain(0..all / 2).rev() {
            tables.add(index * 7, 2, index < all / 4);
        }
        tables.add(CLUSTERS_MAX - 1, u64::MAX, true);
        tables.put_together();
        let found = tables.all();
        assert_eq!(found.len() as u64, all + 1);
        assert!(found.is_sorted());
        let told = |index: u64| {
            let table = found[index as usize];
            (table.cluster(), table.users(), table.is_active(), table.is_twice_active())
        };
        assert_eq!(told(0), (0, 4, true, true));
        assert_eq!(told(all / 2 - 1), (7 * (all / 2 - 1), 4, false, false));
        assert_eq!(told(all - 1), (7 * (all - 1), 2, false, false));
        assert_eq!(told(all), (CLUSTERS_MAX - 1, USERS, true, false));
        let within: Vec<_> = tables.within(7..21).iter().map(|table| table.cluster()).collect();
        assert_eq!(within, [7, 14]);
        assert_eq!([14, 14, 15].map(|cluster| tables.is_first_time(cluster)), [true, false, false]);
        tables.forget_seen();
        assert!(tables.is_first_time(14));
        tables.within(7..8)[0].set_holds_data();
        assert_eq!(tables.all().iter().filter(|table| table.holds_data()).count(), 1);
        let table = tables.all()[1];
        assert_eq!((table.cluster(), table.users(), table.is_twice_active()), (7, 4, true));
        tables.within(7..8)[0].set_unsound();
        assert!(!tables.is_first_time(7));
        assert_eq!(tables.all().iter().filter(|table| !table.is_sound()).count(), 1);
    }
}
