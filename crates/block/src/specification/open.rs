//! From a specification to a disk: the one place where backends and layers are put on top of each other.

use super::content;
use super::{
    Backend, Delta, DiskSpecification, FileSpecification, Format, LOGICAL_BLOCK_BYTES, PartitionChoice,
    SessionSpecification,
};
use crate::layers::{AlignOptions, AlignedDisk, Fault, Faults, FaultyDisk, OverlayDisk, PartitionDisk, ThrottledDisk};
use crate::{
    AllowedDirectories, Disk, FileDisk, FileDiskError, FileOptions, ForeignJournal, FoundJournal, ImageError,
    MemoryDisk, NullDisk, OpenedFile, Qcow2Backing, Qcow2Disk, UnfinishedChange, VmdkDisk, partition_table, shown,
    size,
};
use std::error::Error;
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What opening gives.
type OpenedAs = Result<Arc<dyn Disk>, OpenError>;

/// The disk on a file, bytes in a raw one, and what the permission bits of all its files allow.
type OnFile = (Arc<dyn Disk>, Option<u64>, u32);

/// The disk of a backend.
struct Opened {
    disk: Arc<dyn Disk>,
    /// Bytes in a raw file.
    length_bytes: Option<u64>,
    file: Option<OpenedFile>,
    permissions: Option<u32>,
    unfinished: Option<PathBuf>,
}

/// A file that was opened, is what it is called, and is locked.
struct Taken {
    file: OpenedFile,
    format: Format,
    /// The change to it that was cut off.
    unfinished: Option<UnfinishedChange>,
}

/// What a disk is opened with that its specification does not say.
#[derive(Clone, Copy)]
pub struct OpenContext<'a> {
    /// Directories in which an image's backing and data files may lie.
    pub allow_dirs: &'a [PathBuf],
    /// Reaches a disk in another process; this crate does not know how.
    pub connect: &'a dyn Fn(&SessionSpecification) -> OpenedAs,
    /// The file that the specification names, if somebody has opened it.
    pub file: Option<&'a OpenedFile>,
    /// Refuse changes, whatever the specification says.
    pub read_only: bool,
    /// Hears what is worth knowing though the disk is opened, in a sentence.
    pub note: &'a dyn Fn(&str),
}

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
}

/// The file that a disk is in, open for a command that works on the file.
#[derive(Debug)]
pub struct OpenedImage {
    /// The file.
    pub file: OpenedFile,
    /// A change to it that was cut off is complete now.
    pub was_completed: bool,
}

/// Why a disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is no disk, or cannot be had.
    #[error(transparent)]
    File(#[from] FileDiskError),
    /// The file is not what its name says.
    #[error("{} {problem}", shown(path))]
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
    /// The partition is not on the disk; the source says which.
    #[error("{}", shown(disk))]
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
    /// The program that has the file for itself, where that is what is in the way: [`DiskSpecification::unlocked`] goes
    /// round it.
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
    /// the limits and the faults. To measure it, put a [`MeteredDisk`](crate::layers::MeteredDisk) around what comes
    /// back.
    ///
    /// # Errors
    /// When any of these cannot be had; the sentence names the file and says what to do.
    pub fn open(&self, context: &OpenContext<'_>) -> Result<OpenedDisk, OpenError> {
        let read_only = self.read_only || context.read_only;
        // What has a delta is read only.
        let base = self.backend.open(read_only || self.delta.is_some(), context)?;
        let disk = self.with_layers(base.disk, base.permissions, read_only)?;
        let is_whole = self.partition.is_none() && self.delta.is_none();
        let length_bytes = base.length_bytes.filter(|_| is_whole).unwrap_or_else(|| disk.geometry().capacity_bytes);
        let Opened { file, permissions, unfinished, .. } = base;
        Ok(OpenedDisk { disk, length_bytes, file, permissions, unfinished })
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
            Some(change) => specification.complete(change, &file, format, context.allow_dirs)?,
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
        let options = match &self.backend {
            Backend::File(file) => file.options(false),
            _ => FileOptions::default(),
        };
        let file = FileDisk::from_file(file, &options)?;
        let length_bytes = file.length_bytes();
        let disk = self.limited(align(Arc::new(file), self.backend.logical_block_bytes())?);
        Ok(OpenedDisk { disk, length_bytes, file: None, permissions: None, unfinished: None })
    }

    /// What the specification wants round the disk of its backend.
    fn with_layers(&self, disk: Arc<dyn Disk>, permissions: Option<u32>, read_only: bool) -> OpenedAs {
        // Below the partition, which may begin within a block of the backend.
        let disk = align(disk, self.backend.logical_block_bytes())?;
        let disk = match &self.delta {
            None => disk,
            Some(Delta::Overlay(path)) => overlay(disk, path, &self.backend, permissions, read_only)?,
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
    fn open(&self, read_only: bool, context: &OpenContext<'_>) -> Result<Opened, OpenError> {
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
        let disk = if refuse { Arc::new(PartitionDisk::whole(disk, true)) } else { disk };
        Ok(Opened { disk, length_bytes: None, file: None, permissions: None, unfinished: None })
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

    /// Its path is resolved here, once. A change to it that was cut off is completed if it is opened for writing, and
    /// otherwise seen through.
    fn open(&self, read_only: bool, context: &OpenContext<'_>) -> Result<Opened, OpenError> {
        let options = self.options(read_only);
        let Taken { file, format, unfinished } = self.take(read_only, context)?;
        let opened = |options: &FileOptions| self.open_in(&file, format, options, context.allow_dirs);
        let ((disk, length_bytes, permissions), unfinished) = match unfinished {
            None => (opened(&options)?, None),
            Some(change) if read_only => {
                let (base, length_bytes, permissions) = opened(&options)?;
                let unfinished = change.path().to_owned();
                ((change.shown_on(base)?, length_bytes, permissions), Some(unfinished))
            }
            Some(change) => {
                self.complete(change, &file, format, context.allow_dirs)?;
                (opened(&options)?, None)
            }
        };
        Ok(Opened { disk, length_bytes, file: Some(file), permissions: Some(permissions), unfinished })
    }

    /// Opens the file, if nobody has yet, makes sure that it is what it is called, and locks it.
    fn take(&self, read_only: bool, context: &OpenContext<'_>) -> Result<Taken, OpenError> {
        let file = match context.file {
            Some(file) => file.try_clone().map_err(|error| OpenError::other(shown(&self.path).to_string(), error))?,
            None => OpenedFile::open(&self.path, read_only)?,
        };
        let format = content::check(file.file(), &self.path, self.format)?;
        file.lock(&self.options(read_only))?;
        // Who looks at what somebody else may be writing wants it as it is.
        let looks_at_it_as_it_is = read_only && !self.lock;
        let found = if looks_at_it_as_it_is { FoundJournal::None } else { FoundJournal::of(&file, read_only)? };
        let unfinished = match found {
            FoundJournal::None => None,
            FoundJournal::Foreign(ForeignJournal { path, problem }) => {
                let (journal, image) = (shown(&path), shown(&self.path));
                (context.note)(&format!(
                    "{journal} counts as no change to {image}, as it is {problem}: it is left alone"
                ));
                None
            }
            FoundJournal::Unfinished(change) => Some(change),
        };
        Ok(Taken { file, format, unfinished })
    }

    fn complete(
        &self,
        change: UnfinishedChange,
        file: &OpenedFile,
        format: Format,
        allow_dirs: &[PathBuf],
    ) -> Result<(), OpenError> {
        // Whatever the specification says of flushes: the journal goes when the image is stable.
        let options = FileOptions { cache_unsafe: false, ..self.options(false) };
        let (base, ..) = self.open_in(file, format, &options, allow_dirs)?;
        Ok(change.complete(base, format == Format::Qcow2)?)
    }

    /// The disk on this file, what is known of its length, and what the permission bits of all its files allow.
    fn open_in(
        &self,
        file: &OpenedFile,
        format: Format,
        options: &FileOptions,
        allow_dirs: &[PathBuf],
    ) -> Result<OnFile, OpenError> {
        let failed = |error| OpenError::other(shown(&self.path).to_string(), error);
        let handle = file.file().try_clone().map_err(failed)?;
        let permissions = file.permissions().map_err(failed)?;
        let allowed = || AllowedDirectories::new(allow_dirs);
        Ok(match format {
            Format::Raw => {
                let disk = FileDisk::on_opened(handle, &self.path, options)?;
                let length_bytes = disk.length_bytes();
                (Arc::new(disk), Some(length_bytes), permissions)
            }
            Format::Qcow2 => {
                let disk = Qcow2Disk::open_in(handle, &self.path, options, &allowed()?)?;
                let permissions = permissions & disk.permissions();
                (Arc::new(disk), None, permissions)
            }
            Format::Vmdk => {
                let disk = VmdkDisk::open_in(&handle, &self.path, options, &allowed()?)?;
                let permissions = permissions & disk.permissions();
                (Arc::new(disk), None, permissions)
            }
        })
    }

    /// As the header of an image on top of this one names it: by a path that does not depend on where that image lies.
    fn as_backing(&self) -> Result<Option<Qcow2Backing>, OpenError> {
        let path = self.path.canonicalize().map_err(|error| OpenError::other(shown(&self.path).to_string(), error))?;
        let format = self.format.unwrap_or_else(|| Format::of_name(&self.path));
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

/// `base`, with changes in the qcow2 image at `path`, whose header names the base if it is a file. A new one, as it
/// holds parts of what the base holds, is for nobody that the base's `permissions` are not for.
fn overlay(base: Arc<dyn Disk>, path: &Path, backend: &Backend, permissions: Option<u32>, read_only: bool) -> OpenedAs {
    let options = backend.delta_options(&*base, read_only);
    let name = match backend {
        Backend::File(file) => file.as_backing()?,
        _ => None,
    };
    Ok(Arc::new(OverlayDisk::open_or_create(base, path, name, permissions, &options)?))
}

/// `base`, with changes that are gone when it is closed. They may be large: /tmp is often memory.
fn snapshot(base: Arc<dyn Disk>, backend: &Backend) -> OpenedAs {
    let directory = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    // What does not last goes through the page cache, and need not reach the file at all.
    let options = FileOptions { direct: false, ..backend.delta_options(&*base, false) };
    Ok(Arc::new(OverlayDisk::temporary(base, &directory, &options)?))
}

fn partition(disk: Arc<dyn Disk>, choice: PartitionChoice, read_only: bool, path: Option<&Path>) -> OpenedAs {
    let PartitionChoice { number, table } = choice;
    let bad = |source: Box<dyn Error + Send + Sync>| {
        let disk = path.unwrap_or(Path::new("the disk")).to_owned();
        OpenError::Partition { disk, number, source }
    };
    let found = partition_table::read_as(&*disk, table).map_err(|error| bad(error.advising("table=").into()))?;
    let range = found.range(number.get(), read_only).map_err(|error| bad(error.into()))?;
    Ok(Arc::new(PartitionDisk::new(disk, range, read_only).map_err(|error| bad(error.into()))?))
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
