//! Two threads with a queue each, on one image, against a vector of bytes.

use crate::rig::{MEMORY_BYTES, Random, Rig, WRITE, check_clean, open_allowed, pattern, qemu_img, text};
use blockyard_block::{Disk, FileOptions, Operation, Qcow2Backing, Qcow2CreateOptions, Qcow2Disk, Request, Segment};
use std::sync::Arc;
use std::thread;

pub(crate) const DISK_BYTES: usize = 4 << 20;
const BASE_BYTES: usize = (3 << 20) + 512;

/// What belongs to one thread: two clusters and a half, so that clusters at the borders are used by both.
const UNIT_BYTES: usize = 40 << 10;
const CLUSTER_BYTES: u32 = 16 << 10;
const UNITS: usize = DISK_BYTES / UNIT_BYTES;

const BATCHES: u64 = 150;
const BATCH: usize = 16;

/// Every other unit, with what is in it.
struct Half {
    parity: usize,
    contents: Vec<u8>,
    random: Random,
    rig: Rig,
}

/// What one request of a batch does to its unit.
struct Step {
    operation: Operation,
    start: usize,
    length: usize,
    address: usize,
}

impl Half {
    fn run(mut self) -> Vec<u8> {
        for _ in 0..BATCHES {
            self.run_batch();
        }
        self.contents
    }

    fn run_batch(&mut self) {
        let first = self.random.below(UNITS as u64) as usize;
        let parity = self.parity;
        let units = (0..BATCH).map(|n| (first + n) % UNITS).filter(|unit| unit % 2 == parity);
        let steps: Vec<_> = units.enumerate().map(|(n, unit)| self.step(unit, n * UNIT_BYTES)).collect();
        for (token, step) in steps.iter().enumerate() {
            self.push(step, token as u64);
        }
        let mut completions = Vec::new();
        self.rig.queue.drain(&mut completions).unwrap();
        assert_eq!(completions.len(), steps.len());
        assert!(completions.iter().all(|completion| completion.result.is_ok()), "{completions:?}");
        steps.iter().for_each(|step| self.check(step));
    }

    fn step(&mut self, unit: usize, address: usize) -> Step {
        let sectors = UNIT_BYTES as u64 / 512;
        let first = self.random.below(sectors);
        let count = 1 + self.random.below(sectors - first);
        // Often all of it: whole clusters are what is zeroed and freed.
        let (first, count) = if self.random.below(3) == 0 { (0, sectors) } else { (first, count) };
        let (start, length) = (unit * UNIT_BYTES + first as usize * 512, count as usize * 512);
        let length_bytes = length as u64;
        let operation = match self.random.below(10) {
            0..=3 => WRITE,
            4 => Operation::Write { force_unit_access: true },
            5 | 6 => Operation::Read,
            7 => Operation::WriteZeroes { length_bytes, may_unmap: self.random.below(4) > 0 },
            8 => Operation::Discard { length_bytes },
            _ => Operation::Flush,
        };
        Step { operation, start, length, address }
    }

    fn push(&mut self, step: &Step, token: u64) {
        let Step { operation, start, length, address } = *step;
        match operation {
            Operation::Write { .. } => {
                let bytes = pattern(length, self.random.next());
                self.rig.poke(address as u64, &bytes);
                self.contents[start..][..length].copy_from_slice(&bytes);
            }
            Operation::WriteZeroes { .. } => self.contents[start..][..length].fill(0),
            _ => {}
        }
        let segment = Segment { region: 0, length_bytes: length as u32, offset_bytes: address as u64 };
        let transfers = matches!(operation, Operation::Read | Operation::Write { .. });
        let segments: &[Segment] = if transfers { &[segment] } else { &[] };
        let offset_bytes = if operation == Operation::Flush { 0 } else { start as u64 };
        self.rig.queue.push(&Request { operation, offset_bytes, segments, token }).unwrap();
        if token.is_multiple_of(3) {
            self.rig.queue.submit().unwrap();
        }
    }

    fn check(&mut self, step: &Step) {
        let wanted = &mut self.contents[step.start..][..step.length];
        match step.operation {
            Operation::Read => assert!(self.rig.peek(step.address as u64, step.length) == *wanted),
            Operation::Discard { .. } => {
                let found = self.rig.read(step.start as u64, step.length);
                assert!(found.iter().zip(&*wanted).all(|(&now, &before)| now == before || now == 0));
                wanted.copy_from_slice(&found);
            }
            _ => {}
        }
    }
}

#[test]
fn two_queues_do_what_a_vector_does() {
    const { assert!(BATCH * UNIT_BYTES <= MEMORY_BYTES) };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let base = pattern(BASE_BYTES, 1);
    std::fs::write(path("base"), &base).unwrap();
    let backing = Qcow2Backing { name: "base".into(), format: "raw".into() };
    let create = Qcow2CreateOptions {
        cluster_bytes: CLUSTER_BYTES,
        backing: Some(backing),
        ..Qcow2CreateOptions::new(DISK_BYTES as u64)
    };
    let image = path("image.qcow2");
    Qcow2Disk::create(&image, &create).unwrap();
    let mut contents = [base, vec![0; DISK_BYTES - BASE_BYTES]].concat();
    let open = || Arc::new(open_allowed(&image, &FileOptions::default())) as Arc<dyn Disk>;
    do_what_a_vector_does(open, &mut contents, || check_clean(text(&image)));
    std::fs::write(path("raw"), &contents).unwrap();
    qemu_img(&["compare", "-f", "raw", "-F", "qcow2", text(&path("raw")), text(&image)]);
}

/// Two threads change a disk of [`DISK_BYTES`] that holds `contents`, three times; it is closed and checked each time.
pub(crate) fn do_what_a_vector_does(open: impl Fn() -> Arc<dyn Disk>, contents: &mut Vec<u8>, check: impl Fn()) {
    for round in 0..3 {
        let disk = open();
        let threads = [0, 1].map(|parity| {
            let rig = Rig::shared(Arc::clone(&disk), 32);
            let random = Random::new(round * 2 + parity as u64);
            let half = Half { parity, contents: contents.clone(), random, rig };
            thread::spawn(move || half.run())
        });
        let halves = threads.map(|thread| thread.join().unwrap());
        for (unit, bytes) in contents.chunks_mut(UNIT_BYTES).enumerate() {
            bytes.copy_from_slice(&halves[unit % 2][unit * UNIT_BYTES..][..bytes.len()]);
        }
        assert!(Rig::shared(Arc::clone(&disk), 8).read_all() == *contents);
        drop(disk);
        check();
    }
}
