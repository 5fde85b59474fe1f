//! Requests that are longer than what a disk is given at a time.

use blockyard_block::limits::{IN_FLIGHT_BYTES_MAX, PIECE_BYTES_MAX};
use blockyard_block::{Operation, Request, Segment};
use std::ops::Range;

/// What a disk has not been given yet of one long request, which it is given piece by piece. Empty between two such
/// requests; its storage is kept.
pub(crate) struct Rest {
    /// The request's token: its first piece's.
    request: u32,
    operation: Operation,
    offset_bytes: u64,
    length_bytes: u64,
    segments: Vec<Segment>,
    /// Where in `segments` the next piece's begin.
    from: usize,
}

impl Rest {
    pub(crate) const fn new() -> Self {
        let operation = Operation::Flush;
        Self { request: 0, operation, offset_bytes: 0, length_bytes: 0, segments: Vec::new(), from: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length_bytes == 0
    }

    /// The token of the request that this is the rest of; `None` when there is nothing left.
    pub(crate) fn request(&self) -> Option<u32> {
        (!self.is_empty()).then_some(self.request)
    }

    /// Becomes all of a request for these places of the disk, in bytes; its segments are `segments[range]`. What else
    /// there is in `segments` is lost.
    pub(crate) fn set(
        &mut self,
        request: u32,
        operation: Operation,
        places: Range<u64>,
        segments: &mut Vec<Segment>,
        range: Range<usize>,
    ) {
        std::mem::swap(&mut self.segments, segments);
        self.segments.truncate(range.end);
        self.from = range.start;
        self.set_places(request, operation, places);
    }

    /// As [`Rest::set`], of a request that moves no data.
    pub(crate) fn set_places(&mut self, request: u32, operation: Operation, places: Range<u64>) {
        (self.request, self.operation) = (request, operation);
        (self.offset_bytes, self.length_bytes) = (places.start, places.end - places.start);
    }

    /// Nothing is left.
    pub(crate) fn clear(&mut self) {
        self.length_bytes = 0;
    }

    /// Has `push` take the next piece, which is a request of its own with this token. There is one.
    pub(crate) fn next_piece<T>(&mut self, token: u32, push: impl FnOnce(&Request<'_>) -> T) -> T {
        let piece_bytes = piece_bytes(self.operation, self.offset_bytes, self.length_bytes);
        let (operation, has_segments) = match self.operation {
            Operation::Discard { .. } => (Operation::Discard { length_bytes: piece_bytes }, false),
            Operation::WriteZeroes { may_unmap, .. } => {
                (Operation::WriteZeroes { length_bytes: piece_bytes, may_unmap }, false)
            }
            operation => (operation, true),
        };
        let (until, remainder) = if has_segments { self.cut(piece_bytes) } else { (self.from, None) };
        let segments = &self.segments[self.from..until];
        let pushed = push(&Request { operation, offset_bytes: self.offset_bytes, segments, token: token.into() });
        self.from = until;
        if let Some(remainder) = remainder {
            self.from -= 1;
            self.segments[self.from] = remainder;
        }
        self.offset_bytes += piece_bytes;
        self.length_bytes -= piece_bytes;
        pushed
    }

    /// Where the segments of the next `piece_bytes` bytes end, the last of which is cut to fit: what is cut off it.
    fn cut(&mut self, piece_bytes: u64) -> (usize, Option<Segment>) {
        let mut bytes = 0;
        for (index, segment) in self.segments.iter_mut().enumerate().skip(self.from) {
            bytes += u64::from(segment.length_bytes);
            if bytes >= piece_bytes {
                // Less than the segment has.
                let beyond_bytes = (bytes - piece_bytes) as u32;
                segment.length_bytes -= beyond_bytes;
                let offset_bytes = segment.offset_bytes + u64::from(segment.length_bytes);
                let remainder = Segment { length_bytes: beyond_bytes, offset_bytes, ..*segment };
                return (index + 1, (beyond_bytes > 0).then_some(remainder));
            }
        }
        (self.segments.len(), None)
    }
}

/// How much a disk is given at once of a request: up to the next multiple of a piece's most, so that pieces begin and
/// end where blocks and clusters do.
pub(crate) fn piece_bytes(operation: Operation, offset_bytes: u64, length_bytes: u64) -> u64 {
    let piece_bytes_max = match operation {
        Operation::Read | Operation::Write { .. } => PIECE_BYTES_MAX,
        // No data are moved.
        Operation::Flush | Operation::Discard { .. } | Operation::WriteZeroes { .. } => IN_FLIGHT_BYTES_MAX,
    };
    match length_bytes <= piece_bytes_max {
        true => length_bytes,
        false => piece_bytes_max - offset_bytes % piece_bytes_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Operation = Operation::Read;

    /// (offset, length, segments) of each piece.
    fn pieces(operation: Operation, places: Range<u64>, lengths: &[u32]) -> Vec<(u64, u64, Vec<Segment>)> {
        let segment = |length_bytes| Segment { region: 7, length_bytes, offset_bytes: 1000 };
        // A header's and a status's are no part of it.
        let mut segments: Vec<_> = [3].iter().chain(lengths).chain(&[1]).map(|&length| segment(length)).collect();
        let mut rest = Rest::new();
        rest.set(5, operation, places, &mut segments, 1..1 + lengths.len());
        let mut pieces = Vec::new();
        while let Some(request) = rest.request() {
            assert_eq!(request, 5);
            rest.next_piece(9, |request| {
                assert_eq!(request.token, 9);
                pieces.push((request.offset_bytes, request.length_bytes(), request.segments.to_vec()));
            });
        }
        pieces
    }

    #[test]
    fn pieces_end_at_multiples_and_are_all_there_is() {
        const MIB: u64 = 1 << 20;
        let lengths = [1 << 20, 5 << 20, 512, 512, (1 << 20) - 1024];
        let pieces = pieces(READ, 3 * MIB..10 * MIB, &lengths);
        let places: Vec<_> = pieces.iter().map(|(offset, length, _)| (offset / MIB, length / MIB)).collect();
        assert_eq!(places, [(3, 1), (4, 2), (6, 2), (8, 2)]);
        let segments: Vec<Vec<_>> = pieces
            .iter()
            .map(|(_, _, segments)| segments.iter().map(|one| (one.offset_bytes - 1000, one.length_bytes)).collect())
            .collect();
        let mib = 1 << 20;
        assert_eq!(
            segments,
            [
                vec![(0, mib)],
                vec![(0, 2 * mib)],
                vec![(2 << 20, 2 * mib)],
                vec![(4 << 20, mib), (0, 512), (0, 512), (0, mib - 1024)],
            ]
        );
    }

    #[test]
    fn what_moves_no_data_is_cut_into_larger_pieces() {
        const PIECE: u64 = IN_FLIGHT_BYTES_MAX;
        for operation in [
            Operation::Discard { length_bytes: 3 * PIECE },
            Operation::WriteZeroes { length_bytes: 3 * PIECE, may_unmap: true },
        ] {
            let pieces = pieces(operation, 512..512 + 3 * PIECE, &[]);
            let places: Vec<_> = pieces.iter().map(|(offset, length, _)| (*offset, *length)).collect();
            assert_eq!(places, [(512, PIECE - 512), (PIECE, PIECE), (2 * PIECE, PIECE), (3 * PIECE, 512)]);
        }
    }
}
