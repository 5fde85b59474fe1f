//! Requests on their way, and the pieces they go in.

use super::io_buffer::BufferRange;
use blockyard_block::{Operation, Request, RequestError, Segment};

/// What the server is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes {
        unmap: bool,
    },
    /// Zeros as data, for a server that cannot make them.
    WriteOfZeros,
}

/// A place in a request's segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    segment: usize,
    offset_bytes: u32,
}

/// The parts of segments from a cursor on: each within one segment, and no longer than allowed.
#[derive(Clone, Debug)]
pub(super) struct Parts<'a> {
    segments: &'a [Segment],
    pub(super) cursor: Cursor,
    left_bytes: u64,
    part_bytes_max: u32,
}

impl<'a> Parts<'a> {
    /// The parts of `length_bytes` bytes in all, or as many as there are.
    pub(super) fn new(segments: &'a [Segment], cursor: Cursor, length_bytes: u64, part_bytes_max: u32) -> Self {
        Self { segments, cursor, left_bytes: length_bytes, part_bytes_max }
    }
}

impl Iterator for Parts<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        loop {
            let segment = self.segments.get(self.cursor.segment).filter(|_| self.left_bytes > 0)?;
            let room = segment.length_bytes - self.cursor.offset_bytes;
            if room == 0 {
                self.cursor = Cursor { segment: self.cursor.segment + 1, offset_bytes: 0 };
                continue;
            }
            // No more than `room`, so it fits.
            let length_bytes = u64::from(room.min(self.part_bytes_max)).min(self.left_bytes) as u32;
            let offset_bytes = segment.offset_bytes + u64::from(self.cursor.offset_bytes);
            self.cursor.offset_bytes += length_bytes;
            self.left_bytes -= u64::from(length_bytes);
            return Some(Segment { region: segment.region, length_bytes, offset_bytes });
        }
    }
}

/// One of a queue's requests.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) busy: bool,
    pub(super) token: u64,
    /// Which memory its segments lie in.
    pub(super) memory: usize,
    pub(super) work: Work,
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
    /// Kept: a server that takes over from one that died is asked again.
    pub(super) segments: Vec<Segment>,
    /// What the server has been asked to do, from the front.
    pub(super) issued_bytes: u64,
    pub(super) cursor: Cursor,
    /// Pieces that the server has.
    pub(super) pieces: u16,
    /// A flush comes after everything else: of a flush, or of a write that is to be durable.
    pub(super) flush_left: bool,
    /// Whether it is in the backlog.
    pub(super) queued: bool,
    pub(super) result: Result<(), RequestError>,
}

/// What a request needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Its next bytes.
    Bytes,
    /// A flush.
    Flush,
    /// Nothing, or that its pieces come back.
    Nothing,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            busy: false,
            token: 0,
            memory: 0,
            work: Work::Flush,
            offset_bytes: 0,
            length_bytes: 0,
            segments: Vec::with_capacity(8),
            issued_bytes: 0,
            cursor: Cursor::default(),
            pieces: 0,
            flush_left: false,
            queued: false,
            result: Ok(()),
        }
    }

    /// Takes a request whose segments lie in `memory`. `flush` says whether the server has anything to flush.
    pub(super) fn begin(&mut self, memory: usize, request: &Request<'_>, work: Work, flush: bool) {
        self.segments.clear();
        if matches!(work, Work::Read | Work::Write) {
            self.segments.extend_from_slice(request.segments);
        }
        let durable = matches!(request.operation, Operation::Flush | Operation::Write { force_unit_access: true });
        *self = Self {
            busy: true,
            token: request.token,
            memory,
            work,
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes(),
            segments: std::mem::take(&mut self.segments),
            issued_bytes: 0,
            cursor: Cursor::default(),
            pieces: 0,
            flush_left: durable && flush,
            queued: false,
            result: Ok(()),
        };
    }

    pub(super) fn next_step(&self) -> Step {
        match self.result {
            Err(_) => Step::Nothing,
            Ok(()) if self.issued_bytes < self.length_bytes => Step::Bytes,
            Ok(()) if self.flush_left && self.pieces == 0 => Step::Flush,
            Ok(()) => Step::Nothing,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.pieces == 0 && !self.queued && self.next_step() == Step::Nothing
    }
}

/// One request to the server: all of a [`Slot`]'s, or a part. What is needed to ask again is here, not in shared
/// memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) busy: bool,
    pub(super) slot: u16,
    /// Where it stands in the order of pieces.
    pub(super) sequence: u64,
    pub(super) work: Work,
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
    pub(super) cursor: Cursor,
    /// Where in the I/O buffer its data are; none when they are where the request says.
    pub(super) buffer: Option<BufferRange>,
}

impl Piece {
    pub(super) const FREE: Self = Self {
        busy: false,
        slot: 0,
        sequence: 0,
        work: Work::Flush,
        offset_bytes: 0,
        length_bytes: 0,
        cursor: Cursor { segment: 0, offset_bytes: 0 },
        buffer: None,
    };
}
