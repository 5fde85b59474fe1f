//! Which requests a job makes, in which order.

use crate::random::Random;
use std::ops::Range;
use std::sync::Arc;

/// What a request does; the data of reads and writes are the job's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
}

impl Action {
    /// What people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "zeroing",
        }
    }

    /// Whether the disk may hold something else afterwards.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }
}

/// A request to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
}

/// In which order a job goes over its units.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    Sequential,
    /// The first, the last, the second, the last but one, …: each once before any comes again.
    PingPong,
    Random(Random),
    Replay(Arc<[Step]>),
}

/// A region of a disk in units of the request's size; the last may be shorter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    pub(crate) region: Range<u64>,
    pub(crate) unit_bytes: u64,
}

impl Units {
    /// Offset and length of a unit.
    pub(crate) fn place(&self, unit: u64) -> (u64, u64) {
        let offset = self.region.start + unit * self.unit_bytes;
        (offset, self.unit_bytes.min(self.region.end - offset))
    }

    /// The unit that lies at `offset_bytes`.
    pub(crate) fn at(&self, offset_bytes: u64) -> u64 {
        (offset_bytes - self.region.start) / self.unit_bytes
    }
}

/// Chooses between reading and writing.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    Always(Action),
    /// So many reads in a hundred; the others are writes.
    ReadsPercent(u8, Random),
}

impl Choice {
    fn action(&mut self) -> Action {
        match self {
            Self::Always(action) => *action,
            Self::ReadsPercent(percent, random) => {
                if random.below(100) < u64::from(*percent) {
                    Action::Read
                } else {
                    Action::Write
                }
            }
        }
    }
}

/// The requests of one job: an iterator that allocates nothing.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    pub(crate) order: Order,
    pub(crate) choice: Choice,
    pub(crate) units: Units,
    /// The job's own units.
    pub(crate) own: Range<u64>,
    /// Requests still to make, flushes in between not counted.
    pub(crate) left: u64,
    /// Requests made.
    pub(crate) made: u64,
    /// A flush follows every so many writes.
    pub(crate) flush_every: Option<u64>,
    /// Since the last flush.
    pub(crate) writes: u64,
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.flush_every.is_some_and(|every| self.writes >= every) {
            self.writes = 0;
            return Some(Step { action: Action::Flush, offset_bytes: 0, length_bytes: 0 });
        }
        self.left = self.left.checked_sub(1)?;
        let made = self.made;
        self.made += 1;
        let count = self.own.end - self.own.start;
        let unit = match &mut self.order {
            Order::Replay(steps) => return steps.get((made % steps.len() as u64) as usize).copied(),
            Order::Sequential => self.own.start + made % count,
            Order::Random(random) => self.own.start + random.below(count),
            Order::PingPong => match (made % count / 2, made % count % 2) {
                (pair, 0) => self.own.start + pair,
                (pair, _) => self.own.end - 1 - pair,
            },
        };
        let action = self.choice.action();
        self.writes += u64::from(action == Action::Write);
        let (offset_bytes, length_bytes) = self.units.place(unit);
        Some(Step { action, offset_bytes, length_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(order: Order, own: Range<u64>, left: u64) -> Steps {
        Steps {
            order,
            choice: Choice::Always(Action::Read),
            units: Units { region: 1000..1095, unit_bytes: 10 },
            own,
            left,
            made: 0,
            flush_every: None,
            writes: 0,
        }
    }

    fn places(steps: Steps) -> Vec<(u64, u64)> {
        steps.map(|step| (step.offset_bytes, step.length_bytes)).collect()
    }

    #[test]
    fn sequential_ends_with_what_is_left_and_begins_again() {
        let expected = [(1070, 10), (1080, 10), (1090, 5), (1070, 10)];
        assert_eq!(places(steps(Order::Sequential, 7..10, 4)), expected);
    }

    #[test]
    fn ping_pong_meets_itself_in_the_middle() {
        let offsets = |own, left| -> Vec<u64> {
            places(steps(Order::PingPong, own, left)).iter().map(|&(offset, _)| (offset - 1000) / 10).collect()
        };
        assert_eq!(offsets(0..5, 7), [0, 4, 1, 3, 2, 0, 4]);
        assert_eq!(offsets(2..6, 4), [2, 5, 3, 4]);
        assert_eq!(offsets(3..4, 2), [3, 3]);
    }

    #[test]
    fn a_flush_follows_the_writes_it_was_asked_after() {
        let mut steps = steps(Order::Sequential, 0..10, 5);
        (steps.choice, steps.flush_every) = (Choice::Always(Action::Write), Some(2));
        let actions: String = steps.map(|step| step.action.name().chars().next().unwrap()).collect();
        assert_eq!(actions, "wwfwwfw");
    }

    #[test]
    fn mixed_reads_as_often_as_it_should() {
        let mut steps = steps(Order::Sequential, 0..10, 10_000);
        steps.choice = Choice::ReadsPercent(70, Random::new(1, 0));
        let reads = steps.filter(|step| step.action == Action::Read).count();
        assert!((6800..7200).contains(&reads), "{reads}");
    }
}
