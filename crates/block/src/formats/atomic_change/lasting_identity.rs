//! Which file one is, whatever its name.

use rustix::fs::{AtFlags, StatxFlags, statx};
use std::io;
use std::os::fd::AsFd;

/// A file of a file system: no other has the same, not even one that gets its inode number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastingIdentity {
    pub(super) inode: u64,
    /// When it was made: seconds and nanoseconds.
    pub(super) born: [i64; 2],
}

impl LastingIdentity {
    /// That of an open file; `None` where files have no time of birth.
    pub(super) fn of(file: impl AsFd) -> io::Result<Option<Self>> {
        let status = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME)?;
        let born = [status.stx_btime.tv_sec, status.stx_btime.tv_nsec.into()];
        let has_birth = status.stx_mask & StatxFlags::BTIME.bits() != 0;
        Ok(has_birth.then_some(Self { inode: status.stx_ino, born }))
    }

    /// What it takes in a file.
    pub(super) const BYTES: usize = 24;

    /// As it is kept in files, little-endian.
    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, number) in bytes.chunks_mut(8).zip([self.inode.cast_signed(), self.born[0], self.born[1]]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let mut numbers = [0; 3];
        for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks().0) {
            *number = i64::from_le_bytes(*bytes);
        }
        Self { inode: numbers[0].cast_unsigned(), born: [numbers[1], numbers[2]] }
    }
}
