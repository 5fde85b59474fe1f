//! What tests of power cuts write to images, and what may be left of it.

use super::random::Random;
use crate::Operation;
use std::ops::Range;

pub(super) const BLOCK: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Zero,
    /// Zeros, or what was there.
    Discard,
}

impl Kind {
    pub(super) fn any(random: &mut Random) -> Self {
        *random.of(&[Self::Write, Self::Write, Self::Write, Self::Zero, Self::Discard])
    }

    /// What is asked of a disk.
    pub(super) fn operation(self, length_bytes: u64, is_forced: bool, random: &mut Random) -> Operation {
        match self {
            Self::Write => Operation::Write { force_unit_access: is_forced },
            Self::Zero => Operation::WriteZeroes { length_bytes, may_unmap: random.one_of(2) },
            Self::Discard => Operation::Discard { length_bytes },
        }
    }
}

/// A change to a range of blocks, and behind how many events of the log something became known of it.
#[derive(Debug)]
pub(super) struct Change {
    kind: Kind,
    pub(super) blocks: Range<u64>,
    issued: usize,
    completed: Option<usize>,
    certain: Option<usize>,
    is_forced: bool,
}

impl Change {
    pub(super) fn issued(kind: Kind, blocks: Range<u64>, is_forced: bool, now: usize) -> Self {
        Self { kind, blocks, issued: now, completed: None, certain: None, is_forced }
    }

    pub(super) fn complete(&mut self, now: usize) {
        self.completed = Some(now);
        self.certain = self.is_forced.then_some(now);
    }

    /// A flush has ended that was issued then.
    pub(super) fn flushed(&mut self, issued: usize, now: usize) {
        if self.completed.is_some_and(|at| at <= issued) {
            self.certain.get_or_insert(now);
        }
    }
}

/// What a change leaves in a block: numbers that say which, or zeros.
pub(super) fn contents(kind: Kind, number: u64, block: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [0; BLOCK as usize];
    if kind == Kind::Write {
        for (index, word) in bytes.chunks_mut(8).enumerate() {
            word.copy_from_slice(&((number << 32 | block).wrapping_mul(index as u64 * 2 + 1)).to_le_bytes());
        }
    }
    bytes
}

/// The contents of blocks, of the change of this number.
pub(super) fn contents_of(kind: Kind, number: u64, blocks: Range<u64>) -> Vec<u8> {
    blocks.flat_map(|block| contents(kind, number, block)).collect()
}

/// So many places to cut the power at, in order.
pub(super) fn cuts(random: &mut Random, events: u64, count: u64) -> Vec<usize> {
    let mut cuts: Vec<_> = (0..count).map(|_| random.below(events + 1) as usize).collect();
    cuts.sort_unstable();
    cuts
}

/// That each block of a disk, from its first one on, holds what is certain at a cut, or what came later. `before`: what
/// it held before all changes, whose numbers begin at 1.
pub(super) fn check(changes: &[Change], before: Kind, disk: &[u8], cut: usize) -> Result<(), String> {
    (0..).zip(disk.chunks(BLOCK as usize)).try_for_each(|(block, bytes)| {
        let of_block = changes.iter().zip(1..).filter(|(change, _)| change.blocks.contains(&block));
        let mut possible = vec![contents(before, 0, block)];
        for (change, number) in of_block.filter(|(change, _)| change.issued <= cut) {
            if change.kind != Kind::Discard && change.certain.is_some_and(|at| at <= cut) {
                possible.clear();
            }
            possible.push(contents(change.kind, number, block));
        }
        if possible.iter().any(|possible| possible == bytes) {
            return Ok(());
        }
        Err(format!("block {block} holds neither what was flushed nor what came later: {:?}…", &bytes[..16]))
    })
}
