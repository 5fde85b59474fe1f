//! What an image may show after a crash.

use super::history::{Operation, Step};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a sector may hold: labels of what was written to it and may be lost, in turn.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct Sector {
    possible: Vec<Held>,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
struct Held {
    label: u32,
    /// What was discarded reads as zeros or as before, for ever.
    is_discarded: bool,
}

impl Sector {
    fn of(label: u32) -> Self {
        Self { possible: vec![Held { label, is_discarded: false }] }
    }

    fn put(&mut self, label: u32, is_discarded: bool) {
        self.possible.push(Held { label, is_discarded });
    }

    /// What was put last is certain.
    fn settle(&mut self) {
        let last = self.possible.iter().rposition(|held| !held.is_discarded).unwrap_or(0);
        self.possible.drain(..last);
    }
}

/// A disk, and the snapshots of it in their order.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(super) struct Shown {
    disk: Vec<Sector>,
    snapshots: Vec<Vec<Sector>>,
}

impl Shown {
    pub(super) fn sectors(&self) -> usize {
        self.disk.len()
    }

    pub(super) fn snapshots(&self) -> usize {
        self.snapshots.len()
    }

    /// Whether it is what the disk shows, and the snapshots: each as labels of its sectors.
    pub(super) fn is(&self, disk: &[u32], snapshots: &[Vec<u32>]) -> bool {
        let is = |wanted: &[Sector], found: &[u32]| {
            let may_be = |(sector, &found): (&Sector, &u32)| sector.possible.iter().any(|held| held.label == found);
            wanted.len() == found.len() && wanted.iter().zip(found).all(may_be)
        };
        is(&self.disk, disk)
            && self.snapshots.len() == snapshots.len()
            && self.snapshots.iter().zip(snapshots).all(|(wanted, found)| is(wanted, found))
    }

    /// The first sector that is not as it may be, and what it may be.
    pub(super) fn difference(&self, disk: &[u32]) -> String {
        let differs = |(sector, found): &(&Sector, &u32)| !sector.possible.iter().any(|held| held.label == **found);
        match self.disk.iter().zip(disk).enumerate().find(|(_, pair)| differs(pair)) {
            Some((at, (sector, found))) => {
                let possible: Vec<_> = sector.possible.iter().map(|held| held.label).collect();
                format!("sector {at} holds {found} and not one of {possible:?}")
            }
            None => format!("the disk has {} sectors, or its snapshots differ", disk.len()),
        }
    }

    fn settle(&mut self) {
        self.disk.iter_mut().for_each(Sector::settle);
    }

    /// What it is when a step is done.
    fn after(mut self, step: &Step) -> Self {
        let range = step.sectors.start as usize..step.sectors.end as usize;
        match step.operation {
            Operation::Write => self.disk[range].iter_mut().for_each(|sector| sector.put(step.label, false)),
            Operation::Zero => self.disk[range].iter_mut().for_each(|sector| sector.put(0, false)),
            Operation::Discard => self.disk[range].iter_mut().for_each(|sector| sector.put(0, true)),
            Operation::Grow | Operation::Shrink => self.disk.resize(range.end, Sector::of(0)),
            Operation::MakeSnapshot => {
                let mut settled = self.disk.clone();
                settled.iter_mut().for_each(Sector::settle);
                self.snapshots.push(settled);
            }
            Operation::ApplySnapshot => self.disk = self.snapshots.last().unwrap().clone(),
            Operation::RemoveSnapshot => drop(self.snapshots.pop()),
            Operation::Flush | Operation::Commit | Operation::Rebase | Operation::Repair => {}
        }
        self
    }
}

/// What an image that began with these labels may show when power fails behind `cut` events: one of those.
pub(super) fn expected(labels: &[u32], steps: &[Step], cut: usize) -> Vec<Shown> {
    let disk = labels.iter().map(|&label| Sector::of(label)).collect();
    let mut shown = Shown { disk, snapshots: Vec::new() };
    for step in steps.iter().filter(|step| step.issued <= cut) {
        let after = shown.clone().after(step);
        if step.completed <= cut {
            shown = after;
            if step.is_stable {
                shown.settle();
            }
        } else if step.operation.happens_at_once() {
            return vec![shown, after];
        } else {
            shown = after;
        }
    }
    vec![shown]
}

pub(super) fn digest(expected: &[Shown]) -> u64 {
    let mut hasher = DefaultHasher::new();
    expected.hash(&mut hasher);
    hasher.finish()
}
