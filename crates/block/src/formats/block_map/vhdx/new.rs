//! A new VHDX: an empty log, the metadata and the table at the first MiB, each at a whole one, then the blocks.

use super::super::chain::Id;
use super::super::writer::{BlockMapCreateOptions, NewLayout, NewMap, Places, invalid, write_entries};
use super::header::{
    HEADER_BYTES, HEADER_OFFSETS, METADATA, REGION_TABLE_BYTES, REGION_TABLE_OFFSETS, TABLE, set_checksum,
};
use super::metadata::{self, Metadata};
use super::{MIB, Table};
use crate::formats::ImageError;
use crate::random_bytes::random_bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const LOG: (u64, u64) = (MIB, MIB);
const METADATA_REGION: (u64, u64) = (2 * MIB, MIB);
const TABLE_OFFSET: u64 = 3 * MIB;

/// A block that lies in the file. Section 2.5.1.1.
const FULLY_PRESENT: u64 = 6;

#[derive(Debug)]
struct NewVhdx {
    metadata: Metadata,
    table_bytes: u64,
}

pub(in super::super) fn map(options: &BlockMapCreateOptions) -> Result<Box<dyn NewMap>, ImageError> {
    let BlockMapCreateOptions { size_bytes, is_fixed, .. } = *options;
    let block_bytes = options.block_bytes.unwrap_or_else(|| block_bytes_for(size_bytes));
    let block_mib = u64::from(block_bytes) / MIB;
    if !block_bytes.is_power_of_two() || !(1..=256).contains(&block_mib) {
        return Err(invalid(format!("blocks of {block_bytes} bytes are not possible: 1M to 256M, powers of two")));
    }
    // QEMU opens none of 0 bytes.
    if !(1..=metadata::SIZE_MAX_BYTES).contains(&size_bytes) {
        return Err(invalid(format!(
            "a disk of {size_bytes} bytes is not possible in a VHDX: 512 bytes at least, 64 TiB at most"
        )));
    }
    let block_bytes = u64::from(block_bytes);
    let metadata =
        Metadata { size_bytes, block_bytes, sector_bytes: 512, has_parent: false, is_fixed, locator: Vec::new() };
    let table_bytes = (Table::entries(&metadata) * 8).next_multiple_of(MIB).max(MIB);
    Ok(Box::new(NewVhdx { metadata, table_bytes }))
}

/// As QEMU chooses: what is larger has larger blocks.
fn block_bytes_for(size_bytes: u64) -> u32 {
    const GIB: u64 = 1 << 30;
    let steps = [(GIB, 8), (100 * GIB, 16), (32 << 10 << 30, 32)];
    let mib = steps.into_iter().find(|&(most, _)| size_bytes <= most).map_or(64, |(_, mib)| mib);
    mib << 20
}

impl NewMap for NewVhdx {
    fn layout(&self) -> NewLayout {
        let Metadata { size_bytes, block_bytes, .. } = self.metadata;
        NewLayout { size_bytes, block_bytes, lead_bytes: 0, data_offset: TABLE_OFFSET + self.table_bytes }
    }

    fn write(&self, file: &File, places: &Places) -> io::Result<()> {
        let (layout, chunk_blocks) = (self.layout(), self.metadata.chunk_blocks());
        let entry = |block| places.of(block).map_or(0, |place| layout.lead_offset(place) | FULLY_PRESENT).to_le_bytes();
        for first in (0..layout.blocks()).step_by(chunk_blocks as usize) {
            // After each chunk comes the entry of a bitmap, which only differences have.
            let offset = TABLE_OFFSET + (first + first / chunk_blocks) * 8;
            write_entries(file, offset, first..layout.blocks().min(first + chunk_blocks), entry)?;
        }
        let region = self.metadata.region(&random_bytes()?);
        file.write_all_at(&region, METADATA_REGION.0)?;
        let regions = region_table(&[(TABLE, (TABLE_OFFSET, self.table_bytes)), (METADATA, METADATA_REGION)]);
        for offset in REGION_TABLE_OFFSETS {
            file.write_all_at(&regions, offset)?;
        }
        let (file_id, data_id) = (random_bytes()?, random_bytes()?);
        for (sequence, offset) in (1..).zip(HEADER_OFFSETS) {
            file.write_all_at(&header(sequence, &file_id, &data_id), offset)?;
        }
        let creator = "Blockyard".encode_utf16().flat_map(u16::to_le_bytes);
        let identifier: Vec<u8> = b"vhdxfile".iter().copied().chain(creator).collect();
        file.write_all_at(&identifier, 0)
    }
}

/// Section 2.2.2.
fn header(sequence: u64, file_id: &Id, data_id: &Id) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"head");
    put(8, &sequence.to_le_bytes());
    put(16, file_id);
    put(32, data_id);
    // No identity of a log: nothing is in it.
    put(66, &1_u16.to_le_bytes());
    put(68, &(LOG.1 as u32).to_le_bytes());
    put(72, &LOG.0.to_le_bytes());
    set_checksum(&mut header);
    header
}

/// Section 2.2.3.
fn region_table(regions: &[(Id, (u64, u64))]) -> Vec<u8> {
    let mut table = Vec::with_capacity(REGION_TABLE_BYTES);
    table.extend(b"regi\0\0\0\0");
    table.extend((regions.len() as u32).to_le_bytes());
    table.extend([0; 4]);
    for (id, (offset, length)) in regions {
        table.extend(id);
        table.extend(offset.to_le_bytes());
        table.extend((*length as u32).to_le_bytes());
        table.extend(1_u32.to_le_bytes()); // Whoever opens the file has to know it.
    }
    table.resize(REGION_TABLE_BYTES, 0);
    set_checksum(&mut table);
    table
}
