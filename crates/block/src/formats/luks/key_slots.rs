//! Changing which passphrases open a volume that is there: its header's key slots.
//!
//! A power cut leaves a volume that each passphrase opens which shall: a slot is said to be active, by one field, when
//! all else of it is stable; and what a slot held is overwritten, stably, before it is said to be empty.

use super::KeyFile;
use super::header::{HEADER_BYTES, LuksHeader, LuksSlot, Scheme, slot_fields_at};
use super::key_file::KeyFileError;
use super::new_volume::{fill_slot, iterations, random};
use super::unlock::{UnlockError, slots_opened_by, unlock_slot};
use crate::formats::WritableFile;
use std::io;
use std::time::Duration;

/// What is to become of a volume's key slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LuksSlotChange {
    /// One more passphrase opens the volume.
    Activate {
        /// It.
        key: KeyFile,
        /// In this slot, which is empty; else in the first that is.
        slot: Option<usize>,
        /// How long it takes to derive a key from it, here.
        time: Duration,
    },
    /// A slot is emptied, or each that a passphrase opens; of both, the slot if the passphrase opens it.
    Erase {
        /// The slot.
        slot: Option<usize>,
        /// The passphrase.
        key: Option<KeyFile>,
        /// Though nothing opens the volume any more afterwards: its data are lost.
        may_be_last: bool,
    },
}

/// Why key slots were not changed.
#[derive(Debug)]
pub(in crate::formats) enum SlotError {
    /// What is wrong, as it goes on after the volume's name.
    Refused(String),
    Key(KeyFileError),
    /// The header cannot be read or written.
    System(io::Error),
}

impl From<KeyFileError> for SlotError {
    fn from(error: KeyFileError) -> Self {
        Self::Key(error)
    }
}

impl From<io::Error> for SlotError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<UnlockError> for SlotError {
    fn from(error: UnlockError) -> Self {
        match error {
            UnlockError::Unusable(problem) => Self::Refused(problem),
            UnlockError::Read(error) => Self::System(error),
        }
    }
}

fn refused<T>(problem: impl Into<String>) -> Result<T, SlotError> {
    Err(SlotError::Refused(problem.into()))
}

/// Where a volume's header is in a file that is written to, and room for its key slots.
#[derive(Clone, Copy)]
pub(in crate::formats) struct HeaderPlace<'a> {
    pub(in crate::formats) file: &'a WritableFile,
    pub(in crate::formats) offset_bytes: u64,
    pub(in crate::formats) length_bytes: u64,
}

impl HeaderPlace<'_> {
    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read(bytes, self.offset_of(at, bytes.len())?)
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write(bytes, self.offset_of(at, bytes.len())?)
    }

    fn offset_of(&self, at: u64, length: usize) -> io::Result<u64> {
        let end = at.checked_add(length as u64).filter(|end| *end <= self.length_bytes);
        let offset = self.offset_bytes.checked_add(at).filter(|_| end.is_some());
        offset.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Changes the slots of a volume that `key` opens.
    ///
    /// # Errors
    /// When the header makes no sense, no slot is opened by `key`, or the change is refused. Then nothing has changed.
    pub(in crate::formats) fn change_slots(&self, key: &KeyFile, change: &LuksSlotChange) -> Result<(), SlotError> {
        let mut bytes = [0; HEADER_BYTES];
        self.read(&mut bytes, 0)?;
        let Some(header) = LuksHeader::parse(&bytes) else { return refused("has no header of LUKS 1") };
        let scheme = header.scheme().map_err(SlotError::Refused)?;
        header.check_places(scheme, self.length_bytes).map_err(SlotError::Refused)?;
        let (passphrase, read) = (key.passphrase()?, |bytes: &mut [u8], at| self.read(bytes, at));
        match change {
            LuksSlotChange::Activate { key, slot, time } => {
                let (_, volume_key) = unlock_slot(&header, passphrase, read)?;
                let index = empty_slot(&header, *slot)?;
                self.activate(&header, scheme, index, &volume_key, key.passphrase()?, *time)
            }
            LuksSlotChange::Erase { slot, key, may_be_last } => {
                let old = key.as_ref().map(KeyFile::passphrase).transpose()?;
                let erased = erased_slots(&header, passphrase, *slot, old, read)?;
                let is_left = |(index, slot): (usize, &LuksSlot)| slot.is_active && !erased.contains(&index);
                if !may_be_last && !header.slots.iter().enumerate().any(is_left) {
                    return refused(
                        "would be opened by nothing any more, and all of its data be lost: add another passphrase \
                         first, or --force",
                    );
                }
                erased.into_iter().try_for_each(|index| self.erase(&header, scheme, index))
            }
        }
    }

    fn activate(
        &self,
        header: &LuksHeader,
        scheme: Scheme,
        index: usize,
        volume_key: &[u8],
        passphrase: &[u8],
        time: Duration,
    ) -> Result<(), SlotError> {
        let mut header = header.clone();
        let Some(slot) = header.slots.get_mut(index) else { return refused("has no such key slot") };
        let material = fill_slot(slot, scheme, volume_key, passphrase, iterations(scheme, time))?;
        slot.is_active = false;
        let slot = *slot;
        self.write(&material, slot.key_offset_bytes)?;
        self.write_slot(&header, index)?;
        self.file.barrier()?;
        if let Some(slot) = header.slots.get_mut(index) {
            slot.is_active = true;
        }
        self.write_slot(&header, index)?;
        Ok(self.file.sync()?)
    }

    fn erase(&self, header: &LuksHeader, scheme: Scheme, index: usize) -> Result<(), SlotError> {
        let mut header = header.clone();
        let Some(slot) = header.slots.get_mut(index) else { return refused("has no such key slot") };
        self.write(&random(scheme.material_bytes())?, slot.key_offset_bytes)?;
        self.file.barrier()?;
        *slot = LuksSlot { is_active: false, iterations: 0, salt: Default::default(), ..*slot };
        self.write_slot(&header, index)?;
        Ok(self.file.sync()?)
    }

    /// Writes what the header says of one slot.
    fn write_slot(&self, header: &LuksHeader, index: usize) -> io::Result<()> {
        let fields = slot_fields_at(index);
        match header.to_bytes().get(fields.clone()) {
            Some(bytes) => self.write(bytes, fields.start as u64),
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

fn check_index(header: &LuksHeader, index: usize) -> Result<(), SlotError> {
    let last = header.slots.len().saturating_sub(1);
    if index > last { refused(format!("has no key slot {index}: they are 0 to {last}")) } else { Ok(()) }
}

/// The slots that are to be emptied, all of which are active, of a volume that `passphrase` opens. No slot is tried
/// twice: that takes seconds.
fn erased_slots(
    header: &LuksHeader,
    passphrase: &[u8],
    slot: Option<usize>,
    old: Option<&[u8]>,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> Result<Vec<usize>, SlotError> {
    if let Some(index) = slot {
        check_index(header, index)?;
        if !header.slots.get(index).is_some_and(|slot| slot.is_active) {
            return refused(format!("has nothing in its key slot {index}"));
        }
    }
    let opened = match old {
        Some(old) if old == passphrase => {
            slots_opened_by(header, old, read, |index| slot.is_none_or(|it| it == index))?
        }
        Some(old) => {
            // A slot is for one passphrase.
            let (opener, _) = unlock_slot(header, passphrase, &read)?;
            slots_opened_by(header, old, read, |index| index != opener && slot.is_none_or(|it| it == index))?
        }
        None => {
            unlock_slot(header, passphrase, read)?;
            slot.into_iter().collect()
        }
    };
    match slot {
        _ if !opened.is_empty() => Ok(opened),
        Some(index) => refused(format!("has another passphrase in its key slot {index} than the old key file has")),
        None if old.is_none() => refused("has several key slots: say which one, or the passphrase that is in it"),
        None => refused("has no key slot with the passphrase of the old key file"),
    }
}

/// The slot that a new passphrase gets.
fn empty_slot(header: &LuksHeader, slot: Option<usize>) -> Result<usize, SlotError> {
    let Some(index) = slot else {
        let found = header.slots.iter().position(|slot| !slot.is_active);
        return found.map_or_else(|| refused("has a passphrase in each of its key slots: empty one first"), Ok);
    };
    check_index(header, index)?;
    match header.slots.get(index) {
        Some(slot) if slot.is_active => {
            refused(format!("has a passphrase in its key slot {index}: empty it first, or take another one"))
        }
        _ => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LuksDisk, LuksOptions, NewLuks, NewVolume};
    use super::*;
    use crate::{FileOptions, OpenedFile};
    use std::cell::Cell;
    use std::collections::HashMap;
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::PermissionsExt;

    /// Where a header says where its data begin, and where the second slot's key is, in sectors.
    const PAYLOAD_AT: usize = 104;
    const SECOND_KEY_AT: usize = 208 + 48 + 40;

    #[test]
    fn no_slot_is_tried_twice() {
        let mut options = LuksOptions::default();
        options.set("iter-time", "1").unwrap();
        let words = [b"word 0", b"word 1", b"word 2"];
        let made = NewVolume::make(&options, words[0]).unwrap();
        let mut header = LuksHeader::parse(made.head[..HEADER_BYTES].try_into().unwrap()).unwrap();
        let (scheme, mut material) = (header.scheme().unwrap(), HashMap::new());
        let read_made = |bytes: &mut [u8], at: u64| {
            bytes.copy_from_slice(&made.head[at as usize..][..bytes.len()]);
            Ok(())
        };
        let (_, volume_key) = unlock_slot(&header, words[0], read_made).unwrap();
        for (slot, word) in header.slots.iter_mut().zip(words) {
            slot.is_active = true;
            material.insert(slot.key_offset_bytes, fill_slot(slot, scheme, &volume_key, word, 1000).unwrap());
        }
        for (key, slot, old, outcome, tries_max) in [
            (0, None, Some(0), Some(0), 3),
            (2, None, Some(2), Some(2), 3),
            (0, None, Some(1), Some(1), 3),
            (1, Some(0), Some(0), Some(0), 3),
            (2, Some(2), Some(2), Some(2), 1),
            (0, Some(1), Some(1), Some(1), 2),
            (0, Some(1), None, Some(1), 1),
            (0, Some(1), Some(0), None, 1),
            (0, Some(1), Some(2), None, 2),
            (0, Some(7), Some(0), None, 0),
            (0, Some(8), None, None, 0),
        ] {
            let tries = Cell::new(0);
            let read = |bytes: &mut [u8], at: u64| {
                tries.set(tries.get() + 1);
                bytes.copy_from_slice(&material[&at]);
                Ok(())
            };
            let old = old.map(|old: usize| &words[old][..]);
            let erased = erased_slots(&header, words[key], slot, old, read);
            assert_eq!(erased.ok(), outcome.map(|index| vec![index]), "{key} {slot:?} {old:?}");
            assert!(tries.get() <= tries_max, "{key} {slot:?} {old:?}: {} tries", tries.get());
        }
    }

    #[test]
    fn key_slots_of_a_spoiled_header_are_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let [key_path, path] = ["key", "volume"].map(|name| directory.path().join(name));
        fs::write(&key_path, "word").unwrap();
        fs::set_permissions(&key_path, Permissions::from_mode(0o600)).unwrap();
        let key = KeyFile::new(&key_path);
        let mut options = LuksOptions::default();
        options.set("iter-time", "1").unwrap();
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        LuksDisk::create_in(&file, &path, 1 << 20, &NewLuks { key: key.clone(), options }).unwrap();
        let sound = fs::read(&path).unwrap();
        let time = Duration::from_millis(1);
        let changes = [
            LuksSlotChange::Activate { key: key.clone(), slot: None, time },
            LuksSlotChange::Erase { slot: None, key: Some(key.clone()), may_be_last: true },
        ];
        for (at, sectors, wanted) in [
            (SECOND_KEY_AT, 0_u32, "key slots overlap"),
            (SECOND_KEY_AT, 1, "key slots overlap"),
            (SECOND_KEY_AT, 9, "key slots overlap"),
            (SECOND_KEY_AT, 4090, "key slots reach into its data"),
            (SECOND_KEY_AT, u32::MAX, "key slots reach into its data"),
            (PAYLOAD_AT, 2000, "key slots reach into its data"),
            (PAYLOAD_AT, 0, "key slots reach into its data"),
        ] {
            let mut bytes = sound.clone();
            bytes[at..at + 4].copy_from_slice(&sectors.to_be_bytes());
            fs::write(&path, &bytes).unwrap();
            for change in &changes {
                let image = OpenedFile::open(&path, false).unwrap();
                let error = LuksDisk::change_slots(&image, Some(&key), change).unwrap_err().to_string();
                assert!(error.contains(wanted), "{at} {sectors}: {error}");
                assert!(fs::read(&path).unwrap() == bytes);
            }
            // Nor is anything else done with it, whatever it is opened for.
            let wanted = if (at, sectors) == (PAYLOAD_AT, 0) { "its data begin at 0" } else { wanted };
            for (read_only, key) in [(true, Some(&key)), (false, Some(&key)), (true, None)] {
                let options = FileOptions { read_only, ..FileOptions::default() };
                let file = File::options().read(true).write(!read_only).open(&path).unwrap();
                let error = LuksDisk::open_in(file, &path, key, &options).err().unwrap().to_string();
                assert!(error.contains(wanted), "{at} {sectors}: {error}");
            }
            let error = LuksDisk::place_in(&OpenedFile::open(&path, true).unwrap()).unwrap_err().to_string();
            assert!(error.contains(wanted), "{at} {sectors}: {error}");
        }
        fs::write(&path, &sound).unwrap();
        for change in &changes {
            LuksDisk::change_slots(&OpenedFile::open(&path, false).unwrap(), Some(&key), change).unwrap();
        }
        // Nothing of what a slot held is left in it.
        let erased = fs::read(&path).unwrap();
        let header = LuksHeader::parse(erased[..HEADER_BYTES].try_into().unwrap()).unwrap();
        assert!(header.slots.iter().all(|slot| !slot.is_active && slot.iterations == 0));
        let start = header.slots[0].key_offset_bytes as usize;
        assert!(erased[start..].chunks(512).zip(sound[start..].chunks(512)).take(500).all(|(new, old)| new != old));
    }
}
