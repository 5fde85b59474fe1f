//! The data of a file that is packed, and where it has holes.

use crate::fields::BLOCK_BYTES;
use crate::sparse_map::Ranges;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use tar::{EntryType, GnuExtSparseHeader, Header};

/// Ranges of data that are kept in mind; a file with more is packed with its holes.
const RANGES_MAX: usize = 1 << 18;

/// Bytes that are looked at together, and at least as many in a hole that is found by reading.
const PIECE_BYTES: usize = 64 << 10;
/// Shorter files are not read for their holes' sake.
const SEARCHED_BYTES_MIN: u64 = 1 << 20;

/// The ranges of a file of `length` bytes that has holes, the last of them at its end; `None` when it is better packed
/// as a whole.
pub(crate) fn ranges(file: &File, length: u64) -> Option<Ranges> {
    let ranges = ranges_told(file, length)?;
    if ranges == [(0, length)] && length >= SEARCHED_BYTES_MIN { ranges_found(file, length) } else { Some(ranges) }
}

/// Where the file system says that there are data: everywhere, if it does not know, as squashfs.
fn ranges_told(file: &File, length: u64) -> Option<Ranges> {
    let (mut ranges, mut at) = (Ranges::new(), 0);
    while at < length {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < length => start / BLOCK_BYTES * BLOCK_BYTES,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(_) => return None,
        };
        let end = seek(file, SeekFrom::Hole(start.max(at))).ok()?;
        let end = end.checked_next_multiple_of(BLOCK_BYTES)?.min(length);
        if end <= at || ranges.len() == RANGES_MAX {
            return None;
        }
        ranges.push((start, end - start));
        at = end;
    }
    Some(with_end(ranges, at, length))
}

/// Where there is something else than zeros.
fn ranges_found(file: &File, length: u64) -> Option<Ranges> {
    let (mut ranges, mut at) = (Ranges::new(), 0);
    let mut buffer = vec![0; PIECE_BYTES];
    while at < length {
        let wanted = usize::try_from(length - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        let piece = &mut buffer[..wanted];
        // What cannot be read is told when it is packed.
        file.read_exact_at(piece, at).ok()?;
        if piece.iter().any(|&byte| byte != 0) {
            let is_full = ranges.len() == RANGES_MAX;
            match ranges.last_mut() {
                Some((offset, length)) if *offset + *length == at => *length += wanted as u64,
                _ if is_full => return None,
                _ => ranges.push((at, wanted as u64)),
            }
        }
        at += wanted as u64;
    }
    let end = ranges.last().map_or(0, |(offset, length)| offset + length);
    Some(with_end(ranges, end, length))
}

/// Ranges that end at `end`, with the format's way to say how long the file is.
fn with_end(mut ranges: Ranges, end: u64, length: u64) -> Ranges {
    if end < length {
        ranges.push((length, 0));
    }
    ranges
}

/// Makes `header` that of a file with holes; returns the headers that follow it (GNU tar, "Old GNU Format").
pub(crate) fn describe_holes(header: &mut Header, ranges: &Ranges, length: u64) -> io::Result<Vec<u8>> {
    header.set_entry_type(EntryType::GNUSparse);
    header.set_size(ranges.iter().map(|(_, length)| length).sum());
    let gnu = header.as_gnu_mut().ok_or_else(|| io::Error::other("the header is not GNU tar's"))?;
    gnu.set_real_size(length);
    let (first, more) = ranges.split_at(ranges.len().min(gnu.sparse.len()));
    for (place, &(offset, length)) in gnu.sparse.iter_mut().zip(first) {
        place.set_offset(offset);
        place.set_length(length);
    }
    gnu.set_is_extended(!more.is_empty());
    let mut headers = Vec::new();
    let mut left = more;
    while !left.is_empty() {
        let mut header = GnuExtSparseHeader::new();
        let (now, later) = left.split_at(left.len().min(header.sparse.len()));
        for (place, &(offset, length)) in header.sparse.iter_mut().zip(now) {
            place.set_offset(offset);
            place.set_length(length);
        }
        header.set_is_extended(!later.is_empty());
        headers.extend_from_slice(header.as_bytes());
        left = later;
    }
    Ok(headers)
}

/// Ranges of a file, one after another, as long as they were when they were looked for: whoever reads an archive must
/// find in it what its header says. Where the file has become shorter there are zeros.
pub(crate) struct FileData<'file> {
    file: &'file File,
    ranges: std::vec::IntoIter<(u64, u64)>,
    at: u64,
    left: u64,
    /// The file has become shorter.
    pub(crate) cut_short: bool,
}

impl<'file> FileData<'file> {
    pub(crate) fn new(file: &'file File, ranges: Ranges) -> Self {
        Self { file, ranges: ranges.into_iter(), at: 0, left: 0, cut_short: false }
    }
}

impl Read for FileData<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let Some((offset, length)) = self.ranges.next() else { return Ok(0) };
            (self.at, self.left) = (offset, length);
        }
        let wanted = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let bytes = match self.file.read_at(&mut into[..wanted], self.at)? {
            0 => {
                self.cut_short = true;
                into[..wanted].fill(0);
                wanted
            }
            bytes => bytes,
        };
        self.at += bytes as u64;
        self.left -= bytes as u64;
        Ok(bytes)
    }
}
