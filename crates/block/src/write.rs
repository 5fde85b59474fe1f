//! Writing a few bytes to a disk, for whoever makes what is on it.

use crate::read::perform;
use crate::{Disk, MemoryMap, Operation, Segment};
use std::io;
use vm_memory::Bytes;

/// Writes `bytes` from `offset_bytes` on, both multiples of the disk's logical block. For tables and headers, not for
/// data. Nothing is flushed.
///
/// # Errors
/// When memory or a queue cannot be had, and the disk's own errors.
pub fn write_bytes(disk: &dyn Disk, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
    let length_bytes = u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    if bytes.is_empty() {
        return Ok(());
    }
    let memory = MemoryMap::allocate(&[(0, bytes.len())]).map_err(io::Error::other)?;
    let segment = Segment { region: 0, length_bytes, offset_bytes: 0 };
    let slice = memory.slice(segment).expect("the segment is all of the only region");
    slice.write_slice(bytes, 0).map_err(io::Error::other)?;
    let mut queue = disk.open_queue(&memory, 1)?;
    perform(&mut *queue, Operation::Write { force_unit_access: false }, offset_bytes, &[segment])
}

/// Makes stable what was written to a disk.
///
/// # Errors
/// When a queue cannot be had, and the disk's own errors.
pub fn flush(disk: &dyn Disk) -> io::Result<()> {
    // No flush points into it, but a map has at least one region.
    let memory = MemoryMap::allocate(&[(0, 4096)]).map_err(io::Error::other)?;
    let mut queue = disk.open_queue(&memory, 1)?;
    perform(&mut *queue, Operation::Flush, 0, &[])
}
