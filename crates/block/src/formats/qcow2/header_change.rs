//! Changing which backing file an image's header names.
//!
//! A power cut leaves the header as it was or as it shall be: the new name is made stable in a part of the first
//! cluster that the old header does not use, and then one sector, which disks write whole, puts it in force. All else
//! that changes is kept in that sector.

use super::create::Qcow2Backing;
use super::header::{AUTOCLEAR_AT, AUTOCLEAR_BITMAPS, AUTOCLEAR_DATA_FILE_RAW, EXTENSION_BACKING_FORMAT, Header};
use super::image_file::ImageFile;
use super::snapshots::{self, BITMAP_FLAGS_AT, BITMAP_IN_USE, u32_of};
use std::io;
use std::ops::Range;

/// What is written as a whole.
const SECTOR_BYTES: usize = 512;

/// Names of features, for programs that do not know them: nobody needs it.
const EXTENSION_FEATURE_NAMES: u32 = 0x6803_f857;

const NAME_AT: usize = 8;
const HEADER_LENGTH_AT: usize = 100;
const HEADER_V2_BYTES: usize = 72;

/// Names another backing file, or none.
///
/// # Errors
/// When the first cluster has no room for it, or cannot be read or written.
pub(super) fn set_backing(file: &ImageFile, header: &Header, backing: Option<&Qcow2Backing>) -> io::Result<()> {
    let cluster_bytes = header.cluster_bytes() as usize;
    let mut first = vec![0; cluster_bytes];
    file.read(&mut first, 0)?;
    let old = Layout::of(&first, header);
    let mut extensions = old.extensions.clone();
    extensions.retain(|(kind, _)| *kind != EXTENSION_BACKING_FORMAT);
    if let Some(backing) = backing {
        extensions.insert(0, (EXTENSION_BACKING_FORMAT, backing.format.as_bytes().to_vec()));
    }
    let name = backing.map_or(&[][..], |backing| backing.name.as_bytes());
    // In the only sector there is, the name has to fit, too.
    let name_inside = if cluster_bytes == SECTOR_BYTES { name.len() } else { 0 };
    if old.header_bytes + encoded(&extensions).len() + name_inside > SECTOR_BYTES {
        extensions.retain(|(kind, _)| *kind != EXTENSION_FEATURE_NAMES);
    }
    let encoded = encoded(&extensions);
    let end = old.header_bytes + encoded.len();
    let name_at = if name_inside > 0 { end } else { old.free_sector(name.len()) };
    if end + name_inside > SECTOR_BYTES || name_at + name.len() > cluster_bytes {
        return Err(io::Error::other("its first cluster has no room for that name: convert it to a new image"));
    }
    let mut sector = first[..old.header_bytes].to_vec();
    sector.extend(encoded);
    sector.resize(SECTOR_BYTES, 0);
    let (offset, length) = if name.is_empty() { (0, 0) } else { (name_at as u64, name.len() as u32) };
    sector[NAME_AT..NAME_AT + 8].copy_from_slice(&offset.to_be_bytes());
    sector[NAME_AT + 8..NAME_AT + 12].copy_from_slice(&length.to_be_bytes());
    if header.version >= 3 {
        // What other programs keep beside the data is no longer true.
        sector[AUTOCLEAR_AT as usize..][..8].copy_from_slice(&autoclear(header).to_be_bytes());
    }
    if name_inside > 0 {
        sector[name_at..][..name.len()].copy_from_slice(name);
    } else if !name.is_empty() {
        file.write(name, name_at as u64)?;
    }
    mark_bitmaps_stale(file, header)?;
    file.sync()?;
    file.write_stable(&sector, 0)
}

/// Says that the bitmaps which other programs keep of changes are no longer true: those stay listed, so that nothing is
/// leaked, and whoever made them can remove them. What else was kept beside the data is no longer said to be there. Cut
/// off anywhere, nothing is said to be true that is not, and nothing that is listed is lost.
///
/// # Errors
/// When the image cannot be read or written.
pub(super) fn mark_bitmaps_stale(file: &ImageFile, header: &Header) -> io::Result<()> {
    let mut entries = Vec::new();
    snapshots::walk_bitmaps(file, header, |entry, at| entries.push((u32_of(entry, BITMAP_FLAGS_AT), at)))?;
    entries.retain(|(flags, _)| flags & BITMAP_IN_USE == 0);
    for (flags, at) in &entries {
        file.write(&(flags | BITMAP_IN_USE).to_be_bytes(), at + BITMAP_FLAGS_AT as u64)?;
    }
    if !entries.is_empty() {
        file.barrier()?;
    }
    if header.version < 3 {
        return Ok(());
    }
    let (mut present, wanted) = ([0; 8], autoclear(header).to_be_bytes());
    file.read(&mut present, AUTOCLEAR_AT)?;
    if present == wanted { Ok(()) } else { file.write_stable(&wanted, AUTOCLEAR_AT) }
}

/// What is true of an image that somebody wrote to who knows of bitmaps and of raw data files, and of nothing else.
fn autoclear(header: &Header) -> u64 {
    let bitmaps = if header.bitmaps.is_some() { AUTOCLEAR_BITMAPS } else { 0 };
    bitmaps | if header.is_data_file_raw { AUTOCLEAR_DATA_FILE_RAW } else { 0 }
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
        while let (Some(kind @ 1..), Some(length)) = (u32_at(at), u32_at(at + 4)) {
            let Some(data) = first.get(at + 8..at + 8 + length as usize) else { break };
            extensions.push((kind, data.to_vec()));
            at += 8 + data.len().next_multiple_of(8);
        }
        let name_at = u32_at(NAME_AT + 4).unwrap_or(0) as usize;
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
