//! Space-efficient sparse extents: those of ESX from 6.5 on.
//!
//! A constant header and one that changes; a grain directory and grain tables of 64 bits an entry. An entry is an
//! index, of a table among the tables or of a grain among the grains, and says in its highest bits what it is.

use super::SECTOR_BYTES;
use crate::formats::ImageError;
use crate::formats::block_map::DISK_MAX_BYTES;
use crate::formats::block_map::fields::{Fields, lies_within};
use crate::formats::block_map::image_file::ImageFile;
use crate::formats::block_map::layer::{BlockMap, Meaning, Shape};
use std::io;

pub(super) const MAGIC: &[u8] = &0xcafe_babe_u64.to_le_bytes();
const VOLATILE_MAGIC: u64 = 0xcafe_cafe;
const VERSION: u64 = 0x2_0000_0001;

const GRAIN_SECTORS: u64 = 8;
const GRAIN_BYTES: u64 = GRAIN_SECTORS * SECTOR_BYTES;
const TABLE_SECTORS: u64 = 64;
const TABLE_BYTES: u64 = TABLE_SECTORS * SECTOR_BYTES;
const TABLE_ENTRIES: u64 = TABLE_BYTES / 8;

/// Where the tables of a file lie, in bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeSparseMap {
    size_bytes: u64,
    directory_offset: u64,
    tables_offset: u64,
    tables: u64,
    grains_offset: u64,
    grains: u64,
}

impl SeSparseMap {
    /// By the first sector of the file, and the header that changes.
    pub(super) fn read(file: &ImageFile, sector: &[u8]) -> Result<Self, ImageError> {
        let (map, volatile_offset) =
            Self::parse(sector, file.length_bytes()).map_err(|problem| file.unusable(problem))?;
        let volatile = file.read_up_to(volatile_offset, SECTOR_BYTES as usize)?;
        check_volatile(&volatile).map_err(|problem| file.unusable(problem))?;
        Ok(map)
    }

    /// Of a file of `length_bytes`; and where the other header lies. The error goes on after the image's path.
    fn parse(sector: &[u8], length_bytes: u64) -> Result<(Self, u64), String> {
        let fields = Fields(sector);
        let (version, sectors, flags) = (fields.le64(8)?, fields.le64(16)?, fields.le64(40)?);
        if version != VERSION {
            let (major, minor) = (version >> 32, version & u64::from(u32::MAX));
            return Err(format!("is a space-efficient VMDK of version {major}.{minor}, and only 2.1 is supported"));
        }
        let (grain_sectors, table_sectors) = (fields.le64(24)?, fields.le64(32)?);
        if (grain_sectors, table_sectors) != (GRAIN_SECTORS, TABLE_SECTORS) {
            return Err(format!(
                "has grains of {grain_sectors} sectors and tables of {table_sectors}: {GRAIN_SECTORS} and \
                 {TABLE_SECTORS} are supported"
            ));
        }
        if flags != 0 {
            return Err(format!("needs features that are not known here (bits {flags:#x})"));
        }
        let size_bytes = sectors.checked_mul(SECTOR_BYTES).filter(|&bytes| bytes <= DISK_MAX_BYTES);
        let size_bytes = size_bytes.ok_or("claims to hold more bytes than a disk can have")?;
        if size_bytes == 0 {
            return Err("is a VMDK of no bytes".into());
        }
        let place = |at: usize| Ok::<_, String>((fields.le64(at)?, fields.le64(at + 8)?));
        let in_bytes = |(offset, length): (u64, u64)| {
            let place = offset.checked_mul(SECTOR_BYTES).zip(length.checked_mul(SECTOR_BYTES));
            place.filter(|&(offset, length)| offset >= SECTOR_BYTES && lies_within(offset, length, i64::MAX as u64))
        };
        let volatile = in_bytes(place(80)?).filter(|&(offset, _)| lies_within(offset, SECTOR_BYTES, length_bytes));
        let (volatile_offset, _) = volatile.ok_or("is damaged: its second header does not lie within the file")?;
        let directory = in_bytes(place(128)?).filter(|&(offset, bytes)| lies_within(offset, bytes, length_bytes));
        let (directory_offset, directory_bytes) =
            directory.ok_or("is damaged: its grain directory does not lie within the file")?;
        if size_bytes.div_ceil(TABLE_ENTRIES * GRAIN_BYTES) > directory_bytes / 8 {
            return Err(format!("is damaged: its disk of {size_bytes} bytes has more tables than its directory"));
        }
        let far = "is damaged: its tables and grains lie where a file cannot have them";
        let (tables_offset, tables_bytes) = in_bytes(place(144)?).ok_or(far)?;
        let (grains_offset, grains_bytes) = in_bytes(place(192)?).ok_or(far)?;
        // What has a place of its own, and no other may have.
        let mut own =
            [(0, SECTOR_BYTES), (volatile_offset, SECTOR_BYTES), (directory_offset, directory_bytes)].to_vec();
        own.extend([(tables_offset, tables_bytes), (grains_offset, grains_bytes)]);
        own.sort_unstable();
        if own.array_windows().any(|[(one, bytes), (other, _)]| one + bytes > *other) {
            return Err("is damaged: its headers, tables and grains lie over each other".into());
        }
        let (tables, grains) = (tables_bytes / TABLE_BYTES, grains_bytes / GRAIN_BYTES);
        Ok((Self { size_bytes, directory_offset, tables_offset, tables, grains_offset, grains }, volatile_offset))
    }
}

fn check_volatile(sector: &[u8]) -> Result<(), String> {
    let fields = Fields(sector);
    if fields.le64(0)? != VOLATILE_MAGIC {
        return Err("is damaged: there is no second header where its first says".into());
    }
    match fields.le64(24)? {
        0 => Ok(()),
        _ => Err("was not closed, and what is in its journal is not read: open it once in VMware".into()),
    }
}

impl BlockMap for SeSparseMap {
    fn shape(&self) -> Shape {
        Shape {
            size_bytes: self.size_bytes,
            block_bytes: GRAIN_BYTES,
            sector_bytes: SECTOR_BYTES,
            align_bytes: SECTOR_BYTES,
        }
    }

    /// A slice is never of two tables.
    fn load(&self, file: &ImageFile, first: u64, entries: &mut [u64]) -> io::Result<bool> {
        let mut entry = [0];
        file.read_le64(&mut entry, self.directory_offset + first / TABLE_ENTRIES * 8)?;
        let [entry] = entry;
        if entry == 0 {
            return Ok(false);
        }
        let index = entry & u64::from(u32::MAX);
        if entry >> 32 != 0x1000_0000 || index >= self.tables {
            return Err(file.damaged(format!("an entry of its grain directory cannot be {entry:#x}")));
        }
        // Within what a file can have, as the index is one of the tables'.
        let offset = self.tables_offset + index * TABLE_BYTES;
        if !lies_within(offset, TABLE_BYTES, file.length_bytes()) {
            return Err(file.damaged(format!("a grain table cannot lie at {offset}")));
        }
        file.read_le64(entries, offset + first % TABLE_ENTRIES * 8)?;
        Ok(true)
    }

    fn blocks_without_table(&self, _: &ImageFile, first: u64) -> u64 {
        TABLE_ENTRIES - first % TABLE_ENTRIES
    }

    fn meaning(&self, _: u64, entry: u64) -> Meaning {
        match entry >> 60 {
            _ if entry == 0 => Meaning::Nothing,
            // What a guest took back, and zeros.
            1 | 2 => Meaning::Zeros,
            3 => {
                // The twelve low bits of the index come first.
                let index = entry >> 48 & 0xfff | (entry & 0xffff_ffff_ffff) << 12;
                match index < self.grains {
                    true => Meaning::There { offset_bytes: self.grains_offset + index * GRAIN_BYTES },
                    false => Meaning::Damaged("it lies behind the image's grains"),
                }
            }
            _ => Meaning::Damaged("its entry means nothing"),
        }
    }
}
