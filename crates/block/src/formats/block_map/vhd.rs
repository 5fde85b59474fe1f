//! Virtual PC's and Hyper-V's VHD: fixed, dynamic and differencing.
//!
//! A footer of 512 bytes ends the file and says what it is. A fixed disk's bytes lie in front of it. The others have a
//! copy of the footer at the beginning, and a header that says where the block allocation table lies: 32 bits for each
//! block, which begins with a bitmap of its sectors. In a differencing disk, a sector whose bit is not set is the
//! parent's; in a dynamic one such a sector was never written, and its bytes are zeros, so that the bitmap need not be
//! looked at, as QEMU has it.
//!
//! Source: Microsoft's Virtual Hard Disk Image Format Specification, version 1.0; which size counts: QEMU's
//! block/vpc.c.

mod footer;
pub(super) mod new;
mod parent;

use super::BlockMapInfo;
use super::ImageError;
use super::chain::{Behind, Body, Opened};
use super::fields::{Fields, lies_within};
use super::image_file::ImageFile;
use super::layer::{BlockMap, Meaning, SLICE_WORDS, Shape};
use footer::Kind;
use std::io;

pub(super) const SECTOR_BYTES: u64 = 512;
const HEADER_BYTES: usize = 1024;

/// An entry of a block that is not there.
const ABSENT: u64 = u32::MAX as u64;

/// What a dynamic disk's header says, in bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) table_offset: u64,
    pub(super) block_bytes: u64,
    pub(super) parent_id: [u8; 16],
    /// Its checksum is not that of its bytes.
    pub(super) is_suspect: bool,
}

impl Header {
    /// For a disk of `size_bytes` in a file of `length_bytes`. The error goes on after the image's path.
    pub(super) fn parse(header: &[u8], size_bytes: u64, length_bytes: u64) -> Result<Self, String> {
        let fields = Fields(header);
        if !fields.begins_with(b"cxsparse") {
            return Err("is damaged: there is no header where its footer says".into());
        }
        let version = fields.be32(24)?;
        if version >> 16 != 1 {
            return Err(format!("has a header of version {}, and only 1 is supported", version >> 16));
        }
        let (table_offset, entries, block_bytes) = (fields.be64(16)?, fields.be32(28)?, fields.be32(32)?);
        if !block_bytes.is_power_of_two() || u64::from(block_bytes) < SECTOR_BYTES {
            return Err(format!("has blocks of {block_bytes} bytes: a power of two from 512 on is supported"));
        }
        let block_bytes = u64::from(block_bytes);
        let blocks = size_bytes.div_ceil(block_bytes);
        if blocks > u64::from(entries) {
            return Err(format!("is damaged: its disk of {size_bytes} bytes has more blocks than its table"));
        }
        if !lies_within(table_offset, blocks * 4, length_bytes) {
            return Err("is damaged: its table does not lie within the file".into());
        }
        let is_suspect = footer::checksum(header.get(..HEADER_BYTES).unwrap_or_default(), 36) != fields.be32(36)?;
        Ok(Self { table_offset, block_bytes, parent_id: fields.bytes(40)?, is_suspect })
    }
}

/// A disk that lies in the file in one piece, from the beginning on: one block.
#[derive(Debug)]
struct Fixed {
    size_bytes: u64,
}

impl BlockMap for Fixed {
    fn shape(&self) -> Shape {
        Shape {
            size_bytes: self.size_bytes,
            block_bytes: self.size_bytes.max(SECTOR_BYTES),
            sector_bytes: SECTOR_BYTES,
            align_bytes: 1 << 16,
        }
    }

    fn load(&self, _: &ImageFile, _: u64, entries: &mut [u64]) -> io::Result<bool> {
        entries.fill(0);
        Ok(true)
    }

    fn is_full(&self) -> bool {
        true
    }

    fn meaning(&self, _: u64, entry: u64) -> Meaning {
        Meaning::There { offset_bytes: entry }
    }
}

/// A disk whose blocks a table finds.
#[derive(Debug)]
struct Table {
    size_bytes: u64,
    block_bytes: u64,
    table_offset: u64,
    header_offset: u64,
    is_differencing: bool,
}

impl Table {
    /// Bytes of the bitmap in front of each block: a bit for each sector, in whole sectors.
    fn bitmap_bytes(&self) -> u64 {
        self.block_bytes.div_ceil(SECTOR_BYTES * 8).next_multiple_of(SECTOR_BYTES)
    }

    /// Where a block's bitmap lies, which the block follows; an error if it cannot be there.
    fn bitmap_offset(&self, entry: u64) -> Result<u64, &'static str> {
        let start = entry * SECTOR_BYTES;
        let end = start + self.bitmap_bytes() + self.block_bytes;
        let table_bytes = self.size_bytes.div_ceil(self.block_bytes) * 4;
        let own = [(0, SECTOR_BYTES), (self.header_offset, HEADER_BYTES as u64), (self.table_offset, table_bytes)];
        let is_over = |&(offset, length): &(u64, u64)| start < offset + length && offset < end;
        if own.iter().any(is_over) { Err("it lies over the image's header or table") } else { Ok(start) }
    }
}

impl BlockMap for Table {
    fn shape(&self) -> Shape {
        Shape {
            size_bytes: self.size_bytes,
            block_bytes: self.block_bytes,
            sector_bytes: SECTOR_BYTES,
            align_bytes: SECTOR_BYTES,
        }
    }

    fn load(&self, file: &ImageFile, first: u64, entries: &mut [u64]) -> io::Result<bool> {
        file.read_be32(entries, self.table_offset + first * 4)?;
        Ok(true)
    }

    fn meaning(&self, _: u64, entry: u64) -> Meaning {
        if entry == ABSENT {
            return Meaning::Nothing;
        }
        match self.bitmap_offset(entry) {
            Err(problem) => Meaning::Damaged(problem),
            Ok(offset) if self.is_differencing => Meaning::Partly { offset_bytes: offset + self.bitmap_bytes() },
            Ok(offset) => Meaning::There { offset_bytes: offset + self.bitmap_bytes() },
        }
    }

    fn load_presence(&self, file: &ImageFile, first: u64, bits: &mut [u64]) -> io::Result<()> {
        let block_sectors = self.block_bytes / SECTOR_BYTES;
        let mut entry = [0];
        file.read_be32(&mut entry, self.table_offset + first / block_sectors * 4)?;
        let offset = self.bitmap_offset(entry[0]).map_err(|problem| file.damaged(format!("of a block, {problem}")))?;
        let mut bytes = [0; SLICE_WORDS * 8];
        let bitmap = bytes.get_mut(..bits.len() * 8).ok_or(io::ErrorKind::InvalidInput)?;
        // Of a small block, the bitmap's sector has more bytes than are wanted.
        file.read(bitmap, offset + first % block_sectors / 8)?;
        // The first sector has the highest bit.
        for (word, bytes) in bits.iter_mut().zip(bitmap.as_chunks().0) {
            *word = u64::from_be_bytes(*bytes).reverse_bits();
        }
        Ok(())
    }
}

/// Reads the footer and header of the image in `file`.
pub(super) fn read(file: &ImageFile) -> Result<Opened, ImageError> {
    let (footer, mut note) = footer::find(file)?;
    let size_bytes = footer.size_bytes().map_err(|problem| file.unusable(problem))?;
    let identity = footer.id;
    if footer.kind == Kind::Fixed {
        if !lies_within(0, size_bytes, file.length_bytes().saturating_sub(SECTOR_BYTES)) {
            return Err(file.unusable(format!("is damaged: its disk of {size_bytes} bytes is not all in the file")));
        }
        let info = BlockMapInfo {
            size_bytes,
            block_bytes: None,
            sector_bytes: None,
            subformat: "fixed",
            parent: None,
            is_dirty: false,
        };
        return Ok(Opened {
            body: Body::Map(Box::new(Fixed { size_bytes })),
            info,
            behind: Behind::Nothing,
            identity,
            note,
        });
    }
    let bytes = file.read_up_to(footer.header_offset, HEADER_BYTES)?;
    let header = Header::parse(&bytes, size_bytes, file.length_bytes()).map_err(|problem| file.unusable(problem))?;
    if header.is_suspect {
        note = Some("the checksum of its header is wrong".to_owned());
    }
    let is_differencing = footer.kind == Kind::Differencing;
    let map = Table {
        size_bytes,
        block_bytes: header.block_bytes,
        table_offset: header.table_offset,
        header_offset: footer.header_offset,
        is_differencing,
    };
    let behind = if is_differencing { parent::of(file, &bytes, header.parent_id)? } else { Behind::Nothing };
    let info = BlockMapInfo {
        size_bytes,
        block_bytes: Some(header.block_bytes),
        sector_bytes: None,
        subformat: if is_differencing { "differencing" } else { "dynamic" },
        parent: behind.name(),
        is_dirty: false,
    };
    Ok(Opened { body: Body::Map(Box::new(map)), info, behind, identity, note })
}
