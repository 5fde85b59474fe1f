//! What a journal says at its end of the image that it is for: which one it is, so that who moves the journal has no
//! other image taken for it, and what it looked like, so that one which somebody has restored since then is not
//! changed; and of itself: so that a file which somebody else has made for the image's owner to copy, and then moved
//! here, is none.
//!
//! Behind the delta, in the file's last sector: the magic, the state, whether the image is marked, when the image was
//! modified and its length as stat(2) has them, the journal's own identity and the image's, little-endian. An identity
//! has no device: those have other numbers after a reboot, and who finds a journal sees whether it is on the image's
//! file system.
//!
//! From the moment at which the change happens until all of it is in place, the image has a mark ([`IMAGE_MARK`]) where
//! its file system keeps one: so that by whatever name nobody takes it for a whole one when its journal was taken away,
//! or lies beside another name, and that a journal which is brought back later is not put over what was written since.
//! Setting the mark is that moment; where none is kept, it is the journal's word.

use super::lasting_identity::LastingIdentity;
use rustix::fs::{XattrFlags, fdatasync, fgetxattr, fremovexattr, fsetxattr, fsync};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

/// What all versions begin with.
const MAGIC_PREFIX: [u8; 7] = *b"blkychg";
/// Version 3 did not say which image it is for.
const MAGIC: [u8; 8] = *b"blkychg4";
/// One sector: it is written as a whole or not at all.
const SECTOR_BYTES: u64 = 512;
const RECORD_BYTES: usize = 88;
const STATE_AT: usize = 8;
const MARKED_AT: usize = 9;
const OWN_AT: usize = 16 + 3 * 8;
const IMAGE_AT: usize = OWN_AT + LastingIdentity::BYTES;

/// What an image's file looks like from outside, however it is named and whoever owns it: a copy of it that looks the
/// same holds the same.
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
    /// Not at all: it has happened only if the image is marked with it.
    Prepared = 0,
    /// Somebody is about it, or was when he ended: what the image looks like says nothing.
    Begun = 1,
    /// In part, and nobody is about it.
    Stopped = 2,
    /// Completely: what is left of it counts no more, wherever it is.
    Done = 3,
    /// Not at all, but it has happened: the image keeps no mark.
    Happened = 4,
}

/// The identity of a journal, in an extended attribute of a file.
pub(super) struct Mark(&'static str);

/// That of an image with a change that has happened and is not in place: it may be half-changed, and this journal has
/// the change.
pub(super) const IMAGE_MARK: Mark = Mark("user.blockyard.change");

/// A journal's own: who only writes a file, such as a download that somebody else sends, gives it none.
const JOURNAL_MARK: Mark = Mark("user.blockyard.journal");

/// What a file has of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marked {
    With(LastingIdentity),
    No,
    /// Its file system keeps none, or its mode lets nobody look.
    Unknown,
}

/// Whether a file says that it is itself the file of a change, whatever is in it; where its file system keeps that.
pub(super) fn is_ours(journal: &File) -> io::Result<bool> {
    Ok(match JOURNAL_MARK.look(journal)? {
        Marked::With(own) => LastingIdentity::of(journal)? == Some(own),
        Marked::No => false,
        Marked::Unknown => true,
    })
}

/// Has the file of a change that begins say that it is one; where its file system keeps that.
///
/// # Errors
/// Also when it would be kept and cannot be said: whoever finds the file would take it for somebody else's.
pub(super) fn make_ours(journal: &File) -> io::Result<()> {
    if !JOURNAL_MARK.set(journal, &identity(journal)?)? && JOURNAL_MARK.look(journal)? == Marked::No {
        let problem = format!("the attribute {} cannot be set there", JOURNAL_MARK.name());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    Ok(())
}

fn identity(file: &File) -> io::Result<LastingIdentity> {
    LastingIdentity::of(file)?.ok_or_else(|| io::Error::other("its file system keeps no time of birth"))
}

impl Mark {
    pub(super) fn name(&self) -> &'static str {
        self.0
    }

    /// The journal that a file is marked with, if any.
    pub(super) fn of(&self, file: &File) -> io::Result<Option<LastingIdentity>> {
        Ok(match self.look(file)? {
            Marked::With(journal) => Some(journal),
            Marked::No | Marked::Unknown => None,
        })
    }

    fn look(&self, file: &File) -> io::Result<Marked> {
        let mut bytes = [0; LastingIdentity::BYTES];
        match fgetxattr(file, self.0, &mut bytes) {
            Ok(LastingIdentity::BYTES) => Ok(Marked::With(LastingIdentity::from_bytes(&bytes))),
            // Nothing of ours.
            Ok(_) | Err(Errno::NODATA | Errno::RANGE) => Ok(Marked::No),
            // A new file that the umask has left no rights on: who could open another one may read this.
            Err(Errno::OPNOTSUPP | Errno::ACCESS) => Ok(Marked::Unknown),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sets it; whether it is kept. Only a sync makes it stable.
    pub(super) fn set(&self, file: &File, journal: &LastingIdentity) -> io::Result<bool> {
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
    own: LastingIdentity,
    /// The image.
    image: LastingIdentity,
}

impl<'journal> JournalRecord<'journal> {
    /// Writes the first one, behind a delta that is complete. The image is ours: nobody writes to it.
    pub(super) fn create(journal: &'journal File, image: &File) -> io::Result<()> {
        let stamp = Stamp::stable(image)?;
        let at = journal.metadata()?.len().next_multiple_of(SECTOR_BYTES);
        journal.set_len(at + SECTOR_BYTES)?;
        let (own, image) = (identity(journal)?, identity(image)?);
        Self { journal, at, state: State::Prepared, marked: false, stamp, own, image }.write()
    }

    /// Whether a journal which was found is one of another version: that one knows what it says.
    pub(super) fn is_of_another_version(journal: &File) -> io::Result<bool> {
        let Some(at) = journal.metadata()?.len().checked_sub(SECTOR_BYTES) else { return Ok(false) };
        let mut magic = [0; MAGIC.len()];
        journal.read_exact_at(&mut magic, at)?;
        Ok(magic.starts_with(&MAGIC_PREFIX) && magic != MAGIC)
    }

    /// That of a journal which was found.
    pub(super) fn read(journal: &'journal File) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "its file is not all of a change");
        let at = journal.metadata()?.len().checked_sub(SECTOR_BYTES).ok_or_else(invalid)?;
        let mut bytes = [0; RECORD_BYTES];
        journal.read_exact_at(&mut bytes, at)?;
        let state = [State::Prepared, State::Begun, State::Stopped, State::Done, State::Happened];
        let state = state.into_iter().find(|&state| state as u8 == bytes[STATE_AT]).ok_or_else(invalid)?;
        let number = |index: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[16 + index * 8..][..8]);
            i64::from_le_bytes(number)
        };
        let stamp = Stamp { modified: [number(0), number(1)], length_bytes: number(2).cast_unsigned() };
        let identity = |at: usize| {
            let mut identity = [0; LastingIdentity::BYTES];
            identity.copy_from_slice(&bytes[at..][..LastingIdentity::BYTES]);
            LastingIdentity::from_bytes(&identity)
        };
        let (own, image, marked) = (identity(OWN_AT), identity(IMAGE_AT), bytes[MARKED_AT] != 0);
        let record = Self { journal, at, state, marked, stamp, own, image };
        if bytes[..STATE_AT] != MAGIC { Err(invalid()) } else { Ok(record) }
    }

    /// Whether it lies in the file that it was written to first, by us. What somebody else had the owner copy does not,
    /// nor what he had him write down as it came.
    pub(super) fn is_original(&self) -> io::Result<bool> {
        Ok(is_ours(self.journal)? && LastingIdentity::of(self.journal)? == Some(self.own))
    }

    /// Whether it is the one that an image is marked with.
    pub(super) fn is_named_by(&self, mark: LastingIdentity) -> bool {
        self.own == mark
    }

    /// Whether it is for this image, and not for another one beside which it was moved. Everybody asks, whatever its
    /// state is.
    pub(super) fn is_of(&self, image: &File) -> io::Result<bool> {
        Ok(LastingIdentity::of(image)? == Some(self.image))
    }

    /// Whether the change has happened to an image that has this mark; otherwise the image is as it was, and so it
    /// stays.
    pub(super) fn has_happened(&self, mark: Option<LastingIdentity>) -> bool {
        self.state != State::Prepared || mark == Some(self.own)
    }

    /// Whether an image that looks like this, and has this mark, is still what the change was made for, as far as that
    /// can be told.
    pub(super) fn is_for(&self, image: &Stamp, mark: Option<LastingIdentity>) -> bool {
        match self.state {
            State::Prepared | State::Happened | State::Stopped => *image == self.stamp,
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
        [State::Prepared, State::Happened].contains(&self.state)
    }

    /// The moment at which the change happens. The journal has its name, on stable storage. When this fails, it has not
    /// happened.
    pub(super) fn happen(&mut self, image: &File) -> io::Result<()> {
        self.mark(image)?;
        if self.marked {
            return Ok(());
        }
        self.state = State::Happened;
        self.write()
    }

    /// Sees to it that it still has happened after a power cut.
    pub(super) fn make_stable(&self, image: &File) -> io::Result<()> {
        Ok(if self.marked { fsync(image) } else { fdatasync(self.journal) }?)
    }

    /// Marks the image with it, if that can be kept.
    fn mark(&mut self, image: &File) -> io::Result<()> {
        self.marked = match IMAGE_MARK.set(image, &self.own) {
            // There is no room for one.
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => false,
            set => set?,
        };
        Ok(())
    }

    /// From now on the image is written.
    pub(super) fn begin(&mut self, image: &File) -> io::Result<()> {
        if IMAGE_MARK.of(image)? == Some(self.own) {
            self.marked = true;
        } else {
            self.mark(image)?;
            if self.marked {
                fsync(image)?;
            }
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
            Marked::No => Ok(()),
            Marked::With(_) | Marked::Unknown => IMAGE_MARK.remove(image),
        }
    }

    /// Says that another file is its own.
    #[cfg(test)]
    pub(super) fn forge(mut self, own: LastingIdentity) -> io::Result<()> {
        self.own = own;
        self.write()
    }

    /// Says that it is of another version.
    #[cfg(test)]
    pub(super) fn age(&self, version: u8) -> io::Result<()> {
        self.journal.write_all_at(&[version], self.at + MAGIC_PREFIX.len() as u64)
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
        bytes[OWN_AT..IMAGE_AT].copy_from_slice(&self.own.to_bytes());
        bytes[IMAGE_AT..].copy_from_slice(&self.image.to_bytes());
        self.journal.write_all_at(&bytes, self.at)
    }
}

const _: () = assert!(RECORD_BYTES == IMAGE_AT + LastingIdentity::BYTES && RECORD_BYTES as u64 <= SECTOR_BYTES);
