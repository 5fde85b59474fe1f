//! Parallels' expandable images: a header, a table of 32 bits for each cluster, and the clusters.
//!
//! Its extensions are dirty bitmaps, and others that who does not know them must not change; for who reads, nothing in
//! them matters.
//!
//! Source: QEMU's docs/interop/parallels.rst.

use super::chain::{Behind, Body, Opened};
use super::fields::{Fields, lies_within};
use super::image_file::ImageFile;
use super::layer::{BlockMap, Meaning, Shape};
use super::{BlockMapInfo, DISK_MAX_BYTES, ImageError};
use std::io;

const SECTOR_BYTES: u64 = 512;
const HEADER_BYTES: u64 = 64;

/// In the place of `in_use` while somebody writes.
const IN_USE: u32 = 0x746f_6e59;

/// Longest cluster: what is usual is 1 MiB.
const CLUSTER_MAX_SECTORS: u32 = 1 << 20;

/// What a header says, in bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParallelsMap {
    size_bytes: u64,
    cluster_bytes: u64,
    /// What an entry counts.
    unit_bytes: u64,
    data_offset: u64,
    is_in_use: bool,
}

impl ParallelsMap {
    /// Of the first bytes of a file of `length_bytes`. The error goes on after the image's path.
    pub(super) fn parse(header: &[u8], length_bytes: u64) -> Result<Self, String> {
        let fields = Fields(header);
        let is_extended = match &fields.bytes(0)? {
            b"WithoutFreeSpace" => false,
            b"WithouFreSpacExt" => true,
            _ => return Err("is no Parallels image".into()),
        };
        let version = fields.le32(16)?;
        if version != 2 {
            return Err(format!("is a Parallels image of version {version}, and only 2 is supported"));
        }
        let (cluster_sectors, entries) = (fields.le32(28)?, u64::from(fields.le32(32)?));
        if cluster_sectors == 0 || cluster_sectors > CLUSTER_MAX_SECTORS {
            return Err(format!("has clusters of {cluster_sectors} sectors: 1 to {CLUSTER_MAX_SECTORS} are supported"));
        }
        // The older form has 32 bits for it.
        let sectors = if is_extended { fields.le64(36)? } else { u64::from(fields.le32(36)?) };
        let size_bytes = sectors.checked_mul(SECTOR_BYTES).filter(|&bytes| bytes <= DISK_MAX_BYTES);
        let size_bytes = size_bytes.ok_or("claims to hold more bytes than a disk can have")?;
        if !lies_within(HEADER_BYTES, entries * 4, length_bytes) {
            return Err("is damaged: its table does not lie within the file".into());
        }
        let table_end = (HEADER_BYTES + entries * 4).next_multiple_of(SECTOR_BYTES);
        let data_offset = match u64::from(fields.le32(48)?) * SECTOR_BYTES {
            0 => table_end,
            offset => offset,
        };
        if data_offset < HEADER_BYTES + entries * 4 {
            return Err("is damaged: its data do not begin behind its table".into());
        }
        let cluster_bytes = u64::from(cluster_sectors) * SECTOR_BYTES;
        if size_bytes.div_ceil(cluster_bytes) > entries {
            return Err(format!("is damaged: its disk of {size_bytes} bytes has more clusters than its table"));
        }
        let unit_bytes = if is_extended { cluster_bytes } else { SECTOR_BYTES };
        let is_in_use = fields.le32(44)? == IN_USE;
        Ok(Self { size_bytes, cluster_bytes, unit_bytes, data_offset, is_in_use })
    }
}

impl BlockMap for ParallelsMap {
    fn shape(&self) -> Shape {
        Shape {
            size_bytes: self.size_bytes,
            block_bytes: self.cluster_bytes,
            sector_bytes: SECTOR_BYTES,
            align_bytes: SECTOR_BYTES,
        }
    }

    fn load(&self, file: &ImageFile, first: u64, entries: &mut [u64]) -> io::Result<bool> {
        file.read_le32(entries, HEADER_BYTES + first * 4)?;
        Ok(true)
    }

    fn meaning(&self, _: u64, entry: u64) -> Meaning {
        // 32 bits times 29.
        let offset_bytes = entry * self.unit_bytes;
        match entry {
            0 => Meaning::Nothing,
            _ if offset_bytes < self.data_offset => Meaning::Damaged("it lies in front of the image's data"),
            _ => Meaning::There { offset_bytes },
        }
    }
}

/// Reads the header of the image in `file`.
pub(super) fn read(file: &ImageFile) -> Result<Opened, ImageError> {
    let header = file.read_up_to(0, HEADER_BYTES as usize)?;
    let map = ParallelsMap::parse(&header, file.length_bytes()).map_err(|problem| file.unusable(problem))?;
    let info = BlockMapInfo {
        size_bytes: map.size_bytes,
        block_bytes: Some(map.cluster_bytes),
        sector_bytes: None,
        subformat: "dynamic",
        parent: None,
        is_dirty: map.is_in_use,
    };
    let note = map.is_in_use.then(|| "it was not closed: what it says is read as it is".to_owned());
    Ok(Opened { body: Body::Map(Box::new(map)), info, behind: Behind::Nothing, identity: [0; 16], note })
}
