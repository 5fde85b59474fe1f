//! Requests to a VMDK, split where its pieces meet.

use super::descriptor::ExtentAccess;
use super::flat::Shape;
use crate::formats::scatter::{Cutter, Scatter, ScatterQueue, Split, ring_depth};
use crate::limits::checked_depth;
use crate::{Disk, FileDisk, MemoryMap, Operation, Queue, Request, RequestError, Segment};
use std::io;
use std::sync::Arc;

pub(super) struct VmdkSplit {
    shape: Arc<Shape>,
    memory: MemoryMap,
    files: usize,
    /// The segments of the piece that is being sent.
    piece: Vec<Segment>,
}

impl VmdkSplit {
    pub(super) fn open_queue(
        shape: &Arc<Shape>,
        files: &[FileDisk],
        memory: &MemoryMap,
        depth: usize,
    ) -> io::Result<Box<dyn Queue>> {
        let depth = checked_depth(depth)?;
        let ring_depth = ring_depth(depth, files.len());
        let queues = files.iter().map(|file| file.open_queue(memory, ring_depth)).collect::<io::Result<Vec<_>>>()?;
        let scatter = Scatter::new(queues, depth)?;
        let split = Self { shape: Arc::clone(shape), memory: memory.clone(), files: files.len(), piece: Vec::new() };
        Ok(Box::new(ScatterQueue::new(scatter, split)))
    }
}

impl Split for VmdkSplit {
    fn start(&mut self, scatter: &mut Scatter, slot: u16, request: &Request<'_>) -> Result<(), RequestError> {
        self.shape.geometry.check(request)?;
        if request.operation == Operation::Flush {
            (0..self.files).for_each(|file| scatter.send(slot, file, Operation::Flush, 0, &[]));
            return Ok(());
        }
        let shape = Arc::clone(&self.shape);
        let (mut at, end) = (request.offset_bytes, request.offset_bytes + request.length_bytes());
        let mut cutter = Cutter::new(request.segments);
        while at < end {
            let piece = shape.find(at).ok_or(RequestError::OutOfRange)?;
            let piece_end = piece.end_bytes.min(end);
            let length_bytes = piece_end - at;
            check_access(piece.access, piece.place.is_some(), request.operation)?;
            let whole = length_bytes == request.length_bytes();
            let mut segments = std::mem::take(&mut self.piece);
            if !whole {
                cutter.cut(length_bytes, &mut segments);
            }
            let parts = if whole { request.segments } else { &segments };
            match piece.place {
                Some((file, start_bytes)) => {
                    let offset_bytes = start_bytes + (at - piece.start_bytes);
                    scatter.send(slot, file, resized(request.operation, length_bytes), offset_bytes, parts);
                }
                None if !parts.iter().all(|&segment| self.memory.zero(segment)) => {
                    scatter.fail(slot, RequestError::BadSegment);
                }
                None => {}
            }
            self.piece = segments;
            at = piece_end;
        }
        Ok(())
    }
}

/// The operation on a part of its range.
fn resized(operation: Operation, length_bytes: u64) -> Operation {
    match operation {
        Operation::Discard { .. } => Operation::Discard { length_bytes },
        Operation::WriteZeroes { may_unmap, .. } => Operation::WriteZeroes { length_bytes, may_unmap },
        other => other,
    }
}

fn check_access(access: ExtentAccess, has_storage: bool, operation: Operation) -> Result<(), RequestError> {
    match (access, operation) {
        (ExtentAccess::None, _) => Err(RequestError::Os(libc::EACCES)),
        (_, Operation::Read) => Ok(()),
        // Zeros that stay zeros, and storage that is not there.
        (_, Operation::WriteZeroes { .. } | Operation::Discard { .. }) if !has_storage => Ok(()),
        (ExtentAccess::ReadWrite, _) if has_storage => Ok(()),
        _ => Err(RequestError::ReadOnly),
    }
}
