//! Concurrent writes to parts of the same blocks.

use crate::rig::demanding_disk::{DemandingDisk, Demands};
use crate::rig::random::Random;
use crate::rig::{Rig, WRITE};
use blockyard_block::layers::{AlignOptions, AlignedDisk};
use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryDisk, Operation, Segment};
use std::ops::Range;
use std::sync::Arc;

const SECTOR: u64 = 512;
const SECTORS: u64 = 64;

fn shuffling_disk(seed: u64) -> Arc<dyn Disk> {
    let memory: Arc<dyn Disk> = Arc::new(MemoryDisk::new(SECTORS * SECTOR, 512).unwrap());
    let demands = Demands {
        block_bytes: 4096,
        transfer_bytes_max: 16384,
        segments_max: 4,
        memory_align_bytes: 1,
        depth: [1, 3, 8][seed as usize % 3],
    };
    let inner = DemandingDisk::new(memory, demands, seed);
    Arc::new(AlignedDisk::new(Arc::new(inner), &AlignOptions::default()).unwrap())
}

/// A change of whole sectors, all to one value.
#[derive(Debug)]
struct Change {
    sectors: Range<u64>,
    value: u8,
}

/// Pushes a random change: half of them of whole blocks.
fn push_change(rig: &mut Rig, random: &mut Random, n: u64, value: u8) -> Change {
    let in_blocks = random.below(2) == 0;
    let unit = if in_blocks { 8 } else { 1 };
    let start = random.below(SECTORS / unit) * unit;
    let count = (1 + random.below(16 / unit)) * unit;
    let sectors = start..(start + count).min(SECTORS);
    let length_bytes = (sectors.end - sectors.start) * SECTOR;
    let zeroes = random.below(4) == 0;
    let value = if zeroes { 0 } else { value };
    let segment = Segment { region: 0, length_bytes: length_bytes as u32, offset_bytes: n * 65536 };
    rig.poke(segment.offset_bytes, &vec![value; length_bytes as usize]);
    let operation = if zeroes { Operation::WriteZeroes { length_bytes, may_unmap: true } } else { WRITE };
    rig.push(operation, sectors.start * SECTOR, &[segment], n);
    Change { sectors, value }
}

fn read_sectors(rig: &mut Rig) -> Vec<u8> {
    let segment = Segment { region: 0, length_bytes: (SECTORS * SECTOR) as u32, offset_bytes: 0 };
    rig.perform(Operation::Read, 0, &[segment]).unwrap();
    let bytes = rig.peek(0, (SECTORS * SECTOR) as usize);
    bytes
        .chunks(SECTOR as usize)
        .map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
            sector[0]
        })
        .collect()
}

/// Each sector holds afterwards what one of those wrote that wrote to it, or what it held before if none did.
#[test]
fn what_was_written_at_once_is_there_in_some_order() {
    for seed in 0..600 {
        let disk = shuffling_disk(seed);
        let mut random = Random::new(seed);
        let mut rigs: Vec<_> = (0..3).map(|_| Rig::on(Arc::clone(&disk), 8)).collect();
        let mut before = vec![0; SECTORS as usize];
        for round in 0..12 {
            let mut changes = Vec::new();
            let mut completions = Vec::new();
            for token in 0..8 {
                for (n, rig) in rigs.iter_mut().enumerate() {
                    if rig.queue.in_flight() < rig.queue.depth() && random.below(2) == 0 {
                        let value = (1 + round * 20 + n as u64 * 7 + token) as u8;
                        changes.push(push_change(rig, &mut random, token, value));
                    }
                }
                // So that some begin while others are under way.
                let rig = &mut rigs[random.below(3) as usize];
                rig.queue.submit().unwrap();
                rig.queue.reap(&mut completions);
            }
            finish_in_turns(&mut rigs, &mut random);
            let after = read_sectors(&mut rigs[0]);
            for (sector, (&was, &is)) in before.iter().zip(&after).enumerate() {
                let written: Vec<_> = changes
                    .iter()
                    .filter(|change| change.sectors.contains(&(sector as u64)))
                    .map(|c| c.value)
                    .collect();
                let right = if written.is_empty() { is == was } else { written.contains(&is) };
                assert!(right, "seed {seed}, round {round}: sector {sector} was {was}, is {is}: {changes:?}");
            }
            before = after;
        }
    }
}

/// Gets on with one queue or another until all is done; sometimes with one alone until that is done.
fn finish_in_turns(rigs: &mut [Rig], random: &mut Random) {
    for rig in rigs.iter_mut() {
        rig.queue.submit().unwrap();
    }
    let mut completions = Vec::new();
    for _ in 0..random.below(40) {
        let rig = &mut rigs[random.below(3) as usize];
        rig.queue.reap(&mut completions);
    }
    // Each by itself: no queue may wait for another that nobody looks after meanwhile.
    let first = random.below(3) as usize;
    for n in 0..3 {
        completions.extend(rigs[(first + n) % 3].drain());
    }
    assert!(completions.iter().all(|completion| completion.result.is_ok()), "{completions:?}");
}

/// Two threads write every other sector each, over and over, and each finds its own.
fn two_threads_share_blocks(inner: Arc<dyn Disk>, rounds: u8) {
    let disk: Arc<dyn Disk> = Arc::new(AlignedDisk::new(inner, &AlignOptions::default()).unwrap());
    std::thread::scope(|scope| {
        for own in 0..2u64 {
            let disk = Arc::clone(&disk);
            scope.spawn(move || {
                let mut rig = Rig::on(disk, 16);
                for round in 1..=rounds {
                    rig.poke(0, &[round; SECTOR as usize]);
                    let depth = rig.queue.depth() as u64;
                    for first in (0..SECTORS / 2).step_by(depth as usize) {
                        for token in first..(first + depth).min(SECTORS / 2) {
                            let segment = Segment { region: 0, length_bytes: SECTOR as u32, offset_bytes: 0 };
                            rig.push(WRITE, (2 * token + own) * SECTOR, &[segment], token);
                        }
                        assert!(rig.drain().iter().all(|completion| completion.result.is_ok()));
                    }
                    let bytes = SECTORS * SECTOR;
                    let segment = Segment { region: 0, length_bytes: bytes as u32, offset_bytes: 65536 };
                    rig.perform(Operation::Read, 0, &[segment]).unwrap();
                    let read = rig.peek(65536, bytes as usize);
                    for sector in (own..SECTORS).step_by(2) {
                        let sector = sector as usize * SECTOR as usize;
                        assert!(read[sector..][..SECTOR as usize] == [round; SECTOR as usize], "round {round}");
                    }
                }
            });
        }
    });
}

#[test]
fn two_threads_lose_nothing_on_a_disk_of_memory() {
    for seed in 0..20 {
        let memory: Arc<dyn Disk> = Arc::new(MemoryDisk::new(SECTORS * SECTOR, 512).unwrap());
        let demands = Demands {
            block_bytes: 4096,
            transfer_bytes_max: u64::MAX,
            segments_max: 32768,
            memory_align_bytes: 1,
            depth: 16,
        };
        two_threads_share_blocks(Arc::new(DemandingDisk::new(memory, demands, seed)), 20);
    }
}

#[test]
fn two_threads_lose_nothing_in_a_file_past_the_page_cache() {
    for engine in [Engine::Auto, Engine::Threads, Engine::Sync] {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SECTORS * SECTOR).unwrap();
        let options = FileOptions { engine, direct: true, logical_block_bytes: 4096, ..FileOptions::default() };
        two_threads_share_blocks(Arc::new(FileDisk::from_file(file, &options).unwrap()), 20);
    }
}
