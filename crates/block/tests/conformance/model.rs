//! Random requests on every engine, compared with a vector of bytes.

use crate::on_every_engine;
use crate::rig::{Rig, WRITE, options, pattern, request};
use blockyard_block::{Disk, Engine, FileOptions, Operation, RequestError};
use bolero::TypeGenerator;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::unix::fs::FileExt;

on_every_engine!(random_requests_do_what_a_vector_does);

const FILE_BYTES: usize = 200_001;
const BLOCK_BYTES: u32 = 4096;

#[derive(Clone, Debug, TypeGenerator)]
enum Action {
    Read { offset: u32, length: u16, pieces: u8 },
    Write { offset: u32, length: u16, pieces: u8, seed: u8, force_unit_access: bool },
    WriteZeroes { offset: u32, length: u16, may_unmap: bool },
    Flush,
    Drain,
}

/// Runs actions as requests, each in memory of its own, several at once where their ranges do not overlap.
struct Model {
    rig: Rig,
    contents: Vec<u8>,
    capacity: usize,
    pending: Vec<Pending>,
}

struct Pending {
    start: usize,
    end: usize,
    /// Where in memory, and what a read gives.
    read: Option<(u64, Vec<u8>)>,
    expected: Result<(), RequestError>,
}

/// Memory of each request in flight.
const SLOT_BYTES: usize = 1 << 17;

fn random_requests_do_what_a_vector_does(engine: Engine) {
    bolero::check!().with_type::<Vec<Action>>().with_iterations(400).for_each(|actions| {
        let file = File::from(memfd_create("model", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(FILE_BYTES as u64).unwrap();
        let mut model = Model::new(engine, file.try_clone().unwrap());
        for action in actions {
            model.run(action);
        }
        model.drain();
        let mut contents = vec![0; FILE_BYTES];
        file.read_exact_at(&mut contents, 0).unwrap();
        assert!(contents == model.contents[..FILE_BYTES]);
        assert_eq!(file.metadata().unwrap().len(), FILE_BYTES as u64);
    });
}

impl Model {
    fn new(engine: Engine, file: File) -> Self {
        let options = FileOptions { logical_block_bytes: BLOCK_BYTES, ..options(engine) };
        let rig = Rig::from_file(file, &options);
        let capacity = rig.disk.geometry().capacity_bytes as usize;
        Self { rig, contents: vec![0; capacity], capacity, pending: Vec::new() }
    }

    fn run(&mut self, action: &Action) {
        match *action {
            Action::Drain => self.drain(),
            Action::Flush => self.push(Operation::Flush, 0, 0, 0),
            Action::Read { offset, length, pieces } => {
                self.push(Operation::Read, offset as usize, usize::from(length), pieces);
            }
            Action::Write { offset, length, pieces, seed, force_unit_access } => {
                let (offset, length) = (self.place(offset as usize), usize::from(length));
                self.make_room(offset, length);
                let bytes = pattern(length, u64::from(seed));
                self.rig.poke(self.slot(), &bytes);
                self.push(Operation::Write { force_unit_access }, offset, length, pieces);
                if offset + length <= self.capacity {
                    self.store(offset, &bytes);
                }
            }
            Action::WriteZeroes { offset, length, may_unmap } => {
                let (offset, length) = (self.place(offset as usize), usize::from(length));
                self.push(Operation::WriteZeroes { length_bytes: length as u64, may_unmap }, offset, length, 0);
                if offset + length <= self.capacity {
                    self.store(offset, &vec![0; length]);
                }
            }
        }
    }

    /// Somewhere on the disk or a little behind it.
    fn place(&self, offset: usize) -> usize {
        offset % (self.capacity + 4096)
    }

    fn slot(&self) -> u64 {
        (self.pending.len() * SLOT_BYTES) as u64
    }

    /// What goes behind the end of the file is gone.
    fn store(&mut self, offset: usize, bytes: &[u8]) {
        let kept = bytes.len().min(FILE_BYTES.saturating_sub(offset));
        self.contents[offset..][..kept].copy_from_slice(&bytes[..kept]);
    }

    fn make_room(&mut self, offset: usize, length: usize) {
        let overlaps = self.pending.iter().any(|other| other.start < offset + length && offset < other.end);
        if overlaps || self.pending.len() == self.rig.queue.depth() {
            self.drain();
        }
    }

    fn push(&mut self, operation: Operation, offset: usize, length: usize, pieces: u8) {
        let offset = self.place(offset);
        let end = offset + length;
        self.make_room(offset, length);
        let has_segments = matches!(operation, Operation::Read | Operation::Write { .. });
        let segments = if has_segments { self.cut(length, usize::from(pieces)) } else { Vec::new() };
        let token = self.pending.len() as u64;
        let offset_bytes = if operation == Operation::Flush { 0 } else { offset as u64 };
        let inside = end <= self.capacity || operation == Operation::Flush;
        let expected = if inside { Ok(()) } else { Err(RequestError::OutOfRange) };
        let read = (operation == Operation::Read && inside).then(|| (self.slot(), self.contents[offset..end].to_vec()));
        self.rig.queue.push(&request(operation, offset_bytes, &segments, token)).unwrap();
        if token % 3 == 2 {
            self.rig.queue.submit().unwrap();
        }
        self.pending.push(Pending { start: offset, end, read, expected });
    }

    /// The request's memory in up to `pieces` + 1 segments.
    fn cut(&self, length: usize, pieces: usize) -> Vec<blockyard_block::Segment> {
        let piece = length.div_ceil(pieces + 1).max(1);
        (0..length)
            .step_by(piece)
            .flat_map(|start| self.rig.segments(self.slot() + start as u64, piece.min(length - start)))
            .collect()
    }

    fn drain(&mut self) {
        let mut completions = self.rig.drain();
        assert_eq!(completions.len(), self.pending.len());
        completions.sort_by_key(|completion| completion.token);
        for (completion, pending) in completions.iter().zip(self.pending.drain(..)) {
            assert_eq!(completion.result, pending.expected);
            if let Some((address, bytes)) = pending.read {
                assert!(self.rig.peek(address, bytes.len()) == bytes);
            }
        }
    }
}

#[test]
fn the_same_requests_on_a_null_disk_end_the_same_way() {
    let disk = blockyard_block::NullDisk::new(1 << 20, 512).unwrap();
    let rig = Rig::new(Engine::Sync, &[]);
    let mut queue = disk.open_queue(&rig.memory, 2).unwrap();
    rig.poke(0, &[7; 1024]);
    let segments = rig.segments(0, 512);
    queue.push(&request(Operation::Read, 0, &segments, 1)).unwrap();
    queue.push(&request(WRITE, 1 << 20, &segments, 2)).unwrap();
    assert!(queue.push(&request(Operation::Flush, 0, &[], 3)).is_err());
    let mut completions = Vec::new();
    queue.reap(&mut completions);
    assert!(completions.is_empty());
    queue.drain(&mut completions).unwrap();
    assert_eq!(completions[0].result, Ok(()));
    assert_eq!(completions[1].result, Err(RequestError::OutOfRange));
    assert_eq!(rig.peek(0, 1024), [vec![0; 512], vec![7; 512]].concat());
}
