//! Frames that a disk sends, as the controller puts them into the received-FIS area (AHCI 1.3.1 §4.2.1, Serial ATA 3.1
//! §10.5).

use super::ata::{Status, TaskFile};
use blockyard_block::MemoryMap;
use vm_memory::{Bytes, GuestAddress};

/// Where in the area each kind lies.
const PIO_SETUP_OFFSET: u64 = 0x20;
const REGISTERS_OFFSET: u64 = 0x40;
const DEVICE_BITS_OFFSET: u64 = 0x58;

const INTERRUPT: u8 = 1 << 6;
const TO_HOST: u8 = 1 << 5;

/// How a command ended, as the task file says it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) status: Status,
    /// The command's task file, or what the drive answers in its stead.
    pub(super) task_file: TaskFile,
}

/// The received-FIS area of a port. Its address is the driver's: what does not lie in memory goes nowhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedFrames<'a> {
    pub(super) memory: &'a MemoryMap,
    /// A multiple of 256.
    pub(super) address: u64,
}

impl ReceivedFrames<'_> {
    /// Register, device to host.
    pub(super) fn registers(&self, ending: &Ending, interrupt: bool) {
        let mut frame = [0; 20];
        frame[0] = 0x34;
        frame[1] = if interrupt { INTERRUPT } else { 0 };
        fill(&mut frame, ending);
        self.put(REGISTERS_OFFSET, &frame);
    }

    /// PIO setup of the last block of a command that reads.
    pub(super) fn pio_setup(&self, ending: &Ending, transfer_bytes: u16) {
        let mut frame = [0; 20];
        frame[0] = 0x5f;
        frame[1] = INTERRUPT | TO_HOST;
        fill(&mut frame, ending);
        // The status before the block, and after it.
        frame[2] = Status::READY | Status::DATA_REQUEST;
        frame[15] = ending.status.status;
        frame[16..18].copy_from_slice(&transfer_bytes.to_le_bytes());
        self.put(PIO_SETUP_OFFSET, &frame);
    }

    /// Set device bits: the queued commands of these slots are done.
    pub(super) fn device_bits(&self, status: Status, done: u32) {
        let mut frame = [0; 8];
        frame[..4].copy_from_slice(&[0xa1, INTERRUPT, status.status & 0x77, status.error]);
        frame[4..].copy_from_slice(&done.to_le_bytes());
        self.put(DEVICE_BITS_OFFSET, &frame);
    }

    fn put(&self, offset: u64, frame: &[u8]) {
        // A driver without such memory has no frames.
        let _ = self.memory.guest_memory().write_slice(frame, GuestAddress(self.address | offset));
    }
}

/// What registers and PIO setup frames have in common.
fn fill(frame: &mut [u8; 20], ending: &Ending) {
    let TaskFile { lba, device, count, .. } = ending.task_file;
    let lba = lba.to_le_bytes();
    frame[2] = ending.status.status;
    frame[3] = ending.status.error;
    frame[4..7].copy_from_slice(&lba[..3]);
    frame[7] = device;
    frame[8..11].copy_from_slice(&lba[3..6]);
    frame[12..14].copy_from_slice(&count.to_le_bytes());
}
