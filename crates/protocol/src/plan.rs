//! Which bytes a copy reads and writes, in which requests: the extents of the input, cut to what both devices can do.
//!
//! Extents lie anywhere; devices know only whole sectors, and each its own. A [`Planner`] works in blocks of the larger
//! of the two sectors. A block with any data in it is data: it is read and written once. What is left are whole blocks
//! of zeros.

use crate::layout::{SECTOR_SIZE_MAX, SECTOR_SIZE_MIN};
use crate::messages::{Extent, ExtentKind};
use core::fmt;

/// Most bytes a copy can have: far from where offsets overflow.
pub const LENGTH_BYTES_MAX: u64 = 1 << 62;

/// What to do with a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// Read it and write what was read.
    Data,
    /// Make it read as zeros.
    Zero,
}

/// A part of the copy, small enough for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What to do with it.
    pub kind: PieceKind,
    /// Offset of its first byte on both devices: a multiple of both sector sizes.
    pub start: u64,
    /// Bytes of the copy's length in it.
    pub copied_bytes: u64,
    /// Bytes to read: whole sectors of the input, none for [`PieceKind::Zero`].
    pub input_bytes: u64,
    /// Bytes to write: whole sectors of the output. What was not read of them is zeros.
    pub output_bytes: u64,
}

/// What a planner works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// Bytes to copy.
    pub length: u64,
    /// Bytes in a sector of the input.
    pub input_sector_bytes: u32,
    /// Bytes in a sector of the output.
    pub output_sector_bytes: u32,
    /// Bytes in a [`PieceKind::Data`] piece at most; the larger sector at least.
    pub data_bytes_max: u64,
    /// Bytes in a [`PieceKind::Zero`] piece at most; the larger sector at least.
    pub zero_bytes_max: u64,
}

/// Why there is no next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError<E> {
    /// The source of extents failed.
    Source(E),
    /// There are no more extents, and they do not cover the whole length.
    EndsEarly {
        /// Where the last one ends.
        end: u64,
    },
    /// An extent of no bytes.
    EmptyExtent {
        /// Where it lies.
        start: u64,
    },
}

impl<E: fmt::Display> fmt::Display for PlanError<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => error.fmt(formatter),
            Self::EndsEarly { end } => write!(formatter, "the extents end at byte {end}, before the input does"),
            Self::EmptyExtent { start } => write!(formatter, "the extent at byte {start} is empty"),
        }
    }
}

/// Cuts extents into [`Piece`]s, in order and each byte once.
#[derive(Debug)]
pub struct Planner {
    limits: PlanLimits,
    /// The larger sector.
    block_bytes: u64,
    /// Everything before it is done: a multiple of the block, or beyond the length.
    position: u64,
    /// What lies between `position` and `run_end`.
    run_kind: PieceKind,
    /// Where the extents that belong to the current run end.
    run_end: u64,
    /// An extent that was looked at and does not belong to the run: where it ends.
    pending: Option<(PieceKind, u64)>,
}

impl Planner {
    /// A planner at the beginning of the copy; `None` when the limits make no sense: a sector size that is not a power
    /// of two from [`SECTOR_SIZE_MIN`] to [`SECTOR_SIZE_MAX`], a piece smaller than the larger of the two, or too long
    /// a copy.
    pub fn new(limits: PlanLimits) -> Option<Self> {
        let block_bytes = u64::from(limits.input_sector_bytes.max(limits.output_sector_bytes));
        let is_sector = |bytes: u32| bytes.is_power_of_two() && (SECTOR_SIZE_MIN..=SECTOR_SIZE_MAX).contains(&bytes);
        let fits = is_sector(limits.input_sector_bytes)
            && is_sector(limits.output_sector_bytes)
            && limits.data_bytes_max >= block_bytes
            && limits.zero_bytes_max >= block_bytes
            && limits.length <= LENGTH_BYTES_MAX;
        fits.then_some(Self { limits, block_bytes, position: 0, run_kind: PieceKind::Data, run_end: 0, pending: None })
    }

    /// The next piece, `None` when the whole length is covered. `next_extent` is called for the extent that follows the
    /// one it gave before, as often as needed: it says `None` when there are no more.
    ///
    /// # Errors
    /// When `next_extent` fails, or the extents are not as they should be.
    pub fn next<E>(
        &mut self,
        mut next_extent: impl FnMut() -> Result<Option<Extent>, E>,
    ) -> Result<Option<Piece>, PlanError<E>> {
        if self.position >= self.limits.length {
            return Ok(None);
        }
        while self.run_end <= self.position {
            (self.run_kind, self.run_end) = self.following(&mut next_extent)?;
        }
        // A run of zeros that does not fill a block is part of what follows: more zeros, or data.
        while self.run_kind == PieceKind::Zero && self.whole_blocks_end() <= self.position {
            let (kind, end) = self.following(&mut next_extent)?;
            (self.run_kind, self.run_end) = (kind, end);
        }
        Ok(Some(match self.run_kind {
            PieceKind::Zero => self.piece(self.whole_blocks_end(), self.limits.zero_bytes_max),
            PieceKind::Data => {
                self.gather_data(&mut next_extent)?;
                self.piece(self.run_end.next_multiple_of(self.block_bytes), self.limits.data_bytes_max)
            }
        }))
    }

    /// Where the last block ends that lies in the run as a whole; what is behind the copy's length counts as zeros.
    fn whole_blocks_end(&self) -> u64 {
        if self.run_end >= self.limits.length {
            return self.limits.length.next_multiple_of(self.block_bytes);
        }
        self.run_end - self.run_end % self.block_bytes
    }

    /// Lengthens a run of data by the data extents that follow, as far as one piece goes.
    fn gather_data<E>(
        &mut self,
        next_extent: &mut impl FnMut() -> Result<Option<Extent>, E>,
    ) -> Result<(), PlanError<E>> {
        let enough = (self.position + self.limits.data_bytes_max.min(LENGTH_BYTES_MAX)).min(self.limits.length);
        while self.run_end < enough {
            let (kind, end) = self.following(next_extent)?;
            if kind == PieceKind::Zero {
                self.pending = Some((kind, end));
                break;
            }
            self.run_end = end;
        }
        Ok(())
    }

    /// The extent that follows the run: what it is and where it ends.
    fn following<E>(
        &mut self,
        next_extent: &mut impl FnMut() -> Result<Option<Extent>, E>,
    ) -> Result<(PieceKind, u64), PlanError<E>> {
        if let Some(pending) = self.pending.take() {
            return Ok(pending);
        }
        let Some(extent) = next_extent().map_err(PlanError::Source)? else {
            return Err(PlanError::EndsEarly { end: self.run_end });
        };
        if extent.length == 0 {
            return Err(PlanError::EmptyExtent { start: self.run_end });
        }
        let kind = if extent.kind == ExtentKind::Zero { PieceKind::Zero } else { PieceKind::Data };
        // Nothing behind the length matters, and nothing overflows there.
        Ok((kind, self.run_end.saturating_add(extent.length).min(self.limits.length)))
    }

    /// The piece from the current position to `run_end` or as far as a piece may go.
    fn piece(&mut self, run_end: u64, bytes_max: u64) -> Piece {
        let bytes_max = bytes_max.min(LENGTH_BYTES_MAX);
        let start = self.position;
        let end = run_end.min(start + (bytes_max - bytes_max % self.block_bytes));
        let device_bytes =
            |sector_bytes: u32| end.min(self.limits.length.next_multiple_of(u64::from(sector_bytes))) - start;
        let piece = Piece {
            kind: self.run_kind,
            start,
            copied_bytes: end.min(self.limits.length) - start,
            input_bytes: match self.run_kind {
                PieceKind::Data => device_bytes(self.limits.input_sector_bytes),
                PieceKind::Zero => 0,
            },
            output_bytes: device_bytes(self.limits.output_sector_bytes),
        };
        self.position = end;
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    type Extents = Vec<(u64, ExtentKind)>;

    fn plan(limits: PlanLimits, extents: &Extents) -> Result<Vec<Piece>, PlanError<()>> {
        let mut planner = Planner::new(limits).unwrap();
        let mut extents = extents.iter();
        let mut pieces = Vec::new();
        while let Some(piece) = planner.next(|| Ok(extents.next().map(|&(length, kind)| Extent { length, kind })))? {
            pieces.push(piece);
        }
        Ok(pieces)
    }

    fn limits(length: u64, input: u32, output: u32) -> PlanLimits {
        PlanLimits {
            length,
            input_sector_bytes: input,
            output_sector_bytes: output,
            data_bytes_max: 65536,
            zero_bytes_max: u64::MAX,
        }
    }

    fn piece(kind: PieceKind, start: u64, copied_bytes: u64, input_bytes: u64, output_bytes: u64) -> Piece {
        Piece { kind, start, copied_bytes, input_bytes, output_bytes }
    }

    #[test]
    fn the_last_sector_is_each_devices_own() {
        let data = std::vec![(1000, ExtentKind::Data)];
        assert_eq!(plan(limits(1000, 512, 4096), &data), Ok(std::vec![piece(PieceKind::Data, 0, 1000, 1024, 4096)]));
        assert_eq!(plan(limits(1000, 4096, 512), &data), Ok(std::vec![piece(PieceKind::Data, 0, 1000, 4096, 1024)]));
    }

    #[test]
    fn data_extents_grow_to_blocks_and_zeros_give_way() {
        let extents = std::vec![
            (100, ExtentKind::Zero),
            (100, ExtentKind::Data),
            (20000, ExtentKind::Zero),
            (100, ExtentKind::Data),
            (80, ExtentKind::Zero),
        ];
        let pieces = plan(limits(20380, 512, 4096), &extents).unwrap();
        assert_eq!(
            pieces,
            [
                piece(PieceKind::Data, 0, 4096, 4096, 4096),
                piece(PieceKind::Zero, 4096, 12288, 0, 12288),
                piece(PieceKind::Data, 16384, 3996, 4096, 4096),
            ]
        );
    }

    #[test]
    fn neighbouring_data_extents_share_a_request() {
        let extents = std::vec![(4096, ExtentKind::Data); 32];
        let pieces = plan(limits(32 * 4096, 512, 512), &extents).unwrap();
        assert_eq!(pieces.len(), 2);
    }

    #[test]
    fn nothing_to_copy_needs_no_extents() {
        assert_eq!(plan(limits(0, 512, 512), &Extents::new()), Ok(Vec::new()));
    }

    #[test]
    fn wrong_extents_are_errors() {
        let short = std::vec![(4096, ExtentKind::Data)];
        assert_eq!(plan(limits(5000, 512, 512), &short), Err(PlanError::EndsEarly { end: 4096 }));
        let short = std::vec![(4095, ExtentKind::Zero)];
        assert_eq!(plan(limits(4096, 512, 512), &short), Err(PlanError::EndsEarly { end: 4095 }));
        let empty = std::vec![(512, ExtentKind::Zero), (0, ExtentKind::Data)];
        assert_eq!(plan(limits(5000, 512, 512), &empty), Err(PlanError::EmptyExtent { start: 512 }));
        let long = std::vec![(u64::MAX, ExtentKind::Zero)];
        assert_eq!(plan(limits(5000, 512, 512), &long), Ok(std::vec![piece(PieceKind::Zero, 0, 5000, 0, 5120)]));
        let longer = std::vec![(600, ExtentKind::Data), (u64::MAX, ExtentKind::Data)];
        assert_eq!(plan(limits(5000, 512, 512), &longer), Ok(std::vec![piece(PieceKind::Data, 0, 5000, 5120, 5120)]));
    }

    #[test]
    fn senseless_limits_are_refused() {
        let good = limits(1 << 20, 512, 65536);
        assert!(Planner::new(good).is_some());
        for bad in [
            PlanLimits { input_sector_bytes: 0, ..good },
            PlanLimits { input_sector_bytes: 1000, ..good },
            PlanLimits { output_sector_bytes: 131072, ..good },
            PlanLimits { output_sector_bytes: 256, ..good },
            PlanLimits { data_bytes_max: 65535, ..good },
            PlanLimits { zero_bytes_max: 512, ..good },
            PlanLimits { length: LENGTH_BYTES_MAX + 1, ..good },
        ] {
            assert!(Planner::new(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn fuzz_pieces_cover_the_length_once_and_zeros_are_zeros() {
        type Input = (u8, u8, u16, u16, Vec<(u32, bool)>, u16);
        blockyard_fuzz::check!(50_000).with_type::<Input>().for_each(
            |(input, output, data_max, zero_max, extents, beyond)| {
                let input_sector_bytes = SECTOR_SIZE_MIN << (input % 8);
                let output_sector_bytes = SECTOR_SIZE_MIN << (output % 8);
                let block_bytes = u64::from(input_sector_bytes.max(output_sector_bytes));
                let extents: Extents = extents
                    .iter()
                    .map(|&(length, zero)| {
                        let kind = if zero { ExtentKind::Zero } else { ExtentKind::Data };
                        (u64::from(length % 0x40000) + 1, kind)
                    })
                    .collect();
                let total: u64 = extents.iter().map(|extent| extent.0).sum();
                let limits = PlanLimits {
                    // What is to be copied may end before the extents do.
                    length: total - u64::from(*beyond).min(total),
                    input_sector_bytes,
                    output_sector_bytes,
                    data_bytes_max: block_bytes + u64::from(*data_max),
                    zero_bytes_max: block_bytes + u64::from(*zero_max),
                };
                check(limits, &extents);
            },
        );
    }

    fn check(limits: PlanLimits, extents: &Extents) {
        let (input, output) = (u64::from(limits.input_sector_bytes), u64::from(limits.output_sector_bytes));
        let mut position = 0;
        for piece in plan(limits, extents).unwrap() {
            assert_eq!(piece.start, position, "in order, nothing twice, nothing left out");
            assert!(piece.copied_bytes > 0);
            position += piece.copied_bytes;
            assert!(piece.start % input == 0 && piece.start % output == 0);
            assert!(piece.output_bytes >= piece.copied_bytes && piece.output_bytes % output == 0);
            assert!(piece.start + piece.output_bytes <= limits.length.next_multiple_of(output));
            match piece.kind {
                PieceKind::Data => {
                    assert!(piece.input_bytes >= piece.copied_bytes && piece.input_bytes % input == 0);
                    assert!(piece.start + piece.input_bytes <= limits.length.next_multiple_of(input));
                    assert!(piece.input_bytes.max(piece.output_bytes) <= limits.data_bytes_max);
                }
                PieceKind::Zero => {
                    assert_eq!(piece.input_bytes, 0);
                    assert!(piece.output_bytes <= limits.zero_bytes_max);
                    assert!(!has_data(extents, piece.start, piece.start + piece.copied_bytes));
                }
            }
        }
        assert_eq!(position, limits.length);
    }

    fn has_data(extents: &Extents, start: u64, end: u64) -> bool {
        let mut extent_start = 0;
        extents.iter().any(|&(length, kind)| {
            let extent_end = extent_start + length;
            let touches = kind == ExtentKind::Data && extent_start < end && extent_end > start;
            extent_start = extent_end;
            touches
        })
    }
}
