//! Making the file of a new image: empty, beside its name.

use super::{WholeDisk, check, or_stopped};
use crate::Watch;
use crate::error::{Context, Error, Result, refuse};
use blockyard_block::specification::{DiskSpecification, Format, SpecificationError};
use blockyard_block::{
    AllowedDirectories, BlockMapCreateOptions, BlockMapFormat, BlockMapWriter, ChainKeys, Disk, Engine, FileDisk,
    FileHints, FileOptions, KeyFile, LocalName, LuksDisk, NewLuks, OpenedFile, Preallocation, Qcow2Backing,
    Qcow2Closing, Qcow2CreateOptions, Qcow2DataFile, Qcow2Disk, Qcow2Features, Qcow2Writer, ReplacementFile,
    UnknownHint, VmdkCreateOptions, VmdkStreamWriter, directory_of, same_file, shown,
};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a new image is opened: nobody else can have it.
const OPTIONS: FileOptions = FileOptions {
    read_only: false,
    engine: Engine::Sync,
    logical_block_bytes: 512,
    cache_unsafe: false,
    direct: false,
    lock: false,
};

/// What a new image is like.
#[derive(Clone, Debug)]
pub struct NewImage {
    /// Its file.
    pub path: PathBuf,
    /// The permission bits of what its contents come from, if they come from a file.
    pub permissions: Option<u32>,
    /// Its format.
    pub format: Format,
    /// Bytes in the disk; for qcow2 a multiple of 512.
    pub size_bytes: u64,
    /// The unit of allocation, unless the format has but one: a qcow2 image's cluster, a VHDX's block.
    pub cluster_bytes: Option<u32>,
    /// Every block of another hypervisor's format has its place from the start.
    pub is_fixed: bool,
    /// What a VMDK says besides.
    pub vmdk: VmdkCreateOptions,
    /// What whoever uses a qcow2 image must know.
    pub features: Qcow2Features,
    /// What is allocated from the start.
    pub preallocation: Preallocation,
    /// What shows where the image holds nothing.
    pub backing: Option<Qcow2Backing>,
    /// What opens that, if it is encrypted.
    pub backing_key: Option<KeyFile>,
    /// Where the data of a qcow2 image are, if not in it.
    pub data_file: Option<Qcow2DataFile>,
    /// How its data are encrypted, if they are.
    pub encryption: Option<NewLuks>,
    /// What the file system is told of its files.
    pub hints: FileHints,
}

impl NewImage {
    /// A new image of which no more is said.
    pub fn new(path: impl Into<PathBuf>, format: Format, size_bytes: u64) -> Self {
        Self {
            path: path.into(),
            permissions: None,
            format,
            size_bytes,
            cluster_bytes: None,
            is_fixed: false,
            vmdk: VmdkCreateOptions::default(),
            features: Qcow2Features::default(),
            preallocation: Preallocation::Off,
            backing: None,
            backing_key: None,
            data_file: None,
            encryption: None,
            hints: FileHints::default(),
        }
    }

    /// The same, for all of `source`: as large as `size_for` makes it. Where that is has to be known before, it is
    /// found out.
    ///
    /// # Errors
    /// As [`WholeDisk::find_length`].
    pub fn sized_for(mut self, source: &WholeDisk, size_for: impl Fn(u64) -> u64, watch: &dyn Watch) -> Result<Self> {
        self.size_bytes = size_for(source.capacity_bytes());
        if source.is_endless() && !self.grows() {
            source.find_length(watch)?;
            self.size_bytes = size_for(source.capacity_bytes());
        }
        Ok(self)
    }

    /// Whether it can be begun though nobody knows where its disk ends, but that it is no larger than it is said to be.
    pub(super) fn grows(&self) -> bool {
        let is_alone = self.backing.is_none() && self.data_file.is_none();
        is_alone
            && self.preallocation == Preallocation::Off
            && match self.format {
                Format::Raw => true,
                Format::Qcow2 => self.qcow2_options().can_end_early(),
                _ => false,
            }
    }

    /// Makes it, complete but for its name.
    ///
    /// # Errors
    /// When the file cannot be made, or is too small for the disk; when `watch` ends it.
    pub fn make(&self, watch: &dyn Watch) -> Result<ReplacementFile> {
        let file = self.new_file(watch)?;
        match self.format {
            Format::Raw => self.make_raw(&file, watch)?,
            Format::Qcow2 => {
                let data_file = file.companion().map(ReplacementFile::file);
                let goes_on = || watch.ends().is_none();
                Qcow2Disk::create_in(file.file(), data_file, &self.path, &self.qcow2_options(), &goes_on)
                    .map_err(|error| or_stopped(error, watch, self.not_written()))?;
            }
            Format::Luks => LuksDisk::create_in(file.file(), &self.path, self.size_bytes, self.luks()?)?,
            Format::BlockMap(_) if self.is_vmdk_stream() => {
                self.vmdk_stream_writer(&file)?.finish().with_context(|| self.not_written())?;
            }
            Format::BlockMap(format) => {
                self.block_map_writer(&file, format, watch)?.finish().with_context(|| self.not_written())?;
            }
            Format::Ova => return Err(not_made(self.format)),
        }
        Ok(file)
    }

    /// Makes the device at its path it: it is open for writing, and nobody else uses it.
    ///
    /// # Errors
    /// When images in its format are not made on devices, the device is too small, or cannot be written.
    pub fn make_on_device(&self, device: &OpenedFile) -> Result<()> {
        match self.format {
            Format::Qcow2 => Ok(Qcow2Disk::create_on_device(device.file(), &self.path, &self.qcow2_options())?),
            // All of it is one already.
            Format::Raw => {
                let has_bytes = device.file().seek(SeekFrom::End(0)).context("cannot see how large the device is")?;
                if has_bytes < self.size_bytes {
                    crate::error::refuse!("{} has {has_bytes} bytes, and not {}", shown(&self.path), self.size_bytes);
                }
                Ok(())
            }
            _ => Err(self.not_on_device()),
        }
    }

    /// Begins to make the device at its path it, which is no image until it is complete: as
    /// [`NewImage::make_on_device`], of a qcow2 image that is filled.
    ///
    /// # Errors
    /// As there; then nothing was written but where it cannot be.
    pub(super) fn device_writer(&self, device: &OpenedFile) -> Result<Qcow2Writer> {
        match self.format {
            Format::Qcow2 => Ok(Qcow2Writer::on_device(device, &self.qcow2_options())?),
            _ => Err(self.not_on_device()),
        }
    }

    fn not_on_device(&self) -> Error {
        Error::usage(format!(
            "{} is a block device, and what is made on one is raw or qcow2: make {} in a file, and copy it there",
            shown(&self.path),
            self.format.word()
        ))
    }

    /// Its file, empty, with the one that has its data, if they are in one of their own. What the file system does not
    /// know is said.
    pub(super) fn new_file(&self, watch: &dyn Watch) -> Result<ReplacementFile> {
        let file = ReplacementFile::create_like(&self.path, self.permissions)?;
        let file = match self.data_file_path() {
            Some(path) => file.with_companion(&path)?,
            None => file,
        };
        for unknown in file.give_hints(&self.hints)? {
            let (option, whose) = match unknown {
                UnknownHint::NoCow => ("nocow", "that of a file system that copies on write, as Btrfs does"),
                UnknownHint::ExtentBytes => ("extent_size_hint", "XFS's"),
            };
            let path = shown(&self.path);
            watch.note(&format!("{path}: its file system does not know {option}, which is {whose}: it is left out"));
        }
        Ok(file)
    }

    /// Where the data of a qcow2 image are to be, if not in it.
    pub fn data_file_path(&self) -> Option<PathBuf> {
        Some(named_from(&self.path, &self.data_file.as_ref()?.name))
    }

    /// As the writers of qcow2 want it.
    pub(super) fn qcow2_options(&self) -> Qcow2CreateOptions {
        let defaults = Qcow2CreateOptions::new(self.size_bytes);
        Qcow2CreateOptions {
            cluster_bytes: self.cluster_bytes.unwrap_or(defaults.cluster_bytes),
            features: self.features,
            preallocation: self.preallocation,
            backing: self.backing.clone(),
            data_file: self.data_file.clone(),
            encryption: self.encryption.clone(),
            ..defaults
        }
    }

    /// How a LUKS volume is encrypted.
    fn luks(&self) -> Result<&NewLuks> {
        self.encryption.as_ref().ok_or_else(|| Error::usage("a LUKS volume takes a passphrase: add --key-file FILE"))
    }

    /// A writer of an image in another hypervisor's format, as long as `watch` does not end its preallocation.
    pub(super) fn block_map_writer(
        &self,
        file: &ReplacementFile,
        format: BlockMapFormat,
        watch: &dyn Watch,
    ) -> Result<BlockMapWriter> {
        if !self.format.is_made() {
            return Err(not_made(self.format));
        }
        let handle = file.file().try_clone().context("cannot duplicate a file descriptor")?;
        let goes_on = || watch.ends().is_none();
        BlockMapWriter::new_while(handle, &self.path, &self.block_map_options(format), &goes_on)
            .map_err(|error| or_stopped(error, watch, self.not_written()))
    }

    /// Whether it is a VMDK that is compressed and written in one pass.
    pub(super) fn is_vmdk_stream(&self) -> bool {
        self.format == Format::BlockMap(BlockMapFormat::Vmdk) && self.vmdk.is_stream
    }

    /// A writer of one.
    pub(super) fn vmdk_stream_writer(&self, file: &ReplacementFile) -> Result<VmdkStreamWriter> {
        check_stream(self.preallocation)?;
        let handle = file.file().try_clone().context("cannot duplicate a file descriptor")?;
        Ok(VmdkStreamWriter::new(handle, &self.path, self.size_bytes, self.vmdk)?)
    }

    fn block_map_options(&self, format: BlockMapFormat) -> BlockMapCreateOptions {
        let Self { size_bytes, cluster_bytes: block_bytes, is_fixed, preallocation, vmdk, .. } = *self;
        BlockMapCreateOptions { format, size_bytes, block_bytes, is_fixed, preallocation, vmdk }
    }

    fn not_written(&self) -> String {
        format!("cannot write {}", shown(&self.path))
    }

    fn make_raw(&self, file: &ReplacementFile, watch: &dyn Watch) -> Result<()> {
        file.set_length(self.size_bytes)?;
        if self.preallocation != Preallocation::Off {
            file.preallocate(0..self.size_bytes)?;
        }
        if self.preallocation == Preallocation::Full {
            write_zeros(file.file(), 0..self.size_bytes, watch)
                .with_context(|| format!("cannot write zeros to {}", shown(&self.path)))?;
        }
        Ok(())
    }

    /// Makes a raw one that becomes as long as what is written to it, and opens it.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub(super) fn make_growing(&self, watch: &dyn Watch) -> Result<(ReplacementFile, Arc<dyn Disk>)> {
        let file = self.new_file(watch)?;
        let handle = file.file().try_clone().context("cannot duplicate a file descriptor")?;
        Ok((file, Arc::new(FileDisk::growing(handle, &OPTIONS)?)))
    }

    /// Opens the image that was just made, to be written to before it has its name.
    ///
    /// # Errors
    /// When it, or what it is based on, cannot be opened; when images in its format are only written as a whole.
    pub(super) fn open(&self, file: &ReplacementFile, allow_dirs: &[PathBuf]) -> Result<NewDisk> {
        match self.format {
            Format::Raw => {
                let handle = file.file().try_clone().context("cannot duplicate a file descriptor")?;
                Ok(NewDisk::of(Arc::new(FileDisk::from_file(handle, &OPTIONS)?)))
            }
            Format::Qcow2 => {
                let disk = self.open_qcow2(file, allow_dirs)?;
                let closing = Some(disk.closing());
                Ok(NewDisk { disk: Arc::new(disk), closing })
            }
            Format::Luks => {
                let handle = file.file().try_clone().context("cannot duplicate a file descriptor")?;
                let disk = LuksDisk::open_in(handle, &self.path, Some(&self.luks()?.key), &OPTIONS)?;
                Ok(NewDisk::of(Arc::new(disk)))
            }
            Format::BlockMap(_) | Format::Ova => Err(Error::usage(format!(
                "partitions and file systems are made on raw and qcow2 disks: make one, and `blockyard image convert` \
                 makes it {}",
                self.format.name()
            ))),
        }
    }

    /// The same, of a qcow2 image.
    pub(super) fn open_qcow2(&self, file: &ReplacementFile, allow_dirs: &[PathBuf]) -> Result<Qcow2Disk> {
        let handle = |file: &ReplacementFile| file.file().try_clone().context("cannot duplicate a file descriptor");
        let data_file = file.companion().map(handle).transpose()?;
        let key = self.encryption.as_ref().map(|encryption| encryption.key.clone());
        let behind = self.backing_key.iter().map(|key| (1, key.clone())).collect();
        let allowed = AllowedDirectories::new(allow_dirs)?.with_keys(ChainKeys::new(key, behind));
        // What it refers to starts from the directory: the name itself is not there yet.
        let directory = directory_of(&self.path).canonicalize().context("cannot find the image's directory")?;
        let name = self.path.file_name().map_or_else(PathBuf::new, PathBuf::from);
        // What it has is made stable before it gets its name.
        let options = FileOptions { cache_unsafe: true, ..OPTIONS };
        Ok(Qcow2Disk::open_new_in(handle(file)?, data_file, &directory.join(name), &options, &allowed)?)
    }
}

/// The disk of an image that has no name yet.
pub(super) struct NewDisk {
    pub(super) disk: Arc<dyn Disk>,
    closing: Option<Qcow2Closing>,
}

impl NewDisk {
    /// One that has nothing to do in the end.
    pub(super) fn of(disk: Arc<dyn Disk>) -> Self {
        Self { disk, closing: None }
    }

    /// Lets go of it, as everybody else has.
    ///
    /// # Errors
    /// When it could not be closed.
    pub(super) fn close(self) -> Result<()> {
        let Self { disk, closing } = self;
        drop(disk);
        Ok(closing.map_or(Ok(()), Qcow2Closing::result)?)
    }
}

/// Whether a compressed VMDK can be allocated so.
///
/// # Errors
/// When it cannot.
pub(super) fn check_stream(preallocation: Preallocation) -> Result<()> {
    match preallocation {
        Preallocation::Off => Ok(()),
        _ => Err(Error::usage("a compressed VMDK has no preallocation: its grains have their places as they come")),
    }
}

/// Why there is no new image in a format that is only read.
pub(super) fn not_made(format: Format) -> Error {
    let made: Vec<_> = Format::ALL.into_iter().filter(|format| format.is_made()).map(Format::word).collect();
    Error::usage(format!("{} images can be read, not made: choose one of {}", format.name(), made.join(", ")))
}

/// Writes zeros, as bytes, so that there is storage for them.
pub(super) fn write_zeros(file: &File, range: Range<u64>, watch: &dyn Watch) -> Result<()> {
    const PIECE_BYTES: u64 = 1 << 20;
    let zeros = vec![0; PIECE_BYTES as usize];
    let mut at = range.start;
    while at < range.end {
        let length = PIECE_BYTES.min(range.end - at);
        file.write_all_at(&zeros[..length as usize], at)?;
        check(watch)?;
        at += length;
    }
    Ok(())
}

/// The disk that is behind an image at `image`, or is to be.
///
/// # Errors
/// When there is no such format.
pub fn behind(image: &Path, backing: &Qcow2Backing) -> Result<DiskSpecification, SpecificationError> {
    DiskSpecification::of_file(backing_path(image, &backing.name)).with_format_named(&backing.format)
}

/// Refuses a backing file that is the image at `image` itself, called `name`, which need not be there.
///
/// # Errors
/// When it is.
pub fn refuse_itself(name: &str, image: &Path, backing: &Qcow2Backing) -> Result<()> {
    let behind = backing_path(image, &backing.name);
    let place = |path: &Path| Some((directory_of(path).canonicalize().ok()?, path.file_name()?.to_owned()));
    let is_one_place = || place(image).is_some_and(|image| Some(image) == place(&behind));
    if same_file(image, &behind).unwrap_or(false) || is_one_place() {
        refuse!("{name} cannot be behind itself");
    }
    Ok(())
}

/// Where the name of a backing file leads to; one that names no file as it is, which is then not found.
pub fn backing_path(image: &Path, name: &str) -> PathBuf {
    let local = LocalName::of(name).map_or_else(|_| name.to_owned(), |local| local.path);
    named_from(image, &local)
}

/// Where a name in an image leads to: from the directory of the image's own name, as QEMU has it.
pub fn named_from(image: &Path, name: &str) -> PathBuf {
    directory_of(image).join(name)
}
