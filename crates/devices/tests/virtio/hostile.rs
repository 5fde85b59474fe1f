//! Random drivers: never a panic, never a hang, never a byte touched outside what the descriptors say.

use crate::driver::*;
use crate::pci::PciMachine;
use blockyard_block::{MemoryDisk, MemoryMap, NullDisk};
use blockyard_devices::IoQueue;
use blockyard_devices::pci::PciFunction;
use blockyard_devices::virtio::{Limit, QueueCounts};
use bolero::TypeGenerator;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use vm_memory::{Bytes, GuestAddress};

/// Random accesses of all widths, anywhere in the window.
#[test]
fn random_register_accesses() {
    let disk = Arc::new(MemoryDisk::new(1 << 20, 512).unwrap());
    blockyard_fuzz::check!(1000).with_type::<Vec<(u16, bool, u8, u64)>>().for_each(|accesses| {
        let mut machine = Machine::new(disk.clone(), 2);
        // Some from power-on, some on a running device.
        if accesses.len() % 2 == 1 {
            machine.start(ALL_FEATURES);
        }
        for &(offset, write, width, value) in accesses {
            // Often a register, sometimes anything.
            let offset = if width & 0x80 == 0 { u64::from(offset) & 0x1fc } else { u64::from(offset) };
            let mut bytes = value.to_le_bytes();
            let width = if width & 0x40 == 0 { 4 } else { usize::from(width % 9) };
            if write {
                // Nobody runs the queues, so a reset must not wait for them.
                machine.queues.lock().unwrap().clear();
                let _ = machine.transport.write(offset, &bytes[..width]);
            } else {
                machine.transport.read(offset, &mut bytes[..width]);
            }
        }
    });
}

/// The same through the PCI transport's BAR, which is reached at any alignment but never beyond its end.
#[test]
fn random_bar_accesses() {
    let disk = Arc::new(MemoryDisk::new(1 << 20, 512).unwrap());
    blockyard_fuzz::check!(1000).with_type::<Vec<(u16, bool, u8, u64)>>().for_each(|accesses| {
        let mut machine = PciMachine::new(disk.clone());
        if accesses.len() % 2 == 1 {
            machine.start([1, 2]);
        }
        let bytes = u64::from(machine.transport.bars()[0].bytes);
        for &(offset, write, width, value) in accesses {
            // Often the common configuration, sometimes anything.
            let offset = if width & 0x80 == 0 { u64::from(offset) & 0x3f } else { u64::from(offset) };
            let width = 1 << (width & 3);
            let offset = offset.min(bytes - width);
            let mut data = value.to_le_bytes();
            let data = &mut data[..width as usize];
            if write {
                // Nobody runs the queues, so a reset must not wait for them.
                machine.queues.lock().unwrap().clear();
                machine.transport.write(0, offset, data);
            } else {
                machine.transport.read(0, offset, data);
            }
        }
        machine.queues.lock().unwrap().clear();
        // Whatever came before, a driver that begins anew has its device.
        machine.start([1, 2]);
    });
}

/// A driver that starts from good requests and spoils some of them.
#[derive(Clone, Debug, TypeGenerator)]
struct Hostile {
    /// Request types and sectors.
    headers: [(u8, u8); 6],
    /// Changes to the queue's table and, with the top bit of the index, to the indirect table.
    changes: Vec<(u8, Change)>,
    /// Heads that are made available instead of the good ones.
    heads: Vec<u8>,
    available: u8,
    features: u8,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Change {
    Address(Place),
    Length(u16),
    LengthHuge(u32),
    Flags(u8),
    Next(u8),
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Place {
    Header(u8),
    Arena(u16),
    Table,
    Edge(u8),
    Anywhere(u64),
}

impl Place {
    fn address(self) -> u64 {
        match self {
            Self::Header(index) => HEADERS + 16 * u64::from(index % 6),
            Self::Arena(offset) => ARENA + u64::from(offset),
            Self::Table => INDIRECT_PLACE,
            Self::Edge(before) => MEMORY_BYTES - u64::from(before),
            Self::Anywhere(address) => address,
        }
    }
}

const HEADERS: u64 = 0x8_0000;
const INDIRECT_PLACE: u64 = 0x9_0000;
const ARENA: u64 = 0x30_0000;
const STATUSES: u64 = 0x32_0000;
/// Chains of three, and one descriptor for an indirect one.
const CHAINS: u16 = 5;
const CANARY: u8 = 0xc5;

#[derive(Clone, Copy, Default)]
struct Entry {
    address: u64,
    length: u32,
    flags: u16,
    next: u16,
}

impl Entry {
    fn parse(bytes: &[u8; 16]) -> Self {
        let number =
            |range: Range<usize>| bytes[range].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        Self {
            address: number(0..8),
            length: number(8..12) as u32,
            flags: number(12..14) as u16,
            next: number(14..16) as u16,
        }
    }
}

impl Hostile {
    fn request_type(&self, request: usize) -> u32 {
        [0, 0, 1, 1, 4, 8, 11, 13][usize::from(self.headers[request].0 % 8)] + u32::from(self.headers[request].0 > 0xf0)
    }

    /// The three descriptors of a good request, the first at `index` of its table.
    fn good_chain(&self, request: usize, index: u16) -> [Entry; 3] {
        let writable = matches!(self.request_type(request), 0 | 8);
        let length = if self.request_type(request) >= 11 { 16 } else { 512 * (1 + request as u32) };
        let [header, data, status] =
            [HEADERS + 16 * request as u64, ARENA + 0x1000 * request as u64, STATUSES + request as u64];
        [
            Entry { address: header, length: 16, flags: NEXT, next: index + 1 },
            Entry { address: data, length, flags: NEXT | if writable { WRITE } else { 0 }, next: index + 2 },
            Entry { address: status, length: 1, flags: WRITE, next: 0 },
        ]
    }

    /// The queue's table and the indirect one, spoiled.
    fn tables(&self) -> [Vec<Entry>; 2] {
        let mut queue: Vec<_> = (0..CHAINS).flat_map(|chain| self.good_chain(chain.into(), 3 * chain)).collect();
        queue.push(Entry { address: INDIRECT_PLACE, length: 48, flags: INDIRECT_TABLE, next: 0 });
        let mut indirect = self.good_chain(CHAINS.into(), 0).to_vec();
        indirect.resize(QUEUE_SIZE.into(), Entry::default());
        for &(index, change) in self.changes.iter().take(6) {
            let table = if index & 0x80 == 0 { &mut queue } else { &mut indirect };
            let entry = &mut table[usize::from(index % 16)];
            match change {
                Change::Address(place) => entry.address = place.address(),
                Change::Length(length) => entry.length = (length % 2048).into(),
                Change::LengthHuge(length) => entry.length = length,
                Change::Flags(flags) => entry.flags = u16::from(flags),
                Change::Next(next) => entry.next = u16::from(next % 18),
            }
        }
        [queue, indirect]
    }

    fn write(&self, queue: &DriverQueue) {
        for (place, table) in [queue.table, INDIRECT_PLACE].into_iter().zip(&self.tables()) {
            for (index, entry) in table.iter().enumerate() {
                queue.descriptor_at(place + 16 * index as u64, entry.address, entry.length, entry.flags, entry.next);
            }
        }
        for (request, &(_, sector)) in self.headers.iter().enumerate() {
            queue.header(HEADERS + 16 * request as u64, self.request_type(request), u64::from(sector) * 8);
            if self.request_type(request) >= 11 {
                let place = ARENA + 0x1000 * request as u64;
                queue.put(place, (u64::from(sector) * 8).to_le_bytes());
                queue.put(place + 8, [8, 0, 0, 0, sector >> 7, 0, 0, 0]);
            }
        }
        for index in 0..16 {
            let good = 3 * (index as u16 % 6);
            let head = self.heads.get(index).map_or(good, |&head| u16::from(head % 20));
            queue.put16(queue.available + 4 + 2 * index as u64, head);
        }
    }
}

/// What the descriptors in memory say, the queue's and those of the indirect tables that they name, followed or not.
struct Described {
    tables: Vec<Range<u64>>,
    /// What a device may write to.
    buffers: Vec<Range<u64>>,
}

impl Described {
    fn in_memory(memory: &[u8], table: u64) -> Self {
        let mut described = Self { tables: Vec::new(), buffers: Vec::new() };
        for entry in described.read_table(memory, table, 16 * u64::from(QUEUE_SIZE)) {
            if entry.flags & INDIRECT_TABLE != 0 {
                // As far as an index reaches.
                described.read_table(memory, entry.address, u64::from(entry.length).min(16 << 16));
            }
        }
        described
    }

    fn read_table(&mut self, memory: &[u8], address: u64, length: u64) -> Vec<Entry> {
        let range = within_memory(address, length);
        let (entries, _) = memory[range.start as usize..range.end as usize].as_chunks::<16>();
        let entries: Vec<_> = entries.iter().map(Entry::parse).collect();
        self.tables.push(range);
        let is_writable = |entry: &&Entry| entry.flags & (WRITE | INDIRECT_TABLE) == WRITE;
        self.buffers
            .extend(entries.iter().filter(is_writable).map(|entry| within_memory(entry.address, entry.length.into())));
        entries
    }

    /// Whether what a device writes may change what it reads next.
    fn changes_itself(&self) -> bool {
        let meets = |one: &Range<u64>, other: &Range<u64>| one.start < other.end && other.start < one.end;
        self.buffers.iter().any(|buffer| self.tables.iter().any(|table| meets(buffer, table)))
    }
}

/// A driver that asks for very much at once, again and again, into the same memory: each request is nearly 2 GiB.
/// Whoever stops its queue waits for a part of one, and another queue of the thread has its turn after that.
#[test]
fn very_large_reads_are_done_a_part_at_a_time() {
    const PIECES: u16 = 1008;
    // As many pieces at a time as the queue has entries.
    const TURNS: u16 = PIECES / QUEUE_SIZE;
    let (machine, mut queue) = full_of_reads(PIECES);
    for taken in 1..=u64::from(QUEUE_SIZE) {
        for turn in 1..=TURNS {
            assert_eq!(queue.take_used(), None, "before turn {turn}");
            assert!(machine.queues.lock().unwrap()[0].process().unwrap());
            assert_eq!(machine.transport.device().statistics()[0].counts().reads, taken);
        }
        assert_eq!(queue.take_used(), Some((0, u32::from(PIECES) * PIECE + 1)));
    }
    assert!(!machine.queues.lock().unwrap()[0].process().unwrap());
}

/// A disk may do two of them at a time. Of very large ones those are two parts.
#[test]
fn long_reads_are_taken_in_twos_where_that_is_asked_for() {
    for (pieces, pairs, taken) in [(1, false, 1), (1, true, 2), (2, true, 1), (31, true, 1), (1022, true, 1)] {
        let (machine, _queue) = full_of_reads(pieces);
        let limit = Limit { requests: 16, cost_bytes: 256 << 10, pairs };
        machine.queues.lock().unwrap()[0].process_up_to(limit).unwrap();
        let reads = machine.transport.device().statistics()[0].counts().reads;
        assert_eq!(reads, taken, "{pieces} pieces, in twos: {pairs}");
    }
}

/// A request of a few bytes costs its thread time all the same, if it is made of many buffers: what is taken at a turn
/// is less.
#[test]
fn many_small_buffers_are_counted() {
    for (buffers, bytes, taken) in [(8, 64, 16), (512, 1, 2), (1000, 0, 2), (1000, 512, 1)] {
        let (machine, mut queue) = full_of_requests(buffers, bytes);
        let limit = Limit { requests: 16, cost_bytes: 256 << 10, pairs: false };
        machine.queues.lock().unwrap()[0].process_up_to(limit).unwrap();
        let answered = std::iter::from_fn(|| queue.take_used()).count();
        assert_eq!(answered, taken, "{buffers} buffers of {bytes} bytes");
    }
}

const PIECE: u32 = 2 << 20;

/// A queue with as many reads as it holds, each of so many pieces of 2 MiB, all into the same memory.
fn full_of_reads(pieces: u16) -> (Machine, DriverQueue) {
    full_of_requests(pieces, PIECE)
}

/// The same with buffers of so many bytes.
fn full_of_requests(pieces: u16, bytes: u32) -> (Machine, DriverQueue) {
    let mut machine = Machine::new(Arc::new(NullDisk::new(1 << 42, 512).unwrap()), 1);
    let mut queue = machine.start(ALL_FEATURES).remove(0);
    queue.header(HEADERS, 0, 0);
    let mut buffers = vec![(SEAM, bytes, true); usize::from(pieces)];
    buffers.insert(0, (HEADERS, 16, false));
    buffers.push((STATUSES, 1, true));
    queue.table_at(INDIRECT_PLACE, 0, &buffers);
    queue.descriptor_at(queue.table, INDIRECT_PLACE, 16 * buffers.len() as u32, INDIRECT_TABLE, 0);
    (0..QUEUE_SIZE).for_each(|_| queue.publish(0));
    (machine, queue)
}

fn within_memory(address: u64, length: u64) -> Range<u64> {
    let end = address.saturating_add(length).min(MEMORY_BYTES);
    address.min(end)..end
}

/// What is looked at or filled at once: it stays in a processor's cache.
const CHUNK_BYTES: usize = 64 << 10;

/// Memory that is kept from one input to the next, as pages that are touched for the first time cost more than all the
/// rest, and what it holds.
struct Watched {
    memory: MemoryMap,
    expected: Vec<u8>,
}

impl Watched {
    fn new() -> Self {
        let mut watched = Self { memory: memory(), expected: vec![0; MEMORY_BYTES as usize] };
        watched.clear();
        watched
    }

    /// Notes what a driver has written: its queue, headers and indirect table, and ranges to erase.
    fn look_at_the_drivers(&mut self, queue: &DriverQueue) {
        for (start, length) in [(queue.table, 0x9000), (HEADERS, 0x1000), (INDIRECT_PLACE, 0x1000), (ARENA, 0x1_0000)] {
            let bytes = &mut self.expected[start as usize..][..length];
            self.memory.guest_memory().read_slice(bytes, GuestAddress(start)).unwrap();
        }
    }

    /// Whether no byte is another than it was, but in `ranges`.
    fn has_changed_only(&mut self, ranges: &[Range<u64>]) -> bool {
        let mut chunk = [0; CHUNK_BYTES];
        self.expected.chunks_exact_mut(CHUNK_BYTES).zip((0..).step_by(CHUNK_BYTES)).all(|(expected, start)| {
            self.memory.guest_memory().read_slice(&mut chunk, GuestAddress(start)).unwrap();
            if expected != chunk {
                for range in ranges {
                    let [from, to] = [range.start, range.end].map(|at| (at.max(start) - start).min(CHUNK_BYTES as u64));
                    let range = from as usize..to as usize;
                    expected[range.clone()].copy_from_slice(&chunk[range]);
                }
            }
            expected == chunk
        })
    }

    /// Fills it as it is before each input.
    fn clear(&mut self) {
        let clean = [CANARY; CHUNK_BYTES];
        for (expected, start) in self.expected.chunks_exact_mut(CHUNK_BYTES).zip((0..).step_by(CHUNK_BYTES)) {
            if expected != clean {
                expected.copy_from_slice(&clean);
                self.memory.guest_memory().write_slice(&clean, GuestAddress(start)).unwrap();
            }
        }
    }
}

/// What may change is the used ring, and the buffers that a descriptor says are writable: as it was when the device
/// could last read it. Where a request's own bytes may land in a table, requests are made available one by one, and
/// each is judged by the tables that it found.
#[test]
fn random_rings() {
    let disk = Arc::new(MemoryDisk::new(1 << 20, 512).unwrap());
    let watched = Mutex::new(Watched::new());
    let served = Mutex::new(QueueCounts::default());
    blockyard_fuzz::check!(2000).with_type::<Hostile>().for_each(|hostile| {
        let features = if hostile.features > 0x20 { ALL_FEATURES } else { VERSION_1 };
        let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut machine = Machine::with_memory(disk.clone(), watched.memory.clone(), 1, QUEUE_SIZE);
        let queue = machine.start(features).remove(0);
        // Cleared, as a driver would.
        queue.put(queue.table, [0; 0x9000]);
        hostile.write(&queue);

        watched.look_at_the_drivers(&queue);
        let available = u16::from(hostile.available % 18);
        let one_by_one = Described::in_memory(&watched.expected, queue.table).changes_itself();
        for available in if one_by_one { 1..=available } else { available..=available } {
            queue.put16(queue.available + 2, available);
            watched.look_at_the_drivers(&queue);
            let mut may_change = Described::in_memory(&watched.expected, queue.table).buffers;
            may_change.push(queue.used..queue.used + 6 + 8 * u64::from(QUEUE_SIZE));
            let _ = machine.run();
            if !watched.has_changed_only(&may_change) {
                // For the next input.
                *watched = Watched::new();
                panic!("a byte outside the descriptors was touched");
            }
        }
        watched.clear();
        let mut served = served.lock().unwrap();
        *served = *served + machine.transport.device().statistics()[0].counts();
    });
    // It is no use if nothing good ever gets through.
    let QueueCounts { reads, writes, flushes, discards, write_zeroes, get_ids, errors, .. } =
        served.into_inner().unwrap();
    let kinds = [reads, writes, flushes, discards, write_zeroes, get_ids, errors];
    assert!(kinds.iter().all(|&count| count > 0), "{kinds:?}");
}

/// The same for the entropy device, whose requests are such chains, too: it fills some of what it may write.
#[test]
fn random_entropy_rings() {
    let watched = Mutex::new(Watched::new());
    let answered = Mutex::new(0_u64);
    blockyard_fuzz::check!(200).with_type::<Hostile>().for_each(|hostile| {
        let features = if hostile.features > 0x20 { ALL_FEATURES } else { VERSION_1 };
        let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut machine = Machine::with_entropy(watched.memory.clone());
        let mut queue = machine.start(features).remove(0);
        queue.put(queue.table, [0; 0x9000]);
        hostile.write(&queue);
        watched.look_at_the_drivers(&queue);
        let available = u16::from(hostile.available % 18);
        let one_by_one = Described::in_memory(&watched.expected, queue.table).changes_itself();
        for available in if one_by_one { 1..=available } else { available..=available } {
            queue.put16(queue.available + 2, available);
            watched.look_at_the_drivers(&queue);
            let mut may_change = Described::in_memory(&watched.expected, queue.table).buffers;
            may_change.push(queue.used..queue.used + 6 + 8 * u64::from(queue.size));
            let all = Limit { requests: 64, cost_bytes: u64::MAX, pairs: false };
            let is_over = machine.queues.lock().unwrap()[0].process_up_to(all).is_err();
            if !watched.has_changed_only(&may_change) {
                *watched = Watched::new();
                panic!("a byte outside the descriptors was touched");
            }
            *answered.lock().unwrap() += std::iter::from_fn(|| queue.take_used()).count() as u64;
            if is_over {
                break;
            }
        }
        watched.clear();
    });
    assert!(answered.into_inner().unwrap() > 0);
}
