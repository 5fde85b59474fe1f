//! Images whose disk is in blocks of a file, which a table finds: those of other hypervisors. They are read, and made
//! ([`writer`]); VMDKs are written to ([`changes`]).
//!
//! A format reads its header into numbers that are in bounds, and says where the entries of its table lie and what each
//! means ([`layer::BlockMap`]); all else is the same for all of them. A request's range is looked up in slices of the
//! tables, which are in memory as far as they were used lately (8 MiB for a whole chain; without a lock). What lies in
//! a file is pushed to the queue of the file, with the request's own segments; zeros are filled in on the spot. One
//! thread of the image's own reads the slices that are not in memory, for which only the requests that need them wait;
//! as many as there are CPUs unpack compressed blocks.
//! Opening reads no table, however large the disk is.
//!
//! What an entry says is judged when it is looked at: a request that it leads out of the file, or over the image's own
//! tables, ends with an error, and [`Disk::extents`] says which image is damaged, and where.

mod chain;
mod changes;
mod check;
mod commit;
mod fields;
mod image;
mod image_file;
mod layer;
mod level;
mod logged;
mod parallels;
mod parent_name;
mod qed;
mod queue;
mod reader;
#[cfg(test)]
pub(super) mod tests;
mod unpacker;
mod vdi;
mod vhd;
mod vhdx;
mod vmdk;
mod worker;
mod writer;

pub use commit::VmdkCommit;
pub(super) use vmdk::describe as vmdk_description;

use super::chain_files::ChainFiles;
use super::{AllowedDirectories, CheckReport, ImageError, Qcow2Mapping};
use crate::{Disk, Extent, FileDisk, FileOptions, Geometry, MemoryMap, OpenedFile, Queue};
use chain::Opened;
pub(super) use chain::open_behind as open_behind_block_map;
pub(super) use image_file::ImageFile;
use queue::BlockMapSplit;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
pub use vmdk::new::{VmdkAdapter, VmdkCreateOptions};
pub(crate) use vmdk::stream::PackedGrains;
pub use vmdk::stream::VmdkStreamWriter;
use worker::{ToChange, Worker};
pub use writer::{BlockMapCreateOptions, BlockMapWriter};

/// Most bytes of a disk: what a signed offset holds, less what rounding may add.
const DISK_MAX_BYTES: u64 = (1 << 62) - 1;

/// Which of these formats an image is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockMapFormat {
    /// VirtualBox's Virtual Disk Image, version 1.1, static or dynamic.
    Vdi,
    /// Virtual PC's and Hyper-V's VHD, fixed, dynamic or differencing.
    Vhd,
    /// Hyper-V's VHDX, fixed, dynamic or differencing.
    Vhdx,
    /// QEMU's former format QED.
    Qed,
    /// Parallels' expandable images.
    Parallels,
    /// VMware's VMDK: grains in one file or several, compressed or not, flat files and devices, differences.
    Vmdk,
}

/// What an image says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMapInfo {
    /// Bytes of its disk.
    pub size_bytes: u64,
    /// Bytes of a block; `None`: all of the disk lies in one piece.
    pub block_bytes: Option<u64>,
    /// The logical sector of the disk, where it says one.
    pub sector_bytes: Option<u64>,
    /// How it is laid out, as its specification calls that: `dynamic`, say.
    pub subformat: &'static str,
    /// What it calls the image that it is a difference from.
    pub parent: Option<String>,
    /// Whoever wrote to it last has not closed it.
    pub is_dirty: bool,
}

/// A disk in such an image.
#[derive(Debug)]
pub struct BlockMapDisk {
    worker: Arc<Worker>,
}

impl BlockMapFormat {
    /// Every one.
    pub(super) const ALL: [Self; 6] = [Self::Vdi, Self::Vhd, Self::Vhdx, Self::Qed, Self::Parallels, Self::Vmdk];

    /// Its word: qemu-img's.
    pub fn word(self) -> &'static str {
        match self {
            Self::Vdi => "vdi",
            Self::Vhd => "vpc",
            Self::Vhdx => "vhdx",
            Self::Qed => "qed",
            Self::Parallels => "parallels",
            Self::Vmdk => "vmdk",
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vdi => "VDI",
            Self::Vhd => "VHD",
            Self::Vhdx => "VHDX",
            Self::Qed => "QED",
            Self::Parallels => "Parallels",
            Self::Vmdk => "VMDK",
        }
    }

    fn read(self, file: &mut ImageFile) -> Result<Opened, ImageError> {
        match self {
            Self::Vdi => vdi::read(file),
            Self::Vhd => vhd::read(file),
            Self::Vhdx => vhdx::read(file),
            Self::Qed => qed::read(file),
            Self::Parallels => parallels::read(file),
            Self::Vmdk => vmdk::read(file),
        }
    }
}

impl BlockMapInfo {
    /// Reads what the header in `file` says. No other file is opened.
    ///
    /// # Errors
    /// When it cannot be read, or understood.
    pub fn of(file: &OpenedFile, format: BlockMapFormat) -> Result<Self, ImageError> {
        Ok(format.read(&mut ImageFile::of(file.file(), file.path())?)?.info)
    }
}

impl BlockMapDisk {
    /// Opens the image at `path`, which is in this format. Its data are carried by the engine in `options`; images
    /// behind it are opened for reading, and only through `allowed`.
    ///
    /// # Errors
    /// When the image or one that it depends on cannot be opened, is damaged, is not allowed or needs what is not
    /// supported; the error names it. When it is to be written to, and is only read or not in order.
    pub fn open(
        path: &Path,
        format: BlockMapFormat,
        options: &FileOptions,
        allowed: &AllowedDirectories,
    ) -> Result<Self, ImageError> {
        Self::open_in(FileDisk::open_file(path, options.read_only)?, path, format, options, allowed)
    }

    /// The same, of the image in `file`: `path` is what messages call it, and where what it refers to starts from.
    ///
    /// # Errors
    /// As [`BlockMapDisk::open`].
    pub fn open_in(
        file: File,
        path: &Path,
        format: BlockMapFormat,
        options: &FileOptions,
        allowed: &AllowedDirectories,
    ) -> Result<Self, ImageError> {
        Self::open_behind(file, path, format, options, allowed, &mut ChainFiles::default())
    }

    /// The same of an image that is behind others, whose files are known.
    ///
    /// # Errors
    /// As [`BlockMapDisk::open`].
    pub(super) fn open_behind(
        file: File,
        path: &Path,
        format: BlockMapFormat,
        options: &FileOptions,
        allowed: &AllowedDirectories,
        files: &mut ChainFiles,
    ) -> Result<Self, ImageError> {
        let (image, to_change) = chain::open_in(file, path, format, options, allowed, files)?;
        Self::of(image, to_change, path, files.only_read())
    }

    /// The same, of an image that is a part of `file` called `name`, and that cannot refer to anything.
    pub(super) fn open_part(
        file: &ImageFile,
        name: &str,
        part: Range<u64>,
        format: BlockMapFormat,
        options: &FileOptions,
    ) -> Result<Self, ImageError> {
        Self::of(chain::open_part(file, name, part, format, options)?, None, file.path(), "")
    }

    /// `advice`: what helps where it is only read.
    fn of(image: image::Image, to_change: Option<ToChange>, path: &Path, advice: &str) -> Result<Self, ImageError> {
        let checked = to_change.map(ToChange::checked).transpose();
        let checked = checked.map_err(|problem| unusable(path, format!("{problem}: {advice}")))?;
        let failed = |source| ImageError::System { action: "start a thread for", path: path.to_owned(), source };
        Ok(Self { worker: Arc::new(Worker::start(image, checked).map_err(failed)?) })
    }

    /// What there is at the beginning of `range`, and for how long at most; and which of [`BlockMapDisk::files`] has
    /// it, if one has.
    ///
    /// # Errors
    /// When the image cannot be read or is damaged, or the range is empty or reaches outside the disk.
    pub fn map(&self, range: Range<u64>) -> io::Result<(Qcow2Mapping, Option<usize>)> {
        self.worker.image().map(range)
    }

    /// Whether every byte of it may be changed, where it is open for that.
    pub(super) fn is_writable(&self) -> bool {
        self.worker.image().is_writable()
    }

    /// The files that its bytes are in.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.worker.image().files()
    }

    /// Looks at every entry of the image's maps, not of those of the images behind it: whether each leads to where a
    /// block can be, and no two to one place (unless there are more than four million). `say` hears of those that do
    /// not, in a line each.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn check(&self, say: &mut dyn FnMut(&str)) -> Result<CheckReport, ImageError> {
        self.worker.image().check(say)
    }

    /// Whether its compressed blocks become whole ones, all of which are decompressed: how many do not, of which `say`
    /// hears. `report` is what [`BlockMapDisk::check`] has found: where maps are not in order, nothing is tried.
    /// `goes_on` hears how many bytes are tried, of how many, and says whether to go on.
    ///
    /// # Errors
    /// When the image cannot be read, or it was told not to go on.
    pub fn try_compressed(
        &self,
        report: &CheckReport,
        say: &mut dyn FnMut(&str),
        goes_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<u64, ImageError> {
        match report.compressed_clusters {
            blocks if blocks > 0 && report.corruptions == 0 => self.worker.image().try_compressed(blocks, say, goes_on),
            _ => Ok(0),
        }
    }

    /// Does what the log of an image holds, whose writer has not closed it: where it belongs, on stable storage, and
    /// the log is empty then. The image is open for writing, and locked. Whether there was anything to do; only a VHDX
    /// has a log.
    ///
    /// # Errors
    /// When the image or its log is damaged: then nothing was written. When the file cannot be written: it can be done
    /// again.
    pub fn replay_log(image: &OpenedFile, format: BlockMapFormat) -> Result<bool, ImageError> {
        match format {
            BlockMapFormat::Vhdx => vhdx::replay_log(image),
            _ => Ok(false),
        }
    }

    /// What is worth saying though it is opened, each in a sentence.
    pub fn notes(&self) -> &[String] {
        self.worker.image().notes()
    }

    /// The logical block that the image says its disk has.
    pub(crate) fn sector_bytes(&self) -> u32 {
        self.worker.image().sector_bytes()
    }

    /// What the permission bits of the image's file and of all files behind it allow.
    pub(crate) fn permissions(&self) -> u32 {
        self.worker.image().permissions
    }
}

impl Disk for BlockMapDisk {
    fn geometry(&self) -> Geometry {
        *self.worker.image().geometry()
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.worker.image().extents(range)
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        BlockMapSplit::boxed(&self.worker, memory, depth)
    }
}

fn unusable(path: &Path, problem: impl Into<String>) -> ImageError {
    ImageError::Unusable { path: path.to_owned(), problem: problem.into() }
}
