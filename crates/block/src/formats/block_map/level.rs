//! One image of a chain: a disk in one piece or several, each with storage of its own.

use super::layer::Layer;

/// An image of a chain.
#[derive(Debug)]
pub(super) struct Level {
    /// Bytes of its disk.
    pub(super) size_bytes: u64,
    /// In order, without gaps.
    pieces: Vec<Piece>,
}

/// A range of an image's disk that is of one sort.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) start_bytes: u64,
    pub(super) end_bytes: u64,
    pub(super) storage: Storage,
    /// Of the top image: whether it may be changed.
    pub(super) is_writable: bool,
}

/// Where the bytes of a piece are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// Where the map of a layer says; the layer's disk is the piece.
    Mapped { layer: usize },
    /// In a disk below, from an offset on.
    Flat { index: usize, offset_bytes: u64 },
    /// Nowhere: they are zeros.
    Zeros,
    /// Nobody may know.
    Forbidden,
}

impl Level {
    /// Of pieces with their lengths, whose sum a disk can have, and whether they may be changed.
    pub(super) fn new(storages: impl IntoIterator<Item = (u64, Storage, bool)>) -> Self {
        let mut size_bytes = 0;
        let pieces = storages.into_iter().map(|(length_bytes, storage, is_writable)| {
            let start_bytes = size_bytes;
            size_bytes += length_bytes;
            Piece { start_bytes, end_bytes: size_bytes, storage, is_writable }
        });
        let pieces = pieces.collect();
        Self { size_bytes, pieces }
    }

    /// The piece that `offset` lies in, if it lies on the disk.
    pub(super) fn find(&self, offset: u64) -> Option<Piece> {
        let index = self.pieces.partition_point(|piece| piece.end_bytes <= offset);
        self.pieces.get(index).copied()
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The layers that have a part of it, each with its number and where that part begins.
    pub(super) fn layers<'a>(&'a self, all: &'a [Layer]) -> impl Iterator<Item = (usize, u64, &'a Layer)> {
        self.pieces.iter().filter_map(|piece| match piece.storage {
            Storage::Mapped { layer } => Some((layer, piece.start_bytes, all.get(layer)?)),
            _ => None,
        })
    }
}
