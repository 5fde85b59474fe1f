//! Which piece of the source comes next.

use crate::reading_again::PART_BYTES;
use crate::{Disk, Extent, ExtentKind, walk_extents};
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// A part of the source, in whole granules save for the disk's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// To be read; no longer than the plan says.
    Data(Range<u64>),
    /// Known to read as zeros, however long.
    Zeros(Range<u64>),
}

/// Hands out the pieces of a disk, in order, to any number of threads.
pub(super) struct Plan<'a> {
    source: &'a dyn Disk,
    /// What the target takes as a unit: a hole that is shorter counts as data.
    granule_bytes: u64,
    /// Longest piece of data, a multiple of the granule.
    piece_bytes: u64,
    /// Where the source cannot say what it has, that counts as data.
    goes_on_where_unknown: bool,
    /// Locked for a moment once a piece.
    next: Mutex<Next>,
}

/// How far the plan has come.
#[derive(Default)]
struct Next {
    /// Where the next piece begins.
    start: u64,
    /// Data are known to reach from there to here: to ask once more may cost as much as there are (tmpfs).
    data_end: u64,
}

impl<'a> Plan<'a> {
    pub(super) fn new(source: &'a dyn Disk, granule_bytes: u64, piece_bytes: u64) -> Self {
        Self { source, granule_bytes, piece_bytes, goes_on_where_unknown: false, next: Mutex::default() }
    }

    /// What the source cannot say what it has of counts as data, from now on.
    pub(super) fn goes_on_where_unknown(&mut self) {
        self.goes_on_where_unknown = true;
    }

    /// The next piece; `None` at the end.
    pub(super) fn next(&self) -> io::Result<Option<Piece>> {
        let capacity_bytes = self.source.geometry().capacity_bytes;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let start = next.start;
        if start >= capacity_bytes {
            return Ok(None);
        }
        let zeros_end = if start < next.data_end { start } else { self.zeros_end(&mut next, capacity_bytes)? };
        let (piece, end) = match zeros_end > start {
            true => (Piece::Zeros(start..zeros_end), zeros_end),
            false => {
                let piece_end = (start - start % self.piece_bytes).saturating_add(self.piece_bytes);
                let limit = piece_end.min(capacity_bytes);
                let end = if limit <= next.data_end { limit } else { self.data_end(start, limit)? };
                (Piece::Data(start..end), end)
            }
        };
        next.start = end;
        Ok(Some(piece))
    }

    /// Where zeros from the next piece on end, in whole granules; its start if there is no granule of them. Notes how
    /// far the data reach behind them.
    fn zeros_end(&self, next: &mut Next, capacity_bytes: u64) -> io::Result<u64> {
        let mut end = next.start;
        for extent in walk_extents(self.source, next.start..capacity_bytes) {
            let Extent { offset_bytes, length_bytes, kind } = match extent {
                // A part: it may know more of the next.
                Err(_) if self.goes_on_where_unknown => Extent {
                    offset_bytes: end,
                    length_bytes: (PART_BYTES - end % PART_BYTES).min(capacity_bytes - end),
                    kind: ExtentKind::Data,
                },
                extent => extent?,
            };
            end = offset_bytes + length_bytes;
            if kind == ExtentKind::Data {
                // Before them, in their first granule, there may be zeros: that counts as data.
                next.data_end = end;
                return Ok(offset_bytes - offset_bytes % self.granule_bytes);
            }
        }
        Ok(capacity_bytes)
    }

    /// Where a piece of data from `start` on ends: where there is a granule of zeros, or at `limit`.
    fn data_end(&self, start: u64, limit: u64) -> io::Result<u64> {
        for extent in walk_extents(self.source, start..limit) {
            let Extent { offset_bytes, length_bytes, kind } = match extent {
                Err(_) if self.goes_on_where_unknown => return Ok(limit),
                extent => extent?,
            };
            let end = offset_bytes + length_bytes;
            let granule_end = offset_bytes.next_multiple_of(self.granule_bytes);
            let has_granule = end.saturating_sub(granule_end) >= self.granule_bytes || end == limit;
            if kind != ExtentKind::Data && has_granule && granule_end > start {
                return Ok(granule_end.min(limit));
            }
        }
        Ok(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, FileDisk, FileOptions};
    use std::os::unix::fs::FileExt;

    fn pieces(length: u64, data: &[(u64, u64)], granule_bytes: u64, piece_bytes: u64) -> Vec<Piece> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(length).unwrap();
        for &(offset, count) in data {
            file.write_all_at(&vec![1; count as usize], offset).unwrap();
        }
        let disk = FileDisk::from_file(file, &FileOptions { engine: Engine::Sync, ..FileOptions::default() }).unwrap();
        let plan = Plan::new(&disk, granule_bytes, piece_bytes);
        std::iter::from_fn(|| plan.next().unwrap()).collect()
    }

    #[test]
    fn holes_count_in_whole_granules() {
        const K: u64 = 1024;
        let found = pieces(1000 * K, &[(68 * K, 4 * K), (200 * K, 300 * K)], 64 * K, 128 * K);
        let wanted = [
            Piece::Zeros(0..64 * K),
            Piece::Data(64 * K..128 * K),
            Piece::Zeros(128 * K..192 * K),
            Piece::Data(192 * K..256 * K),
            Piece::Data(256 * K..384 * K),
            Piece::Data(384 * K..512 * K),
            Piece::Zeros(512 * K..1000 * K),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn pieces_make_up_the_disk() {
        for granule_bytes in [4096, 65536, 1 << 20] {
            let data = [(4096, 4096), (20480, 8192), (100_000, 5000), (3 << 20, 1 << 20), ((5 << 20) - 512, 512)];
            let mut end = 0;
            for piece in pieces(5 << 20, &data, granule_bytes, 1 << 20) {
                let (Piece::Data(range) | Piece::Zeros(range)) = &piece;
                assert_eq!(range.start, end);
                assert!(range.end > range.start && range.start.is_multiple_of(granule_bytes));
                assert!(matches!(piece, Piece::Zeros(_)) || range.end - range.start <= 1 << 20);
                let overlaps = |&(offset, count): &(u64, u64)| offset < range.end && range.start < offset + count;
                assert!(matches!(piece, Piece::Data(_)) || !data.iter().any(overlaps), "{piece:?}");
                end = range.end;
            }
            assert_eq!(end, 5 << 20);
        }
        assert!(pieces(0, &[], 4096, 4096).is_empty());
    }
}
