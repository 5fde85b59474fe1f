//! A file or a block device.

use super::{About, BehindKind, DiskKind, LOGICAL_BLOCK_BYTES, logical_block};
use crate::specification::content;
use crate::specification::error::SpecificationError;
use crate::specification::format::{Format, SaidFormat};
use crate::specification::keys::KeysTaken;
use crate::specification::opening::{OnBackend, OpenContext, OpenError};
use crate::specification::settings::Settings;
use crate::specification::unpacking;
use crate::specification::written::{escaped, flag, key};
use crate::{
    AllowedDirectories, BlockMapDisk, ChainKeys, Compression, Disk, Engine, FileDisk, FileOptions, ForeignJournal,
    FoundJournal, KeyFile, LuksDisk, OpenedFile, Ova, Qcow2Backing, Qcow2Disk, UnfinishedChange, shown,
};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

const ENGINES: [(&str, Engine); 4] =
    [("auto", Engine::Auto), ("uring", Engine::Uring), ("threads", Engine::Threads), ("sync", Engine::Sync)];

/// A file or block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::specification) struct FileSpecification {
    pub(in crate::specification) path: PathBuf,
    /// `None`: the name's ending decides.
    pub(in crate::specification) format: Option<Format>,
    /// How it is compressed, where its format is said; otherwise its name decides.
    pub(in crate::specification) compression: Option<Compression>,
    /// The snapshot inside of a qcow2 image that is meant, instead of its disk.
    pub(in crate::specification) snapshot_name: Option<String>,
    /// What opens it and the images behind it that are encrypted.
    pub(in crate::specification) keys: ChainKeys,
    /// Which disk of an OVA.
    pub(in crate::specification) disk_number: Option<NonZeroU32>,
    pub(in crate::specification) direct: bool,
    /// `None`: whoever opens it chooses.
    pub(in crate::specification) engine: Option<Engine>,
    pub(in crate::specification) cache_unsafe: bool,
    /// `None`: whoever opens it chooses.
    pub(in crate::specification) logical_block_bytes: Option<u32>,
    /// Not said in text: what goes without is the command's choice.
    pub(in crate::specification) lock: bool,
}

/// The disk on a file.
struct OnFile {
    disk: Arc<dyn Disk>,
    /// Bytes in a raw one.
    length_bytes: Option<u64>,
    /// What the permission bits of all its files allow.
    permissions: u32,
    /// The logical block that an image says its disk has.
    sector_bytes: Option<u32>,
}

/// A file that was opened, is what it is called, and is locked.
pub(in crate::specification) struct Taken {
    pub(in crate::specification) file: OpenedFile,
    pub(in crate::specification) format: Format,
    /// The change to it that was cut off.
    pub(in crate::specification) unfinished: Option<UnfinishedChange>,
}

impl DiskKind for FileSpecification {
    fn about() -> About {
        let own = &[
            "format",
            "snapshot-name",
            "key-file",
            "backing-key-file",
            "disk",
            "direct",
            "engine",
            "cache",
            "block-size",
            "partition",
            "table",
            "overlay",
            "snapshot",
        ];
        let keys = KeysTaken { taker: "a file", own };
        About { word: "file", needs: "the path of a file or block device", keys }
    }

    fn read(behind: &BehindKind, settings: &Settings<'_>) -> Result<Self, SpecificationError> {
        let logical_block_bytes = logical_block(settings)?;
        let said = settings.value("format", SaidFormat::from_str)?;
        Ok(Self {
            format: said.map(|said| said.format),
            compression: said.and_then(|said| said.compression),
            snapshot_name: settings.value("snapshot-name", |name| Ok(name.to_owned()))?,
            keys: ChainKeys::new(settings.value("key-file", key_file)?, backing_keys(settings)?),
            disk_number: settings.value("disk", disk_number)?,
            direct: settings.has("direct"),
            engine: settings.value("engine", engine)?,
            cache_unsafe: settings.value("cache", cache)?.is_some(),
            logical_block_bytes,
            ..Self::of(PathBuf::from(&behind.text))
        })
    }

    fn write_start(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A colon before any slash would be taken for the end of a kind, and - alone for stdin.
        let text = escaped(&self.path);
        let looks_like_a_kind = text.split('/').next().is_some_and(|start| start.contains(':'));
        write!(f, "{}{text}", if looks_like_a_kind || text == "-" { "file:" } else { "" })
    }

    fn write_first_keys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.format.map(|format| SaidFormat { format, compression: self.compression });
        key(f, "format", said)?;
        key(f, "snapshot-name", self.snapshot_name.as_deref().map(|name| name.replace(',', ",,")))?;
        key(f, "key-file", self.keys.own().map(|key| escaped(key.path())))?;
        for (depth, file) in self.keys.behind() {
            key(f, "backing-key-file", Some(format_args!("{depth}:{}", escaped(file.path()))))?;
        }
        key(f, "disk", self.disk_number)
    }

    fn write_keys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        flag(f, "direct", self.direct)?;
        let engine = ENGINES.iter().find(|(_, engine)| Some(*engine) == self.engine);
        key(f, "engine", engine.map(|(word, _)| word))?;
        key(f, "cache", self.cache_unsafe.then_some("unsafe"))?;
        key(f, "block-size", self.logical_block_bytes)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn logical_block_bytes(&self) -> Option<u32> {
        self.logical_block_bytes
    }

    /// Its path is resolved here, once. A change to it that was cut off is completed if it is opened for writing, and
    /// otherwise seen through.
    fn open(&self, read_only: bool, context: &OpenContext<'_>) -> Result<OnBackend, OpenError> {
        if let (Some(unpacking), Some((compression, _))) = (&context.unpacking, self.compressed()) {
            return unpacking::open(self, compression, unpacking, context);
        }
        let options = self.options(read_only);
        let Taken { file, format, unfinished } = self.take(read_only, context)?;
        let opened = |options: &FileOptions| self.open_in(&file, format, options, context);
        let (OnFile { disk, length_bytes, permissions, sector_bytes }, unfinished) = match unfinished {
            None => (opened(&options)?, None),
            Some(change) if read_only => {
                let base = opened(&options)?;
                let unfinished = change.path().to_owned();
                (OnFile { disk: change.shown_on(base.disk)?, ..base }, Some(unfinished))
            }
            Some(change) => {
                self.complete(change, &file, format, context)?;
                (opened(&options)?, None)
            }
        };
        Ok(OnBackend {
            disk,
            length_bytes,
            file: Some(file),
            permissions: Some(permissions),
            unfinished,
            sector_bytes,
            unpacked: None,
        })
    }

    /// As the header of an image on top of this one names it: by a path that does not depend on where that image lies.
    fn as_backing(&self) -> Result<Option<Qcow2Backing>, OpenError> {
        let path = self.path.canonicalize().map_err(|error| OpenError::other(shown(&self.path).to_string(), error))?;
        let format = self.format.unwrap_or_else(|| Format::of_name(&self.path));
        // QEMU could open nothing else there.
        let is_whole = self.compressed().is_none() && self.snapshot_name.is_none();
        let is_known = matches!(format, Format::Raw | Format::Qcow2 | Format::BlockMap(_));
        let name = path.to_str().filter(|_| is_whole && is_known);
        Ok(name.map(|name| Qcow2Backing { name: name.to_owned(), format: format.word().to_owned() }))
    }

    fn file_options(&self, read_only: bool) -> FileOptions {
        self.options(read_only)
    }
}

impl FileSpecification {
    /// One of which nothing more is said.
    pub(in crate::specification) fn of(path: PathBuf) -> Self {
        Self {
            path,
            format: None,
            compression: None,
            snapshot_name: None,
            keys: ChainKeys::default(),
            disk_number: None,
            direct: false,
            engine: None,
            cache_unsafe: false,
            logical_block_bytes: None,
            lock: true,
        }
    }

    pub(in crate::specification) fn is_raw(&self) -> bool {
        self.format.unwrap_or_else(|| Format::of_name(&self.path)) == Format::Raw && self.compressed().is_none()
    }

    /// How the file is compressed, if it is, and the name of what is in it.
    pub(in crate::specification) fn compressed(&self) -> Option<(Compression, PathBuf)> {
        let named = Compression::of_name(&self.path).map(|(compression, name)| (compression, name.to_owned()));
        match self.format {
            None => named,
            Some(_) => self.compression.map(|said| (said, named.map_or_else(|| self.path.clone(), |(_, name)| name))),
        }
    }

    /// Opens the file, if nobody has yet, makes sure that it is what it is called, and locks it.
    pub(in crate::specification) fn take(
        &self,
        read_only: bool,
        context: &OpenContext<'_>,
    ) -> Result<Taken, OpenError> {
        let file = match context.file {
            Some(file) => file.try_clone().map_err(|error| OpenError::other(shown(&self.path).to_string(), error))?,
            None => OpenedFile::open(&self.path, read_only)?,
        };
        if self.compression.is_some() {
            return Err(content::is_compressed(&self.path));
        }
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

    pub(in crate::specification) fn complete(
        &self,
        change: UnfinishedChange,
        file: &OpenedFile,
        format: Format,
        context: &OpenContext<'_>,
    ) -> Result<(), OpenError> {
        // Whatever the specification says of flushes: the journal goes when the image is stable.
        let options = FileOptions { cache_unsafe: false, ..self.options(false) };
        let base = self.open_in(file, format, &options, context)?;
        Ok(change.complete(base.disk, format == Format::Qcow2)?)
    }

    /// The disk on this file, what is known of its length, and what the permission bits of all its files allow.
    fn open_in(
        &self,
        file: &OpenedFile,
        format: Format,
        options: &FileOptions,
        context: &OpenContext<'_>,
    ) -> Result<OnFile, OpenError> {
        let failed = |error| OpenError::other(shown(&self.path).to_string(), error);
        let handle = file.file().try_clone().map_err(failed)?;
        let permissions = file.permissions().map_err(failed)?;
        let allowed =
            || AllowedDirectories::new(context.allow_dirs).map(|allowed| allowed.with_keys(self.keys.clone()));
        let on = |disk: Arc<dyn Disk>, own: u32| OnFile {
            disk,
            length_bytes: None,
            permissions: permissions & own,
            sector_bytes: None,
        };
        if self.snapshot_name.is_some() && format != Format::Qcow2 {
            let problem =
                io::Error::other(format!("snapshots are inside of qcow2 images, and this is {}", format.word()));
            return Err(failed(problem));
        }
        if self.keys.own().is_some() && !matches!(format, Format::Qcow2 | Format::Luks) {
            let problem = "a key file is for qcow2 images and LUKS volumes (format=luks): leave key-file= out";
            return Err(failed(io::Error::other(problem)));
        }
        if !self.keys.behind().is_empty() && format != Format::Qcow2 {
            let problem = "files behind an image that have keys are behind qcow2 images: leave backing-key-file= out";
            return Err(failed(io::Error::other(problem)));
        }
        if self.disk_number.is_some() && format != Format::Ova {
            let problem = io::Error::other(format!("disks with numbers are in OVAs, and this is {}", format.word()));
            return Err(failed(problem));
        }
        Ok(match format {
            Format::Raw => {
                let disk = FileDisk::on_opened(handle, &self.path, options)?;
                let length_bytes = disk.length_bytes();
                OnFile { length_bytes: Some(length_bytes), ..on(Arc::new(disk), permissions) }
            }
            Format::Qcow2 => {
                let disk = match &self.snapshot_name {
                    Some(which) => Qcow2Disk::open_snapshot_in(handle, &self.path, which, options, &allowed()?)?,
                    None => Qcow2Disk::open_in(handle, &self.path, options, &allowed()?)?,
                };
                if let Some(key) = self.keys.needless(disk.encrypted()) {
                    let problem = match (self.keys.behind().is_empty(), disk.encrypted()) {
                        (true, _) => "neither it nor an image behind it is encrypted".to_owned(),
                        (false, []) => "no image of its chain is encrypted".to_owned(),
                        (false, depths) => {
                            format!("of its chain, what is encrypted is so many images behind it: {depths:?}")
                        }
                    };
                    let problem = format!("{problem}: leave {key} out if that is as it should be");
                    return Err(failed(io::Error::other(problem)));
                }
                disk.notes().iter().for_each(|note| (context.note)(note));
                if disk.is_weakly_encrypted() {
                    let image = shown(&self.path);
                    (context.note)(&format!(
                        "{image} is encrypted by the oldest way, AES without LUKS, which does not hide it well; LUKS does"
                    ));
                }
                let own = disk.permissions();
                on(Arc::new(disk), own)
            }
            Format::Luks => {
                let disk = LuksDisk::open_in(handle, &self.path, self.keys.own(), options)?;
                disk.notes().iter().for_each(|note| (context.note)(note));
                on(Arc::new(disk), permissions)
            }
            Format::BlockMap(format) => {
                let disk = BlockMapDisk::open_in(handle, &self.path, format, options, &allowed()?)?;
                disk.notes().iter().for_each(|note| (context.note)(note));
                let (own, sector_bytes) = (disk.permissions(), Some(disk.sector_bytes()));
                OnFile { sector_bytes, ..on(Arc::new(disk), own) }
            }
            Format::Ova => {
                let disk = Ova::open(file)?.open_disk(self.disk_number, options)?;
                disk.notes().iter().for_each(|note| (context.note)(note));
                let own = disk.permissions();
                on(Arc::new(disk), own)
            }
        })
    }

    pub(in crate::specification) fn options(&self, read_only: bool) -> FileOptions {
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

fn engine(text: &str) -> Result<Engine, String> {
    let found = ENGINES.into_iter().find(|(word, _)| *word == text);
    found.map(|(_, engine)| engine).ok_or_else(|| format!("there is no '{text}', only auto, uring, threads and sync"))
}

fn key_file(text: &str) -> Result<KeyFile, String> {
    match text.contains('\0') {
        true => Err("a path cannot contain a zero byte".into()),
        false => Ok(KeyFile::new(text)),
    }
}

/// By how many images are in front of the one that each is for.
fn backing_keys(settings: &Settings<'_>) -> Result<BTreeMap<usize, KeyFile>, SpecificationError> {
    let mut keys = BTreeMap::new();
    settings.each("backing-key-file", |text| {
        let numbered = text.split_once(':').filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()));
        let (depth, path) = match numbered {
            Some((number, path)) => (number.parse::<NonZeroUsize>().map_err(|_| not_behind(number))?.get(), path),
            None => (1, text),
        };
        if path.is_empty() {
            return Err("a key file has a name".into());
        }
        match keys.insert(depth, key_file(path)?) {
            Some(_) => Err(format!("the image that is number {depth} behind it has a key file already")),
            None => Ok(()),
        }
    })?;
    Ok(keys)
}

fn not_behind(number: &str) -> String {
    format!("'{number}' is not the number of an image behind it: 1 is its backing file, 2 what is behind that")
}

fn disk_number(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| format!("'{text}' is not the number of a disk, from 1"))
}

fn cache(text: &str) -> Result<(), String> {
    let message = || format!("there is no '{text}', only unsafe; leave it out for flushes that flush");
    (text == "unsafe").then_some(()).ok_or_else(message)
}
