//! Volumes on disks and in files of their own: a header, and behind it the data.

use super::header::HEADER_BYTES;
use super::new_volume::{NewLuks, NewVolume};
use super::{
    EncryptedDisk, HeaderPlace, KeyFile, LuksHeader, LuksSlotChange, SECTOR_BYTES, SectorCipher, SlotError,
    UnlockError, unlock,
};
use crate::formats::{ImageError, WritableFile};
use crate::layers::{AlignOptions, AlignedDisk, PartitionDisk, layer};
use crate::{Disk, DiskReader, FileDisk, FileOptions, OpenedFile, shown};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A LUKS 1 volume, open: the disk that is encrypted in it.
pub struct LuksDisk {
    below: EncryptedDisk,
    notes: Vec<String>,
}

/// What is said of a volume whose key nobody gave.
pub(in crate::formats) const NO_KEY: &str =
    "is encrypted: name the file that has its passphrase, and nothing else in it, by ,key-file=FILE";

const NO_LUKS_1: &str = "is no LUKS 1 volume; of LUKS 2, and of anything else, nothing is opened";

impl LuksDisk {
    /// Opens the volume in `file`, which was opened by `path`, with a passphrase.
    ///
    /// # Errors
    /// As [`LuksDisk::on`], and when the file cannot be had.
    pub fn open_in(file: File, path: &Path, key: Option<&KeyFile>, options: &FileOptions) -> Result<Self, ImageError> {
        // What is behind the last whole sector is none.
        let length_bytes = io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(|source| failed(path, source))?;
        let options = FileOptions { logical_block_bytes: SECTOR_BYTES as u32, ..*options };
        let disk = FileDisk::on_opened(file, path, &options)?;
        Self::ending(Arc::new(disk), length_bytes, path, key)
    }

    /// Opens the volume that is all of a disk, which messages call `path`, with a passphrase.
    ///
    /// # Errors
    /// When it is none, the passphrase is not one of its own or cannot be read, or the disk cannot.
    pub fn on(disk: Arc<dyn Disk>, path: &Path, key: Option<&KeyFile>) -> Result<Self, ImageError> {
        let length_bytes = disk.geometry().capacity_bytes;
        Self::ending(disk, length_bytes, path, key)
    }

    fn ending(disk: Arc<dyn Disk>, length_bytes: u64, path: &Path, key: Option<&KeyFile>) -> Result<Self, ImageError> {
        let unusable = |problem: String| ImageError::Unusable { path: path.to_owned(), problem };
        let failed = |source| failed(path, source);
        let reader = RefCell::new(DiskReader::new(&*disk).map_err(failed)?);
        let read = |bytes: &mut [u8], at| reader.borrow_mut().read(at, bytes);
        let mut first = [0; HEADER_BYTES];
        let header = match read(&mut first, 0) {
            Ok(()) => LuksHeader::parse(&first),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(failed(error)),
        };
        let header = header.ok_or_else(|| unusable(NO_LUKS_1.to_owned()))?;
        let place = place(Some(&header), length_bytes).map_err(unusable)?;
        let key = key.ok_or_else(|| unusable(NO_KEY.to_owned()))?;
        let cipher = open_key(&header, key, path, read)?;
        let read_only = disk.geometry().read_only;
        let aligned = AlignedDisk::where_needed(disk, &AlignOptions::default()).map_err(failed)?;
        let data = PartitionDisk::new(aligned, place, read_only).map_err(|error| failed(io::Error::other(error)))?;
        let notes = notes(path, length_bytes);
        Ok(Self { below: EncryptedDisk::new(Arc::new(data), Arc::new(cipher)), notes })
    }

    /// What is worth saying though it is opened, each in a sentence.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Changes which passphrases open a volume, which is open for writing, and locked; `key` opens it.
    ///
    /// # Errors
    /// When it is none, the passphrase is not one of its own or cannot be read, the change is refused, or the file
    /// cannot be written.
    pub fn change_slots(image: &OpenedFile, key: Option<&KeyFile>, change: &LuksSlotChange) -> Result<(), ImageError> {
        let failed = |source| failed(image.path(), source);
        let file = image.file().try_clone().map_err(failed)?;
        let length_bytes = io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(failed)?;
        let file = WritableFile::new(file, length_bytes, false, false);
        let place = HeaderPlace { file: &file, offset_bytes: 0, length_bytes };
        change_slots(place, image.path(), key, change)
    }

    /// Where in its file the disk of a volume lies.
    ///
    /// # Errors
    /// When it is no volume, or is cut off.
    pub fn place_in(image: &OpenedFile) -> Result<Range<u64>, ImageError> {
        let failed = |source| failed(image.path(), source);
        let length_bytes = io::Seek::seek(&mut image.file(), io::SeekFrom::End(0)).map_err(failed)?;
        let mut first = [0; HEADER_BYTES];
        let header = match image.file().read_exact_at(&mut first, 0) {
            Ok(()) => LuksHeader::parse(&first),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(failed(error)),
        };
        place(header.as_ref(), length_bytes)
            .map_err(|problem| ImageError::Unusable { path: image.path().to_owned(), problem })
    }

    /// The same of a volume that is locked as the options say, and what is worth saying of it, each in a sentence. It
    /// takes no key; but one that is given has to open it.
    ///
    /// # Errors
    /// When it is no volume, is cut off, somebody writes to it, or the passphrase is not one of its own.
    pub fn place_to_map(
        image: &OpenedFile,
        key: Option<&KeyFile>,
        options: &FileOptions,
    ) -> Result<(Range<u64>, Vec<String>), ImageError> {
        let failed = |source| failed(image.path(), source);
        FileDisk::lock(image.file(), image.path(), options)?;
        let place = Self::place_in(image)?;
        if key.is_some() {
            let options = FileOptions { lock: false, ..*options };
            Self::open_in(image.file().try_clone().map_err(failed)?, image.path(), key, &options)?;
        }
        let length_bytes = io::Seek::seek(&mut image.file(), io::SeekFrom::End(0)).map_err(failed)?;
        Ok((place, notes(image.path(), length_bytes)))
    }

    /// Makes the empty `file` a volume whose disk has `size_bytes`, a multiple of 512. Its contents are noise until it
    /// is written to.
    ///
    /// # Errors
    /// When the passphrase cannot be read, or the file cannot be written.
    pub fn create_in(file: &File, path: &Path, size_bytes: u64, encryption: &NewLuks) -> Result<(), ImageError> {
        let failed = |source| ImageError::System { action: "write", path: path.to_owned(), source };
        let NewLuks { key, options } = encryption;
        let volume = NewVolume::make(options, key.passphrase()?).map_err(failed)?;
        let length = volume.payload_offset_bytes.checked_add(size_bytes);
        let length =
            length.ok_or_else(|| ImageError::Invalid(format!("a disk of {size_bytes} bytes is not possible")))?;
        file.write_all_at(&volume.head, 0).and_then(|()| file.set_len(length)).map_err(failed)
    }
}

/// What is worth saying of a volume in a file of so many bytes.
fn notes(path: &Path, length_bytes: u64) -> Vec<String> {
    let note = (!length_bytes.is_multiple_of(SECTOR_BYTES as u64)).then(|| {
        let sort = "it ends within a sector, which cannot be decrypted: its disk ends in front of that";
        format!("{}: {sort}", shown(path))
    });
    note.into_iter().collect()
}

/// Where the data of a volume lie that has so many bytes. The error goes on after its name.
fn place(header: Option<&LuksHeader>, length_bytes: u64) -> Result<Range<u64>, String> {
    let header = header.ok_or(NO_LUKS_1)?;
    let start = header.payload_offset_bytes;
    // What is behind the last whole sector is none.
    let end = length_bytes - length_bytes % SECTOR_BYTES as u64;
    match start >= end || start < HEADER_BYTES as u64 {
        true => Err(format!("is damaged or cut off: its data begin at {start}, and it has {length_bytes} bytes")),
        false => {
            // Whose keys are not known here is refused when it is opened by one.
            header.scheme().map_or(Ok(()), |scheme| header.check_places(scheme, end))?;
            Ok(start..end)
        }
    }
}

/// Changes the key slots of a header in the file at `path`, which `key` opens.
pub(in crate::formats) fn change_slots(
    place: HeaderPlace<'_>,
    path: &Path,
    key: Option<&KeyFile>,
    change: &LuksSlotChange,
) -> Result<(), ImageError> {
    let unusable = |problem: String| ImageError::Unusable { path: path.to_owned(), problem };
    let key = key.ok_or_else(|| unusable(NO_KEY.to_owned()))?;
    place.change_slots(key, change).map_err(|error| match error {
        SlotError::Refused(problem) => unusable(problem),
        SlotError::Key(error) => error.into(),
        SlotError::System(source) => {
            ImageError::System { action: "change the key slots of", path: path.to_owned(), source }
        }
    })
}

fn failed(path: &Path, source: io::Error) -> ImageError {
    ImageError::System { action: "read the LUKS header of", path: path.to_owned(), source }
}

/// The key of the volume in `path`, by a key file. `read` reads what lies so far behind its header's beginning.
pub(in crate::formats) fn open_key(
    header: &LuksHeader,
    key: &KeyFile,
    path: &Path,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> Result<SectorCipher, ImageError> {
    unlock(header, key.passphrase()?, read).map_err(|error| match error {
        UnlockError::Unusable(problem) => ImageError::Unusable { path: path.to_owned(), problem },
        UnlockError::Read(source) => failed(path, source),
    })
}

impl layer::DiskLayer for LuksDisk {
    fn below(&self) -> &dyn Disk {
        &self.below
    }
}
