//! A disk that holds nothing: reads give zeros, writes vanish.

use crate::immediate_queue::ImmediateQueue;
use crate::{Disk, Extent, ExtentKind, Geometry, MemoryMap, Operation, Queue, Request, RequestError, SEGMENTS_MAX};
use std::io;
use std::ops::Range;

/// A disk without storage, for measuring everything else.
#[derive(Clone, Copy, Debug)]
pub struct NullDisk {
    geometry: Geometry,
}

impl NullDisk {
    /// A disk of at least `capacity_bytes`, rounded up to whole logical blocks of `logical_block_bytes`.
    ///
    /// # Errors
    /// When the block size is not a power of two from 512 to 65536, or the rounded capacity overflows.
    pub fn new(capacity_bytes: u64, logical_block_bytes: u32) -> io::Result<Self> {
        crate::file::check_logical_block(logical_block_bytes).map_err(io::Error::other)?;
        let capacity_bytes = capacity_bytes
            .checked_next_multiple_of(u64::from(logical_block_bytes))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the capacity is too large"))?;
        let geometry = Geometry {
            capacity_bytes,
            logical_block_bytes,
            physical_block_bytes: logical_block_bytes,
            optimal_io_bytes: 0,
            segments_max: SEGMENTS_MAX,
            transfer_bytes_max: u64::MAX,
            memory_align_bytes: 1,
            read_only: false,
            discard: true,
            write_zeroes: true,
        };
        Ok(Self { geometry })
    }
}

impl Disk for NullDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.geometry.check_extent_range(&range)?;
        Ok(Extent { offset_bytes: range.start, length_bytes: range.end - range.start, kind: ExtentKind::Hole })
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let (geometry, memory) = (self.geometry, memory.clone());
        ImmediateQueue::boxed(depth, move |request| perform(&geometry, &memory, request))
    }
}

fn perform(geometry: &Geometry, memory: &MemoryMap, request: &Request<'_>) -> Result<(), RequestError> {
    geometry.check(request)?;
    match request.operation {
        Operation::Read => {
            let all_inside = request.segments.iter().all(|&segment| memory.contains(segment));
            if !all_inside {
                return Err(RequestError::BadSegment);
            }
            request.segments.iter().for_each(|&segment| {
                memory.zero(segment);
            });
            Ok(())
        }
        Operation::Write { .. } => {
            let all_inside = request.segments.iter().all(|&segment| memory.contains(segment));
            all_inside.then_some(()).ok_or(RequestError::BadSegment)
        }
        Operation::Flush | Operation::Discard { .. } | Operation::WriteZeroes { .. } => Ok(()),
    }
}
