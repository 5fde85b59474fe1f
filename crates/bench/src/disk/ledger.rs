//! What a verifying job has written where.

use super::pattern::Mismatch;
use std::ops::Range;

/// Most mismatches that are kept; the others are only counted.
const MISMATCHES_MAX: usize = 16;
/// Set while a request on the unit is in flight; the other bits are its generation.
const BUSY: u32 = 1 << 31;

/// Of each unit of a job: how often this run has written it, and whether a request on it is in flight. One at a time:
/// else nobody could say which of two writes is the later one.
#[derive(Debug)]
pub(crate) struct Ledger {
    first_unit: u64,
    entries: Box<[u32]>,
}

impl Ledger {
    pub(crate) fn new(units: &Range<u64>) -> Self {
        Self { first_unit: units.start, entries: vec![0; (units.end - units.start) as usize].into() }
    }

    fn index(&self, unit: u64) -> usize {
        (unit - self.first_unit) as usize
    }

    fn entry(&mut self, unit: u64) -> &mut u32 {
        let index = self.index(unit);
        &mut self.entries[index]
    }

    /// Whether a request on the unit is in flight.
    pub(crate) fn is_busy(&self, unit: u64) -> bool {
        self.entries[self.index(unit)] & BUSY != 0
    }

    /// Begins a read: gives the generation that it should find, zero for a unit this run has not written.
    pub(crate) fn begin_read(&mut self, unit: u64) -> u32 {
        let entry = self.entry(unit);
        *entry |= BUSY;
        *entry & !BUSY
    }

    /// Begins a write: gives the generation to write.
    pub(crate) fn begin_write(&mut self, unit: u64) -> u32 {
        let entry = self.entry(unit);
        // Zero means unwritten.
        let generation = if *entry == BUSY - 1 { 1 } else { *entry + 1 };
        *entry = generation | BUSY;
        generation
    }

    /// The unit's request has ended.
    pub(crate) fn end(&mut self, unit: u64) {
        *self.entry(unit) &= !BUSY;
    }

    /// Whether this run has written the unit.
    pub(crate) fn is_written(&self, unit: u64) -> bool {
        self.entries[self.index(unit)] & !BUSY != 0
    }
}

/// What checking has found.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    /// Bytes that were checked.
    pub(crate) checked_bytes: u64,
    /// Blocks that were not what they should be.
    pub(crate) mismatches: u64,
    /// The first of them.
    pub(crate) first: Vec<Mismatch>,
}

impl Default for Findings {
    fn default() -> Self {
        // Finding one must not count as an allocation of the data path.
        Self { checked_bytes: 0, mismatches: 0, first: Vec::with_capacity(MISMATCHES_MAX) }
    }
}

impl Findings {
    pub(crate) fn add_mismatch(&mut self, mismatch: Mismatch) {
        self.mismatches += 1;
        if self.first.len() < MISMATCHES_MAX {
            self.first.push(mismatch);
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.checked_bytes += other.checked_bytes;
        self.mismatches += other.mismatches;
        self.first.extend(other.first);
        self.first.sort_by_key(|one| one.offset_bytes);
        self.first.truncate(MISMATCHES_MAX);
    }
}
