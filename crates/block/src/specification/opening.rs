//! What a disk is opened with, what comes of it, and why it may not be had.

use crate::layers::PartitionDisk;
use crate::{Compression, Disk, FileDiskError, ImageError, OpenedFile, StartUnpacker, UnpackedDisk, shown, size};
use std::error::Error;
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What opening gives.
pub(super) type OpenedAs = Result<Arc<dyn Disk>, OpenError>;

/// The disk of a backend, with nothing around it.
pub(super) struct OnBackend {
    pub(super) disk: Arc<dyn Disk>,
    /// Bytes in a raw file.
    pub(super) length_bytes: Option<u64>,
    pub(super) file: Option<OpenedFile>,
    pub(super) permissions: Option<u32>,
    pub(super) unfinished: Option<PathBuf>,
    /// The logical block that an image says its disk has.
    pub(super) sector_bytes: Option<u32>,
    pub(super) unpacked: Option<Arc<UnpackedDisk>>,
}

impl OnBackend {
    /// A disk that is in no file, and refuses changes if it is to.
    pub(super) fn in_no_file(disk: Arc<dyn Disk>, read_only: bool) -> Self {
        let refuse = read_only && !disk.geometry().read_only;
        let disk = if refuse { Arc::new(PartitionDisk::whole(disk, true)) } else { disk };
        Self {
            disk,
            length_bytes: None,
            file: None,
            permissions: None,
            unfinished: None,
            sector_bytes: None,
            unpacked: None,
        }
    }
}

/// A disk served by another process, for whoever knows how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSpecification {
    /// The server's socket.
    pub path: PathBuf,
    /// Always copy through a buffer of this size, from 4 KiB to 1 GiB. `None`: only where memory cannot be shared.
    pub io_buffer_bytes: Option<u64>,
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
    /// Make one write of those that follow each other ([`GatheringDisk`](crate::layers::GatheringDisk)): for whoever
    /// passes on what others write, in pieces as small as they like.
    pub gathers: bool,
    /// Hears what is worth knowing though the disk is opened, in a sentence.
    pub note: &'a dyn Fn(&str),
    /// How a compressed file is read, where one may be.
    pub unpacking: Option<Unpacking<'a>>,
}

impl Default for OpenContext<'_> {
    /// For writing, of an image in its one file, by whoever cannot reach sessions and does not hear anything.
    fn default() -> Self {
        Self {
            allow_dirs: &[],
            connect: &|_| Err(OpenError::other("a session", "there are none here")),
            file: None,
            read_only: false,
            gathers: false,
            note: &|_| (),
            unpacking: None,
        }
    }
}

/// Who decompresses a file, and gives up when nothing has come for so long.
type Starting = fn(&File, Compression, Option<Duration>) -> io::Result<StartUnpacker>;

/// How a compressed file is read as a disk: once, from its beginning to its end.
#[derive(Clone, Copy)]
pub struct Unpacking<'a> {
    /// Makes ready to start somebody who decompresses it, also when this process can start nobody by itself any more.
    pub starting: Starting,
    /// What it may become at most.
    pub bytes_max: u64,
    /// Where an image is unpacked that is compressed as a whole, as its parts lie anywhere.
    pub scratch: &'a Path,
    /// Hears meanwhile how many bytes of the file were read, and how many it has.
    pub progress: &'a dyn Fn(u64, u64),
    /// How long it may take until more comes out; `None`: any time.
    pub patience: Option<Duration>,
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
        /// The file, as it was named.
        path: PathBuf,
        /// What it is, and how to say so.
        problem: String,
    },
    /// There is no memory for it, or no such block size.
    #[error("cannot make a disk of {}", size::exact(*capacity_bytes))]
    Memory {
        /// The size that was asked for.
        capacity_bytes: u64,
        /// What making it met.
        source: io::Error,
    },
    /// The partition is not on the disk; the source says which.
    #[error("{}", shown(disk))]
    Partition {
        /// The file or socket that the disk is in.
        disk: PathBuf,
        /// Its number in the table, counted from 1.
        number: NonZeroU32,
        /// What reading the table met, or that it has no such partition.
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
    /// The program that has the file for itself, where that is what is in the way:
    /// [`unlocked`](super::DiskSpecification::unlocked) goes round it.
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
