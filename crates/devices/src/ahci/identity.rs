//! What a disk says of itself: IDENTIFY DEVICE (ACS-3 §7.12.7) and its logs (§A).

use super::ata::{Status, TaskFile};
use blockyard_block::Geometry;

/// A page of a log, and what IDENTIFY DEVICE gives.
pub(super) type Page = [u8; 512];

/// Characters of a serial.
pub(super) const SERIAL_CHARACTERS: usize = 20;
const MODEL: &str = "Blockyard disk";

/// Blocks of 512 bytes that one TRIM may have.
pub(super) const TRIM_PAYLOAD_BLOCKS_MAX: u16 = 1;

/// Log addresses.
const DIRECTORY: u8 = 0x00;
const QUEUED_ERROR: u8 = 0x10;

/// A disk's settings, and what it has to say of itself.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// ASCII, at most [`SERIAL_CHARACTERS`].
    pub(super) serial: String,
    /// Whether a write may be done before its data are stable.
    pub(super) write_cache: bool,
    /// How the last queued command that failed did: its page of the log.
    queued_error: Page,
}

impl Identity {
    pub(super) fn new(serial: String) -> Self {
        Self { serial, write_cache: true, queued_error: no_queued_error() }
    }

    /// As after power-on.
    pub(super) fn reset(&mut self) {
        self.write_cache = true;
        self.queued_error = no_queued_error();
    }

    /// A queued command has failed.
    pub(super) fn log_queued_error(&mut self, tag: u8, status: Status, task_file: &TaskFile) {
        let mut page = [0; 512];
        let lba = task_file.lba.to_le_bytes();
        page[0] = tag;
        page[2..4].copy_from_slice(&[status.status, status.error]);
        page[4..7].copy_from_slice(&lba[..3]);
        page[7] = task_file.device;
        page[8..11].copy_from_slice(&lba[3..6]);
        page[12..14].copy_from_slice(&task_file.count.to_le_bytes());
        self.queued_error = with_checksum(page);
    }

    /// A page of a log; `None` when there is none.
    pub(super) fn log_page(&self, address: u8, page: u16) -> Option<Page> {
        match (address, page) {
            (DIRECTORY, 0) => {
                let mut directory = [0; 512];
                // Its version, and the pages of each log.
                directory[..2].copy_from_slice(&1u16.to_le_bytes());
                directory[2 * usize::from(QUEUED_ERROR)] = 1;
                Some(directory)
            }
            (QUEUED_ERROR, 0) => Some(self.queued_error),
            _ => None,
        }
    }

    /// What IDENTIFY DEVICE gives for a disk of this geometry.
    pub(super) fn identify(&self, geometry: &Geometry) -> Page {
        let logical_bytes = geometry.logical_block_bytes.max(512);
        let blocks = (geometry.capacity_bytes / u64::from(logical_bytes)).min((1 << 48) - 1);
        let mut words = [0u16; 256];
        // A geometry of cylinders that nothing uses, as large disks have it.
        (words[1], words[3], words[6]) = (16383, 16, 63);
        text(&mut words[10..20], &self.serial);
        text(&mut words[23..27], env!("CARGO_PKG_VERSION"));
        text(&mut words[27..47], MODEL);
        words[47] = 0x8000;
        // LBA, DMA, IORDY; words 64 to 70 and 88 are valid.
        (words[49], words[50], words[53]) = (0x0f00, 0x4000, 0x0006);
        put32(&mut words[60..], blocks.min(0x0fff_ffff) as u32);
        // Every transfer mode; the fastest is set.
        (words[63], words[64], words[88]) = (0x0007, 0x0003, 0x407f);
        words[65..69].fill(120);
        (words[75], words[76]) = (31, 1 << 8 | 0x000e);
        // Up to ACS-3.
        words[80] = 0x07f0;
        let cache = if self.write_cache { 1 << 5 } else { 0 };
        // Look-ahead, write cache and power management; 48-bit addresses and both flushes; logs, and writes past the
        // cache.
        (words[82], words[83], words[84]) = (0x0068, 0x7400, 0x4060);
        (words[85], words[86], words[87]) = (0x0048 | cache, 0xb400, 0x4060);
        put64(&mut words[100..], blocks);
        words[105] = TRIM_PAYLOAD_BLOCKS_MAX;
        words[106] = sector_sizes(geometry);
        put32(&mut words[117..], logical_bytes / 2);
        // Logs are read by DMA too.
        (words[119], words[120]) = (0x4008, 0x4008);
        words[169] = u16::from(geometry.discard && !geometry.read_only);
        words[209] = 0x4000;
        // It does not rotate; serial ATA 3.1.
        (words[217], words[222]) = (1, 0x107f);
        let mut page = [0; 512];
        for (bytes, word) in page.chunks_exact_mut(2).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        // What says that there is a checksum, which makes the sum of all bytes zero.
        page[510] = 0xa5;
        with_checksum(page)
    }
}

/// Word 106: how many logical blocks are in a physical one, and whether a logical block has other than 512 bytes.
fn sector_sizes(geometry: &Geometry) -> u16 {
    let per_physical = (geometry.physical_block_bytes / geometry.logical_block_bytes.max(1)).max(1);
    let several = if per_physical > 1 { 1 << 13 | per_physical.ilog2() as u16 & 0xf } else { 0 };
    let large = if geometry.logical_block_bytes > 512 { 1 << 12 } else { 0 };
    0x4000 | several | large
}

fn no_queued_error() -> Page {
    let mut page = [0; 512];
    page[0] = 0x80;
    with_checksum(page)
}

fn with_checksum(mut page: Page) -> Page {
    page[511] = page[..511].iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    page
}

/// ATA's text: padded with spaces, the first of two characters in a word's upper half.
fn text(words: &mut [u16], text: &str) {
    let mut characters = text.bytes().chain(std::iter::repeat(b' '));
    for word in words {
        *word = u16::from_be_bytes([(); 2].map(|()| characters.next().unwrap_or(b' ')));
    }
}

fn put32(words: &mut [u16], value: u32) {
    (words[0], words[1]) = (value as u16, (value >> 16) as u16);
}

fn put64(words: &mut [u16], value: u64) {
    put32(words, value as u32);
    put32(&mut words[2..], (value >> 32) as u32);
}
