//! Disks one behind the other as one disk.

use crate::formats::scatter::{Cutter, Scatter, ScatterQueue, Split};
use crate::{Disk, Extent, Geometry, MemoryMap, Operation, QUEUE_DEPTH_MAX, Queue, Request, RequestError, Segment};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Why disks cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// There are none.
    #[error("there is no disk to join")]
    Nothing,
    /// One ends within a logical block of another.
    #[error("disk {number} of {capacity_bytes} bytes does not end with a block of {logical_block_bytes} bytes")]
    Unaligned {
        /// Which, from 1.
        number: usize,
        /// How large it is.
        capacity_bytes: u64,
        /// The largest logical block of all.
        logical_block_bytes: u32,
    },
    /// Together they are larger than a disk can be.
    #[error("together they have more bytes than a disk can")]
    TooLarge,
}

/// Several disks as one, which is only read: each begins where the one before it ends.
pub struct JoinedDisk {
    parts: Arc<[Part]>,
    geometry: Geometry,
}

struct Part {
    disk: Arc<dyn Disk>,
    range: Range<u64>,
}

impl JoinedDisk {
    /// Joins them in this order.
    ///
    /// # Errors
    /// When there are none, or they do not fit together.
    pub fn new(disks: Vec<Arc<dyn Disk>>) -> Result<Self, JoinError> {
        let geometries: Vec<_> = disks.iter().map(|disk| disk.geometry()).collect();
        let Some(first) = geometries.first() else { return Err(JoinError::Nothing) };
        let most = |of: fn(&Geometry) -> u32| geometries.iter().map(of).fold(of(first), u32::max);
        let least = |of: fn(&Geometry) -> u32| geometries.iter().map(of).fold(of(first), u32::min);
        let logical_block_bytes = most(|geometry| geometry.logical_block_bytes);
        let mut parts = Vec::with_capacity(disks.len());
        let mut start: u64 = 0;
        for ((disk, geometry), number) in disks.into_iter().zip(&geometries).zip(1..) {
            let capacity_bytes = geometry.capacity_bytes;
            if !capacity_bytes.is_multiple_of(logical_block_bytes.into()) {
                return Err(JoinError::Unaligned { number, capacity_bytes, logical_block_bytes });
            }
            let end = start.checked_add(capacity_bytes).filter(|&end| end <= i64::MAX as u64);
            let range = start..end.ok_or(JoinError::TooLarge)?;
            start = range.end;
            parts.push(Part { disk, range });
        }
        let transfer_bytes_max = geometries.iter().map(|geometry| geometry.transfer_bytes_max).fold(u64::MAX, u64::min);
        let geometry = Geometry {
            capacity_bytes: start,
            logical_block_bytes,
            physical_block_bytes: most(|geometry| geometry.physical_block_bytes),
            optimal_io_bytes: most(|geometry| geometry.optimal_io_bytes),
            segments_max: least(|geometry| geometry.segments_max),
            transfer_bytes_max,
            memory_align_bytes: most(|geometry| geometry.memory_align_bytes),
            read_only: true,
            discard: false,
            write_zeroes: false,
        };
        Ok(Self { parts: parts.into(), geometry })
    }
}

/// The part that has the byte at `offset`, and its number.
fn part_at(parts: &[Part], offset: u64) -> Option<(usize, &Part)> {
    let index = parts.partition_point(|part| part.range.end <= offset);
    Some((index, parts.get(index)?))
}

impl Disk for JoinedDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.geometry.check_extent_range(&range)?;
        let (_, part) = part_at(&self.parts, range.start).ok_or(io::ErrorKind::InvalidInput)?;
        let start = part.range.start;
        let extent = part.disk.extents(range.start - start..range.end.min(part.range.end) - start)?;
        Ok(Extent { offset_bytes: range.start, ..extent })
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let depth = depth.min(QUEUE_DEPTH_MAX);
        let queues = self.parts.iter().map(|part| part.disk.open_queue(memory, depth));
        let scatter = Scatter::new(queues.collect::<io::Result<_>>()?, depth)?;
        let split = JoinedSplit { parts: Arc::clone(&self.parts), geometry: self.geometry, piece: Vec::new() };
        Ok(Box::new(ScatterQueue::new(scatter, split)))
    }
}

struct JoinedSplit {
    parts: Arc<[Part]>,
    geometry: Geometry,
    /// The segments of the piece that is being sent.
    piece: Vec<Segment>,
}

impl Split for JoinedSplit {
    fn start(&mut self, scatter: &mut Scatter, slot: u16, request: &Request<'_>) -> Result<(), RequestError> {
        self.geometry.check(request)?;
        if request.operation == Operation::Flush {
            return Ok(());
        }
        let (mut at, end) = (request.offset_bytes, request.offset_bytes + request.length_bytes());
        let mut cutter = Cutter::new(request.segments);
        while at < end {
            let (index, part) = part_at(&self.parts, at).ok_or(RequestError::OutOfRange)?;
            let piece_end = end.min(part.range.end);
            cutter.cut(piece_end - at, &mut self.piece);
            scatter.send(slot, index, Operation::Read, at - part.range.start, &self.piece);
            at = piece_end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::tests::rig::Rig;
    use crate::{ExtentKind, MemoryDisk, NullDisk, write_bytes};

    fn joined(lengths: &[u64]) -> JoinedDisk {
        let disk = |(&length, byte)| {
            let disk = MemoryDisk::new(length, 512).unwrap();
            write_bytes(&disk, 0, &vec![byte; length as usize]).unwrap();
            Arc::new(disk) as Arc<dyn Disk>
        };
        JoinedDisk::new(lengths.iter().zip(1..).map(disk).collect()).unwrap()
    }

    #[test]
    fn disks_follow_each_other() {
        let disk = joined(&[1024, 512, 512, 4096]);
        assert_eq!(disk.geometry().capacity_bytes, 6144);
        let wanted = [vec![1; 1024], vec![2; 512], vec![3; 512], vec![4; 4096]].concat();
        let mut rig = Rig::new(&disk, 4);
        for (start, end) in [(0, 6144), (512, 2560), (1024, 1536), (1536, 2048), (5632, 6144)] {
            assert_eq!(rig.read(start as u64, end - start).unwrap(), wanted[start..end], "{start}..{end}");
        }
        assert_eq!(rig.read(6144, 512), Err(RequestError::OutOfRange));
        assert_eq!(rig.read(5632, 1024), Err(RequestError::OutOfRange));
        assert_eq!(rig.write(0, &[0; 512]), Err(RequestError::ReadOnly));
    }

    #[test]
    fn extents_are_those_of_the_disks() {
        let null: Arc<dyn Disk> = Arc::new(NullDisk::new(4096, 512).unwrap());
        let disk = JoinedDisk::new(vec![Arc::clone(&null), Arc::new(joined(&[1024])), null]).unwrap();
        let extent = |start, end| {
            let Extent { offset_bytes, length_bytes, kind } = disk.extents(start..end).unwrap();
            (offset_bytes, length_bytes, kind == ExtentKind::Data)
        };
        assert_eq!(extent(512, 9216), (512, 3584, false));
        assert_eq!(extent(4096, 9216), (4096, 1024, true));
        assert_eq!(extent(5120, 9216), (5120, 4096, false));
        assert!(disk.extents(0..9728).is_err());
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let disk = |bytes, block| Arc::new(NullDisk::new(bytes, block).unwrap()) as Arc<dyn Disk>;
        let refused = |disks| JoinedDisk::new(disks).err().unwrap();
        assert_eq!(refused(vec![]), JoinError::Nothing);
        let unaligned = JoinError::Unaligned { number: 2, capacity_bytes: 512, logical_block_bytes: 4096 };
        assert_eq!(refused(vec![disk(4096, 4096), disk(512, 512)]), unaligned);
        let large = || disk(1 << 62, 512);
        assert_eq!(refused(vec![large(), large()]), JoinError::TooLarge);
    }
}
