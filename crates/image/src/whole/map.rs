//! Where a disk's bytes lie.

use crate::error::Result;
use blockyard_block::{
    AllowedDirectories, BlockMapDisk, BlockMapFormat, ChainKeys, Disk, ExtentKind, FileOptions, KeyFile, LuksDisk,
    OpenedFile, Ova, Qcow2Disk, Qcow2Mapping, Qcow2MappingKind,
};
use std::io;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A disk whose bytes are looked for, and the names of the files that they are in.
pub struct Map {
    disk: MappedDisk,
    files: Vec<String>,
    notes: Vec<String>,
}

enum MappedDisk {
    Qcow2(Qcow2Disk),
    BlockMap(BlockMapDisk),
    /// That of a volume, all of which lies here in its file.
    Luks(Range<u64>),
    Other(Arc<dyn Disk>),
}

/// A range of a disk whose bytes lie in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Where it begins.
    pub start_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
    /// In the image itself, 0, or so many images behind it.
    pub depth: usize,
    /// Some file says what is there.
    pub is_present: bool,
    /// It reads as zeros.
    pub is_zero: bool,
    /// It is data, or has a place for them.
    pub has_data: bool,
    /// Which are compressed.
    pub is_compressed: bool,
    /// Where in the file.
    pub offset_bytes: Option<u64>,
    /// Which of the files.
    pub file: usize,
}

impl Map {
    /// Of a qcow2 image, with those that are behind it, some of which `keys` may have to open. `lock`: against who
    /// writes to it.
    ///
    /// # Errors
    /// When it or one of those cannot be opened.
    pub fn of_qcow2(image: &OpenedFile, lock: bool, allow_dirs: &[PathBuf], keys: ChainKeys) -> Result<Self> {
        let allowed = AllowedDirectories::new(allow_dirs)?.with_keys(keys);
        let disk = Qcow2Disk::open_to_map(image.file().try_clone()?, image.path(), lock, &allowed)?;
        let files = disk.files().map(|path| path.display().to_string()).collect();
        let notes = disk.notes().to_vec();
        Ok(Self { disk: MappedDisk::Qcow2(disk), files, notes })
    }

    /// The same of an image in this format.
    ///
    /// # Errors
    /// When it or one of those cannot be opened.
    pub fn of_block_map(
        image: &OpenedFile,
        lock: bool,
        format: BlockMapFormat,
        allow_dirs: &[PathBuf],
    ) -> Result<Self> {
        let allowed = AllowedDirectories::new(allow_dirs)?;
        let options = FileOptions { read_only: true, lock, ..FileOptions::default() };
        let disk = BlockMapDisk::open_in(image.file().try_clone()?, image.path(), format, &options, &allowed)?;
        let files = disk.files().map(|path| path.display().to_string()).collect();
        let notes = disk.notes().to_vec();
        Ok(Self { disk: MappedDisk::BlockMap(disk), files, notes })
    }

    /// Of a disk in an OVA.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn of_ova(archive: &OpenedFile, number: Option<NonZeroU32>) -> Result<Self> {
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        let disk = Ova::open(archive)?.open_disk(number, &options)?;
        let files = disk.files().map(|path| path.display().to_string()).collect();
        let notes = disk.notes().to_vec();
        Ok(Self { disk: MappedDisk::BlockMap(disk), files, notes })
    }

    /// Of a LUKS volume, which a key has to open if one is given; `lock`: against who writes to it. All of it is data:
    /// what was never written is noise.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn of_luks(image: &OpenedFile, lock: bool, key: Option<&KeyFile>) -> Result<Self> {
        let options = FileOptions { read_only: true, lock, ..FileOptions::default() };
        let (place, notes) = LuksDisk::place_to_map(image, key, &options)?;
        Ok(Self { disk: MappedDisk::Luks(place), files: vec![image.path().display().to_string()], notes })
    }

    /// Of a disk that is one file, byte by byte, or in none.
    pub fn of_disk(disk: Arc<dyn Disk>, name: String) -> Self {
        Self { disk: MappedDisk::Other(disk), files: vec![name], notes: Vec::new() }
    }

    /// What is worth saying of the image, each in a sentence.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The names of the files, by the entries' indices.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// The entries of a range, as far as the disk goes, each as long as it can be.
    pub fn entries(&self, range: Range<u64>) -> impl Iterator<Item = io::Result<MapEntry>> + '_ {
        let end = range.end.min(self.capacity_bytes());
        let (mut at, mut last) = (range.start, None::<MapEntry>);
        std::iter::from_fn(move || {
            while at < end {
                let entry = match self.entry(at..end) {
                    Ok(entry) => entry,
                    Err(error) => {
                        (at, last) = (end, None);
                        return Some(Err(error));
                    }
                };
                at += entry.length_bytes;
                match &mut last {
                    Some(last) if last.continues_with(&entry) => last.length_bytes += entry.length_bytes,
                    _ => {
                        if let Some(done) = last.replace(entry) {
                            return Some(Ok(done));
                        }
                    }
                }
            }
            last.take().map(Ok)
        })
    }

    fn capacity_bytes(&self) -> u64 {
        match &self.disk {
            MappedDisk::Qcow2(disk) => disk.geometry().capacity_bytes,
            MappedDisk::BlockMap(disk) => disk.geometry().capacity_bytes,
            MappedDisk::Luks(place) => place.end - place.start,
            MappedDisk::Other(disk) => disk.geometry().capacity_bytes,
        }
    }

    fn entry(&self, range: Range<u64>) -> io::Result<MapEntry> {
        let start_bytes = range.start;
        let (mapping, is_image) = match &self.disk {
            MappedDisk::Qcow2(disk) => (disk.map(range)?, true),
            MappedDisk::BlockMap(disk) => (disk.map(range)?, true),
            MappedDisk::Luks(place) => {
                let kind = Qcow2MappingKind::Data { offset_bytes: place.start + range.start };
                ((Qcow2Mapping { length_bytes: range.end - range.start, depth: 0, kind }, None), true)
            }
            MappedDisk::Other(disk) => ((plain(&**disk, range)?, None), false),
        };
        let (mapping, file) = mapping;
        let Qcow2Mapping { length_bytes, depth, kind } = mapping;
        let entry = MapEntry {
            start_bytes,
            length_bytes,
            depth,
            is_present: true,
            is_zero: false,
            has_data: false,
            is_compressed: false,
            offset_bytes: None,
            file: file.unwrap_or_default(),
        };
        Ok(match kind {
            Qcow2MappingKind::Data { offset_bytes } => {
                MapEntry { has_data: true, offset_bytes: Some(offset_bytes), ..entry }
            }
            Qcow2MappingKind::Reserved { offset_bytes } => {
                MapEntry { has_data: true, is_zero: true, offset_bytes: Some(offset_bytes), ..entry }
            }
            Qcow2MappingKind::Compressed => MapEntry { has_data: true, is_compressed: true, ..entry },
            Qcow2MappingKind::Zeros => MapEntry { is_zero: true, ..entry },
            Qcow2MappingKind::Hole { offset_bytes } => {
                MapEntry { is_zero: true, offset_bytes: Some(offset_bytes), ..entry }
            }
            Qcow2MappingKind::Absent => MapEntry { is_zero: true, is_present: !is_image, ..entry },
        })
    }
}

impl MapEntry {
    /// Whether `next`, which begins where this ends, says nothing new.
    fn continues_with(&self, next: &Self) -> bool {
        let offset_bytes = self.offset_bytes.map(|offset| offset + self.length_bytes);
        let (start_bytes, length_bytes) = (next.start_bytes, next.length_bytes);
        *next == Self { start_bytes, length_bytes, offset_bytes, ..*self }
    }
}

fn plain(disk: &dyn Disk, range: Range<u64>) -> io::Result<Qcow2Mapping> {
    let extent = disk.extents(range.clone())?;
    let kind = match extent.kind {
        ExtentKind::Data => Qcow2MappingKind::Data { offset_bytes: range.start },
        ExtentKind::Zero | ExtentKind::Hole => Qcow2MappingKind::Hole { offset_bytes: range.start },
    };
    Ok(Qcow2Mapping { length_bytes: extent.length_bytes, depth: 0, kind })
}
