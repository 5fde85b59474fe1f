//! Disks made of bytes, and the structures that a table is made of.

use blockyard_block::partition_table::{PartitionTable, PartitionTableError, TableChoice, Warning, read_as};
use blockyard_block::{Engine, FileDisk, FileOptions};
use std::os::unix::fs::FileExt;

/// A disk's bytes and the size of its blocks.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    pub(crate) block_bytes: u32,
}

/// An entry of a boot record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MbrEntry {
    pub(crate) indicator: u8,
    pub(crate) kind: u8,
    pub(crate) start: u32,
    pub(crate) length: u32,
}

pub(crate) const fn entry(kind: u8, start: u32, length: u32) -> MbrEntry {
    MbrEntry { indicator: 0, kind, start, length }
}

/// A GPT's header, as it is written.
#[derive(Clone, Debug)]
pub(crate) struct GptHeader {
    pub(crate) header_bytes: u32,
    pub(crate) block: u64,
    pub(crate) other_block: u64,
    pub(crate) first_usable: u64,
    pub(crate) last_usable: u64,
    pub(crate) array_block: u64,
    pub(crate) entry_count: u32,
    pub(crate) entry_bytes: u32,
}

/// A GPT's entry: type (as its first byte), first and last block.
pub(crate) type GptEntry = (u8, u64, u64);

impl Image {
    pub(crate) fn new(blocks: usize, block_bytes: u32) -> Self {
        Self { bytes: vec![0; blocks * block_bytes as usize], block_bytes }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.bytes.len() as u64 / u64::from(self.block_bytes)
    }

    pub(crate) fn disk(&self) -> FileDisk {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&self.bytes, 0).unwrap();
        let options = FileOptions {
            read_only: true,
            engine: Engine::Sync,
            logical_block_bytes: self.block_bytes,
            ..FileOptions::default()
        };
        FileDisk::from_file(file, &options).unwrap()
    }

    pub(crate) fn read(&self) -> Result<PartitionTable, PartitionTableError> {
        self.read_as(TableChoice::Auto)
    }

    pub(crate) fn read_as(&self, choice: TableChoice) -> Result<PartitionTable, PartitionTableError> {
        read_as(&self.disk(), choice)
    }

    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.read().unwrap().warnings
    }

    /// Numbers, first blocks and lengths in blocks.
    pub(crate) fn partitions(&self) -> Vec<(u32, u64, u64)> {
        placed(&self.read().unwrap(), self.block_bytes)
    }

    /// Changes all bits of a byte.
    pub(crate) fn flip(&mut self, block: u64, offset: usize) {
        self.bytes[block as usize * self.block_bytes as usize + offset] ^= 0xff;
    }

    pub(crate) fn put(&mut self, block: u64, offset: usize, bytes: &[u8]) {
        let start = block as usize * self.block_bytes as usize + offset;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// A boot record: an MBR in block 0, a link of a chain elsewhere.
    pub(crate) fn put_record(&mut self, block: u64, entries: &[MbrEntry]) {
        for (index, entry) in entries.iter().enumerate() {
            let at = 446 + 16 * index;
            self.put(block, at, &[entry.indicator, 0, 0, 0, entry.kind, 0, 0, 0]);
            self.put(block, at + 8, &entry.start.to_le_bytes());
            self.put(block, at + 12, &entry.length.to_le_bytes());
        }
        self.put(block, 510, &[0x55, 0xaa]);
    }

    /// A copy of a GPT with right checksums. What does not fit on the disk is not written.
    pub(crate) fn put_gpt(&mut self, header: &GptHeader, entries: &[GptEntry]) {
        let array_bytes = (u64::from(header.entry_count) * u64::from(header.entry_bytes)).min(1 << 20);
        let mut array = vec![0; array_bytes as usize];
        for (bytes, entry) in array.chunks_exact_mut(header.entry_bytes.max(128) as usize).zip(entries) {
            bytes[0] = entry.0;
            bytes[16] = entry.0;
            bytes[32..40].copy_from_slice(&entry.1.to_le_bytes());
            bytes[40..48].copy_from_slice(&entry.2.to_le_bytes());
        }
        let mut bytes = vec![0; self.block_bytes as usize];
        bytes[..8].copy_from_slice(b"EFI PART");
        bytes[8..16].copy_from_slice(&[[0, 0, 1, 0], header.header_bytes.to_le_bytes()].concat());
        let places = [header.block, header.other_block, header.first_usable, header.last_usable];
        bytes[24..56].copy_from_slice(&places.map(u64::to_le_bytes).concat());
        bytes[56] = 0xd1;
        bytes[72..80].copy_from_slice(&header.array_block.to_le_bytes());
        let numbers = [header.entry_count, header.entry_bytes, crc32(&array)];
        bytes[80..92].copy_from_slice(&numbers.map(u32::to_le_bytes).concat());
        let length = (header.header_bytes as usize).min(bytes.len());
        let checksum = crc32(&bytes[..length]);
        bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
        self.put_if_it_fits(header.array_block, &array);
        self.put_if_it_fits(header.block, &bytes);
    }

    fn put_if_it_fits(&mut self, block: u64, bytes: &[u8]) {
        let end = block.saturating_mul(u64::from(self.block_bytes)).saturating_add(bytes.len() as u64);
        if end <= self.bytes.len() as u64 {
            self.put(block, 0, bytes);
        }
    }

    /// A protective MBR and both copies of a GPT of four entries.
    pub(crate) fn with_gpt(blocks: usize, block_bytes: u32, entries: &[GptEntry]) -> Self {
        let mut image = Self::new(blocks, block_bytes);
        image.put_record(0, &[entry(0xee, 1, u32::MAX)]);
        for header in both_headers(image.blocks(), block_bytes) {
            image.put_gpt(&header, entries);
        }
        image
    }
}

/// Headers of a GPT of four entries.
pub(crate) fn both_headers(blocks: u64, block_bytes: u32) -> [GptHeader; 2] {
    let last = blocks - 1;
    let array_blocks = 512u64.div_ceil(u64::from(block_bytes));
    let primary = GptHeader {
        header_bytes: 92,
        block: 1,
        other_block: last,
        first_usable: 2 + array_blocks,
        last_usable: last - array_blocks - 1,
        array_block: 2,
        entry_count: 4,
        entry_bytes: 128,
    };
    let backup = GptHeader { block: last, other_block: 1, array_block: last - array_blocks, ..primary.clone() };
    [primary, backup]
}

pub(crate) fn placed(table: &PartitionTable, block_bytes: u32) -> Vec<(u32, u64, u64)> {
    let block_bytes = u64::from(block_bytes);
    let place = |range: &std::ops::Range<u64>| (range.start / block_bytes, (range.end - range.start) / block_bytes);
    let partitions = table.partitions.iter().map(|partition| (partition.number, place(&partition.range_bytes)));
    partitions.map(|(number, (start, length))| (number, start, length)).collect()
}

/// A bit at a time, so that it shares nothing with what it checks.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}
