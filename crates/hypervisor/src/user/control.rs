//! The VMM's end of the control area: the only place where its memory and the guest process meet, besides guest memory.
//!
//! Nothing found there is believed. A trap is copied out once ([`ControlArea::snapshot`]) and judged from the copy.

use super::layout::{
    ANSWER_WORDS, CONTROL_BYTES, Control, DOORBELLS_MAX, Doorbell, FRAME_ADDRESS, FRAME_ERROR, FRAME_TRAP, FRAME_WORDS,
    SLOTS_MAX, Slot, Start, TURN_GUEST, TURN_VMM, Trap,
};
use super::memory::GuestMemory;
use super::registers::Registers;
use crate::Error;
use blockyard_block::{MemoryMap, explain};
use rustix::thread::futex;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use vm_memory::{ByteValued, Bytes, GuestAddress, GuestMemoryBackend, VolatileMemory};

/// A mapped control area.
#[derive(Debug)]
pub(super) struct ControlArea {
    memory: MemoryMap,
}

/// A private copy of a trap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) signal: u64,
    pub(super) registers: Registers,
    /// The code segment's selector.
    pub(super) code_segment: u16,
    pub(super) trap: u64,
    /// Where a page fault's access went.
    pub(super) address: u64,
    /// A page fault's error code.
    pub(super) error: u64,
}

const TRAP_WORDS: usize = size_of::<Trap>() / 8;
const DOORBELL_WORDS: usize = size_of::<Doorbell>() / 8;
const SLOT_WORDS: usize = size_of::<Slot>() / 8;
const FRAME_SEGMENTS: usize = 18;

const _: () = assert!(TRAP_WORDS == 1 + FRAME_WORDS);
const _: () = assert!(DOORBELL_WORDS == 4 && SLOT_WORDS == 3);

impl ControlArea {
    /// A zeroed one.
    pub(super) fn new() -> Result<Self, Error> {
        let memory = MemoryMap::allocate(&[(0, CONTROL_BYTES)])
            .map_err(|error| Error::Refused(format!("no control area for the guest: {}", explain(&error))))?;
        Ok(Self { memory })
    }

    /// What a guest process maps; closed to it afterwards.
    pub(super) fn memfd(&self) -> BorrowedFd<'_> {
        let mut regions = self.memory.shared_regions().expect("the map was made to be shared");
        let (_, _, file, _) = regions.next().expect("the map was made with one region");
        file.as_fd()
    }

    /// Tells the stub what to set up.
    pub(super) fn describe(&self, memory: &GuestMemory, events: u32, filter: &[u64]) {
        let start = offset_of!(Control, start);
        let mut slots = 0;
        for (index, mapping) in memory.mappings().enumerate().take(SLOTS_MAX) {
            let words: [u64; SLOT_WORDS] = [mapping.address, mapping.length, mapping.offset];
            self.write(start + offset_of!(Start, slot) + index * size_of::<Slot>(), words);
            slots += 1;
        }
        for (index, word) in filter.iter().enumerate() {
            self.write(start + offset_of!(Start, filter) + index * size_of::<u64>(), *word);
        }
        self.write(start + offset_of!(Start, events), events);
        self.write(start + offset_of!(Start, slots), slots);
        self.write(start + offset_of!(Start, filter_length), filter.len() as u32);
    }

    /// Which step failed and with which errno, if the guest process said so before it died.
    pub(super) fn failure(&self) -> [u64; 2] {
        self.read(offset_of!(Control, failure))
    }

    /// The trap, copied once; `None` when the guest process does not claim to be in one.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        if self.with_turn(|turn| turn.load(Ordering::Acquire)) != TURN_VMM {
            return None;
        }
        let words: [u64; TRAP_WORDS] = self.read(offset_of!(Control, trap));
        let (signal, frame) = (words[0], &words[1..]);
        let mut registers = Registers::default();
        registers.0.copy_from_slice(&frame[..ANSWER_WORDS]);
        Some(Snapshot {
            signal,
            registers,
            code_segment: frame[FRAME_SEGMENTS] as u16,
            trap: frame[FRAME_TRAP],
            address: frame[FRAME_ADDRESS],
            error: frame[FRAME_ERROR],
        })
    }

    /// Lets the guest go on with these registers.
    pub(super) fn answer(&self, registers: &Registers) -> Result<(), Error> {
        self.write(offset_of!(Control, answer), registers.0);
        self.with_turn(|turn| {
            turn.store(TURN_GUEST, Ordering::Release);
            futex::wake(turn, futex::Flags::empty(), 1)
        })
        .map(drop)
        .map_err(|errno| Error::Os { what: "cannot wake the guest process", source: errno.into() })
    }

    /// Publishes an entry. Only while the guest is trapped: an honest stub must not see half of it.
    pub(super) fn publish(&self, index: usize, entry: &Doorbell) {
        if index >= DOORBELLS_MAX {
            return;
        }
        let place = offset_of!(Control, doorbells) + index * size_of::<Doorbell>();
        self.write(place + offset_of!(Doorbell, address), entry.address);
        self.write(place + offset_of!(Doorbell, value), entry.value);
        self.write(place + offset_of!(Doorbell, register), entry.register);
        self.write(place + offset_of!(Doorbell, length), entry.length);
        self.write(place + offset_of!(Doorbell, event), entry.event);
        self.write(place + offset_of!(Doorbell, rip), entry.rip);
    }

    /// Takes an entry back, at any time. A store that is being handled right now may still ring.
    pub(super) fn withdraw(&self, index: usize) {
        if index < DOORBELLS_MAX {
            let place = offset_of!(Control, doorbells) + index * size_of::<Doorbell>();
            self.write(place + offset_of!(Doorbell, rip), 0u64);
        }
    }

    /// How many entries the stub looks through.
    pub(super) fn set_doorbell_entries(&self, entries: u32) {
        self.write(offset_of!(Control, doorbell_entries), entries);
    }

    fn with_turn<T>(&self, action: impl FnOnce(&AtomicU32) -> T) -> T {
        let place = GuestAddress(offset_of!(Control, turn) as u64);
        let slice = self.memory.guest_memory().get_slice(place, size_of::<u32>()).expect("`turn` is in the area");
        action(slice.get_atomic_ref(0).expect("`turn` is aligned"))
    }

    fn read<T: ByteValued>(&self, offset: usize) -> T {
        self.memory.guest_memory().read_obj(GuestAddress(offset as u64)).expect("control fields are in the area")
    }

    fn write<T: ByteValued>(&self, offset: usize, value: T) {
        self.memory
            .guest_memory()
            .write_obj(value, GuestAddress(offset as u64))
            .expect("control fields are in the area");
    }
}
