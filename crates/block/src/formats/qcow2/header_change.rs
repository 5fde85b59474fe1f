//! Changing what an image's first cluster says.
//!
//! A power cut leaves it as it was or as it shall be: the backing file's name is made stable in a part of the first
//! cluster that the old header does not use, and then one sector, which disks write whole, puts it in force. All else
//! that changes is kept in that sector; so is the name where there is no other part.

use super::create::Qcow2Backing;
use super::header::{
    AUTOCLEAR_AT, AUTOCLEAR_BITMAPS, AUTOCLEAR_DATA_FILE_RAW, BitmapDirectory, COMPATIBLE_AT,
    COMPATIBLE_LAZY_REFCOUNTS, EXTENSION_BACKING_FORMAT, EXTENSION_BITMAPS, EXTENSION_DATA_FILE, HEADER_V2_BYTES,
    HEADER_V3_BYTES, Header, REFCOUNTS_AT, Table,
};
use super::repair::table_fields;
use crate::formats::WritableFile;
use std::io;
use std::ops::Range;

/// What is written as a whole.
const SECTOR_BYTES: usize = 512;

/// Names of features, for programs that do not know them: nobody needs it.
const EXTENSION_FEATURE_NAMES: u32 = 0x6803_f857;

const NAME_AT: usize = 8;
const HEADER_LENGTH_AT: usize = 100;
const VERSION_AT: u64 = 4;
const REFCOUNT_ORDER_AT: u64 = 96;

/// Refcounts of version 2 have 16 bits.
pub(super) const REFCOUNT_ORDER_V2: u32 = 4;

/// Names another backing file, or none.
///
/// # Errors
/// When the first cluster has no room for it, or cannot be read or written.
pub(super) fn set_backing(file: &WritableFile, header: &Header, backing: Option<&Qcow2Backing>) -> io::Result<()> {
    let mut first = FirstCluster::read(file, header)?;
    first.set_backing(backing);
    first.write(file)
}

/// What is true of an image that somebody wrote to who knows of bitmaps and of raw data files, and of nothing else.
fn autoclear(has_bitmaps: bool, is_data_file_raw: bool) -> u64 {
    let bit = |is: bool, bit: u64| if is { bit } else { 0 };
    bit(has_bitmaps, AUTOCLEAR_BITMAPS) | bit(is_data_file_raw, AUTOCLEAR_DATA_FILE_RAW)
}

/// The first cluster, as it shall be.
pub(super) struct FirstCluster {
    header: Vec<u8>,
    extensions: Vec<(u32, Vec<u8>)>,
    /// The backing file's name.
    name: Vec<u8>,
    /// It is where it was, which is not in the sector that is written.
    name_stays: bool,
    version: u32,
    old: Layout,
    cluster_bytes: usize,
}

impl FirstCluster {
    /// Of a header that was checked, as it is.
    pub(super) fn read(file: &WritableFile, header: &Header) -> io::Result<Self> {
        let cluster_bytes = header.cluster_bytes() as usize;
        let mut first = vec![0; cluster_bytes];
        file.read(&mut first, 0)?;
        let old = Layout::of(&first, header);
        let mut this = Self {
            header: first[..old.header_bytes].to_vec(),
            extensions: old.extensions.clone(),
            name: first[old.name.clone()].to_vec(),
            name_stays: old.name.start >= SECTOR_BYTES,
            version: header.version,
            old,
            cluster_bytes,
        };
        this.set_autoclear(header.bitmaps.is_some(), header.is_data_file_raw);
        Ok(this)
    }

    /// Puts a field of the header.
    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) {
        self.header[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn set_autoclear(&mut self, has_bitmaps: bool, is_data_file_raw: bool) {
        if self.version >= 3 {
            self.put(AUTOCLEAR_AT, &autoclear(has_bitmaps, is_data_file_raw).to_be_bytes());
        }
    }

    /// Becomes the header of an image of version 3 with the same refcounts and no features.
    pub(super) fn become_version_3(&mut self) {
        self.header.resize(HEADER_V3_BYTES, 0);
        self.put(VERSION_AT, &3_u32.to_be_bytes());
        self.put(REFCOUNT_ORDER_AT, &REFCOUNT_ORDER_V2.to_be_bytes());
        self.put(HEADER_LENGTH_AT as u64, &(HEADER_V3_BYTES as u32).to_be_bytes());
        self.version = 3;
    }

    /// Becomes the header of an image of version 2, of one that is none but by what it says.
    pub(super) fn become_version_2(&mut self) {
        self.header.truncate(HEADER_V2_BYTES);
        self.put(VERSION_AT, &2_u32.to_be_bytes());
        self.set_extension(EXTENSION_FEATURE_NAMES, None);
        self.set_extension(EXTENSION_BITMAPS, None);
        self.version = 2;
    }

    /// Says where refcounts are, and how wide: two to the power of `order`, in bits, 16 in an image of version 2.
    pub(super) fn set_refcounts(&mut self, table: Table, order: u32) {
        self.put(REFCOUNTS_AT, &table_fields(table, self.cluster_bytes.ilog2()));
        if self.version >= 3 {
            self.put(REFCOUNT_ORDER_AT, &order.to_be_bytes());
        }
    }

    /// Says where the data are, of an image that has a data file, and whether that is a raw image of the disk.
    pub(super) fn set_data_file(&mut self, header: &Header, name: Option<&str>, is_raw: bool) {
        if let Some(name) = name {
            self.set_extension(EXTENSION_DATA_FILE, Some(name.as_bytes().to_vec()));
        }
        self.set_autoclear(header.bitmaps.is_some(), is_raw);
    }

    /// Says whether refcounts may be behind, of an image of version 3.
    pub(super) fn set_lazy_refcounts(&mut self, is_lazy: bool) {
        let at = COMPATIBLE_AT as usize;
        let Some(present) = self.header.get(at..).and_then(<[u8]>::first_chunk) else { return };
        let present = u64::from_be_bytes(*present);
        let wanted = present & !COMPATIBLE_LAZY_REFCOUNTS | if is_lazy { COMPATIBLE_LAZY_REFCOUNTS } else { 0 };
        self.put(COMPATIBLE_AT, &wanted.to_be_bytes());
    }

    fn set_extension(&mut self, kind: u32, data: Option<Vec<u8>>) {
        self.extensions.retain(|(other, _)| *other != kind);
        self.extensions.splice(0..0, data.map(|data| (kind, data)));
    }

    pub(super) fn set_backing(&mut self, backing: Option<&Qcow2Backing>) {
        self.set_extension(EXTENSION_BACKING_FORMAT, backing.map(|backing| backing.format.as_bytes().to_vec()));
        self.name = backing.map_or(Vec::new(), |backing| backing.name.as_bytes().to_vec());
        self.name_stays = false;
    }

    /// Says where the bitmaps are listed, of an image of version 3.
    pub(super) fn set_bitmaps(&mut self, header: &Header, bitmaps: Option<BitmapDirectory>) {
        let data = bitmaps.map(|BitmapDirectory { bitmaps, table }| {
            let counts = [bitmaps.to_be_bytes(), [0; 4]].concat();
            [counts, table.length_bytes.to_be_bytes().to_vec(), table.offset_bytes.to_be_bytes().to_vec()].concat()
        });
        self.set_extension(EXTENSION_BITMAPS, data);
        self.set_autoclear(bitmaps.is_some(), header.is_data_file_raw);
    }

    /// Writes it. What it refers to is made stable before.
    ///
    /// # Errors
    /// When there is no room for what it is to say, or it cannot be written.
    pub(super) fn write(mut self, file: &WritableFile) -> io::Result<()> {
        // Where there is no room behind it, as in a cluster of one or two sectors, the name has to fit into it, too.
        let has_room_behind =
            self.name_stays || self.old.free_sector(self.name.len()) + self.name.len() <= self.cluster_bytes;
        let name_inside = if has_room_behind { 0 } else { self.name.len() };
        let is_too_long =
            |this: &Self| this.header.len() + encoded(&this.extensions).len() + name_inside > SECTOR_BYTES;
        if is_too_long(&self) {
            self.set_extension(EXTENSION_FEATURE_NAMES, None);
        }
        let mut sector = self.header.clone();
        sector.extend(encoded(&self.extensions));
        let name_at = if name_inside > 0 {
            sector.len()
        } else if self.name_stays {
            self.old.name.start
        } else {
            self.old.free_sector(self.name.len())
        };
        if is_too_long(&self) || name_at + self.name.len() > self.cluster_bytes {
            return Err(io::Error::other("its first cluster has no room for that: convert it to a new image"));
        }
        sector.resize(SECTOR_BYTES, 0);
        let (offset, length) = if self.name.is_empty() { (0, 0) } else { (name_at as u64, self.name.len() as u32) };
        sector[NAME_AT..NAME_AT + 8].copy_from_slice(&offset.to_be_bytes());
        sector[NAME_AT + 8..NAME_AT + 12].copy_from_slice(&length.to_be_bytes());
        if name_inside > 0 {
            sector[name_at..][..self.name.len()].copy_from_slice(&self.name);
        } else if !self.name.is_empty() && !self.name_stays {
            file.write(&self.name, name_at as u64)?;
        }
        file.barrier()?;
        file.write_header(&sector, 0)
    }
}

/// Takes back what the header says is kept beside the data and is not known here: from now on it is not.
///
/// # Errors
/// When the image cannot be read or written.
pub(super) fn clear_unknown(file: &WritableFile, header: &Header) -> io::Result<()> {
    if header.version < 3 {
        return Ok(());
    }
    let (mut present, wanted) = ([0; 8], autoclear(header.bitmaps.is_some(), header.is_data_file_raw).to_be_bytes());
    file.read(&mut present, AUTOCLEAR_AT)?;
    if present == wanted { Ok(()) } else { file.write_header(&wanted, AUTOCLEAR_AT) }
}

/// What a first cluster has where.
struct Layout {
    header_bytes: usize,
    extensions: Vec<(u32, Vec<u8>)>,
    /// Where they end.
    extensions_end: usize,
    /// Where the backing file's name is.
    name: Range<usize>,
}

impl Layout {
    /// Of a header that was checked.
    fn of(first: &[u8], header: &Header) -> Self {
        let u32_at = |at: usize| first.get(at..at + 4).map(|bytes| bytes.iter().fold(0, |n, &b| n << 8 | u32::from(b)));
        let header_bytes = match header.version {
            2 => HEADER_V2_BYTES,
            _ => u32_at(HEADER_LENGTH_AT).unwrap_or(0) as usize,
        };
        let (mut extensions, mut at) = (Vec::new(), header_bytes);
        // As `Header::parse` has it: in old images, where the name begins.
        let name_at = u32_at(NAME_AT + 4).unwrap_or(0) as usize;
        let end = if header.version == 2 && name_at != 0 { name_at } else { first.len() };
        while let (Some(kind @ 1..), Some(length)) = (u32_at(at), u32_at(at + 4)) {
            let data = first.get(at + 8..at + 8 + length as usize).filter(|data| at + 8 + data.len() <= end);
            let Some(data) = data else { break };
            extensions.push((kind, data.to_vec()));
            at += 8 + data.len().next_multiple_of(8);
        }
        let name = header.backing.as_ref().map_or(0..0, |backing| name_at..name_at + backing.name.len());
        Self { header_bytes, extensions, extensions_end: at + 8, name }
    }

    /// The first sectors behind the header's, for a name, that it does not use.
    fn free_sector(&self, name_bytes: usize) -> usize {
        let first = self.extensions_end.next_multiple_of(SECTOR_BYTES).max(SECTOR_BYTES);
        let end = (first + name_bytes).next_multiple_of(SECTOR_BYTES);
        if self.name.start < end && first < self.name.end {
            self.name.end.next_multiple_of(SECTOR_BYTES)
        } else {
            first
        }
    }
}

fn encoded(extensions: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, data) in extensions {
        bytes.extend(kind.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    bytes.extend([0; 8]);
    bytes
}
