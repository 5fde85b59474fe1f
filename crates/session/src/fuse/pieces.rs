//! A range of bytes as whole blocks and the parts of blocks at its ends.

use std::ops::Range;

/// Part of a block: the block is read, changed and written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    /// Where the block starts on the disk.
    pub(super) block_offset: u64,
    /// Which of its bytes change: never all, never none.
    pub(super) changed: Range<usize>,
}

/// What a change of any range of bytes is to a disk that only knows blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    /// The first block and the last, where they change in part. One of them when they are the same block.
    pub(super) edges: [Option<Edge>; 2],
    /// The whole blocks; empty when there are none.
    pub(super) middle: Range<u64>,
}

impl Pieces {
    /// The pieces of `range`, which is not empty and lies on a disk of whole blocks.
    pub(super) fn new(range: Range<u64>, block_bytes: u32) -> Self {
        let block = u64::from(block_bytes);
        let floor = |offset: u64| offset - offset % block;
        let (first, last) = (floor(range.start), floor(range.end - 1));
        let edge_of = |block_offset: u64| {
            let start = range.start.max(block_offset) - block_offset;
            let end = range.end.min(block_offset + block) - block_offset;
            (end - start < block).then_some(Edge { block_offset, changed: start as usize..end as usize })
        };
        let head = edge_of(first);
        let tail = if last == first { None } else { edge_of(last) };
        let middle_start = if head.is_some() { first + block } else { first };
        let middle_end = match (&head, &tail) {
            (_, Some(_)) => last,
            (Some(_), None) if last == first => middle_start,
            _ => last + block,
        };
        Self { edges: [head, tail], middle: middle_start..middle_end }
    }

    /// Whether the range is whole blocks.
    pub(super) fn aligned(&self) -> bool {
        self.edges.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_range_is_in_one_piece() {
        const BLOCK: u64 = 8;
        for start in 0..40 {
            for end in start + 1..48 {
                let pieces = Pieces::new(start..end, BLOCK as u32);
                let mut covered = [0_u8; 48];
                for edge in pieces.edges.iter().flatten() {
                    assert!(!edge.changed.is_empty() && edge.changed.len() < BLOCK as usize);
                    assert_eq!(edge.block_offset % BLOCK, 0);
                    let base = edge.block_offset as usize;
                    covered[base + edge.changed.start..base + edge.changed.end]
                        .iter_mut()
                        .for_each(|count| *count += 1);
                }
                assert!(pieces.middle.start.is_multiple_of(BLOCK) && pieces.middle.end.is_multiple_of(BLOCK));
                covered[pieces.middle.start as usize..pieces.middle.end as usize]
                    .iter_mut()
                    .for_each(|count| *count += 1);
                for (offset, &count) in covered.iter().enumerate() {
                    assert_eq!(u8::from((start..end).contains(&(offset as u64))), count, "{start}..{end} at {offset}");
                }
            }
        }
    }
}
