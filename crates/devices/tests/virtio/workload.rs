//! Real threads, real kicks: a random workload over several queues against a model of the disk.

use crate::driver::*;
use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryDisk};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

const DISK_BYTES: u64 = 4 << 20;
const QUEUES: u16 = 3;
/// Requests in flight in a queue: each with a part of the disk of its own, so that any order gives one result.
const DEPTH: usize = 6;
const SECTORS_PER_SLOT: u64 = DISK_BYTES / 512 / (QUEUES as u64 * DEPTH as u64);

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// What one slot of a queue has in flight.
enum Pending {
    Write { sector: u64, bytes: Vec<u8> },
    Read { sector: u64, length: usize },
    Flush,
}

struct Workload {
    machine: Machine,
    queues: Vec<DriverQueue>,
    random: Random,
    model: Vec<u8>,
    pending: HashMap<(usize, usize), Pending>,
    indirect: bool,
    event_idx: bool,
}

impl Workload {
    /// Addresses of a slot's parts: header, indirect table, status, data.
    fn places(queue: usize, slot: usize) -> [u64; 4] {
        let control = 0x10_0000 + ((queue * DEPTH + slot) as u64) * 0x1000;
        let data = 0x1a_0000 + ((queue * DEPTH + slot) as u64) * 0x1_0000;
        [control + 3, control + 0x100, control + 0xfff, data]
    }

    fn submit(&mut self, queue: usize, slot: usize) {
        let [header, table, status, data] = Self::places(queue, slot);
        let sector = ((queue * DEPTH + slot) as u64) * SECTORS_PER_SLOT + self.random.below(SECTORS_PER_SLOT - 64);
        let sectors = 1 + self.random.below(64);
        let length = (sectors * 512) as usize;
        let (request_type, pending) = match self.random.below(10) {
            0 => (4, Pending::Flush),
            1..5 => (0, Pending::Read { sector, length }),
            _ => {
                let seed = self.random.below(256) as u8;
                let bytes: Vec<u8> = (0..length).map(|index| seed.wrapping_add(((index * 31) >> 3) as u8)).collect();
                self.machine.memory.guest_memory().write_slice(&bytes, GuestAddress(data)).unwrap();
                (1, Pending::Write { sector, bytes })
            }
        };
        let mut buffers = vec![(header, 16, false)];
        if request_type != 4 {
            // Cut somewhere, at no particular boundary.
            let cut = self.random.below(length as u64);
            let writable = request_type == 0;
            buffers.push((data, cut as u32, writable));
            buffers.push((data + cut, length as u32 - cut as u32, writable));
        }
        buffers.push((status, 1, true));
        let driver = &mut self.queues[queue];
        driver.header(header, request_type, if request_type == 4 { 0 } else { sector });
        driver.put(status, [0xee]);
        let head = (slot * 4) as u16;
        if self.indirect {
            driver.table_at(table, 0, &buffers);
            let place = driver.table + 16 * u64::from(head);
            driver.descriptor_at(place, table, 16 * buffers.len() as u32, INDIRECT_TABLE, 0);
        } else {
            driver.chain_at(head, &buffers);
        }
        let before = driver.available_index;
        driver.publish(head);
        self.pending.insert((queue, slot), pending);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let driver = &self.queues[queue];
        let ring = if self.event_idx { driver.must_ring(before) } else { driver.get16(driver.used) & 1 == 0 };
        if ring {
            self.machine.write(0x50, queue as u32);
        }
    }

    fn reap(&mut self, queue: usize) -> usize {
        let mut reaped = 0;
        while let Some((head, used_bytes)) = self.queues[queue].take_used() {
            reaped += 1;
            let slot = head as usize / 4;
            let [_, _, status, data] = Self::places(queue, slot);
            let memory = self.machine.memory.guest_memory();
            assert_eq!(memory.read_obj::<u8>(GuestAddress(status)).unwrap(), OK);
            match self.pending.remove(&(queue, slot)).expect("completed once") {
                Pending::Flush => assert_eq!(used_bytes, 1),
                Pending::Write { sector, bytes } => {
                    assert_eq!(used_bytes, 1);
                    self.model[sector as usize * 512..][..bytes.len()].copy_from_slice(&bytes);
                }
                Pending::Read { sector, length } => {
                    assert_eq!(used_bytes as usize, length + 1);
                    let mut bytes = vec![0; length];
                    memory.read_slice(&mut bytes, GuestAddress(data)).unwrap();
                    assert!(bytes == self.model[sector as usize * 512..][..length], "sector {sector}");
                }
            }
        }
        reaped
    }
}

fn run(disk: Arc<dyn Disk>, features: u64, threads: usize) {
    // Slots take four descriptors each: 6 × 4 = 24.
    let mut machine = Machine::with_queue_size(disk, QUEUES, 32);
    let queues = machine.start(features | FLUSH | VERSION_1);
    let mut served = std::mem::take(&mut *machine.queues.lock().unwrap());
    let mut workers = Vec::new();
    while !served.is_empty() {
        let share = served.split_off(served.len().saturating_sub(usize::from(QUEUES).div_ceil(threads)));
        workers.push(std::thread::spawn(move || serve(share)));
    }
    let mut workload = Workload {
        machine,
        queues,
        random: Random(0x9e37_79b9_7f4a_7c15),
        model: vec![0; DISK_BYTES as usize],
        pending: HashMap::new(),
        indirect: features & INDIRECT != 0,
        event_idx: features & EVENT_IDX != 0,
    };
    let (mut left, mut progress) = (3000, Instant::now());
    while left > 0 || !workload.pending.is_empty() {
        for queue in 0..usize::from(QUEUES) {
            for slot in 0..DEPTH {
                if left > 0 && !workload.pending.contains_key(&(queue, slot)) && workload.random.below(3) > 0 {
                    workload.submit(queue, slot);
                    left -= 1;
                }
            }
            if workload.reap(queue) > 0 {
                progress = Instant::now();
            }
        }
        assert!(progress.elapsed() < Duration::from_secs(20), "a kick was lost");
    }
    let counts: blockyard_devices::virtio::QueueCounts =
        workload.machine.transport.device().statistics().iter().map(|statistics| statistics.counts()).sum();
    assert_eq!((counts.reads + counts.writes + counts.flushes, counts.errors), (3000, 0));
    assert!(counts.doorbells > 0 && counts.interrupts <= 3000);
    workload.machine.write(0x70, 0);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

fn file_disk(engine: Engine) -> Arc<dyn Disk> {
    let file = File::from(memfd_create("workload", MemfdFlags::CLOEXEC).unwrap());
    ftruncate(&file, DISK_BYTES).unwrap();
    let options = FileOptions { engine, ..FileOptions::default() };
    Arc::new(FileDisk::from_file(file, &options).unwrap())
}

#[test]
fn on_a_synchronous_disk() {
    for (features, threads) in [(0, 1), (EVENT_IDX, 2), (INDIRECT, 1), (INDIRECT | EVENT_IDX, 3)] {
        run(Arc::new(MemoryDisk::new(DISK_BYTES, 512).unwrap()), features, threads);
    }
}

#[test]
fn on_an_asynchronous_disk() {
    for features in [EVENT_IDX, INDIRECT | EVENT_IDX, INDIRECT] {
        run(file_disk(Engine::Threads), features, 1);
        run(file_disk(Engine::Auto), features, 3);
    }
}
