//! VMDKs that are flat: a text that says which ranges of which files make up a disk. They are read and written.

use super::descriptor::{Descriptor, ExtentAccess, Storage};
use super::queue::VmdkSplit;
use super::{FILES_MAX, read_descriptor};
use crate::formats::{AllowedDirectories, ImageError, demand};
use crate::{Disk, Extent, ExtentKind, FileDisk, FileOptions, Geometry, MemoryMap, Queue, shown};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A disk whose descriptor is a VMDK of the types monolithicFlat, twoGbMaxExtentFlat, vmfs, fullDevice or
/// partitionedDevice.
///
/// Extents that are `ZERO` read as zeros and refuse writes, `RDONLY` ones refuse writes, and `NOACCESS` ones refuse
/// both. A disk without any extent that may be written is read-only.
#[derive(Debug)]
pub struct VmdkDisk {
    shape: Arc<Shape>,
    pub(super) files: Vec<FileDisk>,
    permissions: u32,
}

/// What a disk and its queues share.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) geometry: Geometry,
    /// In order, without gaps.
    pieces: Vec<Piece>,
}

/// A range of the disk that is of one sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start_bytes: u64,
    pub(super) end_bytes: u64,
    pub(super) access: ExtentAccess,
    /// Index of the file, and where in it the piece starts; `None` for zeros.
    pub(super) place: Option<(usize, u64)>,
}

impl Shape {
    /// The piece that `offset` lies in; there must be one.
    pub(super) fn find(&self, offset: u64) -> Option<&Piece> {
        let index = self.pieces.partition_point(|piece| piece.end_bytes <= offset);
        self.pieces.get(index)
    }
}

impl VmdkDisk {
    /// Whether the VMDK in `file` is one of these, and no other. What cannot be read is none.
    pub(crate) fn is_for(file: &File) -> bool {
        read_descriptor(file).is_ok_and(|text| Descriptor::parse(&text).is_ok_and(|descriptor| descriptor.is_flat()))
    }

    /// Opens the disk that the descriptor at `path` describes. Its files are opened with `options`, through `allowed`,
    /// those in the descriptor's own directory included.
    ///
    /// # Errors
    /// When the descriptor cannot be read or understood, or one of its files is not allowed, missing or too short.
    pub fn open(path: &Path, options: &FileOptions, allowed: &AllowedDirectories) -> Result<Self, ImageError> {
        Self::open_in(&FileDisk::open_file(path, true)?, path, options, allowed)
    }

    /// The same, of the descriptor in `file`, which was opened by `path`.
    pub(crate) fn open_in(
        file: &File,
        path: &Path,
        options: &FileOptions,
        allowed: &AllowedDirectories,
    ) -> Result<Self, ImageError> {
        let unusable = |problem: String| ImageError::Unusable { path: path.to_owned(), problem };
        let text = read_descriptor(file).map_err(|source| ImageError::System {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        let descriptor = Descriptor::parse(&text).map_err(unusable)?;
        if !descriptor.is_flat() {
            return Err(unusable("is a VMDK that is not flat".to_owned()));
        }
        let writable = descriptor.extents.iter().any(|extent| extent.is_writable());
        let read_only = options.read_only || !writable;
        let options = FileOptions { read_only, ..*options };
        let mut files = Files { image: path, options, allowed, opened: Vec::new(), permissions: 0o777 };
        let mut pieces = Vec::with_capacity(descriptor.extents.len());
        let mut start_bytes = 0;
        for extent in &descriptor.extents {
            let end_bytes = start_bytes + extent.length_bytes;
            let place = match &extent.storage {
                Storage::Zero | Storage::Grains { .. } => None,
                // What nobody may touch need not be there.
                Storage::Flat { .. } if extent.access == ExtentAccess::None => None,
                Storage::Flat { name, offset_bytes } => Some(files.find(name, *offset_bytes, extent.length_bytes)?),
            };
            pieces.push(Piece { start_bytes, end_bytes, access: extent.access, place });
            start_bytes = end_bytes;
        }
        let permissions = files.permissions;
        let files: Vec<_> = files.opened.into_iter().map(|(_, file)| file).collect();
        let geometry = geometry(start_bytes, &options, &files);
        let block_bytes = u64::from(geometry.logical_block_bytes);
        if !start_bytes.is_multiple_of(block_bytes) {
            let problem = format!("has {start_bytes} bytes, which is not a multiple of the block size {block_bytes}");
            return Err(unusable(problem));
        }
        Ok(Self { shape: Arc::new(Shape { geometry, pieces }), files, permissions })
    }

    /// What the permission bits of all its files allow, without the descriptor's.
    pub(crate) fn permissions(&self) -> u32 {
        self.permissions
    }
}

/// The files of an image, each opened once.
struct Files<'a> {
    image: &'a Path,
    options: FileOptions,
    allowed: &'a AllowedDirectories,
    opened: Vec<(PathBuf, FileDisk)>,
    /// What their permission bits all allow.
    permissions: u32,
}

impl Files<'_> {
    /// The file that the descriptor calls `name`, checked to be long enough, and the offset in it.
    fn find(&mut self, name: &str, offset_bytes: u64, length_bytes: u64) -> Result<(usize, u64), ImageError> {
        let found = self.allowed.find(self.image, name)?;
        let path = found.target().to_owned();
        let index = match self.opened.iter().position(|(opened, _)| *opened == path) {
            Some(index) => index,
            None => {
                // A device that is written is ours alone, so it is opened once.
                let (file, _) = found.open(!self.options.read_only, self.options.lock.then_some(&path))?;
                FileDisk::lock(&file, &path, &self.options)?;
                let failed = |source| ImageError::System { action: "look at", path: path.clone(), source };
                self.permissions &= file.metadata().map_err(failed)?.mode();
                let file = FileDisk::from_file(file, &self.options)?;
                self.opened.push((path.clone(), file));
                self.opened.len() - 1
            }
        };
        let problem = if self.opened.len() > FILES_MAX {
            format!("refers to more than {FILES_MAX} files")
        } else if offset_bytes.checked_add(length_bytes).is_none_or(|end| end > self.opened[index].1.length_bytes()) {
            let has_bytes = self.opened[index].1.length_bytes();
            format!("wants {length_bytes} bytes at {offset_bytes} of {}, which has {has_bytes}", shown(&path))
        } else {
            return Ok((index, offset_bytes));
        };
        Err(ImageError::Unusable { path: self.image.to_owned(), problem })
    }
}

/// The most demanding of the files', each.
fn geometry(capacity_bytes: u64, options: &FileOptions, files: &[FileDisk]) -> Geometry {
    let mut geometry = Geometry {
        capacity_bytes,
        logical_block_bytes: options.logical_block_bytes,
        physical_block_bytes: options.logical_block_bytes,
        optimal_io_bytes: 0,
        segments_max: crate::SEGMENTS_MAX,
        transfer_bytes_max: u64::MAX,
        memory_align_bytes: 1,
        read_only: options.read_only,
        discard: !options.read_only,
        write_zeroes: !options.read_only,
    };
    for file in files {
        demand(&mut geometry, &file.geometry());
    }
    geometry
}

impl Disk for VmdkDisk {
    fn geometry(&self) -> Geometry {
        self.shape.geometry
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.shape.geometry.check_extent_range(&range)?;
        let piece = self.shape.find(range.start).ok_or(io::ErrorKind::InvalidInput)?;
        let length_bytes = piece.end_bytes.min(range.end) - range.start;
        match piece.place {
            Some((file, start_bytes)) => {
                let offset_bytes = start_bytes + (range.start - piece.start_bytes);
                let below = self.files[file].extents(offset_bytes..offset_bytes + length_bytes)?;
                Ok(Extent { offset_bytes: range.start, ..below })
            }
            // What may not be read is data: whoever wants to know more reads it, and is told.
            None if piece.access == ExtentAccess::None => {
                Ok(Extent { offset_bytes: range.start, length_bytes, kind: ExtentKind::Data })
            }
            None => Ok(Extent { offset_bytes: range.start, length_bytes, kind: ExtentKind::Hole }),
        }
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        VmdkSplit::open_queue(&self.shape, &self.files, memory, depth)
    }
}
