//! Tables of entries, read in pieces: of one that has 32 MiB no more than 64 KiB are in memory, and where the file has
//! a hole nothing is read.

use super::entries::entries_of;
use super::header::Table;
use crate::formats::WritableFile;
use std::io;
use std::ops::Range;

const PIECE_BYTES: u64 = 64 << 10;

/// What a piece begins with a multiple of, in its table: no entry lies in two pieces.
const ALIGNMENT_BYTES: u64 = 512;

/// The pieces of a table, in order. Those that are left out hold zeros.
pub(super) struct Pieces<'a> {
    file: &'a WritableFile,
    table: Table,
    /// So much of the table was read, or is a hole.
    done_bytes: u64,
    /// A hole of the file, or what is left of it: nobody writes there meanwhile.
    hole: Range<u64>,
    piece: Vec<u8>,
}

impl<'a> Pieces<'a> {
    pub(super) fn of(file: &'a WritableFile, table: Table) -> Self {
        Self { file, table, done_bytes: 0, hole: 0..0, piece: Vec::new() }
    }

    /// Goes on with another table, from its beginning.
    pub(super) fn begin(&mut self, table: Table) {
        (self.table, self.done_bytes) = (table, 0);
    }

    /// The index of the next piece's first entry, and its bytes.
    pub(super) fn next(&mut self) -> io::Result<Option<(usize, &[u8])>> {
        let Table { offset_bytes, length_bytes } = self.table;
        let at = offset_bytes.saturating_add(self.done_bytes);
        if self.done_bytes < length_bytes {
            if !self.hole.contains(&at) {
                self.hole = at..self.file.next_data(at).unwrap_or(u64::MAX);
            }
            let hole_bytes = self.hole.end.saturating_sub(at);
            self.done_bytes = self.done_bytes.saturating_add(hole_bytes - hole_bytes % ALIGNMENT_BYTES);
        }
        if self.done_bytes >= length_bytes {
            return Ok(None);
        }
        let first = self.done_bytes;
        self.piece.resize(PIECE_BYTES.min(length_bytes - first) as usize, 0);
        self.done_bytes += self.piece.len() as u64;
        let read = self.file.read(&mut self.piece, offset_bytes.saturating_add(first));
        read.inspect_err(|_| self.piece.clear())?;
        Ok(Some(((first / 8) as usize, &self.piece)))
    }
}

impl WritableFile {
    /// The entries of a table that are not zero, and the index of each.
    pub(super) fn used_entries(&self, table: Table) -> impl Iterator<Item = io::Result<(usize, u64)>> {
        let mut pieces = Pieces::of(self, table);
        let (mut first, mut seen) = (0, 0);
        std::iter::from_fn(move || {
            loop {
                let rest = entries_of(pieces.piece.get(seen * 8..).unwrap_or_default());
                if let Some((zeros, entry)) = rest.enumerate().find(|&(_, entry)| entry != 0) {
                    seen += zeros + 1;
                    return Some(Ok((first + seen - 1, entry)));
                }
                match pieces.next() {
                    Ok(Some((index, _))) => (first, seen) = (index, 0),
                    Ok(None) => return None,
                    Err(error) => return Some(Err(error)),
                }
            }
        })
    }
}
