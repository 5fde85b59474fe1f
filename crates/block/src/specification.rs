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
//! | `format=raw\|qcow2\|luks\|vmdk\|vdi\|vpc\|vhdx\|qed\|parallels\|ova` | file | what the file is. Without it the name's ending decides (`.qcow2`, `.vmdk`, `.vdi`, `.vhd`, `.vhdx`, `.qed`, `.hdd`, `.ova`, else raw; a compressed one, `.gz`, `.xz` or `.zst` behind that and in the value, is read where a disk is read from its beginning to its end); contents that say otherwise, and names and contents of formats that are not supported ([`FileFormat`](crate::FileFormat)), are an error |
//! | `key-file=PATH` | file | the passphrase of an encrypted qcow2 image, or of a LUKS volume ([`KeyFile`](crate::KeyFile)) |
//! | `disk=N` | file | the disk of this number in an OVA; one that has only one needs none |
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
//! | `faults=…` | all | see [`Faults`](crate::layers::Faults) |
//!
//! [`DiskSpecification`] is what parsing gives and [`DiskSpecification::open`] the one place where the parts are put
//! together.

mod content;
mod copying;
mod display;
mod edit;
mod error;
mod format;
mod hindrances;
mod keys;
mod kinds;
mod open;
mod opening;
mod parse;
mod settings;
#[cfg(test)]
mod tests;
mod unpacking;
mod written;

use crate::Engine;
use crate::partition_table::TableChoice;
pub use copying::SameDisk;
pub use error::SpecificationError;
pub use format::{Format, SaidFormat};
use hindrances::Hindrances;
pub use kinds::Kind;
use kinds::{Backend, FileSpecification};
pub use open::{OpenedDisk, OpenedImage, OpenedPart, temporary_directory};
pub use opening::{OpenContext, OpenError, SessionSpecification, Unpacking};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

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
    hindrances: Hindrances,
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

impl DiskSpecification {
    /// Which kind of disk.
    pub fn kind(&self) -> Kind {
        self.backend.kind()
    }

    /// The file, device or socket; `None` for a disk that is in none.
    pub fn path(&self) -> Option<&Path> {
        self.backend.get().path()
    }

    /// Which disk of an OVA it says.
    pub fn disk_number(&self) -> Option<NonZeroU32> {
        match &self.backend {
            Backend::File(file) => file.disk_number,
            _ => None,
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
            Backend::File(file) if file.compression.is_some() => Err(content::is_compressed(&file.path)),
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
        Self { backend, read_only: false, delta: None, partition: None, hindrances: Hindrances::default() }
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
        self.backend.get().logical_block_bytes()
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

    /// The disk that the partition lies on, with all else that is said of it; the same one, if it is no partition.
    #[must_use]
    pub fn without_partition(mut self) -> Self {
        self.partition = None;
        self
    }

    /// The same disk, or this partition of it if it is in a file or on a session and does not say which.
    #[must_use]
    pub fn or_partition(mut self, number: NonZeroU32) -> Self {
        if self.kind().keys().find("partition").is_some() {
            self.partition = self.partition.or(Some(PartitionChoice { number, table: TableChoice::Auto }));
        }
        self
    }

    /// The partition's number, if it is one of the disk's partitions.
    pub fn partition(&self) -> Option<NonZeroU32> {
        self.partition.map(|choice| choice.number)
    }
}

const TABLES: [(&str, TableChoice); 2] = [("mbr", TableChoice::Mbr), ("gpt", TableChoice::Gpt)];
