//! Random drivers: never a panic, never a hang, never a byte touched outside what they say.

use crate::driver::*;
use blockyard_block::MemoryDisk;
use blockyard_devices::QueueCounts;
use bolero::TypeGenerator;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use vm_memory::{Bytes, GuestAddress};

/// Random accesses of all widths, anywhere in the window, on a port that is up or not, with commands in its list.
#[test]
fn random_accesses_to_ports() {
    let disk = Arc::new(MemoryDisk::new(1 << 20, 512).unwrap());
    blockyard_fuzz::check!(1000).with_type::<Vec<(u16, bool, u8, u64)>>().for_each(|accesses| {
        let mut hba = Hba::new(vec![disk.clone(), disk.clone()]);
        if accesses.len() % 2 == 1 {
            hba.start(0);
            let identify = Ata { command: IDENTIFY, ..Ata::default() };
            (0..8).for_each(|slot| hba.prepare(0, slot, &identify, &[(DATA, 512)]));
        }
        for &(offset, write, width, value) in accesses {
            // Often a register of a port that is there, sometimes anything.
            let offset = if width & 0x80 == 0 { u64::from(offset) & 0x1fc } else { u64::from(offset) };
            let mut bytes = value.to_le_bytes();
            let width = if width & 0x40 == 0 { 4 } else { usize::from(width % 9) };
            if write {
                hba.controller.write(offset, &bytes[..width]);
            } else {
                hba.controller.read(offset, &mut bytes[..width]);
            }
            if value & 7 == 0 {
                hba.run();
            }
        }
        hba.run();
    });
}

/// A driver that starts from good commands and spoils some of them.
#[derive(Clone, Debug, TypeGenerator)]
struct Hostile {
    /// Commands, addresses and lengths.
    commands: [(u8, u8, u8); 8],
    changes: Vec<(u8, Change)>,
    /// What it does then: slots, and which registers are written.
    steps: Vec<(u8, u32)>,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Change {
    FrameByte(u8, u8),
    Table(Place),
    Entries(u16),
    Buffer(u8, Place),
    Length(u8, u32),
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Place {
    List(u8),
    Frames,
    Tables(u16),
    Data(u16),
    Edge(u8),
    Anywhere(u64),
}

impl Place {
    fn address(self) -> u64 {
        match self {
            Self::List(offset) => list(0) + u64::from(offset),
            Self::Frames => frames(0),
            Self::Tables(offset) => table(0, 0) + u64::from(offset % 0x2000),
            Self::Data(offset) => DATA + u64::from(offset),
            Self::Edge(before) => MEMORY_BYTES - u64::from(before),
            Self::Anywhere(address) => address,
        }
    }
}

const CANARY: u8 = 0xc5;
const READS: [u8; 8] = [READ_QUEUED, READ_DMA_EXT, 0x24, 0xc8, 0x20, IDENTIFY, READ_LOG, 0x47];
const OTHERS: [u8; 8] = [WRITE_QUEUED, WRITE_DMA_EXT, 0x3d, 0x30, TRIM, FLUSH_EXT, 0xef, 0xe5];

impl Hostile {
    fn command(&self, slot: u8) -> Ata {
        let (kind, lba, blocks) = self.commands[usize::from(slot)];
        let command = if kind & 1 == 0 { READS } else { OTHERS }[usize::from(kind >> 1 & 7)];
        let (lba, blocks) = (u64::from(lba) * 8, u16::from(blocks & 7) + 1);
        match command {
            READ_QUEUED | WRITE_QUEUED => Ata::queued(command, slot, lba, blocks),
            TRIM => Ata { command, features: 1, count: 1, ..Ata::default() },
            READ_LOG | 0x47 => Ata { command, lba: 0x10 * (lba & 8), count: 1, ..Ata::default() },
            0xef => Ata { command, features: if lba & 8 == 0 { 0x82 } else { 0x02 }, ..Ata::default() },
            _ => Ata { command, lba, count: blocks, device: 0x40, ..Ata::default() },
        }
    }

    fn write(&self, hba: &Hba) {
        for slot in 0..8 {
            let place = DATA + 0x1000 * u64::from(slot);
            hba.prepare(0, slot, &self.command(slot), &[(place, 1024), (place + 0x800, 1024), (place + 0xc00, 2048)]);
            let range = (u64::from(self.commands[usize::from(slot)].1) | 8 << 48).to_le_bytes();
            if self.command(slot).command == TRIM {
                hba.put(place, &[range, [0; 8]].concat());
                (2..64).for_each(|entry| hba.put(place + 8 * entry, &[0; 8]));
            }
        }
        for &(slot, change) in self.changes.iter().take(8) {
            let slot = slot & 7;
            let (header, table) = (list(0) + 32 * u64::from(slot), table(0, slot));
            match change {
                Change::FrameByte(at, value) => hba.put(table + u64::from(at % 20), &[value]),
                Change::Table(place) => hba.put(header + 8, &place.address().to_le_bytes()),
                Change::Entries(entries) => hba.put(header + 2, &entries.to_le_bytes()),
                Change::Buffer(at, place) => {
                    hba.put(table + 0x80 + 16 * u64::from(at % 3), &place.address().to_le_bytes());
                }
                Change::Length(at, length) => hba.put(table + 0x8c + 16 * u64::from(at % 3), &length.to_le_bytes()),
            }
        }
    }

    fn step(&self, hba: &mut Hba, step: (u8, u32)) {
        let (what, value) = step;
        match what % 16 {
            0 => hba.set_port(0, CMD, 1 << 4),
            1 => hba.set_port(0, SCTL, value & 5),
            2 => hba.set_port(0, CMD, value & 0x19),
            3 => hba.set_port(0, PORT_IS, value),
            4 => hba.set_port(0, SACT, value & 0xff),
            5 if value & 7 == 0 => hba.write(GHC, value & 3),
            _ => hba.issue(0, value & 0xff, what & 1 == 0),
        }
        if value & 1 << 31 == 0 {
            hba.run();
        }
    }
}

/// What the commands in memory let a device write to: frames, counts of what was moved, and buffers of commands that
/// read.
fn may_change(memory: &[u8]) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    ranges.push(frames(0)..frames(0) + 0x100);
    for slot in 0..32 {
        let header = list(0) + 32 * slot;
        ranges.push(header + 4..header + 8);
        let number = |at: u64, bytes: u64| {
            let bytes = memory.get(at as usize..)?.get(..bytes as usize)?;
            Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
        };
        let (Some(entries), Some(table)) = (number(header + 2, 2), number(header + 8, 8)) else { continue };
        let table = table & !0x7f;
        let Some(command) = number(table.saturating_add(2), 1) else { continue };
        if !READS.contains(&(command as u8)) && command != 0x21 && command != 0xc9 {
            continue;
        }
        for entry in 0..entries {
            let place = table + 0x80 + 16 * entry;
            let (Some(address), Some(flags)) = (number(place, 8), number(place + 12, 4)) else { break };
            let end = address.saturating_add((flags & 0x3f_ffff) + 1).min(MEMORY_BYTES);
            ranges.push(address.min(end)..end);
        }
    }
    ranges
}

/// Whether what a device may write is what it reads next: then nothing can be foretold.
fn changes_itself(ranges: &[Range<u64>]) -> bool {
    // But for the counts in the headers and the frames, which the list lets it write.
    let structures = [list(0)..list(0) + 0x400, table(0, 0)..table(0, 8)];
    let buffers = ranges.iter().filter(|range| !(range.start > list(0) && range.end <= frames(0) + 0x100));
    let meets = |one: &Range<u64>, other: &Range<u64>| one.start < other.end && other.start < one.end;
    buffers.into_iter().any(|range| structures.iter().any(|structure| meets(range, structure)))
}

fn contents(hba: &Hba) -> Vec<u8> {
    let mut bytes = vec![0; MEMORY_BYTES as usize];
    hba.memory.guest_memory().read_slice(&mut bytes, GuestAddress(0)).unwrap();
    bytes
}

#[test]
fn random_commands() {
    let disk = Arc::new(MemoryDisk::new(1 << 20, 512).unwrap());
    let memory = memory();
    let served = Mutex::new(QueueCounts::default());
    blockyard_fuzz::check!(1000).with_type::<Hostile>().for_each(|hostile| {
        memory.guest_memory().write_slice(&[CANARY; MEMORY_BYTES as usize], GuestAddress(0)).unwrap();
        let mut hba = Hba::with_memory(vec![disk.clone()], memory.clone());
        // A list of nothing, as a driver has it.
        hba.put(list(0), &[0; 0x400]);
        hba.start(0);
        hostile.write(&hba);
        let before = contents(&hba);
        let ranges = may_change(&before);
        hba.issue(0, 0xff, hostile.commands[0].0 & 0x80 == 0);
        hba.run();
        for &step in hostile.steps.iter().take(16) {
            hostile.step(&mut hba, step);
        }
        hba.run();
        if !changes_itself(&ranges) {
            let mut expected = before;
            let after = contents(&hba);
            for range in ranges {
                let range = range.start as usize..range.end as usize;
                expected[range.clone()].copy_from_slice(&after[range]);
            }
            assert!(expected == after, "a byte outside the commands' memory was touched");
        }
        let mut served = served.lock().unwrap();
        *served = *served + hba.statistics[0].counts();
    });
    // It is no use if nothing good ever gets through.
    let QueueCounts { reads, writes, flushes, discards, get_ids, errors, .. } = served.into_inner().unwrap();
    let kinds = [reads, writes, flushes, discards, get_ids, errors];
    assert!(kinds.iter().all(|&count| count > 0), "{kinds:?}");
}
