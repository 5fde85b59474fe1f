//! Hosted sparse extents (`KDMV`), which may be compressed, and those of ESX before 6.5 (`COWD`).
//!
//! A grain directory says where the grain tables lie, those say where grains lie, both in sectors of 32 bits. A file
//! that was written in one pass has its directory at its end, and a footer that says where.

use super::SECTOR_BYTES;
use super::tables_check::compare_tables;
use crate::formats::ImageError;
use crate::formats::block_map::DISK_MAX_BYTES;
use crate::formats::block_map::fields::{Fields, lies_within};
use crate::formats::block_map::image_file::ImageFile;
use crate::formats::block_map::layer::{BlockMap, Meaning, PACKED_BLOCK_MAX_BYTES, SLICE_WORDS, Shape};
use std::io;
use std::ops::Range;

pub(super) const MAGIC: &[u8] = b"KDMV";
pub(super) const COWD_MAGIC: &[u8] = b"COWD";

/// The line ends of the header are as they were written.
pub(super) const HAS_LINE_ENDS: u32 = 1;
pub(super) const HAS_REDUNDANT_TABLES: u32 = 1 << 1;
/// An entry of 1 is zeros.
pub(super) const HAS_ZEROED_GRAINS: u32 = 1 << 2;
/// By the method that the header says, by which readers here go.
pub(super) const HAS_COMPRESSED_GRAINS: u32 = 1 << 16;
/// Compressed grains have a header each.
pub(super) const HAS_MARKERS: u32 = 1 << 17;

/// What a transfer in text mode changes.
pub(super) const LINE_ENDS: [u8; 4] = *b"\n \r\n";

/// The directory's place when that is said at the end.
pub(super) const AT_END: u64 = u64::MAX;

/// A marker, a copy of the header, a marker: the end of a file that was written in one pass.
const FOOTER_BYTES: u64 = 3 * SECTOR_BYTES;
pub(super) const FOOTER_MARKER: u32 = 3;
pub(super) const END_MARKER: u32 = 0;

/// Most sectors of a grain, and entries of a grain table, as QEMU has them.
const GRAIN_MAX_SECTORS: u64 = 0x20_0000;
const TABLE_MAX_ENTRIES: u32 = 512;

/// In front of a compressed grain: its sector on the disk, and how many bytes follow.
const GRAIN_MARKER_BYTES: usize = 12;

/// Entries of ESX's tables.
const COWD_TABLE_ENTRIES: u64 = 4096;

/// Bytes of what VMware calls a header, where tables may begin right behind it.
const COWD_HEADER_BYTES: u64 = 4 * SECTOR_BYTES;

/// What the header of a hosted sparse extent says, in bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) size_bytes: u64,
    grain_bytes: u64,
    table_entries: u64,
    directory_offset: Option<u64>,
    redundant_offset: Option<u64>,
    /// Where the descriptor lies, and how much room it has.
    pub(super) descriptor: Option<(u64, u64)>,
    pub(super) is_dirty: bool,
    pub(super) is_compressed: bool,
    has_markers: bool,
    has_zeroed_grains: bool,
    has_redundant_tables: bool,
    version: u32,
    /// Its tables lie where its footer says.
    is_stream: bool,
}

impl Header {
    /// By the first sector of the file, and its footer where that counts.
    pub(super) fn read(file: &ImageFile, sector: &[u8]) -> Result<Self, ImageError> {
        let unusable = |problem: String| file.unusable(problem);
        let header = Self::parse(sector).map_err(unusable)?;
        if header.directory_offset.is_some() || header.size_bytes == 0 {
            return Ok(header);
        }
        let cut_off = || unusable("is cut off: there is no footer at its end, which says where its tables lie".into());
        let offset = file.length_bytes().checked_sub(FOOTER_BYTES).ok_or_else(cut_off)?;
        let footer = file.read_up_to(offset, FOOTER_BYTES as usize)?;
        let marker = |at: usize, kind: u32| {
            let fields = Fields(&footer).from(at);
            // The first 64 bits are how many sectors follow.
            Ok::<_, String>(fields.le32(8)? == 0 && fields.le32(12)? == kind)
        };
        let is_footer = marker(0, FOOTER_MARKER).and_then(|is| Ok(is && marker(1024, END_MARKER)?));
        if !is_footer.map_err(unusable)? || !Fields(&footer).from(512).begins_with(MAGIC) {
            return Err(cut_off());
        }
        let last = Self::parse(Fields(&footer).from(512).0).map_err(unusable)?;
        if last.directory_offset.is_none() {
            return Err(unusable("is damaged: its footer does not say where its tables lie".into()));
        }
        let of = |header: &Self| (header.size_bytes, header.grain_bytes, header.table_entries, header.is_compressed);
        if of(&last) != of(&header) {
            return Err(unusable("is damaged: its footer is another disk's than its header".into()));
        }
        Ok(Self { descriptor: header.descriptor.or(last.descriptor), is_stream: true, ..last })
    }

    /// The error goes on after the image's path.
    fn parse(sector: &[u8]) -> Result<Self, String> {
        let fields = Fields(sector);
        let (version, flags) = (fields.le32(4)?, fields.le32(8)?);
        if !(1..=3).contains(&version) {
            return Err(format!("is a VMDK of version {version}, and only 1 to 3 are supported"));
        }
        if flags & HAS_LINE_ENDS != 0 && fields.bytes(73)? != LINE_ENDS {
            return Err("is damaged: it was transferred as if it were text, which changed its line ends".into());
        }
        let (capacity, grain_sectors) = (fields.le64(12)?, fields.le64(20)?);
        let size_bytes = bytes_of(capacity).filter(|&bytes| bytes <= DISK_MAX_BYTES);
        let size_bytes = size_bytes.ok_or("claims to hold more bytes than a disk can have")?;
        if grain_sectors == 0 || grain_sectors > GRAIN_MAX_SECTORS {
            return Err(format!("has grains of {grain_sectors} sectors: 1 to {GRAIN_MAX_SECTORS} are supported"));
        }
        let grain_bytes = grain_sectors * SECTOR_BYTES;
        let table_entries = fields.le32(44)?;
        if table_entries == 0 || table_entries > TABLE_MAX_ENTRIES {
            return Err(format!("has grain tables of {table_entries} entries: 1 to {TABLE_MAX_ENTRIES} are supported"));
        }
        let is_compressed = match fields.bytes::<2>(77).map(u16::from_le_bytes)? {
            0 => false,
            1 => true,
            other => return Err(format!("is compressed by method {other}, and only 1 (deflate) is supported")),
        };
        if is_compressed && grain_bytes > PACKED_BLOCK_MAX_BYTES {
            return Err(format!(
                "has compressed grains of {grain_bytes} bytes: at most {PACKED_BLOCK_MAX_BYTES} are supported"
            ));
        }
        let far = || "is damaged: its tables do not lie within the file".to_owned();
        let directory_offset = match fields.le64(56)? {
            AT_END => None,
            sector => Some(bytes_of(sector).ok_or_else(far)?),
        };
        let has_redundant_tables = flags & HAS_REDUNDANT_TABLES != 0;
        let redundant_offset = bytes_of(fields.le64(48)?).filter(|_| has_redundant_tables);
        let descriptor = match (fields.le64(28)?, fields.le64(36)?) {
            (0, _) | (_, 0) => None,
            (sector, sectors) => {
                let place = bytes_of(sector).zip(bytes_of(sectors));
                Some(place.ok_or("is damaged: its descriptor does not lie within the file")?)
            }
        };
        Ok(Self {
            size_bytes,
            grain_bytes,
            table_entries: table_entries.into(),
            directory_offset,
            redundant_offset,
            descriptor,
            is_dirty: fields.bytes::<1>(72)? != [0],
            is_compressed,
            has_markers: flags & HAS_MARKERS != 0,
            has_zeroed_grains: flags & HAS_ZEROED_GRAINS != 0,
            has_redundant_tables,
            version,
            is_stream: false,
        })
    }
}

/// How grains are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    None,
    /// Each is what zlib made of it.
    Plain,
    /// In front of that is how long it is.
    Marked,
}

/// Where the tables of a file lie, in bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::formats::block_map) struct SparseMap {
    size_bytes: u64,
    grain_bytes: u64,
    table_entries: u64,
    directory_offset: u64,
    /// The directory of the other tables, which count where the first ones are damaged.
    redundant_offset: Option<u64>,
    packing: Packing,
    has_zeroed_grains: bool,
    /// Why it is only read, as a clause that goes on after the file's path.
    only_read: Option<&'static str>,
    /// Who wrote to it last has not closed it.
    is_unclean: bool,
    /// What no table or grain may lie over: where it begins, and how long it is.
    own: Vec<(u64, u64)>,
}

impl SparseMap {
    /// Of a file of `length_bytes`, and what is worth saying of it. The error goes on after the image's path.
    pub(super) fn of(header: &Header, length_bytes: u64) -> Result<(Self, Option<String>), String> {
        let &Header { size_bytes, grain_bytes, table_entries, .. } = header;
        if size_bytes == 0 {
            return Err("is a VMDK of no bytes".into());
        }
        let tables = size_bytes.div_ceil(table_entries * grain_bytes);
        let directory_bytes = tables * 4;
        let is_there = |offset: &u64| *offset >= SECTOR_BYTES && lies_within(*offset, directory_bytes, length_bytes);
        let redundant_offset = header.redundant_offset.filter(is_there);
        let (directory_offset, redundant_offset, note) = match header.directory_offset.filter(is_there) {
            Some(offset) => (offset, redundant_offset, None),
            None => {
                let offset = redundant_offset.ok_or("is damaged: its grain directory does not lie within the file")?;
                let note = "its grain directory is not where it can be, so the redundant one counts".to_owned();
                (offset, None, Some(note))
            }
        };
        let packing = match (header.is_compressed, header.has_markers) {
            (false, _) => Packing::None,
            (true, false) => Packing::Plain,
            (true, true) => Packing::Marked,
        };
        let directories = [Some(directory_offset), redundant_offset].into_iter().flatten();
        let own = directories.map(|offset| (offset, directory_bytes));
        let own = own.chain(header.descriptor).chain([(0, SECTOR_BYTES)]).collect();
        let has_zeroed_grains = header.has_zeroed_grains;
        let only_read = match header {
            Header { is_compressed: true, .. } => Some("has compressed grains"),
            Header { is_stream: true, .. } => Some("has its grain directory at its end"),
            Header { has_markers: true, .. } => Some("has markers between its grains"),
            // Of what changes, another file keeps count.
            Header { version: 3, .. } => Some("is of version 3"),
            _ if note.is_some() => Some("has lost its grain directory"),
            Header { has_redundant_tables: true, .. } if redundant_offset.is_none() => {
                Some("has no redundant grain directory where its header says")
            }
            _ if grain_bytes > PACKED_BLOCK_MAX_BYTES => Some("has grains of more than 2 MiB"),
            _ => None,
        };
        let map = Self {
            only_read,
            size_bytes,
            grain_bytes,
            table_entries,
            directory_offset,
            redundant_offset,
            packing,
            has_zeroed_grains,
            is_unclean: header.is_dirty,
            own,
        };
        Ok((map, note))
    }

    /// Of the first sector of one of ESX's. The error goes on after the image's path.
    pub(super) fn parse_cowd(sector: &[u8], length_bytes: u64) -> Result<Self, String> {
        let fields = Fields(sector);
        let (version, sectors, grain_sectors) = (fields.le32(4)?, fields.le32(12)?, u64::from(fields.le32(16)?));
        if version != 1 {
            return Err(format!("is a VMDK of ESX's version {version}, and only 1 is supported"));
        }
        if sectors == 0 {
            return Err("is a VMDK of no bytes".into());
        }
        if grain_sectors == 0 || grain_sectors > GRAIN_MAX_SECTORS {
            return Err(format!("has grains of {grain_sectors} sectors: 1 to {GRAIN_MAX_SECTORS} are supported"));
        }
        let (size_bytes, grain_bytes) = (u64::from(sectors) * SECTOR_BYTES, grain_sectors * SECTOR_BYTES);
        let (directory_offset, entries) = (u64::from(fields.le32(20)?) * SECTOR_BYTES, u64::from(fields.le32(24)?));
        let tables = size_bytes.div_ceil(grain_bytes * COWD_TABLE_ENTRIES);
        if tables > entries {
            return Err(format!("is damaged: its disk of {size_bytes} bytes has more tables than its directory"));
        }
        if directory_offset < SECTOR_BYTES || !lies_within(directory_offset, tables * 4, length_bytes) {
            return Err("is damaged: its grain directory does not lie within the file".into());
        }
        let header_bytes = COWD_HEADER_BYTES.min(directory_offset);
        Ok(Self {
            size_bytes,
            grain_bytes,
            table_entries: COWD_TABLE_ENTRIES,
            directory_offset,
            redundant_offset: None,
            packing: Packing::None,
            has_zeroed_grains: false,
            only_read: Some("is an ESX server's"),
            is_unclean: false,
            own: vec![(0, header_bytes), (directory_offset, tables * 4)],
        })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn grain_bytes(&self) -> u64 {
        self.grain_bytes
    }

    pub(super) fn has_zeroed_grains(&self) -> bool {
        self.has_zeroed_grains
    }

    pub(super) fn is_unclean(&self) -> bool {
        self.is_unclean
    }

    pub(super) fn table_entries(&self) -> u64 {
        self.table_entries
    }

    pub(super) fn table_bytes(&self) -> u64 {
        self.table_entries * 4
    }

    /// How many tables a directory has.
    pub(super) fn tables(&self) -> u64 {
        self.size_bytes.div_ceil(self.table_entries * self.grain_bytes)
    }

    /// Bytes of all tables that there can be.
    pub(super) fn all_tables_bytes(&self) -> u64 {
        self.tables().saturating_mul(self.table_bytes()).saturating_mul(self.directories().count() as u64)
    }

    /// The grains of a table.
    pub(super) fn grains_of(&self, number: u64) -> Range<u64> {
        let first = number * self.table_entries;
        first..(first + self.table_entries).min(self.size_bytes.div_ceil(self.grain_bytes))
    }

    /// Where the directory lies, and the redundant one if there is one.
    pub(super) fn directories(&self) -> impl Iterator<Item = u64> + use<> {
        [Some(self.directory_offset), self.redundant_offset].into_iter().flatten()
    }

    /// Where a directory says that a table lies; `None` if there is none.
    pub(super) fn directory_entry(&self, file: &ImageFile, directory: u64, number: u64) -> io::Result<Option<u64>> {
        let mut entry = [0];
        file.read_le32(&mut entry, directory + number * 4)?;
        // 32 bits times 9.
        Ok(Some(entry[0] * SECTOR_BYTES).filter(|&offset| offset > 0))
    }

    /// The same of all tables, which the caller knows not to be too many; 0 if there is none.
    pub(super) fn all_tables(&self, file: &ImageFile, directory: u64) -> io::Result<Vec<u64>> {
        let mut tables = vec![0; self.tables() as usize];
        for (at, part) in (directory..).step_by(SLICE_WORDS * 4).zip(tables.chunks_mut(SLICE_WORDS)) {
            file.read_le32(part, at)?;
        }
        tables.iter_mut().for_each(|table| *table *= SECTOR_BYTES);
        Ok(tables)
    }

    /// Whether header, descriptor and directories lie apart. The error goes on after the file's path.
    pub(super) fn check_own(&self) -> Result<(), String> {
        let mut own = self.own.clone();
        own.sort_unstable();
        let meet = own.windows(2).any(|pair| matches!(*pair, [(one, bytes), (other, _)] if one + bytes > other));
        if meet { Err("is damaged: its header, descriptor and directories lie over each other".into()) } else { Ok(()) }
    }

    /// Where the last of these ends.
    pub(super) fn own_end(&self) -> u64 {
        self.own.iter().map(|&(own, own_bytes)| own.saturating_add(own_bytes)).max().unwrap_or(0)
    }

    pub(super) fn is_over_own(&self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length);
        self.own.iter().any(|&(own, own_bytes)| offset < own.saturating_add(own_bytes) && own < end)
    }

    /// Where a grain table lies, if there is one, which the directory says to lie at `offset`.
    fn table(&self, file: &ImageFile, number: u64, offset: u64) -> io::Result<Option<u64>> {
        let table_bytes = self.table_entries * 4;
        let read = |directory| self.directory_entry(file, directory, number).map(|offset| offset.unwrap_or(0));
        let is_possible = |offset: u64| {
            lies_within(offset, table_bytes, file.length_bytes()) && !self.is_over_own(offset, table_bytes)
        };
        if offset == 0 || is_possible(offset) {
            return Ok(Some(offset).filter(|&offset| offset > 0));
        }
        let other = self.redundant_offset.map(read).transpose()?;
        match other.filter(|&other| other > 0 && is_possible(other)) {
            Some(other) => Ok(Some(other)),
            None => Err(file.damaged(format!("a grain table cannot lie at {offset}"))),
        }
    }
}

impl BlockMap for SparseMap {
    fn shape(&self) -> Shape {
        Shape {
            size_bytes: self.size_bytes,
            block_bytes: self.grain_bytes,
            sector_bytes: SECTOR_BYTES,
            align_bytes: SECTOR_BYTES,
        }
    }

    fn load(&self, file: &ImageFile, first: u64, entries: &mut [u64]) -> io::Result<bool> {
        let (mut block, mut rest, mut is_there) = (first, entries, false);
        // What the directory says of small tables, many of which are for a slice, is read at once.
        let (mut places, mut known) = ([0; SLICE_WORDS], 0..0);
        while !rest.is_empty() {
            let (number, within) = (block / self.table_entries, block % self.table_entries);
            if !known.contains(&number) {
                let tables = (within + rest.len() as u64).div_ceil(self.table_entries).min(SLICE_WORDS as u64);
                known = number..number + tables;
                file.read_le32(&mut places[..tables as usize], self.directory_offset + number * 4)?;
            }
            let count = (self.table_entries - within).min(rest.len() as u64);
            let (part, later) = rest.split_at_mut(count as usize);
            let place = places[(number - known.start) as usize] * SECTOR_BYTES;
            match self.table(file, number, place)? {
                Some(offset) => {
                    file.read_le32(part, offset + within * 4)?;
                    is_there = true;
                }
                None => part.fill(0),
            }
            (block, rest) = (block + count, later);
        }
        Ok(is_there)
    }

    fn blocks_without_table(&self, file: &ImageFile, first: u64) -> u64 {
        let (slice, table) = (SLICE_WORDS as u64, self.table_entries);
        // Of smaller tables, a slice has several.
        let known = if table.is_multiple_of(slice) { table - first % table } else { slice };
        // A directory may have many millions of entries, and none of them a table.
        let next = first.saturating_add(known).div_ceil(table);
        let mut places = [0; SLICE_WORDS];
        let count = self.tables().saturating_sub(next).min(slice) as usize;
        match file.read_le32(&mut places[..count], self.directory_offset + next * 4) {
            Ok(()) => {
                let none = places[..count].iter().take_while(|&&place| place == 0).count() as u64;
                known.max((next + none).saturating_mul(table) - first)
            }
            Err(_) => known,
        }
    }

    fn to_change(&self) -> Result<&SparseMap, String> {
        match self.only_read {
            Some(why) => Err(format!("{why}, and such a VMDK is only read")),
            None => Ok(self),
        }
    }

    fn check_copies(&self, file: &ImageFile, say: &mut dyn FnMut(&str)) -> io::Result<u64> {
        // What is only read is read by the first tables.
        if self.only_read.is_none() { compare_tables(file, self, say) } else { Ok(0) }
    }

    fn meaning(&self, _: u64, entry: u64) -> Meaning {
        let offset_bytes = entry * SECTOR_BYTES;
        let length = if self.packing == Packing::None { self.grain_bytes } else { 1 };
        match (entry, self.packing) {
            (0, _) => Meaning::Nothing,
            (1, _) if self.has_zeroed_grains => Meaning::Zeros,
            _ if self.is_over_own(offset_bytes, length) => {
                Meaning::Damaged("it lies over the image's header or tables")
            }
            (_, Packing::None) => Meaning::There { offset_bytes },
            _ => Meaning::Compressed { offset_bytes },
        }
    }

    fn load_packed(&self, file: &ImageFile, offset: u64, packed: &mut Vec<u8>) -> io::Result<()> {
        let most = 2 * self.grain_bytes as usize;
        let left = usize::try_from(file.length_bytes().saturating_sub(offset)).unwrap_or(usize::MAX);
        if self.packing == Packing::Plain {
            packed.resize(most.min(left), 0);
            return file.read(packed, offset);
        }
        // Most become shorter, so that one read brings all of it.
        packed.resize((self.grain_bytes as usize).min(left), 0);
        file.read(packed, offset)?;
        let bad = |why: &str| file.damaged(format!("the marker at {offset}, of a compressed grain, {why}"));
        let length = Fields(packed).le32(8).map_err(|_| bad("is cut off"))? as usize;
        if length == 0 || length > most {
            return Err(bad(&format!("says that it has {length} bytes")));
        }
        if length > left - GRAIN_MARKER_BYTES {
            return Err(bad("reaches behind the end of the file"));
        }
        let read = packed.len();
        packed.resize(GRAIN_MARKER_BYTES + length, 0);
        if let Some(rest) = packed.get_mut(read..) {
            file.read(rest, offset + read as u64)?;
        }
        packed.drain(..GRAIN_MARKER_BYTES);
        Ok(())
    }
}

fn bytes_of(sectors: u64) -> Option<u64> {
    sectors.checked_mul(SECTOR_BYTES).filter(|&bytes| i64::try_from(bytes).is_ok())
}
