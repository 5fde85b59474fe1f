//! A new VHD. Its size is what the footer says, not what a geometry can: who wrote it is `win `, of which everybody
//! takes that so.

use super::super::writer::{BlockMapCreateOptions, NewLayout, NewMap, Places, invalid, write_entries};
use super::footer::{SIZE_MAX_BYTES, checksum};
use super::{HEADER_BYTES, SECTOR_BYTES};
use crate::formats::ImageError;
use crate::random_bytes::random_bytes;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// What everybody makes, and Virtual PC takes.
const BLOCK_BYTES: u32 = 2 << 20;
const BLOCKS_BYTES: RangeInclusive<u32> = 512 << 10..=2 << 20;

const HEADER_OFFSET: u64 = SECTOR_BYTES;
const TABLE_OFFSET: u64 = HEADER_OFFSET + HEADER_BYTES as u64;

/// 2000-01-01 in Unix's seconds.
const EPOCH_SECONDS: u64 = 946_684_800;

#[derive(Debug)]
struct NewVhd {
    layout: NewLayout,
    is_fixed: bool,
}

pub(in super::super) fn map(options: &BlockMapCreateOptions) -> Result<Box<dyn NewMap>, ImageError> {
    let BlockMapCreateOptions { size_bytes, is_fixed, .. } = *options;
    let block_bytes = options.block_bytes.unwrap_or(BLOCK_BYTES);
    if !block_bytes.is_power_of_two() || !BLOCKS_BYTES.contains(&block_bytes) {
        return Err(invalid(format!("blocks of {block_bytes} bytes are not possible: 512K, 1M or 2M")));
    }
    if size_bytes > SIZE_MAX_BYTES {
        return Err(invalid(format!(
            "a disk of {size_bytes} bytes is not possible in a VHD: 2040 GiB at most; VHDX has more"
        )));
    }
    let block_bytes = u64::from(block_bytes);
    let layout = if is_fixed {
        NewLayout { size_bytes, block_bytes, lead_bytes: 0, data_offset: 0 }
    } else {
        let table_bytes = (size_bytes.div_ceil(block_bytes) * 4).next_multiple_of(SECTOR_BYTES);
        let lead_bytes = (block_bytes / SECTOR_BYTES / 8).next_multiple_of(SECTOR_BYTES);
        NewLayout { size_bytes, block_bytes, lead_bytes, data_offset: TABLE_OFFSET + table_bytes }
    };
    Ok(Box::new(NewVhd { layout, is_fixed }))
}

impl NewVhd {
    /// Where the blocks end, and the footer begins.
    fn data_end(&self, blocks: u64) -> u64 {
        if self.is_fixed { self.layout.size_bytes } else { self.layout.lead_offset(blocks) }
    }

    fn footer(&self) -> io::Result<[u8; SECTOR_BYTES as usize]> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let size_bytes = self.layout.size_bytes;
        let mut footer = [0; SECTOR_BYTES as usize];
        let mut put = |at: usize, bytes: &[u8]| footer[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"conectix");
        put(8, &2_u32.to_be_bytes()); // A bit that is always set.
        put(12, &0x1_0000_u32.to_be_bytes());
        put(16, &if self.is_fixed { u64::MAX } else { HEADER_OFFSET }.to_be_bytes());
        put(24, &(now.saturating_sub(EPOCH_SECONDS) as u32).to_be_bytes());
        put(28, b"win ");
        put(32, &0x0a_0000_u32.to_be_bytes());
        put(36, b"Wi2k");
        put(40, &size_bytes.to_be_bytes());
        put(48, &size_bytes.to_be_bytes());
        put(56, &geometry(size_bytes / SECTOR_BYTES));
        put(60, &if self.is_fixed { 2_u32 } else { 3 }.to_be_bytes());
        put(68, &random_bytes::<16>()?);
        let sum = checksum(&footer, 64);
        footer[64..68].copy_from_slice(&sum.to_be_bytes());
        Ok(footer)
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"cxsparse");
        put(8, &u64::MAX.to_be_bytes());
        put(16, &TABLE_OFFSET.to_be_bytes());
        put(24, &0x1_0000_u32.to_be_bytes());
        put(28, &(self.layout.blocks() as u32).to_be_bytes());
        put(32, &(self.layout.block_bytes as u32).to_be_bytes());
        let sum = checksum(&header, 36);
        header[36..40].copy_from_slice(&sum.to_be_bytes());
        header
    }
}

impl NewMap for NewVhd {
    fn layout(&self) -> NewLayout {
        self.layout
    }

    fn file_bytes(&self, blocks: u64) -> u64 {
        self.data_end(blocks) + SECTOR_BYTES
    }

    fn write(&self, file: &File, places: &Places) -> io::Result<()> {
        let footer = self.footer()?;
        file.write_all_at(&footer, self.data_end(places.count().into()))?;
        if self.is_fixed {
            return Ok(());
        }
        // Sectors of the largest file fit into 32 bits.
        let sector = |place| (self.layout.lead_offset(place) / SECTOR_BYTES) as u32;
        let entry = |block| places.of(block).map_or(u32::MAX, sector).to_be_bytes();
        let entries = (self.layout.data_offset - TABLE_OFFSET) / 4;
        // Those of no block, in the table's last sector, are ones, too.
        write_entries(file, TABLE_OFFSET, 0..entries, entry)?;
        file.write_all_at(&self.header(), HEADER_OFFSET)?;
        file.write_all_at(&footer, 0)
    }
}

/// Cylinders (16 bits), heads and sectors, as the specification's appendix computes them.
fn geometry(sectors: u64) -> [u8; 4] {
    let sectors = sectors.min(65535 * 16 * 255);
    let (mut track, mut heads);
    let mut tracks;
    if sectors >= 65535 * 16 * 63 {
        (track, heads) = (255, 16);
        tracks = sectors / track;
    } else {
        track = 17;
        tracks = sectors / track;
        heads = tracks.div_ceil(1024).max(4);
        if tracks >= heads * 1024 || heads > 16 {
            (track, heads) = (31, 16);
            tracks = sectors / track;
        }
        if tracks >= heads * 1024 {
            (track, heads) = (63, 16);
            tracks = sectors / track;
        }
    }
    // At most 65535, 16 and 255.
    let [high, low] = ((tracks / heads) as u16).to_be_bytes();
    [high, low, heads as u8, track as u8]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `qemu-img create -f vpc` has them of the sizes that it makes of 1 MiB to 200 GiB.
    #[test]
    fn geometries_are_those_of_the_specification() {
        for (size_bytes, cylinders, heads, track) in [
            (0x0010_7800, 31, 4, 17),
            (0x0640_2000, 1004, 12, 17),
            (0x12c3_c000, 610, 16, 63),
            (0x4003_e000, 2081, 16, 63),
            (0x2_8007_4000, 20806, 16, 63),
            (0x19_0006_e000, 51401, 16, 255),
            (0x32_0000_0000, 65535, 16, 255),
        ] {
            let [high, low, rest @ ..] = geometry(size_bytes / SECTOR_BYTES);
            assert_eq!((u16::from_be_bytes([high, low]), rest), (cylinders, [heads, track]), "{size_bytes}");
        }
    }
}
