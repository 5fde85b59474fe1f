//! The guest's memory as the guest sees it: the mapped slots, from the lowest address a process may map.

use super::layout::{GUEST_ADDRESS_LIMIT, SLOTS_MAX};
use crate::Error;
use blockyard_block::MemoryMap;
use std::fs::File;
use vm_memory::{Bytes, GuestAddress};

const PAGE_BYTES: u64 = 4096;

/// Longest x86 instruction.
pub(super) const INSTRUCTION_BYTES_MAX: usize = 15;

/// The slots mapped so far.
#[derive(Debug)]
pub(super) struct GuestMemory {
    slots: Vec<Slot>,
    lowest_address: u64,
}

#[derive(Debug)]
struct Slot {
    number: u32,
    address: u64,
    length: u64,
    region: usize,
    memory: MemoryMap,
}

/// A part of a memfd that the guest process maps.
pub(super) struct Mapping<'a> {
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) file: &'a File,
    pub(super) offset: u64,
}

impl GuestMemory {
    pub(super) fn new(lowest_address: u64) -> Self {
        Self { slots: Vec::new(), lowest_address }
    }

    /// The lowest address the guest can reach.
    pub(super) fn lowest_address(&self) -> u64 {
        self.lowest_address
    }

    /// Adds a slot.
    pub(super) fn add(&mut self, number: u32, memory: &MemoryMap, region: usize) -> Result<(), Error> {
        let Some(mut regions) = memory.shared_regions() else {
            return Err(Error::Refused("a guest process cannot map memory that is this process's alone".to_owned()));
        };
        let Some((address, length, _, offset)) = regions.nth(region) else {
            return Err(Error::Refused(format!("the memory map has no region {region}")));
        };
        if self.slots.iter().any(|slot| slot.number == number) {
            return Err(Error::Refused(format!("memory slot {number} is taken")));
        }
        if self.slots.len() >= SLOTS_MAX {
            return Err(Error::Refused(format!("more than {SLOTS_MAX} memory slots")));
        }
        if !address.is_multiple_of(PAGE_BYTES) || !offset.is_multiple_of(PAGE_BYTES) {
            return Err(Error::Refused(format!("the memory region at {address:#x} does not begin at a page")));
        }
        if address.checked_add(length).is_none_or(|end| end > GUEST_ADDRESS_LIMIT) {
            return Err(Error::Refused(format!(
                "the memory region at {address:#x} reaches over {GUEST_ADDRESS_LIMIT:#x}"
            )));
        }
        if self.overlaps(address, length) {
            return Err(Error::Refused(format!("the memory region at {address:#x} overlaps another slot")));
        }
        self.slots.push(Slot { number, address, length, region, memory: memory.clone() });
        Ok(())
    }

    /// What the guest process has to map.
    pub(super) fn mappings(&self) -> impl Iterator<Item = Mapping<'_>> {
        self.slots.iter().filter_map(|slot| {
            let (_, _, file, offset) = slot.memory.shared_regions()?.nth(slot.region)?;
            let hidden = self.lowest_address.saturating_sub(slot.address);
            let length = slot.length.checked_sub(hidden).filter(|&length| length > 0)?;
            Some(Mapping { address: slot.address + hidden, length, file, offset: offset + hidden })
        })
    }

    /// Whether any of the bytes lies in a slot, reachable or not.
    pub(super) fn overlaps(&self, address: u64, length: u64) -> bool {
        let end = address.saturating_add(length);
        self.slots.iter().any(|slot| address < slot.address + slot.length && slot.address < end)
    }

    /// Whether the guest can reach all of these bytes.
    pub(super) fn contains(&self, address: u64, length: u64) -> bool {
        let Some(end) = address.checked_add(length) else { return false };
        let mut at = address;
        while at < end {
            let Some((_, piece)) = self.piece(at, end) else { return false };
            at += piece;
        }
        true
    }

    /// Reads memory the guest can reach, once; false when it cannot reach all of it.
    pub(super) fn read(&self, address: u64, data: &mut [u8]) -> bool {
        let Some(end) = address.checked_add(data.len() as u64) else { return false };
        let (mut at, mut rest) = (address, data);
        while let Some((slot, length)) = self.piece(at, end) {
            let (piece, tail) = rest.split_at_mut(length as usize);
            if slot.memory.guest_memory().read_slice(piece, GuestAddress(at)).is_err() {
                return false;
            }
            rest = tail;
            at += length;
        }
        at == end
    }

    /// Writes memory the guest can reach; false, and nothing written, when it cannot reach all of it.
    pub(super) fn write(&self, address: u64, data: &[u8]) -> bool {
        if !self.contains(address, data.len() as u64) {
            return false;
        }
        let end = address + data.len() as u64;
        let (mut at, mut rest) = (address, data);
        while let Some((slot, length)) = self.piece(at, end) {
            let (piece, tail) = rest.split_at(length as usize);
            if slot.memory.guest_memory().write_slice(piece, GuestAddress(at)).is_err() {
                return false;
            }
            rest = tail;
            at += length;
        }
        at == end
    }

    /// One copy of the instruction bytes at `rip`: fewer than asked where the guest's memory ends, none where it has
    /// none.
    pub(super) fn code(&self, rip: u64) -> Code {
        let mut code = Code { bytes: [0; INSTRUCTION_BYTES_MAX], length: 0 };
        for length in (1..=INSTRUCTION_BYTES_MAX).rev() {
            if self.read(rip, &mut code.bytes[..length]) {
                code.length = length;
                break;
            }
        }
        code
    }

    /// The slot that holds `at`, and how many bytes before `end` it holds from there on; `None` when the guest cannot
    /// reach `at`, or there is nothing before `end`.
    fn piece(&self, at: u64, end: u64) -> Option<(&Slot, u64)> {
        let slot = self.slots.iter().find(|slot| at >= slot.address && at - slot.address < slot.length)?;
        let length = end.min(slot.address + slot.length).checked_sub(at).filter(|&length| length > 0)?;
        (at >= self.lowest_address).then_some((slot, length))
    }
}

/// Instruction bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    bytes: [u8; INSTRUCTION_BYTES_MAX],
    length: usize,
}

impl Code {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reaches_across_slots_and_not_beyond() {
        let map = MemoryMap::allocate(&[(0, 0x20000), (0x20000, 0x1000), (0x40000, 0x1000)]).unwrap();
        let mut memory = GuestMemory::new(0x10000);
        for region in 0..3 {
            memory.add(region as u32, &map, region).unwrap();
        }
        assert!(memory.write(0x1fffe, b"abcd"));
        let mut data = [0; 4];
        assert!(memory.read(0x1fffe, &mut data));
        assert_eq!(&data, b"abcd");
        for (address, length) in [(0xffff, 2), (0, 1), (0x20fff, 2), (0x3ffff, 2), (u64::MAX, 2), (u64::MAX - 1, 2)] {
            let mut data = vec![0; length as usize];
            assert!(!memory.contains(address, length) && !memory.read(address, &mut data), "{address:#x}");
            assert!(!memory.write(address, &data), "{address:#x}");
        }
        assert!(memory.overlaps(0, 1) && memory.overlaps(0x20fff, 2) && !memory.overlaps(0x21000, 0x1f000));
        assert_eq!(memory.code(0x40ffd).bytes().len(), 3);
        assert_eq!(memory.code(0x41000).bytes().len(), 0);
        let mapped: Vec<_> = memory.mappings().map(|part| (part.address, part.length, part.offset)).collect();
        let alone = MemoryMap::allocate_private(&[(0x50000, 0x1000)]).unwrap();
        assert!(memory.add(3, &alone, 0).unwrap_err().to_string().contains("this process's alone"));
        assert_eq!(mapped, [(0x10000, 0x10000, 0x10000), (0x20000, 0x1000, 0), (0x40000, 0x1000, 0)]);
    }
}
