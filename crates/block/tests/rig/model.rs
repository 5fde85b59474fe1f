//! Random requests, compared with a vector of bytes.

use super::{MEMORY_BYTES, Rig, WRITE};
use blockyard_block::{Operation, RequestError};
use bolero::TypeGenerator;
use std::ops::Range;

pub(crate) const DISK_BYTES: usize = 256 << 10;

#[derive(Clone, Debug, TypeGenerator)]
pub(crate) enum Action {
    Read { offset: u32, length: u16, memory: u8, pieces: u8 },
    Write { offset: u32, length: u16, memory: u8, pieces: u8, fill: u8, force_unit_access: bool },
    WriteSectors { sector: u8, sectors: u8, fill: u8 },
    WriteZeroes { offset: u32, length: u16, may_unmap: bool },
    Discard { offset: u32, length: u16 },
    Flush,
    Drain,
}

struct Pending {
    token: u64,
    range: Range<usize>,
    /// Where in memory a read goes, and what it must give.
    read: Option<(u64, Vec<u8>)>,
    expected: Result<(), RequestError>,
}

/// Memory of each request in flight.
const SLOT_BYTES: usize = 128 << 10;
/// What is read at once in the end: not in whole sectors, but for a disk that wants them.
const READ_BYTES: usize = 117 * 512;

/// Runs actions as requests, each in memory of its own, several at once where their ranges do not overlap.
pub(crate) struct Model {
    rig: Rig,
    contents: Vec<u8>,
    /// What offsets and lengths are rounded to.
    pub(crate) unit_bytes: usize,
    pending: Vec<Pending>,
    tokens: u64,
}

/// Runs actions on a disk of zeros that takes anything, and reads all of it.
pub(crate) fn run(rig: Rig, actions: &[Action]) {
    Model::new(rig).run(actions);
}

impl Model {
    /// Of a disk of zeros.
    pub(crate) fn new(rig: Rig) -> Self {
        let capacity = rig.disk.geometry().capacity_bytes as usize;
        let contents = vec![0; capacity];
        Self { rig, contents, unit_bytes: 1, pending: Vec::new(), tokens: 0 }
    }

    /// Runs actions, and reads all of the disk. What it then holds.
    pub(crate) fn run(mut self, actions: &[Action]) -> Vec<u8> {
        for action in actions {
            self.act(action);
        }
        self.drain();
        for start in (0..self.contents.len()).step_by(READ_BYTES) {
            let length = (self.contents.len() - start).min(READ_BYTES);
            self.push(Operation::Read, start, length, 3, 1);
            self.drain();
        }
        self.contents
    }

    fn act(&mut self, action: &Action) {
        let round = |number: usize| number - number % self.unit_bytes;
        let range = |offset: u32, length: u16| (round(self.place(offset)), round(length.into()));
        match *action {
            Action::Flush => self.push(Operation::Flush, 0, 0, 0, 0),
            Action::Drain => self.drain(),
            Action::Read { offset, length, memory, pieces } => {
                let (offset, length) = range(offset, length);
                self.push(Operation::Read, offset, length, memory, pieces);
            }
            Action::Write { offset, length, memory, pieces, fill, force_unit_access } => {
                let (offset, length) = range(offset, length);
                self.write(Operation::Write { force_unit_access }, offset, length, memory, pieces, fill);
            }
            Action::WriteSectors { sector, sectors, fill } => {
                self.write(WRITE, usize::from(sector) * 512, usize::from(sectors % 32) * 512, 0, 0, fill);
            }
            Action::WriteZeroes { offset, length, may_unmap } => {
                let (offset, length) = range(offset, length);
                self.push(Operation::WriteZeroes { length_bytes: length as u64, may_unmap }, offset, length, 0, 0);
                self.store(offset, &vec![0; length]);
            }
            // What it leaves is anything: zero it at once, so that the model knows.
            Action::Discard { offset, length } => {
                let (start, bytes) = range(offset, length);
                self.push(Operation::Discard { length_bytes: bytes as u64 }, start, bytes, 0, 0);
                self.drain();
                self.act(&Action::WriteZeroes { offset, length, may_unmap: false });
            }
        }
    }

    fn write(&mut self, operation: Operation, offset: usize, length: usize, memory: u8, pieces: u8, fill: u8) {
        self.make_room(offset, length);
        let bytes: Vec<_> = (0..length).map(|n| fill.wrapping_add((n / 100) as u8)).collect();
        self.rig.poke(self.slot() + u64::from(memory), &bytes);
        self.push(operation, offset, length, memory, pieces);
        self.store(offset, &bytes);
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        if offset + bytes.len() <= self.contents.len() {
            self.contents[offset..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    fn slot(&self) -> u64 {
        (self.pending.len() * SLOT_BYTES) as u64
    }

    fn make_room(&mut self, offset: usize, length: usize) {
        let overlaps = self.pending.iter().any(|other| other.range.start < offset + length && offset < other.range.end);
        let room = self.rig.queue.depth().min(MEMORY_BYTES / SLOT_BYTES);
        if overlaps || self.pending.len() == room {
            self.drain();
        }
    }

    fn push(&mut self, operation: Operation, offset: usize, length: usize, memory: u8, pieces: u8) {
        self.make_room(offset, length);
        let address = self.slot() + u64::from(memory);
        let fits = operation == Operation::Flush || offset + length <= self.contents.len();
        let expected = if fits { Ok(()) } else { Err(RequestError::OutOfRange) };
        let read =
            (operation == Operation::Read && fits).then(|| (address, self.contents[offset..][..length].to_vec()));
        self.tokens += 1;
        let segments = self.rig.cut(address, length, pieces);
        self.rig.push(operation, offset as u64, &segments, self.tokens);
        if self.tokens.is_multiple_of(3) {
            self.rig.queue.submit().unwrap();
        }
        self.pending.push(Pending { token: self.tokens, range: offset..offset + length, read, expected });
    }

    fn drain(&mut self) {
        let mut completions = self.rig.drain();
        assert_eq!(completions.len(), self.pending.len());
        completions.sort_by_key(|completion| completion.token);
        for (pending, completion) in self.pending.drain(..).zip(completions) {
            assert_eq!((pending.token, pending.expected), (completion.token, completion.result), "{:?}", pending.range);
            if let Some((address, bytes)) = pending.read {
                assert!(self.rig.peek(address, bytes.len()) == bytes, "a read of {:?} differs", pending.range);
            }
        }
    }

    /// Somewhere on the disk or a little behind it.
    fn place(&self, offset: u32) -> usize {
        offset as usize % (self.contents.len() + 4096)
    }
}
