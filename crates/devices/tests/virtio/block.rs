//! Requests of virtio-blk.

use crate::driver::*;
use crate::scripted_disk::ScriptedDisk;
use blockyard_block::{Disk, MemoryDisk, Operation, RequestError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vm_memory::{Bytes, GuestAddress};

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH_REQUEST: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD_REQUEST: u32 = 11;
const WRITE_ZEROES_REQUEST: u32 = 13;

struct Fixture {
    machine: Machine,
    queue: DriverQueue,
}

impl Fixture {
    fn new(disk: Arc<dyn Disk>, features: u64) -> Self {
        let mut machine = Machine::new(disk, 1);
        let queue = machine.start(features).remove(0);
        Self { machine, queue }
    }

    fn memory_disk() -> Self {
        Self::new(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()), ALL_FEATURES)
    }

    /// Runs an ordinary request: its status and the length in the used ring.
    fn run(&mut self, request_type: u32, sector: u64, data: &[(u64, u32, bool)]) -> (u8, u32) {
        self.queue.request(request_type, sector, data);
        self.machine.run().unwrap();
        let (head, used_bytes) = self.queue.take_used().expect("the request was answered");
        assert_eq!((head, self.queue.take_used()), (0, None));
        (self.queue.get_status(), used_bytes)
    }

    /// Runs the chain from descriptor 0.
    fn run_chain(&mut self, buffers: &[(u64, u32, bool)]) -> (u8, u32) {
        self.queue.put(STATUS, [0xee]);
        self.queue.chain_at(0, buffers);
        self.queue.publish(0);
        self.machine.run().unwrap();
        let (_, used_bytes) = self.queue.take_used().expect("the request was answered");
        (self.queue.get_status(), used_bytes)
    }

    fn fill(&self, address: u64, length: usize, seed: u8) -> Vec<u8> {
        let bytes: Vec<u8> =
            (0..length).map(|index| (index as u8).wrapping_mul(7) ^ (index >> 8) as u8 ^ seed).collect();
        self.machine.memory.guest_memory().write_slice(&bytes, GuestAddress(address)).unwrap();
        bytes
    }

    fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.machine.memory.guest_memory().read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }

    fn counts(&self) -> blockyard_devices::virtio::QueueCounts {
        self.machine.transport.device().statistics()[0].counts()
    }

    fn first_fault(&self) -> String {
        self.machine.transport.device().statistics()[0].first_fault().unwrap_or_default().to_owned()
    }
}

#[test]
fn written_bytes_are_read_back() {
    let mut fixture = Fixture::memory_disk();
    let written = fixture.fill(DATA, 3072, 1);
    assert_eq!(fixture.run(OUT, 7, &[(DATA, 1000, false), (DATA + 1000, 2072, false)]), (OK, 1));
    assert_eq!(fixture.run(IN, 7, &[(DATA + 0x1_0000, 1, true), (DATA + 0x1_0001, 3071, true)]), (OK, 3073));
    assert_eq!(fixture.bytes(DATA + 0x1_0000, 3072), written);
    assert_eq!(fixture.run(FLUSH_REQUEST, 0, &[]), (OK, 1));
    let counts = fixture.counts();
    assert_eq!((counts.reads, counts.writes, counts.flushes, counts.errors), (1, 1, 1, 0));
    assert_eq!((counts.bytes_read, counts.bytes_written, counts.interrupts), (3072, 3072, 1));
}

/// Header, data and status may be split and joined in any way, also over the seam of two memory regions.
#[test]
fn framing_makes_no_assumptions() {
    let mut fixture = Fixture::memory_disk();
    let place = SEAM - 20;
    let written = fixture.fill(place + 16, 1024, 2);
    fixture.queue.header(place, OUT, 3);
    assert_eq!(fixture.run_chain(&[(place, 16 + 1024, false), (STATUS, 1, true)]), (OK, 1), "header and data in one");
    fixture.queue.header(place, OUT, 5);
    let pieces = [
        (place, 3, false),
        (place + 3, 0, false),
        (place + 3, 12, false),
        (place + 15, 2, false),
        (place + 17, 1023, false),
        (STATUS, 1, true),
        (STATUS + 1, 0, true),
    ];
    assert_eq!(fixture.run_chain(&pieces), (OK, 1));
    fixture.queue.header(HEADER, IN, 3);
    let target = STATUS - 2048;
    let joined = [(HEADER, 5, false), (HEADER + 5, 11, false), (target, 2049, true)];
    assert_eq!(fixture.run_chain(&joined), (OK, 2049), "data and status in one");
    assert_eq!(fixture.bytes(target, 2048), [&written[..], &written[..]].concat());
}

#[test]
fn indirect_tables() {
    let mut fixture = Fixture::memory_disk();
    let written = fixture.fill(DATA, 60 * 512, 3);
    fixture.queue.header(HEADER, OUT, 0);
    let mut buffers = vec![(HEADER, 16, false)];
    buffers.extend((0..60).map(|index| (DATA + 512 * index, 512, false)));
    buffers.push((STATUS, 1, true));
    // At an odd address, and longer than the queue.
    let table = 0x9_0001;
    fixture.queue.table_at(table, 0, &buffers);
    fixture.queue.descriptor_at(fixture.queue.table, table, 16 * buffers.len() as u32, INDIRECT_TABLE | WRITE, 0);
    fixture.queue.publish(0);
    fixture.machine.run().unwrap();
    assert_eq!((fixture.queue.take_used(), fixture.queue.get_status()), (Some((0, 1)), OK));
    assert_eq!(fixture.run(IN, 0, &[(DATA + 0x8_0000, 60 * 512, true)]), (OK, 60 * 512 + 1));
    assert_eq!(fixture.bytes(DATA + 0x8_0000, 60 * 512), written);
}

#[test]
fn get_id() {
    let mut fixture = Fixture::memory_disk();
    fixture.fill(DATA, 64, 0xff);
    assert_eq!(fixture.run(GET_ID, 0, &[(DATA, 7, true), (DATA + 7, 13, true)]), (OK, 21));
    assert_eq!(&fixture.bytes(DATA, 20), b"serial-0123\0\0\0\0\0\0\0\0\0");
    assert_eq!(fixture.run(GET_ID, 0, &[(DATA, 64, true)]), (OK, 20));
    assert_eq!(fixture.run(GET_ID, 0, &[(DATA, 19, true)]), (IOERR, 0));
    assert_eq!(fixture.counts().get_ids, 2);
}

#[test]
fn discard_and_write_zeroes() {
    let range = |sector: u64, sectors: u32, flags: u32| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&sector.to_le_bytes());
        bytes[8..12].copy_from_slice(&sectors.to_le_bytes());
        bytes[12..].copy_from_slice(&flags.to_le_bytes());
        bytes
    };
    let mut fixture = Fixture::memory_disk();
    fixture.fill(DATA, 4096, 4);
    assert_eq!(fixture.run(OUT, 8, &[(DATA, 4096, false)]), (OK, 1));
    let mut run = |request_type, bytes: [u8; 16]| {
        fixture.queue.put(DATA, bytes);
        fixture.run(request_type, 0, &[(DATA, 5, false), (DATA + 5, 11, false)])
    };
    assert_eq!(run(WRITE_ZEROES_REQUEST, range(9, 2, 0)), (OK, 1));
    assert_eq!(run(WRITE_ZEROES_REQUEST, range(12, 1, 1)), (OK, 1));
    assert_eq!(run(WRITE_ZEROES_REQUEST, range(9, 0, 0)), (OK, 1), "no sectors");
    assert_eq!(run(WRITE_ZEROES_REQUEST, range(9, 2, 2)), (UNSUPP, 1), "an unknown flag");
    assert_eq!(run(DISCARD_REQUEST, range(9, 2, 1)), (UNSUPP, 1), "unmap is not for discards");
    assert_eq!(run(DISCARD_REQUEST, range(9, 2, 0)), (OK, 1));
    assert_eq!(run(DISCARD_REQUEST, range(2047, 2, 0)), (IOERR, 1), "past the end");
    assert_eq!(run(DISCARD_REQUEST, range(u64::MAX, 1, 0)), (IOERR, 1));
    assert_eq!(run(WRITE_ZEROES_REQUEST, range(0, u32::MAX, 0)), (IOERR, 1));
    for length in [0, 15, 17, 32] {
        assert_eq!(fixture.run(DISCARD_REQUEST, 0, &[(DATA, length, false)]), (IOERR, 1), "{length} bytes of ranges");
    }
    assert_eq!(fixture.run(IN, 8, &[(DATA, 4096, true)]), (OK, 4097));
    let zero: Vec<_> =
        (0..8).map(|sector| fixture.bytes(DATA + 512 * sector, 512).iter().all(|&byte| byte == 0)).collect();
    assert_eq!(zero, [false, true, true, false, true, false, false, false]);
    assert_eq!(fixture.counts().bytes_zeroed, 3 * 512);
}

#[test]
fn requests_that_do_not_fit_the_disk() {
    let mut fixture = Fixture::memory_disk();
    for (sector, length) in [(0, 511), (0, 513), (2047, 1024), (2048, 512), (u64::MAX, 512), (1 << 55, 512), (2049, 0)]
    {
        assert_eq!(fixture.run(IN, sector, &[(DATA, length, true)]), (IOERR, u32::from(length == 0)));
        assert_eq!(fixture.run(OUT, sector, &[(DATA, length, false)]), (IOERR, 1));
    }
    assert_eq!(fixture.run(IN, 2047, &[(DATA, 512, true)]), (OK, 513));
    assert_eq!(fixture.run(OUT, 2048, &[]), (OK, 1), "nothing, at the end");
    assert_eq!(fixture.counts().writes, 0);
    let mut fixture = Fixture::new(Arc::new(MemoryDisk::new(1 << 20, 4096).unwrap()), ALL_FEATURES);
    assert_eq!(fixture.run(IN, 8, &[(DATA, 4096, true)]), (OK, 4097));
    assert_eq!(fixture.run(IN, 9, &[(DATA, 4096, true)]), (IOERR, 0), "not at a block");
    assert_eq!(fixture.run(IN, 8, &[(DATA, 512, true)]), (IOERR, 0), "not a block");
}

#[test]
fn unknown_requests_are_unsupported() {
    let mut fixture = Fixture::memory_disk();
    for request_type in [2, 3, 5, 9, 14, 15, 24, 0x8000_0000, u32::MAX] {
        assert_eq!(fixture.run(request_type, 0, &[(DATA, 512, true)]), (UNSUPP, 0));
    }
    assert_eq!(fixture.counts().errors, 9);
}

#[test]
fn features_that_were_not_accepted_are_unsupported() {
    let disk = Arc::new(ScriptedDisk::new(4));
    let mut fixture = Fixture::new(disk.clone(), VERSION_1);
    fixture.queue.put(DATA, [0; 16]);
    assert_eq!(fixture.run(FLUSH_REQUEST, 0, &[]), (UNSUPP, 1));
    assert_eq!(fixture.run(DISCARD_REQUEST, 0, &[(DATA, 16, false)]), (UNSUPP, 1));
    assert_eq!(fixture.run(WRITE_ZEROES_REQUEST, 0, &[(DATA, 16, false)]), (UNSUPP, 1));
    assert!(disk.state.log.lock().unwrap().is_empty());
    // A driver that cannot flush takes writes for stable.
    for (features, force_unit_access) in [(VERSION_1, true), (VERSION_1 | FLUSH, false)] {
        let disk = Arc::new(ScriptedDisk::new(4));
        let mut fixture = Fixture::new(disk.clone(), features);
        fixture.queue.request(OUT, 2, &[(DATA, 512, false), (DATA, 512, false)]);
        fixture.machine.run().unwrap();
        assert_eq!(*disk.state.log.lock().unwrap(), [(Operation::Write { force_unit_access }, 1024, 1024, 2)]);
        disk.state.finish(1, Ok(()));
    }
}

#[test]
fn read_only_disks() {
    let disk = Arc::new(ScriptedDisk::new(4));
    disk.geometry.lock().unwrap().read_only = true;
    let mut machine = Machine::new(disk.clone(), 1);
    let offered = machine.offered();
    assert_eq!((offered & (1 << 5 | DISCARD | WRITE_ZEROES)), 1 << 5);
    let mut fixture = Fixture::new(disk.clone(), ALL_FEATURES);
    assert_eq!(fixture.run(OUT, 0, &[(DATA, 512, false)]), (IOERR, 1));
    assert_eq!(fixture.run(DISCARD_REQUEST, 0, &[(DATA, 16, false)]), (UNSUPP, 1));
    assert!(disk.state.log.lock().unwrap().is_empty());
}

#[test]
fn buffers_outside_memory() {
    let mut fixture = Fixture::memory_disk();
    for (address, length) in
        [(MEMORY_BYTES, 512), (MEMORY_BYTES - 511, 512), (u64::MAX - 511, 512), (u64::MAX - 3, 512)]
    {
        assert_eq!(fixture.run(IN, 0, &[(address, length, true)]), (IOERR, 0));
        assert_eq!(fixture.run(OUT, 0, &[(address, length, false)]), (IOERR, 1));
    }
    assert!(fixture.first_fault().contains("virtio device test, queue 0: a buffer at 0x400000 (512 bytes) is not in"));
    fixture.queue.header(HEADER, IN, 0);
    assert_eq!(fixture.run_chain(&[(u64::MAX - 7, 16, false), (DATA, 512, true), (STATUS, 1, true)]), (IOERR, 0));
    let unreachable = [(HEADER, 16, false), (DATA, 512, true), (MEMORY_BYTES, 1, true)];
    assert_eq!(fixture.run_chain(&unreachable), (0xee, 0), "no status can be written");
    let overflowing = [(HEADER, 16, false), (DATA, 512, true), (u64::MAX, 2, true)];
    assert_eq!(fixture.run_chain(&overflowing), (0xee, 0));
    assert_eq!(fixture.counts().reads, 0);
}

#[test]
fn badly_made_requests() {
    let mut fixture = Fixture::memory_disk();
    fixture.queue.header(HEADER, IN, 0);
    assert_eq!(fixture.run_chain(&[(HEADER, 16, false), (DATA, 512, false)]), (0xee, 0), "nowhere to put a status");
    assert_eq!(fixture.run_chain(&[(HEADER, 15, false), (STATUS, 1, true)]), (IOERR, 1), "a short header");
    assert_eq!(fixture.run_chain(&[(STATUS, 1, true)]), (IOERR, 1), "no header");
    let mixed = [(HEADER, 16, false), (DATA, 512, true), (DATA, 512, false), (STATUS, 1, true)];
    assert_eq!(fixture.run_chain(&mixed), (IOERR, 0), "readable after writable");
    assert_eq!(fixture.counts().reads, 0);
    assert_eq!(fixture.machine.read(0x70), 15, "none of this breaks the device");
}

#[test]
fn more_segments_than_the_disk_takes() {
    let disk = Arc::new(ScriptedDisk::new(4));
    disk.geometry.lock().unwrap().segments_max = 3;
    let mut fixture = Fixture::new(disk.clone(), ALL_FEATURES);
    let buffers = |count: u64| (0..count).map(|index| (DATA + 1024 * index, 512, false)).collect::<Vec<_>>();
    for count in [4, 5, 9] {
        assert_eq!(fixture.run(OUT, 0, &buffers(count)), (IOERR, 1));
    }
    fixture.queue.request(OUT, 0, &buffers(3));
    fixture.machine.run().unwrap();
    assert_eq!(disk.state.log.lock().unwrap().len(), 1);
    disk.state.finish(1, Ok(()));
    fixture.machine.run().unwrap();
    assert_eq!((fixture.queue.take_used(), fixture.queue.get_status()), (Some((0, 1)), OK));
}

#[test]
fn what_the_disk_says_becomes_the_status() {
    let disk = Arc::new(ScriptedDisk::new(4));
    let mut fixture = Fixture::new(disk.clone(), ALL_FEATURES);
    let results = [
        (Ok(()), (OK, 513)),
        (Err(RequestError::Unsupported), (UNSUPP, 0)),
        (Err(RequestError::Os(5)), (IOERR, 0)),
        (Err(RequestError::Truncated), (IOERR, 0)),
    ];
    for (result, (status, used_bytes)) in results {
        fixture.queue.request(IN, 0, &[(DATA, 512, true)]);
        fixture.machine.run().unwrap();
        assert_eq!((fixture.queue.take_used(), fixture.queue.get_status()), (None, 0xee));
        assert_eq!(fixture.machine.queues.lock().unwrap()[0].in_flight(), 1);
        disk.state.finish(1, result);
        fixture.machine.run().unwrap();
        assert_eq!((fixture.queue.take_used(), fixture.queue.get_status()), (Some((0, used_bytes)), status));
    }
    assert_eq!((fixture.counts().bytes_read, fixture.counts().errors), (512, 3));
    let first_error = fixture.machine.transport.device().statistics()[0].first_error();
    assert_eq!(first_error, Some(RequestError::Os(5)), "what it does not do, it has not failed at");
}

/// No more requests go to the disk than it carries; the rest wait in the ring.
#[test]
fn the_disks_depth_is_kept() {
    let disk = Arc::new(ScriptedDisk::new(3));
    let mut fixture = Fixture::new(disk.clone(), ALL_FEATURES);
    fixture.queue.header(HEADER, IN, 0);
    for head in (0..15).step_by(3) {
        fixture.queue.chain_at(head, &[(HEADER, 16, false), (DATA, 512, true), (STATUS, 1, true)]);
        fixture.queue.publish(head);
    }
    fixture.machine.run().unwrap();
    assert_eq!(disk.state.log.lock().unwrap().len(), 3);
    disk.state.finish(2, Ok(()));
    fixture.machine.run().unwrap();
    assert_eq!(disk.state.log.lock().unwrap().len(), 5);
    disk.state.finish(3, Ok(()));
    fixture.machine.run().unwrap();
    let heads: Vec<_> = std::iter::from_fn(|| fixture.queue.take_used()).map(|(head, _)| head).collect();
    assert_eq!(heads, [6, 3, 12, 9, 0], "in the order of the disk");
}

#[test]
fn interrupts_are_suppressed_as_the_driver_wants() {
    let interrupts = |fixture: &Fixture| fixture.machine.interrupts.0.load(Ordering::SeqCst);
    // Without EVENT_IDX: a flag (§2.7.7).
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(1 << 20, 512).unwrap());
    let mut fixture = Fixture::new(disk.clone(), FLUSH);
    fixture.run(FLUSH_REQUEST, 0, &[]);
    assert_eq!((interrupts(&fixture), fixture.machine.read(0x60)), (1, 1));
    assert_eq!(fixture.queue.get16(fixture.queue.used), 0, "armed");
    fixture.queue.put16(fixture.queue.available, 1);
    fixture.run(FLUSH_REQUEST, 0, &[]);
    assert_eq!(interrupts(&fixture), 1);
    // With it: an index.
    let mut fixture = Fixture::new(disk, FLUSH | EVENT_IDX);
    let used_event = fixture.queue.available + 4 + 2 * u64::from(QUEUE_SIZE);
    fixture.queue.put16(used_event, 2);
    for expected in [0, 0, 1, 1] {
        fixture.run(FLUSH_REQUEST, 0, &[]);
        assert_eq!(interrupts(&fixture), expected);
    }
    assert_eq!(fixture.queue.get16(fixture.queue.used + 4 + 8 * u64::from(QUEUE_SIZE)), 4, "ring for the fifth");
    assert!(!fixture.queue.must_ring(4));
    fixture.queue.publish(0);
    assert!(fixture.queue.must_ring(4));
}

/// A disk that does one thing at a time: the driver hears of each before the next.
#[test]
fn one_at_a_time_is_signalled_one_by_one() {
    let mut fixture = Fixture::new(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()), FLUSH);
    fixture.queue.header(HEADER, FLUSH_REQUEST, 0);
    fixture.queue.chain_at(0, &[(HEADER, 16, false), (STATUS, 1, true)]);
    (0..8).for_each(|_| fixture.queue.publish(0));
    fixture.machine.run().unwrap();
    assert_eq!(fixture.counts().interrupts, 8);
}

#[test]
fn the_disk_grows() {
    let disk = Arc::new(ScriptedDisk::new(4));
    let mut fixture = Fixture::new(disk.clone(), ALL_FEATURES);
    assert_eq!(fixture.run(IN, 2048, &[(DATA, 512, true)]), (IOERR, 0));
    disk.geometry.lock().unwrap().capacity_bytes = 2 << 20;
    disk.generation.store(1, Ordering::Relaxed);
    fixture.queue.request(IN, 2048, &[(DATA, 512, true)]);
    fixture.machine.run().unwrap();
    assert_eq!(disk.state.log.lock().unwrap().len(), 1);
    disk.state.finish(1, Ok(()));
}
