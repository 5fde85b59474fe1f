//! Hyper-V's VHDX: fixed, dynamic and differencing.
//!
//! A header section of 1 MiB, with two headers of which the later one counts, says where a log lies; what the log holds
//! of whoever had the image open last is read in its place ([`log`]), or done ([`replay`]). Two copies of a region
//! table say where the metadata lie, which are the sizes, and the block allocation table: 64 bits for each block, and
//! after every chunk of blocks an entry for the bitmap of the chunk's sectors, which differencing disks have.
//!
//! Source: [MS-VHDX], version 7.0; sections are named where they matter.

mod header;
mod log;
mod metadata;
pub(super) mod new;
mod parent;
mod replay;
mod unfinished;

use super::BlockMapInfo;
use super::ImageError;
use super::chain::{Behind, Body, Opened};
use super::fields::lies_within;
use super::image_file::ImageFile;
use super::layer::{BlockMap, Meaning, Shape};
use header::{Header, Regions};
use metadata::Metadata;
pub(super) use replay::replay_log;
use std::io;

const MIB: u64 = 1 << 20;

/// Sectors whose bits a bitmap has: as many as 1 MiB has bits.
const CHUNK_SECTORS: u64 = 1 << 23;

/// The header section, with the headers that no log can change in front of the region tables.
const HEADERS_BYTES: u64 = MIB;

/// A disk whose blocks a table finds.
#[derive(Debug)]
struct Table {
    metadata: Metadata,
    table_offset: u64,
    /// What no block may lie over.
    own: Vec<(u64, u64)>,
}

impl Table {
    /// Where in the file a number of an entry lies.
    fn entry_offset(&self, index: u64) -> u64 {
        self.table_offset + index * 8
    }

    /// Entries of the table.
    fn entries(metadata: &Metadata) -> u64 {
        let chunk_blocks = metadata.chunk_blocks();
        let blocks = metadata.size_bytes.div_ceil(metadata.block_bytes);
        if metadata.has_parent {
            blocks.div_ceil(chunk_blocks) * (chunk_blocks + 1)
        } else {
            blocks + blocks.saturating_sub(1) / chunk_blocks
        }
    }

    /// Where what an entry is for lies; an error if it cannot be there.
    fn place(&self, entry: u64, length: u64) -> Result<u64, &'static str> {
        let start = entry >> 20 << 20;
        let end = start.saturating_add(length);
        let is_over = |&(offset, length): &(u64, u64)| start < offset + length && offset < end;
        if self.own.iter().any(is_over) { Err("it lies over the image's headers or tables") } else { Ok(start) }
    }
}

impl BlockMap for Table {
    fn shape(&self) -> Shape {
        Shape {
            size_bytes: self.metadata.size_bytes,
            block_bytes: self.metadata.block_bytes,
            sector_bytes: self.metadata.sector_bytes,
            // Places are whole MiB, but parts of blocks are sectors.
            align_bytes: if self.metadata.has_parent { self.metadata.sector_bytes } else { MIB },
        }
    }

    fn load(&self, file: &ImageFile, first: u64, entries: &mut [u64]) -> io::Result<bool> {
        let chunk_blocks = self.metadata.chunk_blocks();
        let (mut block, mut rest) = (first, entries);
        while !rest.is_empty() {
            let left = usize::try_from(chunk_blocks - block % chunk_blocks).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at_mut(left.min(rest.len()));
            file.read_le64(now, self.entry_offset(block + block / chunk_blocks))?;
            block += now.len() as u64;
            rest = later;
        }
        Ok(true)
    }

    /// Section 2.5.1.1.
    fn meaning(&self, _: u64, entry: u64) -> Meaning {
        let there = |make: fn(u64) -> Meaning| match self.place(entry, self.metadata.block_bytes) {
            Ok(offset) => make(offset),
            Err(problem) => Meaning::Damaged(problem),
        };
        match entry & 7 {
            0 => Meaning::Nothing,
            // Undefined, zero and unmapped, and what unmapped was before version 1.
            1 | 2 | 3 | 5 => Meaning::Zeros,
            6 => there(|offset_bytes| Meaning::There { offset_bytes }),
            7 if self.metadata.has_parent => there(|offset_bytes| Meaning::Partly { offset_bytes }),
            _ => Meaning::Damaged("its entry means nothing"),
        }
    }

    fn load_presence(&self, file: &ImageFile, first: u64, bits: &mut [u64]) -> io::Result<()> {
        let mut entry = [0];
        let index = (first / CHUNK_SECTORS + 1) * (self.metadata.chunk_blocks() + 1) - 1;
        file.read_le64(&mut entry, self.entry_offset(index))?;
        let place = match entry[0] & 7 {
            6 => self.place(entry[0], MIB),
            _ => Err("it is not there"),
        };
        let offset = place.map_err(|problem| file.damaged(format!("of the bitmap of a block, {problem}")))?;
        file.read_le64(bits, offset + first % CHUNK_SECTORS / 8)
    }
}

/// Reads the headers, the log and the metadata of the image in `file`.
pub(super) fn read(file: &mut ImageFile) -> Result<Opened, ImageError> {
    let header = Header::find(file)?;
    let note = log::replay(file, &header)?;
    let regions = Regions::find(file, &header)?;
    let metadata = Metadata::read(file, regions.metadata)?;
    let (table_offset, table_bytes) = regions.table;
    // A disk is at most 64 TiB, so this fits.
    if !lies_within(0, Table::entries(&metadata) * 8, table_bytes) {
        return Err(file.unusable("is damaged: its disk has more blocks than its table"));
    }
    let behind = if metadata.has_parent { parent::of(file, &metadata)? } else { Behind::Nothing };
    let info = BlockMapInfo {
        size_bytes: metadata.size_bytes,
        block_bytes: Some(metadata.block_bytes),
        sector_bytes: Some(metadata.sector_bytes),
        subformat: match metadata {
            Metadata { has_parent: true, .. } => "differencing",
            Metadata { is_fixed: true, .. } => "fixed",
            _ => "dynamic",
        },
        parent: behind.name(),
        is_dirty: note.is_some(),
    };
    let note = note.map(str::to_owned);
    let own = vec![(0, HEADERS_BYTES), regions.table, regions.metadata, header.log];
    let identity = header.data_write_id;
    Ok(Opened { body: Body::Map(Box::new(Table { metadata, table_offset, own })), info, behind, identity, note })
}
