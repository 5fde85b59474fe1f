//! What a journal says at its end of the image that it is for: so that an image which somebody has restored since then is not changed; and of
//! itself: so that a file which somebody else has made for the image's owner to copy, and then moved here, is none.
//!
//! Behind the delta, in the file's last sector: the magic, the state, whether the image is marked, when the image was modified and its
//! length as stat(2) has them, and the journal's own identity, little-endian.
//!
//! While the image is written, it has a mark ([`IMAGE_MARK`]) where its file system keeps one: so that nobody takes a half-changed image for a
//! whole one when its journal was taken away, and that a journal which is brought back later is not put over what was written since.

use super::file_identity::FileIdentity;
use rustix::fs::{XattrFlags, fdatasync, fgetxattr, fremovexattr, fsetxattr, fsync};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

const MAGIC: [u8; 8] = *b"blkychg3";
/// One sector: it is written as a whole or not at all.
const SECTOR_BYTES: u64 = 512;
const RECORD_BYTES: usize = 64;
const STATE_AT: usize = 8;
const MARKED_AT: usize = 9;
const OWN_AT: usize = 16 + 3 * 8;

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
    /// Completely: what is left of it counts no more, wherever it is.
    Done = 3,
}

/// The identity of a journal, in an extended attribute of a file.
pub(super) struct Mark(&'static str);

/// That of an image while a change is put in place: it is half-changed, and this journal has the change.
pub(super) const IMAGE_MARK: Mark = Mark("user.blockyard.change");

/// A journal's own: who only writes a file, such as a download that somebody else sends, gives it none.
const JOURNAL_MARK: Mark = Mark("user.blockyard.journal");

/// What a file has of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marked {
    With(FileIdentity),
    No,
    /// Its file system keeps none, or its mode lets nobody look.
    Unknown,
}

impl Mark {
    pub(super) fn name(&self) -> &'static str {
        self.0
    }

    /// The journal that a file is marked with, if any.
    pub(super) fn of(&self, file: &File) -> io::Result<Option<FileIdentity>> {
        Ok(match self.look(file)? {
            Marked::With(journal) => Some(journal),
            Marked::No | Marked::Unknown => None,
        })
    }

    fn look(&self, file: &File) -> io::Result<Marked> {
        let mut bytes = [0; FileIdentity::BYTES];
        match fgetxattr(file, self.0, &mut bytes) {
            Ok(FileIdentity::BYTES) => Ok(Marked::With(FileIdentity::from_bytes(&bytes))),
            // Nothing of ours.
            Ok(_) | Err(Errno::NODATA | Errno::RANGE) => Ok(Marked::No),
            // A new file that the umask has left no rights on: who could open another one may read this.
            Err(Errno::OPNOTSUPP | Errno::ACCESS) => Ok(Marked::Unknown),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sets it; whether it is kept. Only a sync makes it stable.
    fn set(&self, file: &File, journal: &FileIdentity) -> io::Result<bool> {
        match fsetxattr(file, self.0, &journal.to_bytes(), XattrFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes it away, on stable storage.
    fn remove(&self, file: &File) -> io::Result<()> {
        match fremovexattr(file, self.0) {
            Ok(()) => Ok(fsync(file)?),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The record of a journal.
pub(super) struct JournalRecord<'journal> {
    journal: &'journal File,
    at: u64,
    state: State,
    /// Whether the image has a mark while this is put in place.
    marked: bool,
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
        JOURNAL_MARK.set(journal, &own)?;
        Self { journal, at, state: State::Named, marked: false, stamp, own }.write()
    }

    /// That of a journal which was found.
    pub(super) fn read(journal: &'journal File) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "its file is not all of a change");
        let at = journal.metadata()?.len().checked_sub(SECTOR_BYTES).ok_or_else(invalid)?;
        let mut bytes = [0; RECORD_BYTES];
        journal.read_exact_at(&mut bytes, at)?;
        let state = [State::Named, State::Begun, State::Stopped, State::Done];
        let state = state.into_iter().find(|&state| state as u8 == bytes[STATE_AT]).ok_or_else(invalid)?;
        let number = |index: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[16 + index * 8..][..8]);
            i64::from_le_bytes(number)
        };
        let stamp = Stamp { modified: [number(0), number(1)], length_bytes: number(2).cast_unsigned() };
        let mut own = [0; FileIdentity::BYTES];
        own.copy_from_slice(&bytes[OWN_AT..]);
        let (own, marked) = (FileIdentity::from_bytes(&own), bytes[MARKED_AT] != 0);
        if bytes[..STATE_AT] != MAGIC { Err(invalid()) } else { Ok(Self { journal, at, state, marked, stamp, own }) }
    }

    /// Whether it lies in the file that it was written to first, by us. What somebody else had the owner copy does not, nor what he had him write
    /// down as it came.
    pub(super) fn is_original(&self) -> io::Result<bool> {
        let is_ours = [Marked::With(self.own), Marked::Unknown].contains(&JOURNAL_MARK.look(self.journal)?);
        Ok(is_ours && FileIdentity::of(self.journal)? == Some(self.own))
    }

    /// Whether it is the one that an image is marked with.
    pub(super) fn is_named_by(&self, mark: FileIdentity) -> bool {
        self.own == mark
    }

    /// Whether an image that looks like this, and has this mark, is still what the change was made for, as far as that can be told.
    pub(super) fn is_for(&self, image: &Stamp, mark: Option<FileIdentity>) -> bool {
        match self.state {
            State::Named | State::Stopped => *image == self.stamp,
            State::Begun => !self.marked || mark == Some(self.own),
            State::Done => true,
        }
    }

    /// Whether all of the change has been put in place.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether nothing of the change has been put in place yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.state == State::Named
    }

    /// From now on the image is written.
    pub(super) fn begin(&mut self, image: &File) -> io::Result<()> {
        self.marked = match IMAGE_MARK.set(image, &self.own) {
            // There is no room for one.
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => false,
            set => set?,
        };
        if self.marked {
            fsync(image)?;
        }
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

    /// All of it is in place, and stable. First the journal says so, whoever may have moved it, and then the image.
    pub(super) fn finish(&mut self, image: &File) -> io::Result<()> {
        if !self.is_done() {
            fsync(image)?;
            self.state = State::Done;
            self.write()?;
            fdatasync(self.journal)?;
        }
        match IMAGE_MARK.look(image)? {
            // Somebody has completed this change before, and begun the next.
            Marked::With(journal) if journal != self.own => Ok(()),
            Marked::With(_) | Marked::No | Marked::Unknown => IMAGE_MARK.remove(image),
        }
    }

    /// Says that another file is its own.
    #[cfg(test)]
    pub(super) fn forge(mut self, own: FileIdentity) -> io::Result<()> {
        self.own = own;
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        let Stamp { modified, length_bytes } = self.stamp;
        let mut bytes = [0; RECORD_BYTES];
        bytes[..STATE_AT].copy_from_slice(&MAGIC);
        bytes[STATE_AT] = self.state as u8;
        bytes[MARKED_AT] = self.marked.into();
        for (index, number) in [modified[0], modified[1], length_bytes.cast_signed()].into_iter().enumerate() {
            bytes[16 + index * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[OWN_AT..].copy_from_slice(&self.own.to_bytes());
        self.journal.write_all_at(&bytes, self.at)
    }
}

const _: () = assert!(RECORD_BYTES == OWN_AT + FileIdentity::BYTES && RECORD_BYTES as u64 <= SECTOR_BYTES);
