//! What a driver puts into a command slot (AHCI 1.3.1 §4.2.2, §4.2.3). Everything is read once, and the copy is judged.

use super::ata::TaskFile;
use blockyard_block::{MemoryMap, Segment};
use vm_memory::{Bytes, GuestAddress};

const HEADER_BYTES: u64 = 32;
/// Where the PRDT begins in a command table.
const PRDT_OFFSET: u64 = 0x80;
const PRDT_ENTRY_BYTES: u64 = 16;
/// Register, host to device.
const REGISTERS_TO_DEVICE: u8 = 0x27;

/// A command slot's header and frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotCommand {
    /// Where its header lies.
    header: u64,
    table: u64,
    prdt_entries: u16,
    frame: [u8; 20],
}

/// What a frame is.
#[derive(Clone, Copy, Debug)]
pub(super) enum FrameKind {
    /// A command.
    Command(TaskFile),
    /// A new value of the device control register, with or without its reset bit.
    Control { reset: bool },
    /// Nothing that a disk takes.
    Other,
}

/// Why a command's memory cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataFault {
    /// Some of it is not in the guest's memory.
    OutsideMemory,
    /// It has fewer bytes than the command moves.
    TooShort,
    /// It has more pieces than the disk takes.
    TooManySegments,
}

impl SlotCommand {
    /// Reads slot `slot` of the list at `list`, which is a multiple of 1024; `None` when it is not in memory.
    pub(super) fn read(memory: &MemoryMap, list: u64, slot: u8) -> Option<Self> {
        let header = list | (HEADER_BYTES * u64::from(slot));
        let [flags, _, table, table_upper] = words(memory.read::<16>(header)?);
        let table = (u64::from(table) | u64::from(table_upper) << 32) & !0x7f;
        Some(Self { header, table, prdt_entries: (flags >> 16) as u16, frame: memory.read(table)? })
    }

    pub(super) fn frame(&self) -> FrameKind {
        let frame = &self.frame;
        if frame[0] != REGISTERS_TO_DEVICE {
            return FrameKind::Other;
        }
        match frame[1] & 0x80 {
            0 => FrameKind::Control { reset: frame[15] & 1 << 2 != 0 },
            _ => FrameKind::Command(TaskFile {
                command: frame[2],
                features: u16::from_le_bytes([frame[3], frame[11]]),
                lba: u64::from_le_bytes([frame[4], frame[5], frame[6], frame[8], frame[9], frame[10], 0, 0]),
                device: frame[7],
                count: u16::from_le_bytes([frame[12], frame[13]]),
            }),
        }
    }

    /// Finds the memory of `length_bytes` bytes of data, in at most `segments_max` segments. `segments` is empty.
    pub(super) fn data(
        &self,
        memory: &MemoryMap,
        length_bytes: u64,
        segments_max: u32,
        segments: &mut Vec<Segment>,
    ) -> Result<(), DataFault> {
        let mut left_bytes = length_bytes;
        let mut place = self.table.checked_add(PRDT_OFFSET).ok_or(DataFault::OutsideMemory)?;
        for _ in 0..self.prdt_entries {
            if left_bytes == 0 {
                break;
            }
            let entry = memory.read::<16>(place).ok_or(DataFault::OutsideMemory)?;
            let [address, address_upper, _, flags] = words(entry);
            // One less than there are: at most 4 MiB.
            let entry_bytes = u64::from(flags & 0x3f_ffff) + 1;
            let bytes = entry_bytes.min(left_bytes);
            if !memory.find(u64::from(address) | u64::from(address_upper) << 32, bytes as u32, segments) {
                return Err(DataFault::OutsideMemory);
            }
            if segments.len() > segments_max as usize {
                return Err(DataFault::TooManySegments);
            }
            left_bytes -= bytes;
            place = place.checked_add(PRDT_ENTRY_BYTES).ok_or(DataFault::OutsideMemory)?;
        }
        if left_bytes == 0 { Ok(()) } else { Err(DataFault::TooShort) }
    }

    /// Where the header says how many bytes were moved: PRDBC.
    pub(super) fn moved_address(&self) -> u64 {
        self.header | 4
    }
}

/// Says in a header how many bytes were moved.
pub(super) fn set_moved_bytes(memory: &MemoryMap, moved_address: u64, bytes: u32) {
    // The header was found in memory when it was read, and memory does not go away.
    let _ = memory.guest_memory().write_slice(&bytes.to_le_bytes(), GuestAddress(moved_address));
}

fn words(bytes: [u8; 16]) -> [u32; 4] {
    std::array::from_fn(|index| {
        let at = 4 * index;
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    })
}
