//! Reading a few bytes of a disk, for whoever parses what is on it.

use crate::{Completion, Disk, ExtentKind, MemoryMap, Operation, Queue, Request, RequestError, Segment, walk_extents};
use std::io;
use std::ops::Range;

/// Bytes that are read at once, unless a logical block is larger.
const BUFFER_BYTES: u32 = 64 << 10;

/// Reads any bytes of a disk, in any order, one request at a time: for tables and headers, not for data.
pub struct DiskReader {
    memory: MemoryMap,
    queue: Box<dyn Queue>,
    buffer_bytes: u32,
    block_bytes: u32,
    capacity_bytes: u64,
}

impl DiskReader {
    /// A reader with a queue of its own.
    ///
    /// # Errors
    /// When memory or the queue cannot be had.
    pub fn new(disk: &dyn Disk) -> io::Result<Self> {
        let geometry = disk.geometry();
        let block_bytes = geometry.logical_block_bytes;
        let most = u32::try_from(geometry.transfer_bytes_max).unwrap_or(u32::MAX);
        let buffer_bytes = BUFFER_BYTES.min(most).max(block_bytes);
        let memory = MemoryMap::allocate(&[(0, buffer_bytes as usize)]).map_err(io::Error::other)?;
        let queue = disk.open_queue(&memory, 1)?;
        Ok(Self { memory, queue, buffer_bytes, block_bytes, capacity_bytes: geometry.capacity_bytes })
    }

    /// Fills `bytes` with what the disk has from `offset_bytes`, which need not be a multiple of anything.
    ///
    /// # Errors
    /// `UnexpectedEof` when the range reaches past the end of the disk, and the disk's own errors.
    pub fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> io::Result<()> {
        let end = offset_bytes.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.capacity_bytes) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, RequestError::OutOfRange));
        }
        let (mut at, mut left) = (offset_bytes, bytes);
        while !left.is_empty() {
            let block = u64::from(self.block_bytes);
            let start = at - at % block;
            let skipped = (at - start) as usize;
            // Within the disk: its capacity is a multiple of the block size.
            let wanted = (skipped + left.len()).next_multiple_of(self.block_bytes as usize);
            let length_bytes = wanted.min(self.whole_blocks_at_once()) as u32;
            let segment = Segment { region: 0, offset_bytes: 0, length_bytes };
            perform(&mut *self.queue, Operation::Read, start, &[segment])?;
            let count = left.len().min(length_bytes as usize - skipped);
            let (now, later) = left.split_at_mut(count);
            let slice = self.memory.slice(segment).expect("the segment is the start of the only region");
            slice.offset(skipped).map_err(io::Error::other)?.copy_to(now);
            at += count as u64;
            left = later;
        }
        Ok(())
    }

    /// The disk's size.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn whole_blocks_at_once(&self) -> usize {
        (self.buffer_bytes - self.buffer_bytes % self.block_bytes) as usize
    }
}

/// Carries out one request on a queue that has nothing else in flight.
///
/// # Errors
/// The request's own, and those of a queue that is broken or full.
pub(crate) fn perform(
    queue: &mut dyn Queue,
    operation: Operation,
    offset_bytes: u64,
    segments: &[Segment],
) -> io::Result<()> {
    queue.push(&Request { operation, offset_bytes, segments, token: 0 }).map_err(io::Error::other)?;
    let mut completions = Vec::with_capacity(1);
    queue.drain(&mut completions)?;
    match completions.first().map(|completion: &Completion| completion.result) {
        Some(Ok(())) => Ok(()),
        Some(Err(RequestError::Os(errno))) => Err(io::Error::from_raw_os_error(errno)),
        Some(Err(error)) => Err(io::Error::other(error)),
        None => Err(io::Error::other("the disk lost a request")),
    }
}

/// Reads one range of a disk. Whoever reads several takes a [`DiskReader`]. The caller judges how much memory a range
/// may take before it asks for it.
///
/// # Errors
/// As [`DiskReader::new`] and [`DiskReader::read`].
pub fn read_bytes(disk: &dyn Disk, range: Range<u64>) -> io::Result<Vec<u8>> {
    let length = range.end.saturating_sub(range.start);
    let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    if range.end > disk.geometry().capacity_bytes {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, RequestError::OutOfRange));
    }
    let mut bytes = vec![0; length];
    DiskReader::new(disk)?.read(range.start, &mut bytes)?;
    Ok(bytes)
}

/// Whether the first `length_bytes` of a disk are known to read as zeros, without reading them.
///
/// # Errors
/// Those of [`Disk::extents`].
pub fn reads_as_zeros(disk: &dyn Disk, length_bytes: u64) -> io::Result<bool> {
    for extent in walk_extents(disk, 0..length_bytes) {
        if extent?.kind == ExtentKind::Data {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, FileDisk, FileOptions};
    use std::os::unix::fs::FileExt;

    const BYTES: usize = 300 << 10;

    fn disk(logical_block_bytes: u32) -> (FileDisk, Vec<u8>) {
        let contents: Vec<u8> = (0..BYTES).map(|index| (index / 7 + index / 4099) as u8).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&contents, 0).unwrap();
        let options = FileOptions { logical_block_bytes, engine: Engine::Sync, ..FileOptions::default() };
        (FileDisk::from_file(file, &options).unwrap(), contents)
    }

    #[test]
    fn any_range_is_read_whatever_the_block_size() {
        for block_bytes in [512, 4096, 65536] {
            let (disk, contents) = disk(block_bytes);
            let mut reader = DiskReader::new(&disk).unwrap();
            for range in [0..1, 511..513, 4095..4097, 1000..1000, 65535..65537, 1..BYTES, 70000..200001, 0..BYTES] {
                let mut bytes = vec![0xaa; range.len()];
                reader.read(range.start as u64, &mut bytes).unwrap();
                assert!(bytes == contents[range.clone()], "{range:?} in blocks of {block_bytes}");
            }
        }
    }

    #[test]
    fn a_range_past_the_end_is_an_error_and_takes_no_memory() {
        let (disk, _) = disk(512);
        for range in [BYTES as u64..BYTES as u64 + 1, 0..u64::MAX, u64::MAX - 1..u64::MAX] {
            let error = read_bytes(&disk, range).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        let mut reader = DiskReader::new(&disk).unwrap();
        assert_eq!(reader.read(u64::MAX, &mut [0; 2]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_reversed_range_is_empty() {
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
        let bytes = read_bytes(&disk(512).0, 9..3).unwrap();
        assert!(bytes.is_empty());
    }
}
