//! Opening an image and those behind it.

mod extents;

use super::changes::Written;
use super::image::Image;
use super::image_file::ImageFile;
use super::layer::{BlockMap, Layer, Shape};
use super::level::{Level, Storage};
use super::parent_name::ParentNames;
use super::vmdk::{self, ContentId, UncheckedTables};
use super::worker::ToChange;
use super::{BlockMapFormat, BlockMapInfo, unusable};
use crate::formats::chain_files::{ChainFiles, ChainFormat};
use crate::formats::vmdk::FILES_MAX;
use crate::formats::vmdk::descriptor::{self, ExtentLine};
use crate::formats::{AllowedDirectories, FileFormat, ImageError, Qcow2Disk, WritableFile, demand};
use crate::{Disk, FileDisk, FileOptions, Geometry, SEGMENTS_MAX, shell_word, shown};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The unit of the page cache.
const PAGE_BYTES: u64 = 4096;

/// An image's file, as its format reads it.
pub(super) struct Opened {
    pub(super) body: Body,
    pub(super) info: BlockMapInfo,
    pub(super) behind: Behind,
    /// By which a difference from this image knows it.
    pub(super) identity: Id,
    /// What is worth saying of it though it is opened: goes on after its path and a colon.
    pub(super) note: Option<String>,
}

/// Where an image's disk is.
pub(super) enum Body {
    /// In the file itself, where the map says.
    Map(Box<dyn BlockMap>),
    /// In other files.
    Extents(Vec<ExtentLine>),
}

/// A UUID as it lies in the file, or another number.
pub(super) type Id = [u8; 16];

/// What shows where an image holds nothing.
#[derive(Debug)]
pub(super) enum Behind {
    /// Zeros.
    Nothing,
    /// An image in the same format.
    Parent(Parent),
    /// A raw disk, or an image in QEMU's formats.
    Backing(Backing),
}

/// A file that an image calls by its name, as QEMU does.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) name: String,
    /// It says that it is raw.
    pub(super) is_raw: bool,
}

/// An image that another is a difference from.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) names: ParentNames,
    /// It is one that has one of these.
    pub(super) ids: Vec<Id>,
    /// Or one to which a commit of the difference, a VMDK with this number, was begun: it has what comes before.
    pub(super) committed: Option<u32>,
}

impl Behind {
    /// What the image calls it.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Parent(parent) => parent.names.shown().map(str::to_owned),
            Self::Backing(backing) => Some(backing.name.clone()),
        }
    }

    /// Opens what is behind the image at `path`, which is in this format; and the format of that.
    ///
    /// # Errors
    /// When it cannot be had, is not allowed, or is not what the image is a difference from.
    fn open(
        &self,
        path: &Path,
        format: BlockMapFormat,
        allowed: &AllowedDirectories,
    ) -> Result<Option<(File, PathBuf, ChainFormat)>, ImageError> {
        Ok(match self {
            Self::Nothing => None,
            Self::Parent(parent) => {
                let (file, path) = parent.find(path, format, allowed, false)?;
                Some((file, path, ChainFormat::BlockMap(format)))
            }
            Self::Backing(backing) => Some(backing.open(path, format, allowed)?),
        })
    }
}

impl Backing {
    /// Where an image does not say that it is raw, it was something else when that was written; what, is believed if
    /// the file's name and its contents say the same. A raw disk whose guest writes an image's header to it stays
    /// refused.
    fn open(
        &self,
        path: &Path,
        format: BlockMapFormat,
        allowed: &AllowedDirectories,
    ) -> Result<(File, PathBuf, ChainFormat), ImageError> {
        let (file, base_path) = allowed.open(path, &self.name, false)?;
        if self.is_raw {
            return Ok((file, base_path, ChainFormat::Raw));
        }
        let named = FileFormat::of_name(&base_path);
        let seen = FileFormat::of_file(&file);
        let seen = seen.map_err(|source| ImageError::System { action: "read", path: base_path.clone(), source })?;
        let is_what_it_is_called = seen.is_some_and(|found| found == named);
        let called = named.filter(|_| is_what_it_is_called).and_then(|named| ChainFormat::of_word(named.word));
        match called {
            Some(found) if found == ChainFormat::Qcow2 || found == ChainFormat::BlockMap(format) => {
                Ok((file, base_path, found))
            }
            _ => {
                let problem = format!(
                    "has the backing file {:?}, but does not say that it is raw, and it is no qcow2 or QED image by both \
                     its name and its contents: if it is raw, `qemu-img rebase -u -f qed -b {} -F raw {}` says so, else \
                     give it a name that ends in .qcow2 or .qed",
                    self.name,
                    shell_word(&self.name),
                    shell_word(&path.to_string_lossy())
                );
                Err(unusable(path, problem))
            }
        }
    }
}

/// The error where what was found is not what the image at `path` is a difference from.
fn is_another(path: &Path, found: &Path) -> ImageError {
    let what = shown(found);
    unusable(path, format!("is a difference from another image than {what}, or from what that was: its id differs"))
}

impl Parent {
    /// Whether an image that is known so is the one.
    fn is(&self, identity: &Id) -> bool {
        let is_before = |own: u32| self.ids.contains(&vmdk::id_after_commit(identity, own));
        self.ids.contains(identity) || self.committed.is_some_and(is_before)
    }

    /// Whether that is one to which a commit of the difference was begun, and stopped before it had another number.
    fn is_before_commit(&self, identity: &Id) -> bool {
        self.is(identity) && !self.ids.contains(identity)
    }

    /// Finds it, of the image at `path`, and opens it: for writing if `writable`, and locked then.
    pub(super) fn find(
        &self,
        path: &Path,
        format: BlockMapFormat,
        allowed: &AllowedDirectories,
        writable: bool,
    ) -> Result<(File, PathBuf), ImageError> {
        let (mut another, mut refused) = (None, None);
        for name in self.names.candidates(allowed) {
            match self.open_if_it_is(path, &name, format, allowed, writable) {
                Ok((file, path, true)) => return Ok((file, path)),
                Ok((_, path, false)) => another = another.or(Some(path)),
                Err(ImageError::Referred { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    refused.get_or_insert(error);
                }
            }
        }
        let called: String = self.names.shown().unwrap_or("nothing").chars().take(200).collect();
        Err(match (another, refused) {
            (Some(another), _) => is_another(path, &another),
            (None, Some(error)) => error,
            (None, None) => unusable(
                path,
                format!(
                    "is a difference from an image that is not here, and was called {called:?}: put it beside this one, \
                     and allow that directory (--allow-dir)"
                ),
            ),
        })
    }

    /// Opens what has a name, and says whether it is the one. What is not is neither opened for writing nor changed in
    /// any way; what is and is to be written is locked before anything of it counts.
    fn open_if_it_is(
        &self,
        path: &Path,
        name: &str,
        format: BlockMapFormat,
        allowed: &AllowedDirectories,
        writable: bool,
    ) -> Result<(File, PathBuf, bool), ImageError> {
        let open = |writable| {
            let (file, path) = allowed.open(path, name, writable)?;
            let is_it = self.is(&identity(&file, &path, format)?);
            Ok((file, path, is_it))
        };
        match open(false)? {
            (.., true) if writable => open(true),
            opened => Ok(opened),
        }
    }
}

/// Opens what is behind the image in `file`, which is in this format; and the format of that.
///
/// # Errors
/// As opening the image meets them.
pub(in crate::formats) fn open_behind(
    file: &File,
    path: &Path,
    format: BlockMapFormat,
    allowed: &AllowedDirectories,
) -> Result<Option<(File, PathBuf, ChainFormat)>, ImageError> {
    format.read(&mut ImageFile::of(file, path)?)?.behind.open(path, format, allowed)
}

/// What has been opened so far.
struct Chain<'a> {
    options: FileOptions,
    allowed: &'a AllowedDirectories,
    /// Of this image, and of those in front of it.
    files: &'a mut ChainFiles,
    levels: Vec<Level>,
    layers: Vec<Layer>,
    below: Vec<Arc<dyn Disk>>,
    /// The paths of those.
    paths: Vec<PathBuf>,
    /// Which of `below` is behind them all.
    base: Option<usize>,
    notes: Vec<String>,
    /// Of an image that is written to: the tables of its layers, the files that change, by their index below, and what
    /// says that it did.
    unchecked: Vec<(usize, UncheckedTables)>,
    written: BTreeMap<usize, Arc<WritableFile>>,
    content_id: Option<ContentId>,
}

/// Opens the image in `file`. `path` is for messages, and what the image refers to starts from there.
pub(super) fn open_in(
    file: File,
    path: &Path,
    format: BlockMapFormat,
    options: &FileOptions,
    allowed: &AllowedDirectories,
    files: &mut ChainFiles,
) -> Result<(Image, Option<ToChange>), ImageError> {
    let mut chain = Chain::new(options, allowed, files);
    if format != BlockMapFormat::Vmdk {
        chain.refuse_changes(path, &format!("a {} image", format.name()))?;
    }
    chain.open_layers(file, path.to_owned(), format)?;
    Ok(chain.finish())
}

/// Opens the image that is a part of `file` called `name`.
pub(super) fn open_part(
    file: &ImageFile,
    name: &str,
    part: Range<u64>,
    format: BlockMapFormat,
    options: &FileOptions,
) -> Result<Image, ImageError> {
    let failed = |source| ImageError::System { action: "open", path: file.path().to_owned(), source };
    let nothing = AllowedDirectories::none();
    let mut files = ChainFiles::default();
    let mut chain = Chain::new(options, &nothing, &mut files);
    chain.refuse_changes(file.path(), "an OVA")?;
    let mut image_file = file.part(name, part).map_err(failed)?;
    let whole = file.file().map_err(failed)?;
    FileDisk::lock(&whole, file.path(), options)?;
    chain.files.permit(&whole, file.path())?;
    let Opened { body, behind, note, .. } = format.read(&mut image_file)?;
    chain.notes.extend(note.map(|note| format!("{}: {note}", shown(image_file.path()))));
    match (body, behind) {
        (Body::Map(map), Behind::Nothing) => {
            let (size_bytes, storage) = chain.add_layer(whole, image_file, map)?;
            chain.levels.push(Level::new([(size_bytes, storage, false)]));
            Ok(chain.finish().0)
        }
        _ => Err(image_file.unusable("refers to other files, which a part of an archive cannot: unpack it first")),
    }
}

impl<'a> Chain<'a> {
    /// Nothing yet.
    fn new(options: &FileOptions, allowed: &'a AllowedDirectories, files: &'a mut ChainFiles) -> Self {
        Self {
            options: *options,
            allowed,
            files,
            levels: Vec::new(),
            layers: Vec::new(),
            below: Vec::new(),
            paths: Vec::new(),
            base: None,
            notes: Vec::new(),
            unchecked: Vec::new(),
            written: BTreeMap::new(),
            content_id: None,
        }
    }

    /// Of an image of a sort that is only read.
    fn refuse_changes(&self, path: &Path, sort: &str) -> Result<(), ImageError> {
        if self.options.read_only {
            return Ok(());
        }
        Err(unusable(path, format!("is {sort}, which is only read: {}", self.files.only_read())))
    }

    /// Opens the image in `file`, and those behind it.
    fn open_layers(&mut self, file: File, path: PathBuf, format: BlockMapFormat) -> Result<(), ImageError> {
        let mut next = (file, path);
        let mut difference: Option<(Behind, PathBuf)> = None;
        loop {
            let (file, path) = next;
            self.files.add_image(&file, &path)?;
            let (identity, behind) = self.add_level(file, &path, format)?;
            if let Some((Behind::Parent(parent), of)) = &difference {
                // It was found by what it said before it was locked.
                if !parent.is(&identity) {
                    return Err(is_another(of, &path));
                }
                if let (2, Some(content_id), true) =
                    (self.levels.len(), &mut self.content_id, parent.is_before_commit(&identity))
                {
                    content_id.undoes_commit(vmdk::number(&identity))?;
                }
            }
            match behind.open(&path, format, self.allowed)? {
                None => return Ok(()),
                Some((file, path, ChainFormat::BlockMap(_))) => next = (file, path),
                Some((file, path, other)) => return self.add_base(file, path, other),
            }
            difference = Some((behind, path));
        }
    }

    /// Takes what is behind all images in this format: a raw disk, or a qcow2 image with all that is behind it.
    fn add_base(&mut self, file: File, path: PathBuf, format: ChainFormat) -> Result<(), ImageError> {
        let disk: Arc<dyn Disk> = if format == ChainFormat::Qcow2 {
            self.files.change_family(&path)?;
            let disk = Qcow2Disk::open_behind(file, &path, &self.options, self.allowed, self.files)?;
            self.notes.extend_from_slice(disk.notes());
            Arc::new(disk)
        } else {
            self.files.add_image(&file, &path)?;
            FileDisk::lock(&file, &path, &self.options)?;
            Arc::new(FileDisk::from_file(file, &self.options)?)
        };
        self.base = Some(self.below.len());
        self.below.push(disk);
        self.paths.push(path);
        Ok(())
    }

    /// Takes an image of the chain: by which a difference from it knows it, and what is behind it.
    fn add_level(&mut self, file: File, path: &Path, format: BlockMapFormat) -> Result<(Id, Behind), ImageError> {
        // Only the top image is ever changed.
        self.options.read_only |= !self.levels.is_empty();
        FileDisk::lock(&file, path, &self.options)?;
        let mut image_file = self.image_file(&file, path)?;
        let Opened { body, behind, identity, note, .. } = format.read(&mut image_file)?;
        self.notes.extend(note.map(|note| format!("{}: {note}", shown(path))));
        let is_written = !self.options.read_only;
        let storages = match body {
            Body::Map(map) if is_written => {
                let again = image_file.again().map_err(|source| opening(path, source))?;
                let (size_bytes, storage) = self.add_written_layer(file, image_file, map)?;
                let (written, advice) = (self.written.values().next().cloned(), self.files.only_read());
                self.content_id = written.map(|written| ContentId::of(&again, written, Some(advice))).transpose()?;
                vec![(size_bytes, storage, true)]
            }
            Body::Map(map) => {
                let (size_bytes, storage) = self.add_layer(file, image_file, map)?;
                vec![(size_bytes, storage, false)]
            }
            Body::Extents(extents) => {
                self.options.read_only |= !extents.iter().any(ExtentLine::is_writable);
                if !self.options.read_only {
                    let written = WritableFile::new(file, image_file.length_bytes(), false, self.options.cache_unsafe);
                    let advice = Some(self.files.only_read()).filter(|_| !is_flat(&extents));
                    self.content_id = Some(ContentId::of(&image_file, Arc::new(written), advice)?);
                }
                self.add_extents(path, &extents)?
            }
        };
        self.levels.push(Level::new(storages));
        Ok((identity, behind))
    }

    fn image_file(&self, file: &File, path: &Path) -> Result<ImageFile, ImageError> {
        let failed = |source| ImageError::System { action: "open", path: path.to_owned(), source };
        let handle = || file.try_clone().map_err(failed);
        let options = FileOptions { read_only: true, direct: false, ..self.options };
        let length_bytes = FileDisk::from_file(handle()?, &options)?.length_bytes();
        Ok(ImageFile::new(handle()?, path, length_bytes))
    }

    /// Takes a file with a map: how long its disk is, and where that is then.
    fn add_layer(
        &mut self,
        file: File,
        image_file: ImageFile,
        map: Box<dyn BlockMap>,
    ) -> Result<(u64, Storage), ImageError> {
        // Data past the page cache, tables through it: the two must not meet in one page, nor data end within one.
        let Shape { size_bytes, align_bytes, .. } = map.shape();
        let offset_bytes = image_file.start_bytes();
        let is_in_pages = (size_bytes | align_bytes | offset_bytes).is_multiple_of(PAGE_BYTES);
        let options = FileOptions { read_only: true, direct: self.options.direct && is_in_pages, ..self.options };
        let (path, layer) = (image_file.path().to_owned(), self.layers.len());
        let disk = Arc::new(FileDisk::from_file(file, &options)?);
        let index = self.add_file(disk, path)?;
        self.layers.push(Layer::new(image_file, map, index));
        Ok((size_bytes, Storage::Mapped { layer }))
    }

    /// The same of a file that is written to.
    fn add_written_layer(
        &mut self,
        file: File,
        image_file: ImageFile,
        map: Box<dyn BlockMap>,
    ) -> Result<(u64, Storage), ImageError> {
        let path = image_file.path().to_owned();
        let failed = |source| opening(&path, source);
        let advice = self.files.only_read();
        let tables = map.to_change().map_err(|problem| unusable(&path, format!("{problem}: {advice}")))?.clone();
        if !file.metadata().map_err(failed)?.file_type().is_file() {
            return Err(unusable(
                &path,
                format!("is on a device, and a VMDK with grains there is only read: {advice}"),
            ));
        }
        let size_bytes = map.shape().size_bytes;
        let own_file = file.try_clone().map_err(failed)?;
        let options = without_direct(&self.options);
        let disk = FileDisk::growing(file, &options)?;
        let (written, disk) = WritableFile::with_disk(own_file, disk, true, options.cache_unsafe);
        let (written, layer) = (Arc::new(written), self.layers.len());
        let image_file = image_file.written(Arc::clone(&written));
        let again = image_file.again().map_err(failed)?;
        let index = self.add_file(disk, path.clone())?;
        self.unchecked.push((layer, UncheckedTables::new(again, Arc::clone(&written), tables)));
        self.written.insert(index, written);
        self.layers.push(Layer::new(image_file, map, index));
        Ok((size_bytes, Storage::Mapped { layer }))
    }

    fn add_file(&mut self, disk: Arc<dyn Disk>, path: PathBuf) -> Result<usize, ImageError> {
        if self.below.len() == FILES_MAX {
            return Err(unusable(&path, format!("is one of more than {FILES_MAX} files of a disk")));
        }
        self.below.push(disk);
        self.paths.push(path);
        Ok(self.below.len() - 1)
    }

    fn finish(self) -> (Image, Option<ToChange>) {
        let is_written = self.content_id.is_some();
        let size_bytes = self.levels.first().map_or(0, |top| top.size_bytes);
        let mut geometry = Geometry {
            capacity_bytes: 0,
            logical_block_bytes: self.options.logical_block_bytes,
            physical_block_bytes: self.options.logical_block_bytes,
            optimal_io_bytes: 0,
            segments_max: SEGMENTS_MAX,
            transfer_bytes_max: u64::MAX,
            memory_align_bytes: 1,
            read_only: !is_written,
            discard: is_written,
            write_zeroes: is_written,
        };
        self.below.iter().for_each(|disk| demand(&mut geometry, &disk.geometry()));
        // Sizes are bounded where headers are read, so this cannot overflow.
        geometry.capacity_bytes = size_bytes.next_multiple_of(u64::from(geometry.logical_block_bytes));
        let (maps, files) = ((self.levels, self.layers), (self.below, self.paths));
        let image = Image::new(maps, files, self.base, geometry, self.files.permissions()).noting(self.notes);
        let to_change = self.content_id.map(|content_id| ToChange {
            written: Written { files: self.written, content_id },
            unchecked: self.unchecked,
        });
        (image, to_change)
    }
}

/// Whether an image is made of nothing but files as they are.
fn is_flat(extents: &[ExtentLine]) -> bool {
    !extents.iter().any(|extent| matches!(extent.storage, descriptor::Storage::Grains { .. }))
}

/// By which a difference from the image in `file` knows it.
fn identity(file: &File, path: &Path, format: BlockMapFormat) -> Result<Id, ImageError> {
    Ok(format.read(&mut ImageFile::of(file, path)?)?.identity)
}

fn opening(path: &Path, source: io::Error) -> ImageError {
    ImageError::System { action: "open", path: path.to_owned(), source }
}

fn without_direct(options: &FileOptions) -> FileOptions {
    FileOptions { direct: false, ..*options }
}
