//! From a specification to a disk: the one place where backends and layers are put on top of each other.

use super::kinds::{Backend, DiskKind, LOGICAL_BLOCK_BYTES, Taken};
use super::opening::{OnBackend, OpenContext, OpenError, OpenedAs};
use super::{Delta, DiskSpecification, PartitionChoice};
use crate::layers::{AlignOptions, AlignedDisk, GatheringDisk, OverlayDisk, PartitionDisk};
use crate::{Disk, FileDisk, FileOptions, ImageError, OpenedFile, UnfinishedChange, UnpackedDisk, partition_table};
use std::error::Error;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A disk, and how long it is.
pub struct OpenedDisk {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Bytes in it: what a raw file has, before the capacity was rounded up to whole logical blocks; otherwise the
    /// capacity.
    pub length_bytes: u64,
    /// The file that it is in or on.
    pub file: Option<OpenedFile>,
    /// What its file's permission bits allow, and those of the files behind it: what is made of it should not be for
    /// more people.
    pub permissions: Option<u32>,
    /// The file of a change to its file that was cut off, and through which it is seen.
    pub unfinished: Option<PathBuf>,
    /// It, if it is decompressed while it is read.
    pub unpacked: Option<Arc<UnpackedDisk>>,
}

/// A partition of a disk that is open.
pub struct OpenedPart {
    /// The partition.
    pub disk: Arc<dyn Disk>,
    /// Which bytes of the other disk it is.
    pub range_bytes: Range<u64>,
}

/// The file that a disk is in, open for a command that works on the file.
#[derive(Debug)]
pub struct OpenedImage {
    /// The file.
    pub file: OpenedFile,
    /// A change to it that was cut off is complete now.
    pub was_completed: bool,
}

impl DiskSpecification {
    /// Opens the disk: the backend, what makes every request fit it, then from the inside out the delta, the partition,
    /// what gathers, the limits and the faults. To measure it, put a [`MeteredDisk`](crate::layers::MeteredDisk) around
    /// what comes back.
    ///
    /// # Errors
    /// When any of these cannot be had; the sentence names the file and says what to do.
    pub fn open(&self, context: &OpenContext<'_>) -> Result<OpenedDisk, OpenError> {
        let read_only = self.read_only || context.read_only;
        // What has a delta is read only.
        let base = self.backend.get().open(read_only || self.delta.is_some(), context)?;
        if base.unpacked.is_some() && self.partition.is_some() {
            let problem = "a compressed disk is read from its beginning to its end: leave partition= out, or \
                           decompress it first";
            return Err(OpenError::other(self.to_string(), problem));
        }
        let logical_block_bytes = logical_block(self.backend.get(), base.sector_bytes);
        let disk = self.with_layers(base.disk, base.permissions, read_only, logical_block_bytes)?;
        let disk = if context.gathers { Arc::new(GatheringDisk::new(disk)) } else { disk };
        // Limits and faults are of what whoever uses the disk asks.
        let disk = self.hindrances.round(disk);
        let is_whole = self.partition.is_none() && self.delta.is_none();
        let length_bytes = base.length_bytes.filter(|_| is_whole).unwrap_or_else(|| disk.geometry().capacity_bytes);
        let OnBackend { file, permissions, unfinished, unpacked, .. } = base;
        Ok(OpenedDisk { disk, length_bytes, file, permissions, unfinished, unpacked })
    }

    /// Opens the file that it is in, once, for a command that works on the file itself rather than on the disk: for
    /// writing too, unless it is to be read only. It is locked, and is what its name or its user says it is. A change
    /// to it that was cut off is completed; where it must not be, that is an error.
    ///
    /// # Errors
    /// When it is in no file, the file cannot be had, or it has a change that cannot be completed.
    pub fn open_image(&self, context: &OpenContext<'_>) -> Result<OpenedImage, OpenError> {
        let Backend::File(specification) = &self.backend else {
            return Err(ImageError::Invalid(format!("{self} is in no file")).into());
        };
        let read_only = self.read_only || context.read_only;
        let Taken { file, format, unfinished } = specification.take(read_only, context)?;
        let was_completed = unfinished.as_ref().is_some_and(UnfinishedChange::has_happened);
        match unfinished {
            Some(change) if read_only => return Err(change.must_be_completed().into()),
            Some(change) => specification.complete(change, &file, format, context)?,
            None => {}
        }
        Ok(OpenedImage { file, was_completed })
    }

    /// Opens a disk that is all of one raw file ([`DiskSpecification::raw_file`]) on this file instead of the one at
    /// its path, open for reading and writing, with the same layers around it.
    ///
    /// # Errors
    /// When the file is none that can be a disk.
    pub fn open_file(&self, file: File) -> Result<OpenedDisk, OpenError> {
        let file = FileDisk::from_file(file, &self.backend.get().file_options(false))?;
        let length_bytes = file.length_bytes();
        let disk = self.hindrances.round(align(Arc::new(file), logical_block(self.backend.get(), None))?);
        Ok(OpenedDisk { disk, length_bytes, file: None, permissions: None, unfinished: None, unpacked: None })
    }

    /// The partition that this names of the [`whole`](Self::whole), which is open already, with what is said of the
    /// partition. `None`: it names none, or something lies between the two.
    ///
    /// # Errors
    /// When there is no such partition.
    pub fn part_of(&self, whole: &Arc<dyn Disk>) -> Result<Option<OpenedPart>, OpenError> {
        let Some(choice) = self.partition.filter(|_| self.delta.is_none()) else { return Ok(None) };
        let part = partition(Arc::clone(whole), choice, self.read_only, self.path())?;
        Ok(Some(OpenedPart { disk: self.hindrances.round(part.disk), ..part }))
    }

    /// What the specification wants round the disk of its backend, but for what hinders it.
    fn with_layers(
        &self,
        disk: Arc<dyn Disk>,
        permissions: Option<u32>,
        read_only: bool,
        logical_block_bytes: Option<u32>,
    ) -> OpenedAs {
        let backend = self.backend.get();
        // Below the partition, which may begin within a block of the backend.
        let disk = align(disk, logical_block_bytes)?;
        let disk = match &self.delta {
            None => disk,
            Some(Delta::Overlay(path)) => overlay(disk, path, backend, permissions, read_only)?,
            Some(Delta::Snapshot) => snapshot(disk, backend)?,
        };
        // The delta's file may have demands of its own.
        let disk = align(disk, logical_block_bytes)?;
        match self.partition {
            None => Ok(disk),
            Some(choice) => Ok(partition(disk, choice, read_only, self.path())?.disk),
        }
    }
}

/// The logical block that a disk of this backend is to have, which an image in it may say; `None`: its own.
fn logical_block(backend: &dyn DiskKind, sector_bytes: Option<u32>) -> Option<u32> {
    let bytes = || backend.logical_block_bytes().or(sector_bytes).unwrap_or(LOGICAL_BLOCK_BYTES);
    backend.has_logical_block().then(bytes)
}

/// How to open a delta on `base`, the opened disk: with its blocks, and otherwise as a file is opened itself.
fn delta_options(backend: &dyn DiskKind, base: &dyn Disk, read_only: bool) -> FileOptions {
    FileOptions { logical_block_bytes: base.geometry().logical_block_bytes, ..backend.file_options(read_only) }
}

/// `base`, with changes in the qcow2 image at `path`, whose header names the base if it is a file. A new one, as it
/// holds parts of what the base holds, is for nobody that the base's `permissions` are not for.
fn overlay(
    base: Arc<dyn Disk>,
    path: &Path,
    backend: &dyn DiskKind,
    permissions: Option<u32>,
    read_only: bool,
) -> OpenedAs {
    let options = delta_options(backend, &*base, read_only);
    let name = backend.as_backing()?;
    Ok(Arc::new(OverlayDisk::open_or_create(base, path, name, permissions, &options)?))
}

/// Where large files without a name lie that are gone in the end: /tmp is often memory.
pub fn temporary_directory() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// `base`, with changes that are gone when it is closed.
fn snapshot(base: Arc<dyn Disk>, backend: &dyn DiskKind) -> OpenedAs {
    let directory = temporary_directory();
    // What does not last goes through the page cache, and need not reach the file at all.
    let options = FileOptions { direct: false, ..delta_options(backend, &*base, false) };
    let no_place = |error| OpenError::other("no place for a snapshot's changes (TMPDIR names one)", error);
    Ok(Arc::new(OverlayDisk::temporary(base, &directory, &options).map_err(no_place)?))
}

fn partition(
    disk: Arc<dyn Disk>,
    choice: PartitionChoice,
    read_only: bool,
    path: Option<&Path>,
) -> Result<OpenedPart, OpenError> {
    let PartitionChoice { number, table } = choice;
    let bad = |source: Box<dyn Error + Send + Sync>| {
        let disk = path.unwrap_or(Path::new("the disk")).to_owned();
        OpenError::Partition { disk, number, source }
    };
    let found = partition_table::read_as(&*disk, table).map_err(|error| bad(error.advising("table=").into()))?;
    let range = found.range(number.get(), read_only).map_err(|error| bad(error.into()))?;
    let part = PartitionDisk::new(disk, range.clone(), read_only).map_err(|error| bad(error.into()))?;
    Ok(OpenedPart { disk: Arc::new(part), range_bytes: range })
}

/// A disk that takes requests of any length from memory of any alignment, in logical blocks of `logical_block_bytes`,
/// or as large as they are.
fn align(disk: Arc<dyn Disk>, logical_block_bytes: Option<u32>) -> OpenedAs {
    let own_bytes = disk.geometry().logical_block_bytes;
    let options = AlignOptions { logical_block_bytes: logical_block_bytes.unwrap_or(own_bytes) };
    let aligned = if options.logical_block_bytes == own_bytes {
        AlignedDisk::where_needed(disk, &options)
    } else {
        AlignedDisk::new(disk, &options).map(|disk| Arc::new(disk) as Arc<dyn Disk>)
    };
    aligned.map_err(|error| OpenError::other("a disk's requests cannot be aligned", error))
}
