//! Random drivers: never a panic, never a hang, never a byte touched outside what the descriptors say.

use crate::driver::*;
use blockyard_block::MemoryDisk;
use bolero::TypeGenerator;
use std::sync::Arc;
use vm_memory::{Bytes, GuestAddress};

/// Random accesses of all widths, anywhere in the window.
#[test]
fn random_register_accesses() {
    let disk = Arc::new(MemoryDisk::new(1 << 20, 512).unwrap());
    bolero::check!().with_type::<Vec<(u16, bool, u8, u64)>>().with_iterations(3000).with_max_len(4096).for_each(
        |accesses| {
            let mut machine = Machine::new(disk.clone(), 2);
            for &(offset, write, width, value) in accesses {
                // Often a register, sometimes anything.
                let offset = if width & 0x80 == 0 { u64::from(offset) & 0x1fc } else { u64::from(offset) };
                let bytes = value.to_le_bytes();
                let width = if width & 0x40 == 0 { 4 } else { usize::from(width % 9) };
                if write {
                    // Nobody runs the queues, so a reset must not wait for them.
                    machine.queues.lock().unwrap().clear();
                    let _ = machine.transport.write(offset, &bytes[..width]);
                } else {
                    machine.transport.read(offset, &mut bytes.clone()[..width]);
                }
            }
        },
    );
}

/// What the memory of a hostile driver is made of.
#[derive(Clone, Debug, TypeGenerator)]
struct Hostile {
    descriptors: Vec<(Place, u16, u8, u8)>,
    indirect: Vec<(Place, u16, u8, u8)>,
    available: Vec<u8>,
    available_index: u8,
    headers: Vec<(u8, u8)>,
    features: u8,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Place {
    Header(u8),
    Arena(u16),
    Table,
    Edge(u8),
    Anywhere(u64),
}

const ARENA: u64 = 0x30_0000;
const HEADERS: u64 = 0x8_0000;
const INDIRECT_PLACE: u64 = 0x9_0000;

impl Place {
    fn address(self) -> u64 {
        match self {
            Self::Header(index) => HEADERS + 16 * u64::from(index % 16),
            Self::Arena(offset) => ARENA + u64::from(offset),
            Self::Table => INDIRECT_PLACE,
            Self::Edge(before) => MEMORY_BYTES - u64::from(before),
            Self::Anywhere(address) => address,
        }
    }
}

impl Hostile {
    /// The descriptors as they are put into memory: (address, length, flags, next).
    fn table(entries: &[(Place, u16, u8, u8)]) -> Vec<(u64, u32, u16, u16)> {
        let table = entries.iter().take(16).map(|&(place, length, flags, next)| {
            let length = match place {
                Place::Header(_) => 16,
                Place::Table => 16 * (u32::from(length) % 20),
                _ if flags & 0x80 != 0 => u32::from(length) << 16,
                // Whole sectors and single bytes, mostly.
                _ if flags & 0x40 == 0 => u32::from(length & 7) * 512,
                _ => u32::from(length % 600),
            };
            let indirect = if matches!(place, Place::Table) { u16::from(flags) & INDIRECT_TABLE } else { 0 };
            (place.address(), length, u16::from(flags) & (NEXT | WRITE) | indirect, u16::from(next % 18))
        });
        table.collect()
    }
}

#[test]
fn random_rings() {
    const CANARY: u8 = 0xc5;
    let disk = Arc::new(MemoryDisk::new(1 << 20, 512).unwrap());
    let clean = vec![CANARY; MEMORY_BYTES as usize];
    bolero::check!().with_type::<Hostile>().with_iterations(2000).with_max_len(4096).for_each(|hostile| {
        let features = if hostile.features & 1 == 0 { ALL_FEATURES } else { VERSION_1 };
        let mut machine = Machine::new(disk.clone(), 1);
        let memory = machine.memory.clone();
        let memory = memory.guest_memory();
        memory.write_slice(&clean, GuestAddress(0)).unwrap();
        let queue = machine.start(features).remove(0);
        // Rings of their own pages, cleared as a driver would.
        memory.write_slice(&[0; 0x9000], GuestAddress(queue.table)).unwrap();
        let tables =
            [(queue.table, Hostile::table(&hostile.descriptors)), (INDIRECT_PLACE, Hostile::table(&hostile.indirect))];
        for (place, table) in &tables {
            for (index, &(address, length, flags, next)) in table.iter().enumerate() {
                queue.descriptor_at(place + 16 * index as u64, address, length, flags, next);
            }
        }
        for (index, &(request_type, sector)) in hostile.headers.iter().take(16).enumerate() {
            queue.header(HEADERS + 16 * index as u64, u32::from(request_type % 16), u64::from(sector) * 9);
        }
        for (index, head) in hostile.available.iter().take(16).enumerate() {
            queue.put16(queue.available + 4 + 2 * index as u64, u16::from(head % 18));
        }
        queue.put16(queue.available + 2, u16::from(hostile.available_index % 20));

        // What may change: the used ring, and the buffers that a descriptor says are writable.
        let mut expected = vec![0; MEMORY_BYTES as usize];
        memory.read_slice(&mut expected, GuestAddress(0)).unwrap();
        let _ = machine.run();
        let mut found = vec![0; MEMORY_BYTES as usize];
        memory.read_slice(&mut found, GuestAddress(0)).unwrap();
        let mut permit = |address: u64, length: u64| {
            let end = address.saturating_add(length).min(MEMORY_BYTES);
            let range = address.min(end) as usize..end as usize;
            expected[range.clone()].copy_from_slice(&found[range]);
        };
        permit(queue.used, 6 + 8 * 16);
        for (address, length, flags, _) in tables.iter().flat_map(|(_, table)| table) {
            if flags & (WRITE | INDIRECT_TABLE) == WRITE {
                permit(*address, u64::from(*length));
            }
        }
        assert!(expected == found, "a byte outside the descriptors was touched");
    });
}
