//! Making images.

use super::header::{DISK_MAX_BYTES, EXTENDED_CLUSTER_BITS_MIN};
use super::own_file;
use super::writer::{Onto, Qcow2Writer};
use crate::formats::allowed_directories::protocol;
use crate::formats::chain_files::ChainFormat;
use crate::formats::preallocation::{Preallocation, check, reserve};
use crate::formats::{ImageError, NewLuks};
use crate::size::set_length;
use crate::{ReplacementFile, directory_of};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const CLUSTER_MIN_BYTES: u32 = 512;
const CLUSTER_MAX_BYTES: u32 = 2 << 20;

/// Largest L1 table, which bounds the size: QEMU's limit.
const L1_ENTRIES_MAX: u64 = (32 << 20) / 8;

/// Most bytes of the name of another file.
const NAME_MAX_BYTES: usize = 1023;

/// The image that a new one is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qcow2Backing {
    /// Its name as the new image is to have it: absolute, or from the new image's directory. Not opened.
    pub name: String,
    /// Its format, as qemu-img calls it.
    pub format: String,
}

/// The file of its own that a new image has its data in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qcow2DataFile {
    /// Its name as the new image is to have it: absolute, or from the new image's directory.
    pub name: String,
    /// It is a raw image of the disk, at any time.
    pub is_raw: bool,
}

/// What whoever uses an image must know of its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qcow2Features {
    /// 2, or 3: what is older than QEMU 1.1 knows 2.
    pub version: u32,
    /// Refcounts have two to the power of this, in bits: 0 to 6; of version 2, 4.
    pub refcount_order: u32,
    /// Whoever writes to it may be behind with refcounts. We never are.
    pub has_lazy_refcounts: bool,
    /// Clusters have 32 parts: they have 16 KiB at least.
    pub has_extended_l2: bool,
    /// What is compressed is so by zstd, else by zlib.
    pub is_zstd: bool,
}

impl Default for Qcow2Features {
    fn default() -> Self {
        Self { version: 3, refcount_order: 4, has_lazy_refcounts: false, has_extended_l2: false, is_zstd: false }
    }
}

impl Qcow2Features {
    /// Whether clusters are data as a whole, or nothing, or zeros over what is behind the image.
    pub fn can_hide_clusters(&self) -> bool {
        self.version >= 3 && !self.has_extended_l2
    }

    fn check(self, cluster_bytes: u32) -> Result<(), String> {
        let is_new = self.refcount_order != 4 || self.has_lazy_refcounts || self.has_extended_l2 || self.is_zstd;
        if !(2..=3).contains(&self.version) || self.refcount_order > 6 {
            return Err("an image is of version 2 or 3, and its refcounts have 1 to 64 bits".to_owned());
        }
        if self.version == 2 && is_new {
            return Err("version 2 (compat=0.10) has refcounts of 16 bits, none of them lazy, no extended L2 entries \
                        and no zstd: leave these out, or take compat=1.1"
                .to_owned());
        }
        if self.has_extended_l2 && cluster_bytes < 1 << EXTENDED_CLUSTER_BITS_MIN {
            return Err("extended L2 entries need clusters of 16 KiB at least".to_owned());
        }
        Ok(())
    }
}

/// What a new image is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qcow2CreateOptions {
    /// Size of the disk: a multiple of 512.
    pub size_bytes: u64,
    /// The unit of allocation: a power of two from 512 to 2 MiB.
    pub cluster_bytes: u32,
    /// What is allocated from the start; nothing with a backing file.
    pub preallocation: Preallocation,
    /// What shows where the image holds nothing.
    pub backing: Option<Qcow2Backing>,
    /// What whoever uses it must know.
    pub features: Qcow2Features,
    /// Where its data are, if not in the image.
    pub data_file: Option<Qcow2DataFile>,
    /// How its data are encrypted, if they are.
    pub encryption: Option<NewLuks>,
}

impl Qcow2CreateOptions {
    /// An empty image of `size_bytes` in clusters of 64 KiB.
    pub fn new(size_bytes: u64) -> Self {
        let features = Qcow2Features::default();
        let (preallocation, cluster_bytes) = (Preallocation::Off, 64 << 10);
        Self { size_bytes, cluster_bytes, preallocation, backing: None, features, data_file: None, encryption: None }
    }

    /// What is allocated from the start: of a raw data file everything, as it must hold each byte of the disk.
    fn allocated(&self) -> Preallocation {
        match (self.preallocation, &self.data_file) {
            (Preallocation::Off, Some(Qcow2DataFile { is_raw: true, .. })) => Preallocation::Metadata,
            (preallocation, _) => preallocation,
        }
    }

    fn check_data_file(&self) -> Result<(), &'static str> {
        let Some(Qcow2DataFile { name, is_raw }) = &self.data_file else { return Ok(()) };
        check_data_file_name(name)?;
        if self.features.version < 3 {
            return Err("an image of version 2 (compat=0.10) has no data file: take compat=1.1");
        }
        match is_raw {
            true if self.backing.is_some() => Err("a raw data file holds all of the disk, and nothing of a backing \
                                                   file would show: leave the one or the other out"),
            true if self.encryption.is_some() => Err("a data file that is encrypted is no raw image of the disk: \
                                                      leave data_file_raw or the encryption out"),
            _ => Ok(()),
        }
    }

    /// Whether it can be on a device.
    pub(super) fn check_for_device(&self) -> Result<(), ImageError> {
        if self.allocated() == Preallocation::Off && self.data_file.is_none() {
            return Ok(());
        }
        let problem = "an image on a device is not preallocated, and has its data in itself: leave preallocation and \
                       data_file out";
        Err(ImageError::Invalid(problem.into()))
    }

    /// Whether an image of this size is possible that [ends before](super::Qcow2Writer::end_at) with no more of a table
    /// than is worth mentioning.
    pub fn can_end_early(&self) -> bool {
        const L1_BYTES_MAX: u64 = 64 << 10;
        self.check().is_ok() && self.size_bytes.div_ceil(self.l2_covers_bytes()) * 8 <= L1_BYTES_MAX
    }

    /// Of a disk, what one table has entries for.
    fn l2_covers_bytes(&self) -> u64 {
        let entry_bytes = if self.features.has_extended_l2 { 16 } else { 8 };
        u64::from(self.cluster_bytes) * u64::from(self.cluster_bytes / entry_bytes)
    }

    /// Whether there can be such an image.
    ///
    /// # Errors
    /// When there cannot; why.
    pub fn check(&self) -> Result<(), ImageError> {
        let Self { size_bytes, cluster_bytes, preallocation, ref backing, features, ref encryption, .. } = *self;
        let clusters_are_possible = (CLUSTER_MIN_BYTES..=CLUSTER_MAX_BYTES).contains(&cluster_bytes);
        if !clusters_are_possible || !cluster_bytes.is_power_of_two() {
            let problem =
                format!("clusters of {cluster_bytes} bytes are not possible: 512 bytes to 2 MiB, powers of two");
            return Err(ImageError::Invalid(problem));
        }
        features.check(cluster_bytes).map_err(ImageError::Invalid)?;
        self.check_data_file().map_err(|problem| ImageError::Invalid(problem.into()))?;
        let size_max_bytes = (L1_ENTRIES_MAX * self.l2_covers_bytes()).min(DISK_MAX_BYTES);
        if size_bytes > size_max_bytes || !size_bytes.is_multiple_of(512) {
            let problem = format!(
                "a disk of {size_bytes} bytes is not possible: in clusters of {cluster_bytes} it has a multiple of 512 bytes, \
                 at most {size_max_bytes}"
            );
            return Err(ImageError::Invalid(problem));
        }
        if let Some(NewLuks { options, .. }) = encryption {
            options.check().map_err(ImageError::Invalid)?;
            if preallocation != Preallocation::Off && features.version < 3 {
                let problem = "an encrypted image of version 2 (compat=0.10) cannot be preallocated: take compat=1.1";
                return Err(ImageError::Invalid(problem.into()));
            }
        }
        if let Some(Qcow2Backing { name, format }) = backing {
            if preallocation != Preallocation::Off && !features.has_extended_l2 {
                let problem = "an image with a backing file is preallocated with extended_l2=on only: else nothing would \
                               show through";
                return Err(ImageError::Invalid(problem.into()));
            }
            let is_known = ChainFormat::of_word(format).is_some_and(|known| known.word() == format);
            if !is_known || name.is_empty() || name.len() > NAME_MAX_BYTES {
                let problem = format!("{name:?} in the format {format:?} cannot be a backing file");
                return Err(ImageError::Invalid(problem));
            }
        }
        Ok(())
    }
}

/// Whether a data file can be called so.
pub(super) fn check_data_file_name(name: &str) -> Result<(), &'static str> {
    match protocol(name).is_some() || name.is_empty() || name.contains('\0') || name.len() > NAME_MAX_BYTES {
        true => Err("a data file's name has 1 to 1023 bytes, and ./ before it where it has a colon"),
        false => Ok(()),
    }
}

/// Makes an image at `path`, in the place of what is there.
pub(super) fn create(path: &Path, options: &Qcow2CreateOptions) -> Result<(), ImageError> {
    options.check()?;
    let replacement = ReplacementFile::create(path)?;
    let replacement = match &options.data_file {
        Some(data_file) => replacement.with_companion(&directory_of(path).join(&data_file.name))?,
        None => replacement,
    };
    format(replacement.file(), replacement.companion().map(ReplacementFile::file), path, options, &|| true)?;
    Ok(replacement.commit(true)?)
}

/// Makes the device an image, whatever it holds. Cut off anywhere before the end, it is none.
pub(super) fn create_on_device(device: &File, path: &Path, options: &Qcow2CreateOptions) -> Result<(), ImageError> {
    options.check()?;
    options.check_for_device()?;
    let failed = |source| ImageError::System { action: "write", path: path.to_owned(), source };
    // What writes images writes to empty files. Without data, this one is no longer than its tables.
    let made = File::from(memfd_create("image", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?);
    format(&made, None, path, options, &|| true)?;
    let length_bytes = made.metadata().map_err(failed)?.len();
    let device_bytes = (&mut &*device).seek(SeekFrom::End(0)).map_err(failed)?;
    if length_bytes > device_bytes {
        let problem = format!("has {device_bytes} bytes, and the tables of such an image alone have {length_bytes}");
        return Err(ImageError::Unusable { path: path.to_owned(), problem });
    }
    // What makes an image of it comes last, and that of one that was there before goes first.
    let nothing = vec![0; u64::from(options.cluster_bytes).min(length_bytes) as usize];
    device.write_all_at(&nothing, 0).and_then(|()| device.sync_all()).map_err(failed)?;
    put(&made, device, SECTOR_BYTES..length_bytes).map_err(failed)?;
    put(&made, device, 0..SECTOR_BYTES).map_err(failed)
}

/// What is written as a whole, whenever the power is cut.
const SECTOR_BYTES: u64 = 512;

/// Copies a part of one file to its place in another, on stable storage.
fn put(from: &File, to: &File, range: Range<u64>) -> io::Result<()> {
    const PIECE_BYTES: u64 = 1 << 20;
    let mut piece = vec![0; PIECE_BYTES.min(range.end - range.start) as usize];
    let mut at = range.start;
    while at < range.end {
        let piece = &mut piece[..PIECE_BYTES.min(range.end - at) as usize];
        from.read_exact_at(piece, at)?;
        to.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    to.sync_all()
}

/// Makes the empty `file` a delta on a disk.
pub(crate) fn create_delta(file: &File, path: &Path, size_bytes: u64, base: Qcow2Backing) -> Result<(), ImageError> {
    let options = Qcow2CreateOptions { backing: Some(base), ..Qcow2CreateOptions::new(size_bytes) };
    format(file, None, path, &options, &|| true)
}

/// What the delta in `file` names as its base; `None`: nothing, so that it is no delta.
pub(crate) fn base_of_delta(file: &File, path: &Path) -> Result<Option<String>, ImageError> {
    Ok(own_file::read_header(file, path)?.backing.map(|backing| backing.name))
}

/// Makes the empty `file` an image, with its data in `data_file` if they are to be in one; `path` is for messages.
/// That takes time where it is preallocated, and ends when it is not to go on.
pub(super) fn format(
    file: &File,
    data_file: Option<&File>,
    path: &Path,
    options: &Qcow2CreateOptions,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), ImageError> {
    let failed = |source| ImageError::System { action: "write", path: path.to_owned(), source };
    if data_file.is_some() != options.data_file.is_some() {
        return Err(ImageError::Invalid("a data file and its name come together".into()));
    }
    let writer = Qcow2Writer::of(file.try_clone().map_err(failed)?, options, Onto::Empty)?;
    if let Some(data_file) = data_file {
        set_length(data_file, options.size_bytes).map_err(failed)?;
    }
    fill(data_file.unwrap_or(file), writer, options, goes_on).map_err(failed)
}

/// Gives all clusters a place in `file`, which has the data, if they are to have one.
fn fill(file: &File, writer: Qcow2Writer, options: &Qcow2CreateOptions, goes_on: &dyn Fn() -> bool) -> io::Result<()> {
    let (cluster_bytes, preallocation) = (u64::from(options.cluster_bytes), options.allocated());
    let table_covers_bytes = cluster_bytes * cluster_bytes / if options.features.has_extended_l2 { 16 } else { 8 };
    let mut start = 0;
    while start < options.size_bytes && preallocation != Preallocation::Off {
        check(goes_on)?;
        let end = options.size_bytes.min(start + table_covers_bytes);
        let count = (end - start).div_ceil(cluster_bytes);
        // Fits: an L2 table has no more entries.
        let place = writer.place_zeros(count as usize, (start..end).step_by(options.cluster_bytes as usize));
        // A file of its own ends where the disk does.
        let length_bytes = if options.data_file.is_some() { end - start } else { count * cluster_bytes };
        reserve(file, place, length_bytes, preallocation, goes_on)?;
        writer.settle(start..end)?;
        start = end;
    }
    writer.finish()
}
