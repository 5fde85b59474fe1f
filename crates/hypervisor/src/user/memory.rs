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

/// A range within one slot: the slot, the address and the length.
type Piece<'a> = (&'a Slot, u64, usize);

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
        let Some((address, length, _, offset)) = memory.regions().nth(region) else {
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
            return Err(Error::Refused(format!("the memory region at {address:#x} reaches over {GUEST_ADDRESS_LIMIT:#x}")));
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
            let (_, _, file, offset) = slot.memory.regions().nth(slot.region)?;
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
        self.pieces(address, length).is_some()
    }

    /// Reads memory the guest can reach, once; false when it cannot reach all of it.
    pub(super) fn read(&self, address: u64, data: &mut [u8]) -> bool {
        let Some(pieces) = self.pieces(address, data.len() as u64) else { return false };
        let mut rest = data;
        pieces.iter().all(|&(slot, address, length)| {
            let (piece, tail) = std::mem::take(&mut rest).split_at_mut(length);
            rest = tail;
            slot.memory.guest_memory().read_slice(piece, GuestAddress(address)).is_ok()
        })
    }

    /// Writes memory the guest can reach; false, and nothing written, when it cannot reach all of it.
    pub(super) fn write(&self, address: u64, data: &[u8]) -> bool {
        let Some(pieces) = self.pieces(address, data.len() as u64) else { return false };
        let mut rest = data;
        pieces.iter().all(|&(slot, address, length)| {
            let (piece, tail) = rest.split_at(length);
            rest = tail;
            slot.memory.guest_memory().write_slice(piece, GuestAddress(address)).is_ok()
        })
    }

    /// One copy of the instruction bytes at `rip`: fewer than asked where the guest's memory ends, none where it has none.
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

    /// The range cut at slot borders; `None` when the guest cannot reach all of it.
    fn pieces(&self, address: u64, length: u64) -> Option<Vec<Piece<'_>>> {
        let end = address.checked_add(length)?;
        let mut pieces = Vec::new();
        let mut at = address;
        while at < end {
            let slot = self.slots.iter().find(|slot| at >= slot.address && at - slot.address < slot.length)?;
            if at < self.lowest_address {
                return None;
            }
            let piece_end = end.min(slot.address + slot.length);
            pieces.push((slot, at, usize::try_from(piece_end - at).ok()?));
            at = piece_end;
        }
        Some(pieces)
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
