//! QEMU's former format QED: two levels of tables, of 64 bits an entry, and a backing file.
//!
//! Source: QEMU's docs/interop/qed_spec.rst.

use super::chain::{Backing, Behind, Body, Opened};
use super::fields::{Fields, lies_within};
use super::image_file::ImageFile;
use super::layer::{BlockMap, Meaning, Shape};
use super::{BlockMapInfo, DISK_MAX_BYTES, ImageError};
use std::io;

const HEADER_BYTES: usize = 64;
const CLUSTER_BYTES: std::ops::RangeInclusive<u32> = 4 << 10..=64 << 20;
const TABLE_CLUSTERS: std::ops::RangeInclusive<u32> = 1..=16;
const NAME_MAX_BYTES: u32 = 1023;

const HAS_BACKING: u64 = 1;
/// Tables may say what is not so, but nothing that harms who reads.
const NEEDS_CHECK: u64 = 2;
const BACKING_IS_RAW: u64 = 4;

/// What a header says, in bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QedMap {
    size_bytes: u64,
    cluster_bytes: u64,
    table_bytes: u64,
    header_bytes: u64,
    l1_offset: u64,
    features: u64,
    /// Where the backing file's name lies, and how long it is.
    name: (u32, u32),
}

impl QedMap {
    /// Of the first bytes of a file of `length_bytes`. The error goes on after the image's path.
    pub(super) fn parse(header: &[u8], length_bytes: u64) -> Result<Self, String> {
        let fields = Fields(header);
        if !fields.begins_with(b"QED\0") {
            return Err("is no QED image".into());
        }
        let (cluster_bytes, table_clusters, header_clusters) = (fields.le32(4)?, fields.le32(8)?, fields.le32(12)?);
        if !cluster_bytes.is_power_of_two() || !CLUSTER_BYTES.contains(&cluster_bytes) {
            return Err(format!(
                "has clusters of {cluster_bytes} bytes: 4 KiB to 64 MiB, a power of two, are supported"
            ));
        }
        if !table_clusters.is_power_of_two() || !TABLE_CLUSTERS.contains(&table_clusters) {
            return Err(format!("has tables of {table_clusters} clusters: 1, 2, 4, 8 and 16 are supported"));
        }
        let features = fields.le64(16)?;
        let unknown = features & !(HAS_BACKING | NEEDS_CHECK | BACKING_IS_RAW);
        if unknown != 0 {
            return Err(format!("needs features that are not known here (bits {unknown:#x})"));
        }
        let (l1_offset, size_bytes) = (fields.le64(40)?, fields.le64(48)?);
        let cluster_bytes = u64::from(cluster_bytes);
        let (table_bytes, header_bytes) =
            (u64::from(table_clusters) * cluster_bytes, u64::from(header_clusters) * cluster_bytes);
        let entries = u128::from(table_bytes / 8);
        let is_possible = u128::from(size_bytes) <= entries * entries * u128::from(cluster_bytes);
        if size_bytes > DISK_MAX_BYTES || !is_possible || !size_bytes.is_multiple_of(512) {
            return Err(format!("claims to hold {size_bytes} bytes, which its tables cannot"));
        }
        if header_bytes == 0 || !lies_within(0, header_bytes, length_bytes) {
            return Err("is damaged: its header does not lie within the file".into());
        }
        let is_there = lies_within(l1_offset, table_bytes, length_bytes) && l1_offset >= header_bytes;
        if !l1_offset.is_multiple_of(cluster_bytes) || !is_there {
            return Err("is damaged: its L1 table does not lie within the file, behind the header".into());
        }
        let name = (fields.le32(56)?, fields.le32(60)?);
        if features & HAS_BACKING != 0 {
            if name.1 > NAME_MAX_BYTES || name.1 == 0 {
                return Err(format!("is damaged: its backing file's name has {} bytes", name.1));
            }
            if (name.0 as usize) < HEADER_BYTES || !lies_within(name.0.into(), name.1.into(), header_bytes) {
                return Err("is damaged: its backing file's name does not lie within the header".into());
            }
        }
        Ok(Self { size_bytes, cluster_bytes, table_bytes, header_bytes, l1_offset, features, name })
    }

    /// Whether a range of the file lies over what is known to be something else.
    fn is_over_own(&self, offset: u64, length: u64) -> bool {
        offset < self.header_bytes
            || (offset < self.l1_offset + self.table_bytes && self.l1_offset < offset.saturating_add(length))
    }
}

impl BlockMap for QedMap {
    fn shape(&self) -> Shape {
        Shape {
            size_bytes: self.size_bytes,
            block_bytes: self.cluster_bytes,
            sector_bytes: 512,
            align_bytes: self.cluster_bytes,
        }
    }

    /// A slice is never of two tables: they have at least as many entries.
    fn load(&self, file: &ImageFile, first: u64, entries: &mut [u64]) -> io::Result<bool> {
        let per_table = self.table_bytes / 8;
        let mut table = [0];
        file.read_le64(&mut table, self.l1_offset + first / per_table * 8)?;
        let [offset] = table;
        if offset == 0 {
            return Ok(false);
        }
        let is_there = lies_within(offset, self.table_bytes, file.length_bytes());
        if !offset.is_multiple_of(self.cluster_bytes) || !is_there || self.is_over_own(offset, self.table_bytes) {
            return Err(file.damaged(format!("an L2 table cannot lie at {offset}")));
        }
        file.read_le64(entries, offset + first % per_table * 8)?;
        Ok(true)
    }

    fn blocks_without_table(&self, _: &ImageFile, first: u64) -> u64 {
        let per_table = self.table_bytes / 8;
        per_table - first % per_table
    }

    fn meaning(&self, _: u64, entry: u64) -> Meaning {
        match entry {
            0 => Meaning::Nothing,
            1 => Meaning::Zeros,
            offset if self.is_over_own(offset, self.cluster_bytes) => {
                Meaning::Damaged("it lies over the image's header or L1 table")
            }
            offset_bytes => Meaning::There { offset_bytes },
        }
    }
}

/// Reads the header of the image in `file`.
pub(super) fn read(file: &ImageFile) -> Result<Opened, ImageError> {
    let header = file.read_up_to(0, HEADER_BYTES)?;
    let map = QedMap::parse(&header, file.length_bytes()).map_err(|problem| file.unusable(problem))?;
    let behind = if map.features & HAS_BACKING == 0 {
        Behind::Nothing
    } else {
        let name = String::from_utf8(file.read_up_to(map.name.0.into(), map.name.1 as usize)?);
        let name = name.ok().filter(|name| !name.contains('\0'));
        let name = name.ok_or_else(|| file.unusable("is damaged: its backing file's name is none"))?;
        Behind::Backing(Backing { name, is_raw: map.features & BACKING_IS_RAW != 0 })
    };
    let info = BlockMapInfo {
        size_bytes: map.size_bytes,
        block_bytes: Some(map.cluster_bytes),
        sector_bytes: None,
        subformat: "dynamic",
        parent: behind.name(),
        is_dirty: map.features & NEEDS_CHECK != 0,
    };
    Ok(Opened { body: Body::Map(Box::new(map)), info, behind, identity: [0; 16], note: None })
}
