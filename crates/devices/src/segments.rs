//! Copying between bytes and segments of guest memory: for the few that are not moved by a disk.

use blockyard_block::{MemoryMap, Segment};

/// Copies `bytes` to the start of `segments`; `None` when they have no room for them.
pub(crate) fn copy_to_segments(memory: &MemoryMap, segments: &[Segment], mut bytes: &[u8]) -> Option<()> {
    for segment in segments {
        let (part, rest) = bytes.split_at(bytes.len().min(segment.length_bytes as usize));
        memory.slice(*segment)?.copy_from(part);
        bytes = rest;
    }
    bytes.is_empty().then_some(())
}

/// Fills `bytes` from the start of `segments`; `None` when they have fewer.
pub(crate) fn copy_from_segments(memory: &MemoryMap, segments: &[Segment], mut bytes: &mut [u8]) -> Option<()> {
    for segment in segments {
        let (part, rest) = bytes.split_at_mut(bytes.len().min(segment.length_bytes as usize));
        memory.slice(*segment)?.copy_to(part);
        bytes = rest;
    }
    bytes.is_empty().then_some(())
}
