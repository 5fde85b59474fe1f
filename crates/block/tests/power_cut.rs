//! Nothing that was acknowledged after a flush is lost, whenever the power fails: a writer of numbered records above a
//! log of what reaches the storage, and 500 cuts through that log. Layers that break the promise are caught.

use blockyard_block::layers::{
    Faults, FaultyDisk, PartitionDisk, Replay, ThrottleLimits, ThrottledDisk, WriteLog, WriteLogDisk, layer,
};
use blockyard_block::{Disk, MemoryMap, NullDisk, Operation, Queue, QueueError, Request, Segment};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use vm_memory::{Bytes, GuestAddress};

const BLOCK: usize = 512;
const BLOCKS: u64 = 96;
const CAPACITY: u64 = BLOCKS * BLOCK as u64;
const DEPTH: usize = 8;
const RECORD_BLOCKS_MAX: u64 = 8;
const CUTS: usize = 500;

/// A block of a record says which block it is, of which record, and is filled with what follows from that.
fn record_block(block: u64, record: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    for (index, word) in bytes.chunks_mut(8).enumerate() {
        let value = match index {
            0 => block,
            1 => record,
            _ => (block << 32 | record).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(index as u32),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// The number of the record that a block belongs to: 0 for a block of zeros, `None` for anything but a whole block.
fn record_of(block: u64, bytes: &[u8]) -> Option<u64> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Some(0);
    }
    let record = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    (bytes == record_block(block, record)).then_some(record)
}

/// What the writer knows of one block at one time.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Last record that was acknowledged as flushed: it, or a later one, must be there.
    flushed: u64,
    /// Last record that was issued.
    issued: u64,
}

/// A request of the writer's that is in flight.
enum InFlight {
    Write {
        blocks: Range<u64>,
        record: u64,
        forced: bool,
    },
    /// What was complete, and not yet flushed, when the flush was issued.
    Flush {
        complete: BTreeMap<u64, u64>,
    },
}

/// Writes numbered records wherever it likes, never twice at once to the same block, and flushes now and then.
struct Writer {
    queue: Box<dyn Queue>,
    memory: MemoryMap,
    log: Arc<WriteLog>,
    random: u64,
    record: u64,
    in_flight: BTreeMap<u64, InFlight>,
    /// By block: the last record that is complete and not known to be flushed.
    complete: BTreeMap<u64, u64>,
    /// What became known, and behind how many events of the log.
    facts: Vec<(usize, Fact)>,
}

enum Fact {
    Issued { block: u64, record: u64 },
    Flushed { block: u64, record: u64 },
}

impl Writer {
    fn new(disk: &dyn Disk, log: &Arc<WriteLog>, seed: u64) -> Self {
        let memory = MemoryMap::allocate(&[(0, DEPTH * RECORD_BLOCKS_MAX as usize * BLOCK)]).unwrap();
        let queue = disk.open_queue(&memory, DEPTH).unwrap();
        let (in_flight, complete) = (BTreeMap::new(), BTreeMap::new());
        Self { queue, memory, log: Arc::clone(log), random: seed, record: 0, in_flight, complete, facts: Vec::new() }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.below(8) {
                0 => self.flush(),
                1..=4 => self.write(),
                5 => self.queue.submit().unwrap(),
                _ => self.reap(),
            }
        }
        self.finish();
    }

    fn finish(&mut self) {
        while !self.in_flight.is_empty() {
            self.queue.submit().unwrap();
            self.queue.wait(&[], Some(Duration::from_millis(10))).unwrap();
            self.reap();
        }
    }

    fn free_slot(&self) -> Option<u64> {
        (0..self.queue.depth() as u64).find(|slot| !self.in_flight.contains_key(slot))
    }

    fn write(&mut self) {
        let Some(slot) = self.free_slot() else { return };
        let start = self.below(BLOCKS);
        let blocks = start..(start + 1 + self.below(RECORD_BLOCKS_MAX)).min(BLOCKS);
        let is_busy = self.in_flight.values().any(|in_flight| match in_flight {
            InFlight::Write { blocks: other, .. } => other.start < blocks.end && blocks.start < other.end,
            InFlight::Flush { .. } => false,
        });
        if is_busy {
            return;
        }
        self.record += 1;
        let (record, forced) = (self.record, self.below(6) == 0);
        let bytes: Vec<u8> = blocks.clone().flat_map(|block| record_block(block, record)).collect();
        let offset_bytes = slot * RECORD_BLOCKS_MAX * BLOCK as u64;
        self.memory.guest_memory().write_slice(&bytes, GuestAddress(offset_bytes)).unwrap();
        let segments = [Segment { region: 0, length_bytes: bytes.len() as u32, offset_bytes }];
        let events = self.log.event_count();
        self.facts.extend(blocks.clone().map(|block| (events, Fact::Issued { block, record })));
        let operation = Operation::Write { force_unit_access: forced };
        let offset_bytes = blocks.start * BLOCK as u64;
        self.queue.push(&Request { operation, offset_bytes, segments: &segments, token: slot }).unwrap();
        self.in_flight.insert(slot, InFlight::Write { blocks, record, forced });
    }

    fn flush(&mut self) {
        let Some(slot) = self.free_slot() else { return };
        let request = Request { operation: Operation::Flush, offset_bytes: 0, segments: &[], token: slot };
        self.queue.push(&request).unwrap();
        self.in_flight.insert(slot, InFlight::Flush { complete: self.complete.clone() });
    }

    fn reap(&mut self) {
        let mut completions = Vec::with_capacity(DEPTH);
        self.queue.reap(&mut completions);
        let events = self.log.event_count();
        for completion in completions {
            let in_flight = self.in_flight.remove(&completion.token).unwrap();
            if completion.result.is_err() {
                continue;
            }
            match in_flight {
                InFlight::Write { blocks, record, forced: true } => {
                    self.facts.extend(blocks.map(|block| (events, Fact::Flushed { block, record })));
                }
                InFlight::Write { blocks, record, forced: false } => {
                    self.complete.extend(blocks.map(|block| (block, record)));
                }
                InFlight::Flush { complete } => {
                    let flushed = complete.iter().map(|(&block, &record)| (events, Fact::Flushed { block, record }));
                    self.facts.extend(flushed);
                    self.complete.retain(|block, record| complete.get(block).is_none_or(|flushed| flushed < record));
                }
            }
        }
    }
}

/// What the cuts showed.
#[derive(Debug, Default)]
struct Outcome {
    cuts: usize,
    /// Blocks that were there though they need not have been, and were not there and need not have been.
    spared: usize,
    gone: usize,
    /// The first flushed record that was not there.
    lost: Option<String>,
}

/// Cuts the power at places spread evenly over the log, and looks at every block each time.
fn cut_power(writer: &Writer, image: Vec<u8>, offset_blocks: u64) -> Outcome {
    let recording = writer.log.recording(BLOCK as u32);
    let mut replay = Replay::new(&recording, image);
    let mut facts = writer.facts.iter().peekable();
    let mut known = [Known::default(); BLOCKS as usize];
    let mut outcome = Outcome::default();
    for cut in 0..CUTS {
        let events = cut * recording.event_count() / (CUTS - 1);
        // What is issued behind so many events may be on the disk only after more; what is known to be flushed is
        // there.
        while let Some((_, fact)) = facts.next_if(|(at, _)| *at <= events) {
            match *fact {
                Fact::Issued { block, record } => known[block as usize].issued = record,
                Fact::Flushed { block, record } => {
                    let flushed = &mut known[block as usize].flushed;
                    *flushed = record.max(*flushed);
                }
            }
        }
        let image = replay.cut(events, cut as u64).unwrap();
        outcome.look_at(&image[offset_blocks as usize * BLOCK..], &known, events);
    }
    outcome
}

impl Outcome {
    fn look_at(&mut self, image: &[u8], known: &[Known], events: usize) {
        self.cuts += 1;
        for ((block, bytes), known) in (0..).zip(image.chunks(BLOCK)).zip(known) {
            let record = record_of(block, bytes);
            match record {
                Some(record) if (known.flushed..=known.issued).contains(&record) => {
                    self.spared += usize::from(record > known.flushed);
                    self.gone += usize::from(record < known.issued);
                }
                _ => {
                    let Known { flushed, issued } = known;
                    self.lost.get_or_insert_with(|| {
                        format!("after {events} events block {block} holds {record:?}, not {flushed} to {issued}")
                    });
                }
            }
        }
    }
}

/// The storage: what it holds does not matter, its log does.
fn storage() -> (Arc<dyn Disk>, Arc<WriteLog>) {
    let disk = WriteLogDisk::new(Arc::new(NullDisk::new(CAPACITY * 2, BLOCK as u32).unwrap()));
    let log = Arc::clone(disk.log());
    (Arc::new(disk), log)
}

/// Has records written above `layer` and cuts the power below it.
fn run(seed: u64, layer: impl FnOnce(Arc<dyn Disk>) -> Arc<dyn Disk>) -> Outcome {
    let (storage, log) = storage();
    let mut writer = Writer::new(&*layer(storage), &log, seed);
    writer.run(4000);
    assert!(writer.record > 500 && log.event_count() > 1000, "{} records", writer.record);
    cut_power(&writer, vec![0; CAPACITY as usize * 2], 0)
}

fn assert_nothing_is_lost(outcome: &Outcome) {
    assert_eq!((outcome.cuts, outcome.lost.as_deref()), (CUTS, None));
    // The cuts did take away what they may take away, and not all of it.
    assert!(outcome.spared > 1000 && outcome.gone > 1000, "{outcome:?}");
}

#[test]
fn after_each_of_500_cuts_all_flushed_records_are_there() {
    for seed in 0..4 {
        assert_nothing_is_lost(&run(seed, |storage| storage));
    }
}

#[test]
fn layers_keep_the_promise() {
    assert_nothing_is_lost(&run(10, |storage| {
        let limits = ThrottleLimits { iops: 1_000_000.try_into().ok(), bytes_per_second: None, burst: Duration::ZERO };
        let faults: Faults =
            "write-error:0.02+flush-error:0.05+torn-write:0.02+latency:0s-50us+seed:3".parse().unwrap();
        let partition = Arc::new(PartitionDisk::new(storage, 0..CAPACITY, false).unwrap());
        Arc::new(FaultyDisk::new(Arc::new(ThrottledDisk::new(partition, &limits)), &faults))
    }));
}

#[test]
fn a_partition_keeps_the_promise_where_it_lies() {
    let (storage, log) = storage();
    let partition = PartitionDisk::new(storage, CAPACITY..CAPACITY * 2, false).unwrap();
    let mut writer = Writer::new(&partition, &log, 20);
    writer.run(4000);
    assert_nothing_is_lost(&cut_power(&writer, vec![0; CAPACITY as usize * 2], BLOCKS));
}

#[test]
fn a_disk_that_answers_flushes_without_flushing_is_caught() {
    let outcome = run(0, |disk| Arc::new(Mutant { disk, keeps_flush_every: 0, keeps_forced: true }));
    assert!(outcome.lost.is_some(), "{outcome:?}");
}

#[test]
fn a_disk_that_skips_one_flush_in_ten_is_caught() {
    let outcome = run(0, |disk| Arc::new(Mutant { disk, keeps_flush_every: 10, keeps_forced: true }));
    assert!(outcome.lost.is_some(), "{outcome:?}");
}

#[test]
fn a_disk_that_drops_forced_unit_access_is_caught() {
    let outcome = run(0, |disk| Arc::new(Mutant { disk, keeps_flush_every: 1, keeps_forced: false }));
    assert!(outcome.lost.is_some(), "{outcome:?}");
}

#[test]
fn a_disk_that_loses_writes_is_caught() {
    let faults: Faults = "lost-write:0.01".parse().unwrap();
    let outcome = run(0, |disk| Arc::new(FaultyDisk::new(disk, &faults)));
    assert!(outcome.lost.is_some(), "{outcome:?}");
}

#[test]
fn a_disk_that_tears_writes_silently_is_caught() {
    let faults: Faults = "silent-torn-write:0.01".parse().unwrap();
    let outcome = run(0, |disk| Arc::new(FaultyDisk::new(disk, &faults)));
    assert!(outcome.lost.is_some(), "{outcome:?}");
}

/// A layer that breaks promises.
struct Mutant {
    disk: Arc<dyn Disk>,
    /// 0: no flush goes down. 1: each does. 10: nine of ten do.
    keeps_flush_every: u64,
    keeps_forced: bool,
}

impl layer::DiskLayer for Mutant {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.disk.open_queue(memory, depth)?;
        let Self { keeps_flush_every, keeps_forced, .. } = *self;
        Ok(Box::new(MutantQueue { queue, flushes: 0, keeps_flush_every, keeps_forced }))
    }
}

struct MutantQueue {
    queue: Box<dyn Queue>,
    flushes: u64,
    keeps_flush_every: u64,
    keeps_forced: bool,
}

impl layer::QueueLayer for MutantQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        let operation = match request.operation {
            Operation::Flush => {
                self.flushes += 1;
                let keeps = match self.keeps_flush_every {
                    0 => false,
                    1 => true,
                    every => !self.flushes.is_multiple_of(every),
                };
                // A read of nothing succeeds at once.
                if keeps { Operation::Flush } else { Operation::Read }
            }
            Operation::Write { .. } if !self.keeps_forced => Operation::Write { force_unit_access: false },
            operation => operation,
        };
        self.queue.push(&Request { operation, ..*request })
    }
}
