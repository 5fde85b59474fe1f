//! Which partitions would do harm to others.

use super::{Partition, Restriction, Warning};
use std::ops::Range;

/// Sets [`Partition::restriction`] of every partition that shares bytes with another one or with `table`, the places of
/// the table itself.
pub(super) fn restrict(partitions: &mut [Partition], table: &[Range<u64>], warnings: &mut Vec<Warning>) {
    for partition in &mut *partitions {
        if partition.kind.is_extended() {
            partition.restriction = Some(Restriction::Container);
        } else if table.iter().any(|place| overlap(place, &partition.range_bytes)) {
            partition.restriction = Some(Restriction::CoversTable);
            warnings.push(Warning::CoversTable(partition.number));
        }
    }
    // A logical partition lies within the extended one, which therefore counts only among the primary ones.
    restrict_overlapping(partitions, |partition| !partition.kind.is_extended(), warnings);
    restrict_overlapping(partitions, |partition| !partition.is_logical(), warnings);
}

fn restrict_overlapping(
    partitions: &mut [Partition],
    counts: impl Fn(&Partition) -> bool,
    warnings: &mut Vec<Warning>,
) {
    let mut order: Vec<usize> = (0..partitions.len()).filter(|&index| counts(&partitions[index])).collect();
    order.sort_by_key(|&index| partitions[index].range_bytes.start);
    // Of those that start earlier, the one that reaches furthest: whatever overlaps any of them overlaps it.
    let mut furthest: Option<usize> = None;
    for index in order {
        if let Some(other) = furthest.filter(|&other| overlap_at(partitions, other, index)) {
            let (first, second) = (partitions[other].number, partitions[index].number);
            partitions[other].restriction.get_or_insert(Restriction::Overlaps { other: second });
            partitions[index].restriction.get_or_insert(Restriction::Overlaps { other: first });
            let warning = Warning::Overlap { first, second };
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        let end = |index: usize| partitions[index].range_bytes.end;
        if furthest.is_none_or(|other| end(other) < end(index)) {
            furthest = Some(index);
        }
    }
}

fn overlap_at(partitions: &[Partition], one: usize, other: usize) -> bool {
    overlap(&partitions[one].range_bytes, &partitions[other].range_bytes)
}

/// Whether two ranges share a byte.
fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
