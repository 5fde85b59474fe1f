//! What is asked of a disk and what comes back.

use crate::Segment;
use rustix::io::Errno;

/// What a [`Request`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Disk to memory; the length is the segments'.
    Read,
    /// Memory to disk; the length is the segments'.
    Write {
        /// Completes only when the data are on stable storage.
        force_unit_access: bool,
    },
    /// Completes when every write completed before it was pushed is on stable storage.
    Flush,
    /// The range's contents are no longer needed: it may read as anything the disk likes.
    Discard {
        /// Length of the range.
        length_bytes: u64,
    },
    /// The range reads as zeros from now on.
    WriteZeroes {
        /// Length of the range.
        length_bytes: u64,
        /// The disk may give the range's storage back.
        may_unmap: bool,
    },
}

/// One request. Borrowed: a queue keeps what it needs of it, in storage it has had since it was opened.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to do.
    pub operation: Operation,
    /// Where on the disk, in bytes from its start. Zero for a flush.
    pub offset_bytes: u64,
    /// Where in memory: the segments in the order of the disk's bytes. Empty unless reading or writing.
    pub segments: &'a [Segment],
    /// Comes back in the [`Completion`]; means nothing to the disk.
    pub token: u64,
}

impl Request<'_> {
    /// Bytes of the disk that this request touches; zero for a flush.
    pub fn length_bytes(&self) -> u64 {
        match self.operation {
            Operation::Read | Operation::Write { .. } => {
                self.segments.iter().map(|segment| u64::from(segment.length_bytes)).sum()
            }
            Operation::Flush => 0,
            Operation::Discard { length_bytes } | Operation::WriteZeroes { length_bytes, .. } => length_bytes,
        }
    }
}

/// Why a request failed. Small and `Copy`: it travels in every [`Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The operating system refused or failed it, with this errno.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
    /// The backing file ended before the disk does: somebody shortened it.
    #[error("the file became shorter while it was in use")]
    Truncated,
    /// The disk does not do this operation.
    #[error("the disk does not support this operation")]
    Unsupported,
    /// A change was asked of a disk opened for reading.
    #[error("the disk is read-only")]
    ReadOnly,
    /// The range does not lie within the disk.
    #[error("the request reaches past the end of the disk")]
    OutOfRange,
    /// The disk wants requests aligned, and this one is not: a layer such as [`crate::layers::AlignedDisk`] is missing.
    #[error("the request is not aligned the way the disk demands")]
    Unaligned,
    /// A segment does not lie within the memory map.
    #[error("the request points outside the memory map")]
    BadSegment,
}

impl RequestError {
    /// Why, and what helps where that is known.
    pub fn with_remedy(self) -> String {
        let is_full = |errno: i32| [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error).contains(&errno);
        match self {
            Self::Os(errno) if is_full(errno) => {
                format!("{self} (free some where the image lies, or where a snapshot of it does: in TMPDIR)")
            }
            _ => self.to_string(),
        }
    }
}

/// How one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's token.
    pub token: u64,
    /// Whether all of it was done.
    pub result: Result<(), RequestError>,
}
