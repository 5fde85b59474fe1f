//! Random requests on disks with random demands, compared with a vector of bytes.

use crate::demanding_disk::{DemandingDisk, Demands};
use crate::rig::{MEMORY_BYTES, Rig, WRITE, cut};
use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryDisk, Operation, RequestError};
use bolero::TypeGenerator;
use std::ops::Range;
use std::sync::Arc;

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

struct Model {
    rig: Rig,
    contents: Vec<u8>,
    pending: Vec<Pending>,
    tokens: u64,
}

pub(crate) fn run(rig: Rig, actions: &[Action]) {
    let mut model = Model { rig, contents: vec![0; DISK_BYTES], pending: Vec::new(), tokens: 0 };
    for action in actions {
        model.act(action);
    }
    model.drain();
    for start in (0..DISK_BYTES).step_by(60_000) {
        let length = (DISK_BYTES - start).min(60_000);
        model.push(Operation::Read, start, length, 3, 1);
        model.drain();
    }
}

impl Model {
    fn act(&mut self, action: &Action) {
        match *action {
            Action::Flush => self.push(Operation::Flush, 0, 0, 0, 0),
            Action::Drain => self.drain(),
            Action::Read { offset, length, memory, pieces } => {
                self.push(Operation::Read, place(offset), length.into(), memory, pieces);
            }
            Action::Write { offset, length, memory, pieces, fill, force_unit_access } => {
                self.write(Operation::Write { force_unit_access }, place(offset), length.into(), memory, pieces, fill);
            }
            Action::WriteSectors { sector, sectors, fill } => {
                self.write(WRITE, usize::from(sector) * 512, usize::from(sectors % 32) * 512, 0, 0, fill);
            }
            Action::WriteZeroes { offset, length, may_unmap } => {
                let operation = Operation::WriteZeroes { length_bytes: length.into(), may_unmap };
                self.push(operation, place(offset), length.into(), 0, 0);
                self.store(place(offset), &vec![0; length.into()]);
            }
            // What it leaves is anything: zero it at once, so that the model knows.
            Action::Discard { offset, length } => {
                self.push(Operation::Discard { length_bytes: length.into() }, place(offset), length.into(), 0, 0);
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
        if let Some(range) = self.contents.get_mut(offset..offset + bytes.len()) {
            range.copy_from_slice(bytes);
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
        let fits = operation == Operation::Flush || offset + length <= DISK_BYTES;
        let expected = if fits { Ok(()) } else { Err(RequestError::OutOfRange) };
        let read =
            (operation == Operation::Read && fits).then(|| (address, self.contents[offset..][..length].to_vec()));
        self.tokens += 1;
        self.rig.push(operation, offset as u64, &cut(address, length, pieces), self.tokens);
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
}

/// Somewhere on the disk or a little behind it.
fn place(offset: u32) -> usize {
    offset as usize % (DISK_BYTES + 4096)
}

#[derive(Clone, Debug, TypeGenerator)]
struct RandomDemands {
    block: u8,
    transfer: u8,
    segments: u8,
    memory: u8,
    depth: u8,
    seed: u64,
}

impl RandomDemands {
    fn demands(&self) -> Demands {
        let block_bytes = 512 << (self.block % 6);
        let blocks = [u64::MAX / u64::from(block_bytes), 1, 2, 3, 16, 100][usize::from(self.transfer % 6)];
        Demands {
            block_bytes,
            transfer_bytes_max: blocks * u64::from(block_bytes),
            segments_max: [32768, 1, 2, 3][usize::from(self.segments % 4)],
            memory_align_bytes: [1, 4, 512, 4096][usize::from(self.memory % 4)].min(block_bytes.max(512)),
            depth: [1, 2, 8, 16][usize::from(self.depth % 4)],
        }
    }
}

#[test]
fn random_requests_do_what_a_vector_does_whatever_the_disk_demands() {
    bolero::check!().with_type::<(RandomDemands, Vec<Action>)>().with_iterations(1500).for_each(|(random, actions)| {
        let memory: Arc<dyn Disk> = Arc::new(MemoryDisk::new(DISK_BYTES as u64, 512).unwrap());
        let disk = DemandingDisk::new(memory, random.demands(), random.seed);
        run(Rig::new(Arc::new(disk), 16), actions);
    });
}

/// A disk whose queue does everything inside `submit`.
#[test]
fn random_requests_do_what_a_vector_does_on_the_callers_thread() {
    bolero::check!().with_type::<Vec<Action>>().with_iterations(30).for_each(|actions| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(DISK_BYTES as u64).unwrap();
        let options = FileOptions { engine: Engine::Sync, direct: true, ..FileOptions::default() };
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::from_file(file, &options).unwrap());
        let rig = Rig::new(disk, 16);
        assert!(rig.queue.completion_event().is_none());
        run(rig, actions);
    });
}
