//! A request of the queue above, and how much of it is on its way.

use super::limits::Limits;
use crate::{MemoryMap, Operation, Request, RequestError, Segment};
use std::ops::Range;

/// A slot of the queue.
pub(super) struct Pending {
    pub(super) token: u64,
    pub(super) operation: Operation,
    pub(super) range: Range<u64>,
    segments: Vec<Segment>,
    /// Where on the disk the part begins that is not on its way yet, and where in memory that is.
    position: u64,
    cursor: Cursor,
    /// Pieces on their way.
    pub(super) pieces: u32,
    pub(super) result: Result<(), RequestError>,
    /// Carried out by the merger.
    pub(super) merging: bool,
    /// Its range is published: it is a change of whole blocks.
    pub(super) published: bool,
}

#[derive(Clone, Copy, Default)]
struct Cursor {
    segment: usize,
    skip_bytes: u32,
}

/// Requests with more make room for them once.
const SEGMENTS_USUAL: usize = 16;

impl Pending {
    pub(super) fn new() -> Self {
        Self {
            token: 0,
            operation: Operation::Flush,
            range: 0..0,
            segments: Vec::with_capacity(SEGMENTS_USUAL),
            position: 0,
            cursor: Cursor::default(),
            pieces: 0,
            result: Ok(()),
            merging: false,
            published: false,
        }
    }

    /// Keeps a request, none of which is on its way. Its range must lie on the disk, its segments in memory.
    pub(super) fn begin(&mut self, request: &Request<'_>) {
        self.token = request.token;
        self.operation = request.operation;
        self.range = request.offset_bytes..request.offset_bytes.saturating_add(request.length_bytes());
        self.segments.clear();
        self.segments.extend_from_slice(request.segments);
        self.result = Ok(());
        self.merging = false;
        self.published = false;
        self.begin_again();
    }

    pub(super) fn begin_again(&mut self) {
        self.position = self.range.start;
        self.cursor = Cursor::default();
        self.pieces = 0;
    }

    /// Nothing of it remains to be sent.
    pub(super) fn is_sent(&self) -> bool {
        self.position >= self.range.end
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Counts a piece, of `length_bytes`, as on its way.
    pub(super) fn send(&mut self, length_bytes: u64) {
        self.pieces += 1;
        self.position = self.position.saturating_add(length_bytes);
        self.cursor = self.after(self.cursor, length_bytes);
    }

    /// All that is left.
    pub(super) fn send_rest(&mut self) {
        self.pieces += 1;
        self.position = self.range.end;
    }

    /// Takes the result of a piece. After an error no more are sent. True when it was the last.
    pub(super) fn receive(&mut self, result: Result<(), RequestError>) -> bool {
        self.pieces -= 1;
        if result.is_err() {
            self.result = self.result.and(result);
            self.position = self.range.end;
        }
        self.pieces == 0 && self.is_sent()
    }

    fn after(&self, mut cursor: Cursor, mut length_bytes: u64) -> Cursor {
        while length_bytes > 0 && cursor.segment < self.segments.len() {
            let left = u64::from(self.segments[cursor.segment].length_bytes - cursor.skip_bytes);
            if length_bytes < left {
                // Less than a segment's length.
                cursor.skip_bytes += length_bytes as u32;
                break;
            }
            length_bytes -= left;
            cursor = Cursor { segment: cursor.segment + 1, skip_bytes: 0 };
        }
        cursor
    }

    /// The segments from a cursor on.
    fn segments_from(&self, cursor: Cursor) -> impl Iterator<Item = Segment> {
        let rest = self.segments.get(cursor.segment..).unwrap_or(&[]);
        rest.iter().enumerate().map(move |(n, &segment)| {
            let skip_bytes = if n == 0 { cursor.skip_bytes } else { 0 };
            Segment {
                length_bytes: segment.length_bytes - skip_bytes,
                offset_bytes: segment.offset_bytes + u64::from(skip_bytes),
                ..segment
            }
        })
    }

    /// The longest piece that can go to the disk from where it lies, `ahead_bytes` from here: its length, and its
    /// segments in `segments`. Zero when there is none.
    pub(super) fn longest_piece(&self, limits: &Limits, ahead_bytes: u64, segments: &mut Vec<Segment>) -> u64 {
        segments.clear();
        let unit = limits.block_bytes.max(limits.memory_align_bytes);
        let mut length_bytes = 0;
        for segment in self.segments_from(self.after(self.cursor, ahead_bytes)) {
            let aligned = limits.is_aligned_in_memory(segment.offset_bytes | u64::from(segment.length_bytes));
            if segments.len() == limits.segments_max || length_bytes >= limits.transfer_bytes_max || !aligned {
                break;
            }
            segments.push(segment);
            length_bytes += u64::from(segment.length_bytes);
        }
        let most_bytes = length_bytes.min(limits.transfer_bytes_max);
        // What ends with a segment ends aligned.
        let ends_with_segment = most_bytes == length_bytes && limits.is_whole(length_bytes);
        let length_bytes = if ends_with_segment { length_bytes } else { most_bytes - most_bytes % unit };
        cut(segments, length_bytes);
        length_bytes
    }

    /// Copies the request's bytes for the disk's from `position` on. False when a segment does not lie in its memory.
    pub(super) fn copy(&self, position: u64, memory: &MemoryMap, direction: Direction<'_>) -> bool {
        let (buffers, mut buffer) = match direction {
            Direction::Into(buffers, buffer) | Direction::OutOf(buffers, buffer) => (buffers, buffer),
        };
        for segment in self.segments_from(self.after(Cursor::default(), position - self.range.start)) {
            if buffer.length_bytes == 0 {
                break;
            }
            let length_bytes = segment.length_bytes.min(buffer.length_bytes);
            let theirs = memory.slice(Segment { length_bytes, ..segment });
            let ours = buffers.slice(Segment { length_bytes, ..buffer });
            let (Some(ours), Some(theirs)) = (ours, theirs) else { return false };
            match direction {
                Direction::Into(..) => theirs.copy_to_volatile_slice(ours),
                Direction::OutOf(..) => ours.copy_to_volatile_slice(theirs),
            }
            buffer.offset_bytes += u64::from(length_bytes);
            buffer.length_bytes -= length_bytes;
        }
        true
    }
}

/// Which way a request's bytes go, and the buffer at the other end.
#[derive(Clone, Copy)]
pub(super) enum Direction<'a> {
    Into(&'a MemoryMap, Segment),
    OutOf(&'a MemoryMap, Segment),
}

/// Shortens segments to `length_bytes` all together.
fn cut(segments: &mut Vec<Segment>, length_bytes: u64) {
    let mut room = length_bytes;
    let mut kept = 0;
    for segment in segments.iter_mut() {
        if room == 0 {
            break;
        }
        // At most the segment's length.
        segment.length_bytes = room.min(u64::from(segment.length_bytes)) as u32;
        room -= u64::from(segment.length_bytes);
        kept += 1;
    }
    segments.truncate(kept);
}
