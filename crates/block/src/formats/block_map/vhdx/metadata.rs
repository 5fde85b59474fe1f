//! The metadata: sizes, and what a disk is a difference from. Section 2.6.

use super::super::fields::Fields;
use super::super::image_file::ImageFile;
use super::header::guid;
use super::{CHUNK_SECTORS, MIB};
use crate::ImageError;

const TABLE_BYTES: usize = 64 << 10;
const ITEMS_MAX: u16 = 2047;
const ITEM_MAX_BYTES: u32 = 1 << 20;

/// The largest disk: section 2.6.2.2.
pub(super) const SIZE_MAX_BYTES: u64 = 64 << 40;

const FILE_PARAMETERS: [u8; 16] = guid(0xcaa1_6737, 0xfa36, 0x4d43, 0xb3b6_33f0_aa44_e76b);
const DISK_SIZE: [u8; 16] = guid(0x2fa5_4224, 0xcd1b, 0x4876, 0xb211_5dbe_d83b_f4b8);
const DISK_ID: [u8; 16] = guid(0xbeca_12ab, 0xb2e6, 0x4523, 0x93ef_c309_e000_c746);
const LOGICAL_SECTOR: [u8; 16] = guid(0x8141_bf1d, 0xa96f, 0x4709, 0xba47_f233_a8fa_ab5f);
const PHYSICAL_SECTOR: [u8; 16] = guid(0xcda3_48c7, 0x445d, 0x4471, 0x9cc9_e988_5251_c556);
const PARENT_LOCATOR: [u8; 16] = guid(0xa8d3_5f2d, 0xb30b, 0x454d, 0xabf7_d3d8_4834_ab0c);

/// What they say, in bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) size_bytes: u64,
    pub(super) block_bytes: u64,
    /// Of a logical sector of the disk, which a bit of a bitmap is for.
    pub(super) sector_bytes: u64,
    pub(super) has_parent: bool,
    /// Blocks keep their places whatever they hold.
    pub(super) is_fixed: bool,
    /// The parent locator, as it lies in the file.
    pub(super) locator: Vec<u8>,
}

/// Where items lie in the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Items {
    file_parameters: Option<(u32, u32)>,
    disk_size: Option<(u32, u32)>,
    logical_sector: Option<(u32, u32)>,
    locator: Option<(u32, u32)>,
    /// Which are there, but say nothing that is needed.
    others: [Option<(u32, u32)>; 2],
}

impl Items {
    /// Of a region of `region_bytes`. The error goes on after the image's path.
    fn parse(table: &[u8], region_bytes: u64) -> Result<Self, String> {
        let fields = Fields(table);
        if !fields.begins_with(b"metadata") {
            return Err("is damaged: it has no table of metadata".into());
        }
        let count = fields.le16(10)?;
        if count > ITEMS_MAX {
            return Err(format!("is damaged: it has {count} metadata, more than there can be"));
        }
        let mut items = Self::default();
        for index in 0..usize::from(count) {
            let fields = fields.from(32 + index * 32);
            let (id, offset, length, flags) = (fields.bytes(0)?, fields.le32(16)?, fields.le32(20)?, fields.le32(24)?);
            let (is_user, is_required) = (flags & 1 == 1, flags & 4 == 4);
            let [disk_id, physical_sector] = &mut items.others;
            let known = match id {
                _ if is_user && !is_required => continue,
                FILE_PARAMETERS => &mut items.file_parameters,
                DISK_SIZE => &mut items.disk_size,
                LOGICAL_SECTOR => &mut items.logical_sector,
                PARENT_LOCATOR => &mut items.locator,
                DISK_ID => disk_id,
                PHYSICAL_SECTOR => physical_sector,
                _ if is_required => return Err("needs metadata that are not known here".into()),
                _ => continue,
            };
            let is_inside = offset as usize >= TABLE_BYTES && u64::from(offset) + u64::from(length) <= region_bytes;
            if !is_inside || length > ITEM_MAX_BYTES {
                return Err("is damaged: metadata do not lie within their region".into());
            }
            if known.replace((offset, length)).is_some() {
                return Err("is damaged: it has metadata twice".into());
            }
        }
        Ok(items)
    }
}

impl Metadata {
    /// Blocks of a chunk, after which the table has an entry for a bitmap.
    pub(super) fn chunk_blocks(&self) -> u64 {
        CHUNK_SECTORS * self.sector_bytes / self.block_bytes
    }

    /// The region of a disk that has this identity and no parent: the table, then the items.
    pub(super) fn region(&self, disk_id: &[u8; 16]) -> Vec<u8> {
        // Whoever opens the file has to know it; and it is the disk's, not the file's.
        const REQUIRED: u32 = 4;
        const OF_DISK: u32 = 2;
        let parameters = [(self.block_bytes as u32).to_le_bytes(), u32::from(self.is_fixed).to_le_bytes()].concat();
        let sector = (self.sector_bytes as u32).to_le_bytes();
        let items: [(_, _, &[u8]); 5] = [
            (FILE_PARAMETERS, REQUIRED, &parameters),
            (DISK_SIZE, REQUIRED | OF_DISK, &self.size_bytes.to_le_bytes()),
            (DISK_ID, REQUIRED | OF_DISK, disk_id),
            (LOGICAL_SECTOR, REQUIRED | OF_DISK, &sector),
            (PHYSICAL_SECTOR, REQUIRED | OF_DISK, &4096_u32.to_le_bytes()),
        ];
        let mut region = vec![0; 32];
        region[..8].copy_from_slice(b"metadata");
        region[10..12].copy_from_slice(&(items.len() as u16).to_le_bytes());
        let mut offset = TABLE_BYTES as u32;
        for (id, flags, bytes) in items {
            region.extend(id);
            for number in [offset, bytes.len() as u32, flags, 0] {
                region.extend(number.to_le_bytes());
            }
            offset += bytes.len() as u32;
        }
        region.resize(TABLE_BYTES, 0);
        items.iter().for_each(|(_, _, bytes)| region.extend(*bytes));
        region
    }

    /// Of the image in `file`, whose metadata lie there.
    pub(super) fn read(file: &ImageFile, region: (u64, u64)) -> Result<Self, ImageError> {
        let (region_offset, region_bytes) = region;
        let table = file.read_up_to(region_offset, TABLE_BYTES)?;
        let items = Items::parse(&table, region_bytes).map_err(|problem| file.unusable(problem))?;
        let item = |place: Option<(u32, u32)>, name: &str| match place {
            Some((offset, length)) => file.read_up_to(region_offset + u64::from(offset), length as usize),
            None => Err(file.unusable(format!("is damaged: it does not say its {name}"))),
        };
        let parameters = item(items.file_parameters, "block size")?;
        let (size, sector) = (item(items.disk_size, "size")?, item(items.logical_sector, "sector size")?);
        let metadata = Self::parse(&parameters, &size, &sector).map_err(|problem| file.unusable(problem))?;
        let locator = if metadata.has_parent { item(items.locator, "parent")? } else { Vec::new() };
        Ok(Self { locator, ..metadata })
    }

    /// The error goes on after the image's path.
    fn parse(parameters: &[u8], size: &[u8], sector: &[u8]) -> Result<Self, String> {
        let parameters = Fields(parameters);
        let (block_bytes, flags) = (u64::from(parameters.le32(0)?), parameters.le32(4)?);
        if !block_bytes.is_power_of_two() || !(MIB..=256 * MIB).contains(&block_bytes) {
            return Err(format!("has blocks of {block_bytes} bytes: 1 MiB to 256 MiB, a power of two, are supported"));
        }
        let sector_bytes = u64::from(Fields(sector).le32(0)?);
        if !matches!(sector_bytes, 512 | 4096) {
            return Err(format!("has sectors of {sector_bytes} bytes: 512 and 4096 are supported"));
        }
        let size_bytes = Fields(size).le64(0)?;
        if size_bytes > SIZE_MAX_BYTES {
            return Err(format!("claims to hold {size_bytes} bytes, more than a VHDX can"));
        }
        if !size_bytes.is_multiple_of(sector_bytes) {
            return Err(format!("is damaged: its disk of {size_bytes} bytes does not end with a sector"));
        }
        let (is_fixed, has_parent) = (flags & 1 == 1, flags & 2 == 2);
        Ok(Self { size_bytes, block_bytes, sector_bytes, has_parent, is_fixed, locator: Vec::new() })
    }
}
