//! Why a file cannot be a disk.

use crate::{Remedy, shown};
use std::io;
use std::path::PathBuf;

/// Why a file or block device could not be opened as a disk.
#[derive(Debug, thiserror::Error)]
pub enum FileDiskError {
    /// The logical block size is not a power of two in range.
    #[error("the logical block size is {0} bytes; it must be a power of two from 512 to 65536")]
    LogicalBlock(u32),
    /// The operating system did not open it.
    #[error("cannot open {} for {access}", shown(path))]
    Open {
        /// What was to be opened, as it was named.
        path: PathBuf,
        /// What it was opened for.
        access: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// It was to be written, and this user can only read it.
    #[error("cannot open {} for reading and writing: {reason}; {}", shown(path), Remedy::OpenReadOnly)]
    NotWritable {
        /// What was to be opened, as it was named.
        path: PathBuf,
        /// What the operating system said.
        reason: io::Error,
    },
    /// It is something that holds no blocks.
    #[error("{} is {kind}; a disk is a regular file or a block device", shown(path))]
    NotADisk {
        /// Where it is.
        path: PathBuf,
        /// What it is, with its article.
        kind: &'static str,
    },
    /// An open file is not open in a way that suits a disk.
    #[error("{} {problem}", shown(path))]
    Unsuitable {
        /// Where the open file is, as the kernel has it.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The operating system did not say what it is.
    #[error("cannot tell the size of {}", shown(path))]
    Inspect {
        /// The file or device that was opened.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// It cannot be used without the page cache.
    #[error("cannot open {} for direct transfers, which `direct` asks for", shown(path))]
    Direct {
        /// The file or device that was opened.
        path: PathBuf,
        /// What opening it so, or asking what it demands, met.
        source: io::Error,
    },
    /// A block device that something in the system has for itself.
    #[error("{} is in use by the system: unmount it, or take it out of swap, RAID or volume group, first", shown(path))]
    DeviceInUse {
        /// The device.
        path: PathBuf,
    },
    /// It is no longer what was at its path a moment ago.
    #[error("{} is being replaced: try again", shown(.0))]
    Replaced(PathBuf),
    /// A block device that takes no writes.
    #[error("{} is a read-only device; open it for reading only", shown(path))]
    DeviceReadOnly {
        /// The device.
        path: PathBuf,
    },
    /// Another program uses it, and not in a way that goes together with this.
    #[error("{} is in use: {holder} has it open {purpose}", shown(path))]
    Locked {
        /// The file or device that both would use.
        path: PathBuf,
        /// The other program, as well as it can be told.
        holder: String,
        /// What it has it open for.
        purpose: &'static str,
    },
    /// The operating system did not lock it.
    #[error("cannot lock {}", shown(path))]
    Lock {
        /// The file that was opened.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}
