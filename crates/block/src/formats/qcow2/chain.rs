//! Opening an image with all that it depends on.

use super::dirty_bits::DirtyBits;
use super::encryption::{self, DataCipher};
use super::grace::Grace;
use super::header::Header;
use super::image::{Below, Image};
use super::image_tables::ImageTables;
use super::internal_snapshots::found_of;
use super::kept_bitmaps::KeptBitmaps;
use super::l2_cache::L2Cache;
use super::metadata::Metadata;
use super::own_file::{header_to_change, image_file, parse_header, writable};
use super::pending_check::Unchecked;
use super::snapshots;
use crate::formats::chain_files::{ChainFiles, ChainFormat, Identity, identity};
use crate::formats::luks::EncryptedDisk;
use crate::formats::{AllowedDirectories, BlockMapDisk, ImageError, LuksDisk, WritableFile, demand};
use crate::{Disk, FileDisk, FileOptions, Geometry, OpenedFile, Remedy, SEGMENTS_MAX, shell_word, shown};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What L2 tables take of memory, for a whole chain: those of 64 GiB with clusters of 64 KiB, of 4 GiB with clusters of
/// 4 KiB.
const L2_CACHE_BYTES: usize = 8 << 20;

/// The unit of the page cache.
const PAGE_BYTES: u64 = 4096;

/// An image, and its tables if it is written to.
pub(super) struct Opened {
    pub(super) image: Image,
    pub(super) metadata: Option<Metadata>,
    /// What has to be done before anything is changed.
    pub(super) unchecked: Option<Unchecked>,
    /// Those that are kept.
    pub(super) bitmaps: Option<KeptBitmaps>,
    /// An image of the chain whose key is not there, and what helps.
    locked: Option<(PathBuf, String)>,
    /// What is worth saying though it is opened, each in a sentence.
    pub(super) notes: Vec<String>,
}

impl Opened {
    /// The same, whose data can be read.
    ///
    /// # Errors
    /// When an image of the chain is encrypted, and its key is not there.
    pub(super) fn unlocked(self) -> Result<Self, ImageError> {
        match &self.locked {
            Some((path, no_key)) => Err(unusable(path, no_key.as_str())),
            None => Ok(self),
        }
    }

    /// The tables, once the image is known to be in order: for whoever changes them right away.
    ///
    /// # Errors
    /// When it is damaged, or is only read.
    pub(super) fn into_metadata(self, path: &Path) -> Result<Metadata, ImageError> {
        let checked = self.unchecked.map_or(Ok(()), |unchecked| unchecked.check(&AtomicBool::new(false)));
        checked.map_err(|problem| unusable(path, problem))?;
        self.metadata.ok_or_else(|| unusable(path, "is only read"))
    }
}

/// Opens the image at `path`.
pub(super) fn open(path: &Path, options: &FileOptions, allowed: &AllowedDirectories) -> Result<Opened, ImageError> {
    open_in(FileDisk::open_file(path, options.read_only)?, path, options, allowed)
}

/// Opens the image in `file`. `path` is for messages, and what the image refers to starts from there.
pub(super) fn open_in(
    file: File,
    path: &Path,
    options: &FileOptions,
    allowed: &AllowedDirectories,
) -> Result<Opened, ImageError> {
    open_behind(file, path, options, allowed, &mut ChainFiles::default())
}

/// The same, of an image that is behind others, whose files are known.
pub(super) fn open_behind(
    file: File,
    path: &Path,
    options: &FileOptions,
    allowed: &AllowedDirectories,
    files: &mut ChainFiles,
) -> Result<Opened, ImageError> {
    let mut chain = Chain::new(*options, allowed, files);
    let top = chain.open_qcow2(file, path, options.read_only, Base::InHeader)?;
    chain.finish(top)
}

/// Opens the image in `file` and all that is behind it for reading, and locks them; no key is needed for what is
/// encrypted, of which nothing can be read then.
pub(super) fn hold(file: File, path: &Path, allowed: &AllowedDirectories) -> Result<Opened, ImageError> {
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    open_behind(file, path, &options, allowed, &mut ChainFiles::only_held())
}

/// Opens a new image, whose data file, if it has one, is open.
pub(super) fn open_new(
    file: File,
    data_file: Option<File>,
    path: &Path,
    options: &FileOptions,
    allowed: &AllowedDirectories,
) -> Result<Opened, ImageError> {
    let mut files = ChainFiles::default();
    let mut chain = Chain::new(*options, allowed, &mut files);
    chain.data_file = data_file;
    let top = chain.open_qcow2(file, path, options.read_only, Base::InHeader)?;
    chain.finish(top)
}

/// Opens the image in `file` as it was when a snapshot was made: the one with the id `which`, or that name.
pub(super) fn open_snapshot(
    file: File,
    path: &Path,
    which: &str,
    options: &FileOptions,
    allowed: &AllowedDirectories,
) -> Result<Opened, ImageError> {
    let mut files = ChainFiles::default();
    let mut chain = Chain::new(*options, allowed, &mut files);
    chain.snapshot = Some(which);
    let top = chain.open_qcow2(file, path, true, Base::InHeader)?;
    chain.finish(top)
}

/// Opens the image in `file` with a disk that is larger than the image says, and goes on saying: to see and change what
/// lies behind its end.
pub(super) fn open_larger(
    file: File,
    path: &Path,
    size_bytes: u64,
    allowed: &AllowedDirectories,
) -> Result<Opened, ImageError> {
    let failed = |source| ImageError::System { action: "change the size of", path: path.to_owned(), source };
    let mut files = ChainFiles::default();
    let mut chain = Chain::new(FileOptions::default(), allowed, &mut files);
    let mut top = chain.open_qcow2(file, path, false, Base::InHeader)?;
    let checked = top.unchecked.take().map_or(Ok(()), |unchecked| unchecked.check(&AtomicBool::new(false)));
    checked.map_err(|problem| unusable(path, problem))?;
    top.metadata.as_mut().map_or(Ok(()), |metadata| metadata.reach(size_bytes)).map_err(failed)?;
    top.header.size_bytes = size_bytes;
    chain.tables.first_mut().into_iter().for_each(|tables| tables.grow(size_bytes));
    chain.finish(top)
}

/// The tables of the image in `file` alone, which is locked, for who changes neither what it shows nor where its data
/// lie.
pub(super) fn own_metadata(file: &File, path: &Path, header: &Header) -> Result<Metadata, ImageError> {
    let failed = |source| ImageError::System { action: "open", path: path.to_owned(), source };
    let image_file = Arc::new(writable(file).map_err(failed)?);
    let unchecked = Unchecked::or_checked(&image_file, header, path).map_err(|problem| unusable(path, problem))?;
    let checked = unchecked.map_or(Ok(()), |unchecked| unchecked.check(&AtomicBool::new(false)));
    checked.map_err(|problem| unusable(path, problem))?;
    Ok(Metadata::new(image_file, header))
}

/// Opens a delta on a disk that is open already, whatever its header says.
pub(super) fn open_delta(
    file: File,
    path: &Path,
    base: Arc<dyn Disk>,
    options: &FileOptions,
    is_temporary: bool,
) -> Result<Opened, ImageError> {
    let (nothing, mut files) = (AllowedDirectories::none(), ChainFiles::default());
    let options = FileOptions { cache_unsafe: options.cache_unsafe || is_temporary, ..*options };
    let mut chain = Chain::new(options, &nothing, &mut files);
    let top = chain.open_qcow2(file, path, options.read_only, Base::Given(base))?;
    let mut opened = chain.finish(top)?.unlocked()?;
    opened.image.is_temporary = is_temporary;
    if is_temporary {
        opened.image.flushed.clear();
    }
    Ok(opened)
}

/// Opens the image in `file`, and those behind it down to the one in the file `base`, whose disk is open already.
pub(super) fn open_above(
    file: File,
    path: &Path,
    base: (&File, Arc<dyn Disk>),
    options: &FileOptions,
    allowed: &AllowedDirectories,
) -> Result<Opened, ImageError> {
    let (base_file, disk) = base;
    let failed = |source| ImageError::System { action: "look at", path: path.to_owned(), source };
    let mut files = ChainFiles::default();
    let mut chain = Chain::new(*options, allowed, &mut files);
    chain.known = Some((identity(base_file).map_err(failed)?, disk));
    let top = chain.open_qcow2(file, path, options.read_only, Base::InHeader)?;
    if chain.known.is_some() {
        return Err(unusable(
            path,
            "is not based any more on the file that is open: one behind it was replaced just now",
        ));
    }
    chain.finish(top)?.unlocked()
}

fn unusable(path: &Path, problem: impl Into<String>) -> ImageError {
    ImageError::Unusable { path: path.to_owned(), problem: problem.into() }
}

/// What is behind what an image does not hold itself.
enum Base {
    /// What its header says.
    InHeader,
    Given(Arc<dyn Disk>),
}

/// The top image, opened.
struct Top {
    header: Header,
    /// If it is written to.
    metadata: Option<Metadata>,
    unchecked: Option<Unchecked>,
    bitmaps: Option<(KeptBitmaps, DirtyBits)>,
    /// Indices of the image's own file and its data file.
    own: Vec<usize>,
}

/// What has been opened so far.
struct Chain<'a> {
    options: FileOptions,
    allowed: &'a AllowedDirectories,
    files: &'a mut ChainFiles,
    below: Vec<Below>,
    /// Of each image of the chain, the top one first.
    tables: Vec<ImageTables>,
    /// Which of `below` is behind them all.
    base: Option<usize>,
    /// The same disk, if it has a map of its own.
    mapped_base: Option<Arc<BlockMapDisk>>,
    /// The files of the images, and of the base.
    paths: Vec<PathBuf>,
    /// The snapshot of the next image that is opened, instead of its disk.
    snapshot: Option<&'a str>,
    /// The data file of the next image that is opened, whatever its name.
    data_file: Option<File>,
    /// A file whose disk is open already.
    known: Option<(Identity, Arc<dyn Disk>)>,
    /// An image whose key is not there, and what helps.
    locked: Option<(PathBuf, String)>,
    notes: Vec<String>,
}

impl<'a> Chain<'a> {
    fn new(options: FileOptions, allowed: &'a AllowedDirectories, files: &'a mut ChainFiles) -> Self {
        Self {
            options,
            allowed,
            files,
            below: Vec::new(),
            tables: Vec::new(),
            base: None,
            mapped_base: None,
            paths: Vec::new(),
            snapshot: None,
            data_file: None,
            known: None,
            locked: None,
            notes: Vec::new(),
        }
    }

    fn open_qcow2(&mut self, file: File, path: &Path, read_only: bool, base: Base) -> Result<Top, ImageError> {
        self.files.add_image(&file, path)?;
        self.paths.push(path.to_owned());
        // Before anything is read of it: whoever has it now may go on changing it.
        FileDisk::lock(&file, path, &FileOptions { read_only, ..self.options })?;
        let mut header = match read_only {
            true => parse_header(&file, path, Header::parse_to_read)?,
            false => header_to_change(&file, path)?,
        };
        if header.is_corrupt() {
            self.notes.push(format!(
                "{} is marked corrupt: what can be read of it is, and may be wrong; {} repairs what can be",
                shown(path),
                Remedy::RepairImage
            ));
        }
        if let Some(which) = self.snapshot.take() {
            let failed = |source| ImageError::System { action: "read the snapshots of", path: path.to_owned(), source };
            let found = snapshots::found(&image_file(&file).map_err(failed)?, &header).map_err(failed)?;
            let found = found_of(&found, which).ok_or_else(|| unusable(path, format!("has no snapshot {which:?}")))?;
            (header.l1, header.size_bytes) = (found.l1, found.size_bytes);
        }
        // Data past the page cache, metadata through it: the two must not meet in one page.
        let direct = self.options.direct && header.cluster_bytes() >= PAGE_BYTES;
        let file_options = FileOptions { read_only, direct, ..self.options };
        let cipher = self.cipher(&file, &header, path, read_only)?;
        let has_data_file = header.data_file.is_some();
        let own_cipher = if has_data_file { DataCipher::None } else { cipher.clone() };
        let (index, image_file) = self.add_image_file(file, path, file_options, own_cipher)?;
        let checked = if read_only { Ok(None) } else { Unchecked::or_checked(&image_file, &header, path) };
        let unchecked = checked.map_err(|problem| unusable(path, problem))?;
        let failed = |source| ImageError::System { action: "read the bitmaps of", path: path.to_owned(), source };
        let bitmaps = if read_only { None } else { KeptBitmaps::of(&image_file, &header).map_err(failed)? };
        let mut metadata = (!read_only).then(|| Metadata::new(Arc::clone(&image_file), &header));
        let mut own = vec![index];
        if let Some(name) = &header.data_file {
            let (index, data_file) = self.open_data_file(path, name, read_only, cipher)?;
            if let Some(metadata) = &mut metadata {
                metadata.set_data_file(data_file);
            }
            own.push(index);
        }
        let data_index = own.last().copied().unwrap_or(index);
        self.tables.push(ImageTables::new(image_file, data_index, &header, read_only));
        match base {
            Base::Given(disk) => self.add_base(disk),
            Base::InHeader => self.open_backing(path, &header)?,
        }
        Ok(Top { header, metadata, unchecked, bitmaps, own })
    }

    /// What an image's data are encrypted by.
    fn cipher(&mut self, file: &File, header: &Header, path: &Path, read_only: bool) -> Result<DataCipher, ImageError> {
        if header.encryption == encryption::NONE {
            return Ok(DataCipher::None);
        }
        let failed = |source| ImageError::System { action: "read", path: path.to_owned(), source };
        let image_file = image_file(file).map_err(failed)?;
        let only_read = Some(self.files.only_read()).filter(|_| !read_only);
        let cipher = DataCipher::open(&image_file, header, path, self.files.key(self.allowed), only_read)?;
        if let DataCipher::Locked = cipher {
            self.locked.get_or_insert_with(|| (path.to_owned(), self.files.no_key()));
        }
        Ok(cipher)
    }

    /// Adds an image's own file, which is locked, whose metadata are read and written here and its data by queues.
    fn add_image_file(
        &mut self,
        file: File,
        path: &Path,
        options: FileOptions,
        cipher: DataCipher,
    ) -> Result<(usize, Arc<WritableFile>), ImageError> {
        let failed = |source| ImageError::System { action: "open", path: path.to_owned(), source };
        let is_growing = file.metadata().map_err(failed)?.file_type().is_file() && !options.read_only;
        let metadata_file = file.try_clone().map_err(failed)?;
        let disk = FileDisk::growing(file, &options)?;
        let (image_file, disk) = WritableFile::with_disk(metadata_file, disk, is_growing, options.cache_unsafe);
        let disk = match &cipher {
            DataCipher::InFile(cipher) => Arc::new(EncryptedDisk::new(disk, Arc::clone(cipher))),
            _ => disk,
        };
        let image_file = Arc::new(image_file.encrypted(cipher));
        self.below.push(Below { disk, file: Some(Arc::clone(&image_file)) });
        Ok((self.below.len() - 1, image_file))
    }

    fn open_data_file(
        &mut self,
        path: &Path,
        name: &str,
        read_only: bool,
        cipher: DataCipher,
    ) -> Result<(usize, Arc<WritableFile>), ImageError> {
        let (file, path) = match self.data_file.take() {
            Some(file) => (file, path.with_file_name(name)),
            None => {
                let found = self.allowed.find(path, name)?;
                let path = found.path().to_owned();
                found.open(!read_only, self.options.lock.then_some(&path))?
            }
        };
        self.files.add_part(&file, &path)?;
        let options = FileOptions { read_only, ..self.options };
        FileDisk::lock(&file, &path, &options)?;
        self.add_image_file(file, &path, options, cipher)
    }

    fn open_backing(&mut self, path: &Path, header: &Header) -> Result<(), ImageError> {
        let Some(backing) = &header.backing else { return Ok(()) };
        let name = &backing.name;
        let said = backing.said_format().map_err(|problem| unusable(path, problem))?;
        let Some(format) = &said else {
            return Err(unusable(
                path,
                format!(
                    "has the backing file {name:?}, but does not say in which format, and guessing is not safe: \
                     set it with blockyard image rebase -u -F raw -b {} {}, or -F with another format that it has",
                    shell_word(name),
                    shell_word(&path.to_string_lossy())
                ),
            ));
        };
        let Some(format) = ChainFormat::of_word(format) else {
            return Err(unusable(path, format!("has a backing file in the format {format:?}, which is not supported")));
        };
        let (file, backing_path) = self.allowed.open(path, name, false)?;
        let is_known = |known: &mut (Identity, _)| identity(&file).is_ok_and(|identity| identity == known.0);
        if let Some((_, disk)) = self.known.take_if(is_known) {
            self.add_base(disk);
            return Ok(());
        }
        if format == ChainFormat::Qcow2 {
            return self.open_qcow2(file, &backing_path, true, Base::InHeader).map(drop);
        }
        let options = FileOptions { read_only: true, ..self.options };
        if let ChainFormat::BlockMap(format) = format {
            self.files.change_family(&backing_path)?;
            let disk =
                BlockMapDisk::open_behind(file, &backing_path, format, &options, self.allowed, &mut *self.files)?;
            let disk = Arc::new(disk);
            self.notes.extend_from_slice(disk.notes());
            self.mapped_base = Some(Arc::clone(&disk));
            self.add_base(disk);
            return Ok(());
        }
        self.files.add_image(&file, &backing_path)?;
        FileDisk::lock(&file, &backing_path, &options)?;
        let disk: Arc<dyn Disk> = if format == ChainFormat::Luks {
            self.open_luks(file, &backing_path, &options)?
        } else {
            Arc::new(FileDisk::from_file(file, &options)?)
        };
        self.paths.push(backing_path);
        self.add_base(disk);
        Ok(())
    }

    fn open_luks(&mut self, file: File, path: &Path, options: &FileOptions) -> Result<Arc<dyn Disk>, ImageError> {
        match self.files.key(self.allowed) {
            None if self.files.are_only_held() => {
                let failed = |source| ImageError::System { action: "open", path: path.to_owned(), source };
                LuksDisk::place_in(&OpenedFile::new(file.try_clone().map_err(failed)?, path.to_owned()))?;
                Ok(Arc::new(FileDisk::from_file(file, options)?))
            }
            None => Err(unusable(path, self.files.no_key())),
            key => {
                let disk = LuksDisk::open_in(file, path, key, options)?;
                self.notes.extend_from_slice(disk.notes());
                Ok(Arc::new(disk))
            }
        }
    }

    /// Adds what is behind all images.
    fn add_base(&mut self, disk: Arc<dyn Disk>) {
        self.base = Some(self.below.len());
        self.below.push(Below { disk, file: None });
    }

    fn finish(mut self, top: Top) -> Result<Opened, ImageError> {
        ImageTables::share_known_tables(&mut self.tables);
        let Top { header, metadata, unchecked, bitmaps, own } = top;
        let (bitmaps, dirty_bits) = bitmaps.unzip();
        let read_only = self.options.read_only;
        let mut geometry = Geometry {
            capacity_bytes: 0,
            logical_block_bytes: self.options.logical_block_bytes,
            physical_block_bytes: self.options.logical_block_bytes,
            optimal_io_bytes: 0,
            segments_max: SEGMENTS_MAX,
            transfer_bytes_max: u64::MAX,
            memory_align_bytes: 1,
            read_only,
            discard: !read_only,
            write_zeroes: !read_only,
        };
        self.below.iter().for_each(|below| demand(&mut geometry, &below.disk.geometry()));
        // At most DISK_MAX_BYTES, so this cannot overflow.
        geometry.capacity_bytes = header.size_bytes.next_multiple_of(u64::from(geometry.logical_block_bytes));
        let slices = self.tables.iter().map(ImageTables::slices).fold(0, u64::saturating_add);
        let slice_words = self.tables.iter().map(ImageTables::slice_words).max().unwrap_or(1);
        let image = Image {
            l2_cache: L2Cache::new(L2_CACHE_BYTES, slices, slice_words),
            tables: self.tables,
            base: self.base,
            geometry,
            size_bytes: header.size_bytes,
            permissions: self.files.permissions(),
            permissions_behind: self.files.permissions_behind(),
            encrypted: self.files.encrypted().to_vec(),
            mapped_base: self.mapped_base,
            paths: self.paths,
            // A raw data file must hold them itself.
            has_zero_clusters: header.version >= 3 && !(header.data_file.is_some() && header.is_data_file_raw),
            frees_clusters: header.data_file.is_none(),
            below: self.below,
            flushed: if read_only { Vec::new() } else { own },
            is_temporary: false,
            grace: Grace::default(),
            is_unstable: AtomicBool::new(false),
            may_write_in_place: AtomicBool::new(unchecked.is_none() && dirty_bits.is_none()),
            dirty_bits,
        };
        Ok(Opened { image, metadata, unchecked, bitmaps, locked: self.locked, notes: self.notes })
    }
}
