//! From a specification to a disk: the one place where backends and layers are put on top of each other.

use super::content;
use super::{
    Backend, Delta, DiskSpecification, FileSpecification, Format, LOGICAL_BLOCK_BYTES, PartitionChoice,
    SessionSpecification,
};
use crate::layers::{AlignOptions, AlignedDisk, Fault, Faults, FaultyDisk, OverlayDisk, PartitionDisk, ThrottledDisk};
use crate::{
    AllowedDirectories, Disk, FileDisk, FileDiskError, FileOptions, ImageError, MemoryDisk, NullDisk, Qcow2Backing,
    Qcow2Disk, VmdkDisk, partition_table, size,
};
use std::error::Error;
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What opening gives.
type Opened = Result<Arc<dyn Disk>, OpenError>;

/// What a disk is opened with that its specification does not say.
#[derive(Clone, Copy)]
pub struct OpenContext<'a> {
    /// Directories in which an image's backing and data files may lie.
    pub allow_dirs: &'a [PathBuf],
    /// Reaches a disk in another process; this crate does not know how.
    pub connect: &'a dyn Fn(&SessionSpecification) -> Opened,
    /// Refuse changes, whatever the specification says.
    pub read_only: bool,
}

/// A disk, and how long it is.
#[derive(Clone)]
pub struct OpenedDisk {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Bytes in it: what a raw file has, before the capacity was rounded up to whole logical blocks; otherwise the capacity.
    pub length_bytes: u64,
}

/// Why a disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is no disk, or cannot be had.
    #[error(transparent)]
    File(#[from] FileDiskError),
    /// The file is not what its name says.
    #[error("{} {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What it is, and how to say so.
        problem: String,
    },
    /// There is no memory for it, or no such block size.
    #[error("cannot make a disk of {}", size::exact(*capacity_bytes))]
    Memory {
        /// How much was asked for.
        capacity_bytes: u64,
        /// Why not.
        source: io::Error,
    },
    /// The partition is not on the disk.
    #[error("cannot open partition {number} of {}", disk.display())]
    Partition {
        /// The file or socket that the disk is in.
        disk: PathBuf,
        /// Its number.
        number: NonZeroU32,
        /// Why not.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An image is none, refers to what it must not, or cannot be had.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// There is no session; the sentence names the socket.
    #[error(transparent)]
    Session(Box<dyn Error + Send + Sync>),
    /// Anything else.
    #[error("{subject}")]
    Other {
        /// The file, socket or part of the disk.
        subject: String,
        /// What is wrong with it.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl OpenError {
    /// The program that has the file for itself, where that is what is in the way: [`DiskSpecification::unlocked`] goes round it.
    pub fn holder(&self) -> Option<&str> {
        match self {
            Self::File(FileDiskError::Locked { holder, .. })
            | Self::Image(ImageError::File(FileDiskError::Locked { holder, .. })) => Some(holder),
            _ => None,
        }
    }

    /// Something went wrong with the file, socket or part of the disk that `subject` names.
    pub fn other(subject: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other { subject: subject.into(), source: source.into() }
    }
}

impl DiskSpecification {
    /// Opens the disk: the backend, what makes every request fit it, then from the inside out the delta, the partition,
    /// the limits and the faults. To measure it, put a [`MeteredDisk`](crate::layers::MeteredDisk) around what comes back.
    ///
    /// # Errors
    /// When any of these cannot be had; the sentence names the file and says what to do.
    pub fn open(&self, context: &OpenContext<'_>) -> Opened {
        Ok(self.open_measured(context)?.disk)
    }

    /// As [`DiskSpecification::open`], and says how long the disk is to the byte.
    ///
    /// # Errors
    /// As [`DiskSpecification::open`].
    pub fn open_measured(&self, context: &OpenContext<'_>) -> Result<OpenedDisk, OpenError> {
        if let (Some(_), Backend::File(file)) = (self.raw_file(), &self.backend) {
            content::check(&file.path, file.format)?;
            return self.on_file(FileDisk::open(&file.path, &file.options(self.read_only || context.read_only))?);
        }
        let disk = self.open_parts(context)?;
        Ok(OpenedDisk { length_bytes: disk.geometry().capacity_bytes, disk })
    }

    /// Opens a disk that is all of one raw file ([`DiskSpecification::raw_file`]) on this file instead of the one at its path,
    /// open for reading and writing, with the same layers around it.
    ///
    /// # Errors
    /// When the file is none that can be a disk.
    pub fn open_file(&self, file: File) -> Result<OpenedDisk, OpenError> {
        let options = match &self.backend {
            Backend::File(file) => file.options(false),
            _ => FileOptions::default(),
        };
        self.on_file(FileDisk::from_file(file, &options)?)
    }

    fn on_file(&self, file: FileDisk) -> Result<OpenedDisk, OpenError> {
        let length_bytes = file.length_bytes();
        let disk = align(Arc::new(file), self.backend.logical_block_bytes())?;
        Ok(OpenedDisk { disk: self.limited(disk), length_bytes })
    }

    fn open_parts(&self, context: &OpenContext<'_>) -> Opened {
        let read_only = self.read_only || context.read_only;
        // What has a delta is read only.
        let disk = self.backend.open(read_only || self.delta.is_some(), context)?;
        // Below the partition, which may begin within a block of the backend.
        let disk = align(disk, self.backend.logical_block_bytes())?;
        let disk = match &self.delta {
            None => disk,
            Some(Delta::Overlay(path)) => overlay(disk, path, &self.backend, read_only)?,
            Some(Delta::Snapshot) => snapshot(disk, &self.backend)?,
        };
        // The delta's file may have demands of its own.
        let disk = align(disk, self.backend.logical_block_bytes())?;
        Ok(self.limited(match self.partition {
            None => disk,
            Some(choice) => partition(disk, choice, read_only, self.path())?,
        }))
    }

    /// `disk`, made slow or bad as the specification wants it.
    fn limited(&self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        let disk: Arc<dyn Disk> = match &self.limits {
            None => disk,
            Some(limits) => Arc::new(ThrottledDisk::new(disk, limits)),
        };
        match self.all_faults() {
            None => disk,
            Some(faults) => Arc::new(FaultyDisk::new(disk, &faults)),
        }
    }

    /// The faults, with the latency as one of them.
    fn all_faults(&self) -> Option<Faults> {
        if self.latency.is_none() && self.faults.is_none() {
            return None;
        }
        let mut faults = self.faults.clone().unwrap_or_default();
        faults.faults.extend(self.latency.map(|latency| Fault::Latency { operation: None, latency }));
        Some(faults)
    }
}

impl Backend {
    fn open(&self, read_only: bool, context: &OpenContext<'_>) -> Opened {
        let disk: Arc<dyn Disk> = match self {
            Self::File(file) => return file.open(read_only, context),
            Self::Session(session) => (context.connect)(session)?,
            &Self::Memory { capacity_bytes, logical_block_bytes } => Arc::new(
                MemoryDisk::new(capacity_bytes, logical_block_bytes.unwrap_or(LOGICAL_BLOCK_BYTES))
                    .map_err(|source| OpenError::Memory { capacity_bytes, source })?,
            ),
            &Self::Null { capacity_bytes, logical_block_bytes } => Arc::new(
                NullDisk::new(capacity_bytes, logical_block_bytes.unwrap_or(LOGICAL_BLOCK_BYTES))
                    .map_err(|source| OpenError::Memory { capacity_bytes, source })?,
            ),
        };
        let refuse = read_only && !disk.geometry().read_only;
        Ok(if refuse { Arc::new(PartitionDisk::whole(disk, true)) } else { disk })
    }

    /// The logical block that the disk is to have; `None`: its own.
    fn logical_block_bytes(&self) -> Option<u32> {
        match self {
            Self::File(FileSpecification { logical_block_bytes, .. })
            | Self::Memory { logical_block_bytes, .. }
            | Self::Null { logical_block_bytes, .. } => Some(logical_block_bytes.unwrap_or(LOGICAL_BLOCK_BYTES)),
            Self::Session(_) => None,
        }
    }

    /// How to open a delta on `base`, the opened disk: with its blocks, and otherwise as a file is opened itself.
    fn delta_options(&self, base: &dyn Disk, read_only: bool) -> FileOptions {
        let options = match self {
            Self::File(file) => file.options(read_only),
            _ => FileOptions { read_only, ..FileOptions::default() },
        };
        FileOptions { logical_block_bytes: base.geometry().logical_block_bytes, ..options }
    }
}

impl FileSpecification {
    pub(super) fn is_raw(&self) -> bool {
        self.format.unwrap_or_else(|| Format::of_name(&self.path)) == Format::Raw
    }

    fn open(&self, read_only: bool, context: &OpenContext<'_>) -> Opened {
        let options = self.options(read_only);
        let allowed = || AllowedDirectories::new(context.allow_dirs);
        match content::check(&self.path, self.format)? {
            Format::Raw => Ok(Arc::new(FileDisk::open(&self.path, &options)?)),
            Format::Qcow2 => Ok(Arc::new(Qcow2Disk::open(&self.path, &options, &allowed()?)?)),
            Format::Vmdk => Ok(Arc::new(VmdkDisk::open(&self.path, &options, &allowed()?)?)),
        }
    }

    /// As the header of an image on top of this one names it: by a path that does not depend on where that image lies.
    fn as_backing(&self) -> Result<Option<Qcow2Backing>, OpenError> {
        let path =
            self.path.canonicalize().map_err(|error| OpenError::other(self.path.display().to_string(), error))?;
        let format = content::check(&self.path, self.format)?;
        // QEMU could open nothing else there.
        let name = path.to_str().filter(|_| matches!(format, Format::Raw | Format::Qcow2));
        Ok(name.map(|name| Qcow2Backing { name: name.to_owned(), format: format.word().to_owned() }))
    }

    fn options(&self, read_only: bool) -> FileOptions {
        FileOptions {
            read_only,
            engine: self.engine.unwrap_or_default(),
            logical_block_bytes: self.logical_block_bytes.unwrap_or(LOGICAL_BLOCK_BYTES),
            cache_unsafe: self.cache_unsafe,
            direct: self.direct,
            lock: self.lock,
        }
    }
}

/// `base`, with changes in the qcow2 image at `path`, whose header names the base if it is a file.
fn overlay(base: Arc<dyn Disk>, path: &Path, backend: &Backend, read_only: bool) -> Opened {
    let options = backend.delta_options(&*base, read_only);
    let name = match backend {
        Backend::File(file) => file.as_backing()?,
        _ => None,
    };
    Ok(Arc::new(OverlayDisk::open_or_create(base, path, name, &options)?))
}

/// `base`, with changes that are gone when it is closed. They may be large: /tmp is often memory.
fn snapshot(base: Arc<dyn Disk>, backend: &Backend) -> Opened {
    let directory = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    // What does not last goes through the page cache, and need not reach the file at all.
    let options = FileOptions { direct: false, ..backend.delta_options(&*base, false) };
    Ok(Arc::new(OverlayDisk::temporary(base, &directory, &options)?))
}

fn partition(disk: Arc<dyn Disk>, choice: PartitionChoice, read_only: bool, path: Option<&Path>) -> Opened {
    let PartitionChoice { number, table } = choice;
    let bad = |source: Box<dyn Error + Send + Sync>| {
        let disk = path.unwrap_or(Path::new("the disk")).to_owned();
        OpenError::Partition { disk, number, source }
    };
    let found = partition_table::read_as(&*disk, table).map_err(|error| bad(error.advising("table=").into()))?;
    let range = found.range(number.get(), read_only).map_err(|error| bad(error.into()))?;
    Ok(Arc::new(PartitionDisk::new(disk, range, read_only).map_err(|error| bad(error.into()))?))
}

/// A disk that takes requests of any length from memory of any alignment, in logical blocks of `logical_block_bytes`, or
/// as large as they are.
fn align(disk: Arc<dyn Disk>, logical_block_bytes: Option<u32>) -> Opened {
    let own_bytes = disk.geometry().logical_block_bytes;
    let options = AlignOptions { logical_block_bytes: logical_block_bytes.unwrap_or(own_bytes) };
    let aligned = if options.logical_block_bytes == own_bytes {
        AlignedDisk::where_needed(disk, &options)
    } else {
        AlignedDisk::new(disk, &options).map(|disk| Arc::new(disk) as Arc<dyn Disk>)
    };
    aligned.map_err(|error| OpenError::other("a disk's requests cannot be aligned", error))
}
