//! Whether two disks hold the same.
//!
//! Several threads take a piece each and read it from both; what both have as holes or zeros is not read. The first
//! difference is found, not just any.

use crate::reading_again::ReadingAgain;
use crate::watched_work::WatchedWork;
use crate::{Completion, Disk, Extent, ExtentKind, MemoryMap, Operation, Queue, Request, RequestError, Segment};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

const PIECE_BYTES: u64 = 1 << 20;
/// The unit in which a difference is looked for, before its byte is.
const UNIT_BYTES: u64 = 512;

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// No difference. Of disks of different size, the longer one goes on with zeros.
    Same,
    /// The first byte that differs, or that is no zero on the longer disk.
    Contents {
        /// Where.
        offset_bytes: u64,
    },
    /// Where first one of the two has storage and the other has none; only asked for by a strict comparison.
    Allocation {
        /// Where.
        offset_bytes: u64,
    },
}

/// Why there is no telling.
#[derive(Debug, thiserror::Error)]
pub enum ComparisonError {
    /// One of the disks.
    #[error("cannot read the {} disk at byte {offset_bytes}", if *.is_first { "first" } else { "second" })]
    Read {
        /// Whether it is the first of the two; else it is the second.
        is_first: bool,
        /// Where the first block lies that cannot be read.
        offset_bytes: u64,
        /// How it failed.
        source: RequestError,
    },
    /// A disk as a whole, or memory.
    #[error(transparent)]
    System(#[from] io::Error),
    /// Whoever watched it did not want more.
    #[error("the comparison was stopped")]
    Stopped,
}

/// A comparison of two disks: made, then run once.
pub struct Comparing<'a> {
    disks: [&'a dyn Disk; 2],
    is_strict: bool,
    next: Mutex<u64>,
    work: WatchedWork<ComparisonError>,
    /// The first differences found so far.
    contents: AtomicU64,
    allocation: AtomicU64,
}

impl<'a> Comparing<'a> {
    /// Prepares to compare. `is_strict`: what has storage counts too.
    pub fn new(first: &'a dyn Disk, second: &'a dyn Disk, is_strict: bool) -> Self {
        Self {
            disks: [first, second],
            is_strict,
            next: Mutex::new(0),
            work: WatchedWork::new(),
            contents: AtomicU64::new(u64::MAX),
            allocation: AtomicU64::new(u64::MAX),
        }
    }

    /// Bytes that were data of one of the disks, so far.
    pub fn data_bytes(&self) -> u64 {
        self.work.data_bytes()
    }

    /// Compares with `threads`. `watch` hears ten times a second how many bytes are done, and says whether to go on.
    ///
    /// # Errors
    /// The first thing that failed.
    pub fn run(&self, threads: usize, watch: impl FnMut(u64) -> bool) -> Result<Comparison, ComparisonError> {
        self.work.run(threads.max(1), || self.compare_pieces(), || ComparisonError::Stopped, watch)?;
        let [contents, allocation] = [&self.contents, &self.allocation].map(|first| first.load(Ordering::Relaxed));
        Ok(match contents.min(allocation) {
            u64::MAX => Comparison::Same,
            offset_bytes if offset_bytes == contents => Comparison::Contents { offset_bytes },
            offset_bytes => Comparison::Allocation { offset_bytes },
        })
    }

    fn first_difference(&self) -> u64 {
        self.contents.load(Ordering::Relaxed).min(self.allocation.load(Ordering::Relaxed))
    }

    fn compare_pieces(&self) -> Result<(), ComparisonError> {
        let mut readers = Readers::new(self.disks)?;
        while let Some(piece) = self.next_piece()? {
            if let Some(offset) = readers.first_difference(&piece)? {
                self.contents.fetch_min(offset, Ordering::Relaxed);
            }
            self.work.advance(piece.end - piece.start);
        }
        Ok(())
    }

    /// The next piece in which one of the two has data.
    fn next_piece(&self) -> io::Result<Option<Range<u64>>> {
        let end = self.disks.map(|disk| disk.geometry().capacity_bytes).into_iter().max().unwrap_or(0);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let start = *next;
            if start >= end || start >= self.first_difference() || self.work.is_over() {
                return Ok(None);
            }
            let extents = [extent(self.disks[0], start, end)?, extent(self.disks[1], start, end)?];
            let common_end =
                extents.iter().map(|extent| extent.offset_bytes + extent.length_bytes).min().unwrap_or(end);
            let has_storage = extents.map(|extent| extent.kind != ExtentKind::Hole);
            if self.is_strict && has_storage[0] != has_storage[1] {
                self.allocation.fetch_min(start, Ordering::Relaxed);
                return Ok(None);
            }
            if extents.iter().any(|extent| extent.kind == ExtentKind::Data) {
                // The edges of extents need not be those of pages.
                let piece_end = (start - start % PIECE_BYTES).saturating_add(PIECE_BYTES).min(end);
                let piece_end = if self.is_strict { piece_end.min(common_end) } else { piece_end };
                *next = piece_end;
                return Ok(Some(start..piece_end));
            }
            self.work.skip(common_end - start);
            *next = common_end;
        }
    }
}

/// As the disk says; behind its end is a hole.
fn extent(disk: &dyn Disk, start: u64, end: u64) -> io::Result<Extent> {
    let capacity_bytes = disk.geometry().capacity_bytes;
    if start < capacity_bytes {
        return disk.extents(start..end.min(capacity_bytes));
    }
    Ok(Extent { offset_bytes: start, length_bytes: end - start, kind: ExtentKind::Hole })
}

/// Reads a piece of both disks.
struct Readers<'a> {
    memory: MemoryMap,
    disks: [&'a dyn Disk; 2],
    queues: [Box<dyn Queue>; 2],
    capacities: [u64; 2],
    completions: Vec<Completion>,
}

impl<'a> Readers<'a> {
    fn new(disks: [&'a dyn Disk; 2]) -> io::Result<Self> {
        let memory = MemoryMap::allocate(&[(0, 2 * PIECE_BYTES as usize)]).map_err(io::Error::other)?;
        let queues = [disks[0].open_queue(&memory, 1)?, disks[1].open_queue(&memory, 1)?];
        let capacities = disks.map(|disk| disk.geometry().capacity_bytes);
        Ok(Self { memory, disks, queues, capacities, completions: Vec::with_capacity(1) })
    }

    fn segment(index: usize, offset_bytes: u64, length_bytes: u64) -> Segment {
        let offset_bytes = index as u64 * PIECE_BYTES + offset_bytes;
        // A piece, at most.
        Segment { region: 0, length_bytes: length_bytes as u32, offset_bytes }
    }

    fn first_difference(&mut self, piece: &Range<u64>) -> Result<Option<u64>, ComparisonError> {
        let length = piece.end - piece.start;
        for index in 0..2 {
            let there = self.capacities[index].clamp(piece.start, piece.end) - piece.start;
            // Behind a disk's end there are zeros.
            self.memory.zero(Self::segment(index, there, length - there));
            if there > 0 {
                self.push(index, piece.start, there)?;
            }
        }
        for index in 0..2 {
            let there = self.capacities[index].clamp(piece.start, piece.end);
            self.finish(index, &(piece.start..there))?;
        }
        Ok(self.find(length).map(|offset| piece.start + offset))
    }

    fn push(&mut self, index: usize, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let segments = &[Self::segment(index, 0, length_bytes)];
        let request = Request { operation: Operation::Read, offset_bytes, segments, token: 0 };
        self.queues[index].push(&request).map_err(io::Error::other)?;
        self.queues[index].submit()
    }

    fn finish(&mut self, index: usize, piece: &Range<u64>) -> Result<(), ComparisonError> {
        self.completions.clear();
        self.queues[index].drain(&mut self.completions)?;
        let Some(error) = self.completions.iter().find_map(|completion| completion.result.err()) else { return Ok(()) };
        let memory = Self::segment(index, 0, piece.end - piece.start);
        let again = ReadingAgain::new(self.disks[index], &self.memory)?.first_failure(piece, memory);
        let (offset_bytes, source) = again.unwrap_or((piece.start, error));
        Err(ComparisonError::Read { is_first: index == 0, offset_bytes, source })
    }

    fn find(&self, length: u64) -> Option<u64> {
        let equal = |offset: u64, count: u64| {
            self.memory.is_equal(Self::segment(0, offset, count), Self::segment(1, offset, count)) == Some(true)
        };
        if equal(0, length) {
            return None;
        }
        let units = (0..length).step_by(UNIT_BYTES as usize);
        let mut units = units.skip_while(|&at| equal(at, UNIT_BYTES.min(length - at)));
        let unit = units.next().unwrap_or(0);
        let words = (unit..length).step_by(8);
        let word = words.clone().find(|&at| !equal(at, 8)).unwrap_or(unit);
        let byte = |index: usize, at: u64| -> Option<u8> {
            use vm_memory::Bytes;
            self.memory.slice(Self::segment(index, at, 1))?.read_obj(0).ok()
        };
        (word..word + 8).find(|&at| byte(0, at) != byte(1, at)).or(Some(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, FileDisk, FileOptions};
    use std::os::unix::fs::FileExt;

    fn disk(length: u64, data: &[(u64, &[u8])]) -> FileDisk {
        let file = tempfile::tempfile().unwrap();
        file.set_len(length).unwrap();
        data.iter().for_each(|(offset, bytes)| file.write_all_at(bytes, *offset).unwrap());
        FileDisk::from_file(file, &FileOptions { engine: Engine::Sync, ..FileOptions::default() }).unwrap()
    }

    fn compare(first: &FileDisk, second: &FileDisk, is_strict: bool) -> Comparison {
        let found = [1, 3].map(|threads| Comparing::new(first, second, is_strict).run(threads, |_| true).unwrap());
        assert_eq!(found[0], found[1]);
        found[0]
    }

    #[test]
    fn the_first_byte_that_differs_is_found() {
        let contents = vec![7; 5 << 20];
        for place in [0, 1, 511, 4097, (1 << 20) - 1, 1 << 20, (5 << 20) - 1] {
            let first = disk(5 << 20, &[(0, &contents)]);
            let second = disk(5 << 20, &[(0, &contents), (place, &[9]), ((5 << 20) - 1, &[9])]);
            assert_eq!(compare(&first, &second, false), Comparison::Contents { offset_bytes: place });
        }
    }

    #[test]
    fn zeros_are_as_good_as_holes_unless_it_is_strict() {
        let (first, second) = (disk(3 << 20, &[]), disk(3 << 20, &[(1 << 20, &[0; 8192])]));
        assert_eq!(compare(&first, &second, false), Comparison::Same);
        assert_eq!(compare(&first, &second, true), Comparison::Allocation { offset_bytes: 1 << 20 });
        assert_eq!(compare(&second, &second, true), Comparison::Same);
    }

    #[test]
    fn what_a_longer_disk_has_more_must_be_zeros() {
        let (short, long) = (disk(1000 * 512, &[(0, &[1; 4096])]), disk(3 << 20, &[(0, &[1; 4096])]));
        assert_eq!(compare(&short, &long, false), Comparison::Same);
        let longer = disk(3 << 20, &[(0, &[1; 4096]), (1000 * 512, &[5])]);
        let difference = Comparison::Contents { offset_bytes: 1000 * 512 };
        assert_eq!((compare(&short, &longer, false), compare(&longer, &short, false)), (difference, difference));
    }
}
