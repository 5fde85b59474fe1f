//! VirtualBox's Virtual Disk Image, version 1.1: a header, a map with 32 bits for each block, and the blocks.
//!
//! Sources: VirtualBox's manual on the format ("All about VDIs", its forum's topic 8046) and QEMU's block/vdi.c for
//! what it makes and takes.

pub(super) mod new;

use super::chain::{Behind, Body, Opened};
use super::fields::{Fields, lies_within};
use super::image_file::ImageFile;
use super::layer::{BlockMap, Meaning, Shape};
use super::{BlockMapInfo, DISK_MAX_BYTES, ImageError};
use std::io;

const SECTOR_BYTES: u64 = 512;
const SIGNATURE: u32 = 0xbeda_107f;
const VERSION: u32 = 0x0001_0001;

/// A block that was never written, and one that was discarded.
const NEVER_WRITTEN: u32 = u32::MAX;
const DISCARDED: u32 = u32::MAX - 1;

/// VirtualBox makes blocks of 1 MiB.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 4096..=256 << 20;

/// What a header says, in bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VdiMap {
    size_bytes: u64,
    block_bytes: u64,
    map_offset: u64,
    data_offset: u64,
    is_static: bool,
}

impl VdiMap {
    /// Of the first sector of a file of `length_bytes`. The error goes on after the image's path.
    pub(super) fn parse(header: &[u8], length_bytes: u64) -> Result<Self, String> {
        let fields = Fields(header);
        if fields.le32(64)? != SIGNATURE {
            return Err("is no VDI image".into());
        }
        let version = fields.le32(68)?;
        if version != VERSION {
            let (major, minor) = (version >> 16, version & 0xffff);
            return Err(format!("is a VDI of version {major}.{minor}, and only 1.1 is supported"));
        }
        let is_static = match fields.le32(76)? {
            1 => false,
            2 => true,
            3 | 4 => return Err(DEPENDS.into()),
            other => return Err(format!("is a VDI of the type {other}, which is not known")),
        };
        let (map_offset, data_offset) = (u64::from(fields.le32(340)?), u64::from(fields.le32(344)?));
        let sector_bytes = fields.le32(360)?;
        if u64::from(sector_bytes) != SECTOR_BYTES {
            return Err(format!("is a VDI with sectors of {sector_bytes} bytes, and only 512 are supported"));
        }
        let size_bytes = fields.le64(368)?;
        let block_bytes = fields.le32(376)?;
        if !block_bytes.is_power_of_two() || !BLOCK_BYTES.contains(&block_bytes) {
            return Err(format!("has blocks of {block_bytes} bytes: 4 KiB to 256 MiB, a power of two, are supported"));
        }
        if fields.le32(380)? != 0 {
            return Err("has something in front of each of its blocks, which is not supported".into());
        }
        // UUIDs of what the image is a difference from.
        if fields.bytes::<32>(424)? != [0; 32] {
            return Err(DEPENDS.into());
        }
        // VirtualBox makes disks of odd sizes of raw files that have them.
        let size_bytes = size_bytes.checked_next_multiple_of(SECTOR_BYTES).filter(|&bytes| bytes <= DISK_MAX_BYTES);
        let size_bytes = size_bytes.ok_or("claims to hold more bytes than a disk can have")?;
        let (block_bytes, blocks) = (u64::from(block_bytes), u64::from(fields.le32(384)?));
        if size_bytes.div_ceil(block_bytes) > blocks {
            return Err(format!("is damaged: its disk of {size_bytes} bytes has more blocks than its map"));
        }
        let map_bytes = size_bytes.div_ceil(block_bytes) * 4;
        if !map_offset.is_multiple_of(SECTOR_BYTES) || map_offset < SECTOR_BYTES {
            return Err("is damaged: its map does not begin with a sector behind the header".into());
        }
        if !lies_within(map_offset, map_bytes, length_bytes) {
            return Err("is damaged: its map does not lie within the file".into());
        }
        if !data_offset.is_multiple_of(SECTOR_BYTES) || data_offset < map_offset + map_bytes {
            return Err("is damaged: its data do not begin with a sector behind its map".into());
        }
        Ok(Self { size_bytes, block_bytes, map_offset, data_offset, is_static })
    }
}

const DEPENDS: &str =
    "is a VDI that depends on another image, which is not supported: merge them with `VBoxManage clonemedium`";

/// Reads the header of the image in `file`.
pub(super) fn read(file: &ImageFile) -> Result<Opened, ImageError> {
    let header = file.read_up_to(0, SECTOR_BYTES as usize)?;
    let map = VdiMap::parse(&header, file.length_bytes()).map_err(|problem| file.unusable(problem))?;
    let info = BlockMapInfo {
        size_bytes: map.size_bytes,
        block_bytes: Some(map.block_bytes),
        sector_bytes: None,
        subformat: if map.is_static { "static" } else { "dynamic" },
        parent: None,
        is_dirty: false,
    };
    Ok(Opened { body: Body::Map(Box::new(map)), info, behind: Behind::Nothing, identity: [0; 16], note: None })
}

impl BlockMap for VdiMap {
    fn shape(&self) -> Shape {
        Shape {
            size_bytes: self.size_bytes,
            block_bytes: self.block_bytes,
            sector_bytes: SECTOR_BYTES,
            align_bytes: 1 << (self.data_offset | self.block_bytes).trailing_zeros(),
        }
    }

    fn load(&self, file: &ImageFile, first: u64, entries: &mut [u64]) -> io::Result<bool> {
        file.read_le32(entries, self.map_offset + first * 4)?;
        Ok(true)
    }

    fn is_full(&self) -> bool {
        self.is_static
    }

    fn meaning(&self, _block: u64, entry: u64) -> Meaning {
        if entry == u64::from(NEVER_WRITTEN) {
            Meaning::Nothing
        } else if entry == u64::from(DISCARDED) {
            Meaning::Zeros
        } else {
            // 32 bits times 28, and another 32.
            Meaning::There { offset_bytes: self.data_offset + entry * self.block_bytes }
        }
    }
}
