//! What a journal says at its end of the image that it is for: so that an image which somebody has restored since then is not changed; and of
//! itself: so that a file which somebody else has made for the image's owner to copy, and then moved here, is none.
//!
//! Behind the delta, in the file's last sector: the magic, the state, when the image was modified and its length as stat(2) has them, and the
//! journal's own identity, little-endian.

use super::file_identity::FileIdentity;
use rustix::fs::{fdatasync, fsync};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

const MAGIC: [u8; 8] = *b"blkychg2";
/// One sector: it is written as a whole or not at all.
const SECTOR_BYTES: u64 = 512;
const RECORD_BYTES: usize = 64;
const STATE_AT: usize = 8;

/// What an image's file looks like from outside, however it is named and whoever owns it: a copy of it that looks the same holds
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: [i64; 2],
    length_bytes: u64,
}

impl Stamp {
    pub(super) fn of(image: &File) -> io::Result<Self> {
        let metadata = image.metadata()?;
        Ok(Self { modified: [metadata.mtime(), metadata.mtime_nsec()], length_bytes: metadata.len() })
    }

    /// As it is on stable storage: it will not be an older one after a power cut.
    fn stable(image: &File) -> io::Result<Self> {
        fsync(image)?;
        Self::of(image)
    }
}

/// How far a change has been put in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not at all.
    Named = 0,
    /// Somebody is about it, or was when he ended: what the image looks like says nothing.
    Begun = 1,
    /// In part, and nobody is about it.
    Stopped = 2,
}

/// The record of a journal.
pub(super) struct JournalRecord<'journal> {
    journal: &'journal File,
    at: u64,
    state: State,
    stamp: Stamp,
    /// The file that it was written to first.
    own: FileIdentity,
}

impl<'journal> JournalRecord<'journal> {
    /// Writes the first one, behind a delta that is complete. The image is ours: nobody writes to it.
    pub(super) fn create(journal: &'journal File, image: &File) -> io::Result<()> {
        let stamp = Stamp::stable(image)?;
        let at = journal.metadata()?.len().next_multiple_of(SECTOR_BYTES);
        journal.set_len(at + SECTOR_BYTES)?;
        let own =
            FileIdentity::of(journal)?.ok_or_else(|| io::Error::other("its file system keeps no time of birth"))?;
        Self { journal, at, state: State::Named, stamp, own }.write()
    }

    /// That of a journal which was found.
    pub(super) fn read(journal: &'journal File) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "its file is not all of a change");
        let at = journal.metadata()?.len().checked_sub(SECTOR_BYTES).ok_or_else(invalid)?;
        let mut bytes = [0; RECORD_BYTES];
        journal.read_exact_at(&mut bytes, at)?;
        let state = [State::Named, State::Begun, State::Stopped];
        let state = state.into_iter().find(|&state| state as u8 == bytes[STATE_AT]).ok_or_else(invalid)?;
        let number = |index: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[16 + index * 8..][..8]);
            i64::from_le_bytes(number)
        };
        let stamp = Stamp { modified: [number(0), number(1)], length_bytes: number(2).cast_unsigned() };
        let own = FileIdentity { inode: number(3).cast_unsigned(), born: [number(4), number(5)] };
        if bytes[..STATE_AT] != MAGIC { Err(invalid()) } else { Ok(Self { journal, at, state, stamp, own }) }
    }

    /// Whether it lies in the file that it was written to first. What somebody else had the owner copy does not: nobody knows a file's identity
    /// before there is one.
    pub(super) fn is_original(&self) -> io::Result<bool> {
        Ok(FileIdentity::of(self.journal)? == Some(self.own))
    }

    /// Whether an image that looks like this is still what the change was made for, as far as that can be told.
    pub(super) fn is_for(&self, image: &Stamp) -> bool {
        self.state == State::Begun || *image == self.stamp
    }

    /// Whether nothing of the change has been put in place yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.state == State::Named
    }

    /// From now on the image is written.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.state = State::Begun;
        self.write()?;
        Ok(fdatasync(self.journal)?)
    }

    /// The image is not written any more, but will be: it is locked, and its disk is closed.
    pub(super) fn stop(&mut self, image: &File) -> io::Result<()> {
        self.stamp = Stamp::stable(image)?;
        self.state = State::Stopped;
        self.write()?;
        Ok(fdatasync(self.journal)?)
    }

    fn write(&self) -> io::Result<()> {
        let Stamp { modified, length_bytes } = self.stamp;
        let mut bytes = [0; RECORD_BYTES];
        bytes[..STATE_AT].copy_from_slice(&MAGIC);
        bytes[STATE_AT] = self.state as u8;
        let FileIdentity { inode, born } = self.own;
        let numbers = [modified[0], modified[1], length_bytes.cast_signed(), inode.cast_signed(), born[0], born[1]];
        for (index, number) in numbers.into_iter().enumerate() {
            bytes[16 + index * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        self.journal.write_all_at(&bytes, self.at)
    }
}

const _: () = assert!(RECORD_BYTES == 16 + 6 * 8 && RECORD_BYTES as u64 <= SECTOR_BYTES);
