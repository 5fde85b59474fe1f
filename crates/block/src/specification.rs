//! How people name a disk, and what they want around it: `[kind:]path[,key=value…]`, the same in every command.
//!
//! | kind | path |
//! |---|---|
//! | `file` | a file or a block device; what has no kind is this |
//! | `session` | the socket of a disk served by another process |
//! | `mem` | the size of a disk in memory: `mem:1G` |
//! | `null` | the size of a disk that holds nothing: `null:8G` |
//!
//! A comma in a path or a value is written twice. A colon before any slash ends a kind, so a file whose name has one
//! there is written `file:a:b` or `./a:b`.
//!
//! | key | kinds | meaning |
//! |---|---|---|
//! | `format=raw\|qcow2\|vmdk` | file | what the file is. Without it the name's ending decides (`.qcow2`, `.vmdk`, else raw); contents that say otherwise, and names and contents of formats that are not supported ([`FileFormat`]), are an error |
//! | `ro` | all | refuse changes |
//! | `direct` | file | past the page cache (O_DIRECT) |
//! | `engine=auto\|uring\|threads\|sync` | file | who carries requests out |
//! | `cache=unsafe` | file | answer flushes without flushing |
//! | `block-size=SIZE` | file, mem, null | the logical block, a power of two from 512 to 65536 |
//! | `io-buffer=SIZE` | session | always copy through a buffer of this size |
//! | `partition=N` | file, session | the partition of this number instead of the whole disk |
//! | `table=mbr\|gpt` | file, session | which partition table counts, on a disk with two that contradict each other |
//! | `overlay=PATH` | file, session | changes go to this qcow2 image, the disk itself stays as it is |
//! | `snapshot` | file, session | changes go nowhere lasting |
//! | `iops=N`, `bps=SIZE`, `burst=TIME` | all | at most so many requests and bytes a second, beyond what was saved up in so long a time |
//! | `latency=TIME` | all | every request takes so much longer; `5ms-20ms`: any time between |
//! | `faults=…` | all | see [`Faults`] |
//!
//! [`DiskSpecification`] is what parsing gives and [`DiskSpecification::open`] the one place where the parts are put
//! together.

mod content;
mod display;
mod edit;
mod error;
mod keys;
mod open;
mod parse;
#[cfg(test)]
mod tests;

use crate::layers::{Faults, Latency, ThrottleLimits};
use crate::partition_table::TableChoice;
use crate::{Engine, FileFormat};
pub use error::SpecificationError;
pub use open::{OpenContext, OpenError, OpenedDisk, OpenedImage};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A disk as somebody named it: checked, so that its parts fit each other. Made by [`str::parse`]; its `Display` gives
/// a text that parses to the same (but for what only [`DiskSpecification::of_file`] and its like take: a path that is
/// not UTF-8, a size that no file can have). What is said besides is said to it, not to its text:
/// [`DiskSpecification::with_format`] and its like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSpecification {
    backend: Backend,
    read_only: bool,
    delta: Option<Delta>,
    partition: Option<PartitionChoice>,
    limits: Option<ThrottleLimits>,
    latency: Option<Latency>,
    faults: Option<Faults>,
}

/// The words that may stand before the first colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file or a block device.
    File,
    /// A disk served by another process.
    Session,
    /// A disk in memory.
    Memory,
    /// A disk that holds nothing.
    Null,
}

/// What the blocks are in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Backend {
    File(FileSpecification),
    Session(SessionSpecification),
    Memory { capacity_bytes: u64, logical_block_bytes: Option<u32> },
    Null { capacity_bytes: u64, logical_block_bytes: Option<u32> },
}

/// A file or block device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileSpecification {
    path: PathBuf,
    /// `None`: the name's ending decides.
    format: Option<Format>,
    direct: bool,
    /// `None`: whoever opens it chooses.
    engine: Option<Engine>,
    cache_unsafe: bool,
    /// `None`: whoever opens it chooses.
    logical_block_bytes: Option<u32>,
    /// Not said in text: what goes without is the command's choice.
    lock: bool,
}

/// A disk served by another process, for whoever knows how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSpecification {
    /// The server's socket.
    pub path: PathBuf,
    /// Always copy through a buffer of this size, from 4 KiB to 1 GiB. `None`: only where memory cannot be shared.
    pub io_buffer_bytes: Option<u64>,
}

/// Which part of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartitionChoice {
    number: NonZeroU32,
    table: TableChoice,
}

/// Where changes go that the disk itself is spared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Delta {
    Overlay(PathBuf),
    Snapshot,
}

/// What a file's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The disk's own.
    Raw,
    /// An image in QEMU's format.
    Qcow2,
    /// An image in VMware's format, flat, which is only read.
    Vmdk,
}

/// The logical block where nobody says another.
const LOGICAL_BLOCK_BYTES: u32 = 512;

impl DiskSpecification {
    /// Which kind of disk.
    pub fn kind(&self) -> Kind {
        match self.backend {
            Backend::File(_) => Kind::File,
            Backend::Session(_) => Kind::Session,
            Backend::Memory { .. } => Kind::Memory,
            Backend::Null { .. } => Kind::Null,
        }
    }

    /// The file, device or socket; `None` for a disk that is in none.
    pub fn path(&self) -> Option<&Path> {
        match &self.backend {
            Backend::File(file) => Some(&file.path),
            Backend::Session(session) => Some(&session.path),
            Backend::Memory { .. } | Backend::Null { .. } => None,
        }
    }

    /// Whether it says `ro`.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The same disk, saying `ro`: what `snapshot` would spare is spared anyway.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        if self.delta == Some(Delta::Snapshot) {
            self.delta = None;
        }
        self
    }

    /// The same disk, saying `ro` and without locks: for a look at what another program may be writing. What is read
    /// fits together only as far as that program's writes happen to.
    #[must_use]
    pub fn unlocked(self) -> Self {
        let mut unlocked = self.read_only();
        if let Backend::File(file) = &mut unlocked.backend {
            file.lock = false;
        }
        unlocked
    }

    /// Whether changes go nowhere lasting.
    pub fn has_snapshot(&self) -> bool {
        self.delta == Some(Delta::Snapshot)
    }

    /// The file or block device, if the disk is all of it, byte by byte, and changes go there: such a disk can be made
    /// by writing a new file ([`DiskSpecification::open_file`]). Nothing has looked at its contents.
    pub fn raw_file(&self) -> Option<&Path> {
        match &self.backend {
            Backend::File(file) if file.is_raw() && self.partition.is_none() && self.delta.is_none() => {
                Some(&file.path)
            }
            _ => None,
        }
    }

    /// The file or block device, whatever its format, if the disk is all of it and changes go there.
    pub fn image_file(&self) -> Option<&Path> {
        match &self.backend {
            Backend::File(file) if self.partition.is_none() && self.delta.is_none() => Some(&file.path),
            _ => None,
        }
    }

    /// Refuses a file that is to be made under the name of a format that cannot be: nobody could open it afterwards.
    ///
    /// # Errors
    /// When it is such a file, and does not say its format.
    pub fn check_new_name(&self) -> Result<(), OpenError> {
        match &self.backend {
            Backend::File(file) => content::check_name(&file.path, file.format).map(drop),
            _ => Ok(()),
        }
    }

    /// The file or block device that changes go to, unless it is opened for reading only.
    pub fn written_file(&self) -> Option<&Path> {
        match &self.backend {
            Backend::File(file) if !self.read_only && self.delta.is_none() => Some(&file.path),
            _ => None,
        }
    }

    /// Whether its file is locked when it is opened.
    pub fn is_locked(&self) -> bool {
        matches!(&self.backend, Backend::File(FileSpecification { lock: true, .. }))
    }

    /// All of the file, device or session that it is in or on, with nothing around it and writable.
    #[must_use]
    pub fn whole(&self) -> Self {
        Self::of_backend(self.backend.clone())
    }

    fn of_backend(backend: Backend) -> Self {
        Self { backend, read_only: false, delta: None, partition: None, limits: None, latency: None, faults: None }
    }

    /// Whether it says its format, and does not leave that to its name.
    pub fn says_format(&self) -> bool {
        matches!(&self.backend, Backend::File(FileSpecification { format: Some(_), .. }))
    }

    /// The format that it says or that its name has; `None` for a disk that is in no file.
    pub fn format(&self) -> Option<Format> {
        match &self.backend {
            Backend::File(file) => Some(file.format.unwrap_or_else(|| Format::of_name(&file.path))),
            _ => None,
        }
    }

    /// Whether flushes of it do nothing.
    pub fn is_cache_unsafe(&self) -> bool {
        matches!(&self.backend, Backend::File(FileSpecification { cache_unsafe: true, .. }))
    }

    /// Whether its file is read and written through the page cache.
    pub fn is_buffered(&self) -> bool {
        matches!(&self.backend, Backend::File(FileSpecification { direct: false, .. }))
    }

    /// The logical block that it says.
    pub fn logical_block_bytes(&self) -> Option<u32> {
        match self.backend {
            Backend::File(FileSpecification { logical_block_bytes, .. })
            | Backend::Memory { logical_block_bytes, .. }
            | Backend::Null { logical_block_bytes, .. } => logical_block_bytes,
            Backend::Session(_) => None,
        }
    }

    /// The same disk, with this logical block, a power of two from 512 to 65536, if it is in a file and does not say
    /// which.
    #[must_use]
    pub fn or_logical_block(mut self, bytes: u32) -> Self {
        if let Backend::File(file) = &mut self.backend {
            file.logical_block_bytes = file.logical_block_bytes.or(Some(bytes));
        }
        self
    }

    /// The same disk, with this engine if it is in a file and does not say which.
    #[must_use]
    pub fn or_engine(mut self, engine: Engine) -> Self {
        if let Backend::File(file) = &mut self.backend {
            file.engine = file.engine.or(Some(engine));
        }
        self
    }

    /// The partition's number, if it is one of the disk's partitions.
    pub fn partition(&self) -> Option<NonZeroU32> {
        self.partition.map(|choice| choice.number)
    }
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::File, Self::Session, Self::Memory, Self::Null];

    /// Its word: `file`, `session`, `mem` or `null`.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Session => "session",
            Self::Memory => "mem",
            Self::Null => "null",
        }
    }
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Raw, Self::Qcow2, Self::Vmdk];

    /// Its word: `raw`, `qcow2` or `vmdk`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
        }
    }

    /// The one among those that are supported.
    fn of(format: &FileFormat) -> Option<Self> {
        Self::ALL.into_iter().find(|supported| supported.word() == format.word)
    }

    /// What a file of this name is unless somebody says otherwise. What is not supported is refused when it is opened.
    fn of_name(path: &Path) -> Self {
        FileFormat::of_name(path).and_then(Self::of).unwrap_or(Self::Raw)
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.word() == word);
        found.ok_or_else(|| format!("there is no '{word}', only raw, qcow2 and vmdk"))
    }
}

const TABLES: [(&str, TableChoice); 2] = [("mbr", TableChoice::Mbr), ("gpt", TableChoice::Gpt)];

const ENGINES: [(&str, Engine); 4] =
    [("auto", Engine::Auto), ("uring", Engine::Uring), ("threads", Engine::Threads), ("sync", Engine::Sync)];
