//! How an image's clusters are encrypted: docs/interop/qcow2.txt, "Data encryption". Metadata never are, nor compressed
//! clusters.

use super::header::{Header, Table};
use super::own_file::{header_to_change, writable};
use crate::OpenedFile;
use crate::formats::luks::{self, HEADER_BYTES, HeaderPlace, LuksSlotChange, SECTOR_BYTES, SectorCipher, open_key};
use crate::formats::{ImageError, KeyFile, LuksHeader, WritableFile};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How an image's clusters are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Qcow2Encryption {
    /// AES-128 in CBC mode, the oldest way.
    Aes,
    /// As LUKS does; `None` where its header cannot be read.
    Luks(Option<LuksHeader>),
    /// In a way that has this number.
    Other(u32),
}

/// Not at all.
pub(super) const NONE: u32 = 0;
/// By a passphrase that is the key.
pub(super) const AES: u32 = 1;
/// By a key in a header of LUKS.
pub(super) const LUKS: u32 = 2;

/// `None` for an image that is not encrypted.
pub(super) fn of(file: &WritableFile, header: &Header) -> io::Result<Option<Qcow2Encryption>> {
    Ok(match header.encryption {
        NONE => None,
        AES => Some(Qcow2Encryption::Aes),
        LUKS => Some(Qcow2Encryption::Luks(luks_header(file, header)?)),
        other => Some(Qcow2Encryption::Other(other)),
    })
}

fn luks_header(file: &WritableFile, header: &Header) -> io::Result<Option<LuksHeader>> {
    let Some(place) = header.encryption_header else { return Ok(None) };
    if place.length_bytes < HEADER_BYTES as u64 || !file.has(place.offset_bytes, HEADER_BYTES as u64) {
        return Ok(None);
    }
    let mut bytes = [0; HEADER_BYTES];
    file.read(&mut bytes, place.offset_bytes)?;
    Ok(LuksHeader::parse(&bytes))
}

/// Changes which passphrases open an image, which is open for writing, and locked; `key` opens it.
pub(super) fn change_slots(
    image: &OpenedFile,
    key: Option<&KeyFile>,
    change: &LuksSlotChange,
) -> Result<(), ImageError> {
    let path = image.path();
    let header = header_to_change(image.file(), path)?;
    let Some(Table { offset_bytes, length_bytes }) = header.encryption_header.filter(|_| header.encryption == LUKS)
    else {
        let problem = "is not encrypted by LUKS, and has no key slots".to_owned();
        return Err(ImageError::Unusable { path: path.to_owned(), problem });
    };
    let file = writable(image.file()).map_err(|source| failed(path, source))?;
    luks::change_slots(HeaderPlace { file: &file, offset_bytes, length_bytes }, path, key, change)
}

/// What an image's data are encrypted by in its file.
#[derive(Clone, Debug, Default)]
pub(in crate::formats) enum DataCipher {
    /// By nothing.
    #[default]
    None,
    /// Each sector by its place in the file.
    InFile(Arc<SectorCipher>),
    /// Each sector by its place on the disk: the oldest way, which is only read.
    OnDisk(Arc<SectorCipher>),
    /// By a key that nobody gave: of the data, nothing can be read or written.
    Locked,
}

impl DataCipher {
    /// That of an image whose header is `header`. Where it is to be written to, `only_read` is what helps if it cannot.
    ///
    /// # Errors
    /// When the key does not fit, or the image cannot be used so.
    pub(super) fn open(
        file: &WritableFile,
        header: &Header,
        path: &Path,
        key: Option<&KeyFile>,
        only_read: Option<&str>,
    ) -> Result<Self, ImageError> {
        let unusable = |problem: String| ImageError::Unusable { path: path.to_owned(), problem };
        let encryption = of(file, header).map_err(|source| failed(path, source))?;
        let Some(encryption) = encryption else { return Ok(Self::None) };
        if !header.size_bytes.is_multiple_of(SECTOR_BYTES as u64) {
            return Err(unusable(format!("is encrypted, and its {} bytes are no whole sectors", header.size_bytes)));
        }
        if encryption == Qcow2Encryption::Aes
            && let Some(advice) = only_read
        {
            let sort = "is encrypted by the oldest way, AES without LUKS";
            return Err(unusable(format!("{sort}, which is only read: {advice}")));
        }
        match (encryption, key) {
            (Qcow2Encryption::Other(number), _) => {
                Err(unusable(format!("is encrypted in a way that is not known here (method {number})")))
            }
            (Qcow2Encryption::Luks(None), _) => Err(unusable("has no readable header of LUKS 1".to_owned())),
            (_, None) => Ok(Self::Locked),
            (Qcow2Encryption::Aes, Some(key)) => {
                let cipher = SectorCipher::legacy(key.passphrase()?);
                Ok(cipher.map_or(Self::Locked, |cipher| Self::OnDisk(Arc::new(cipher))))
            }
            (Qcow2Encryption::Luks(Some(luks)), Some(key)) => {
                let place = header.encryption_header.ok_or_else(|| unusable("has no header of LUKS".to_owned()))?;
                let cipher = open_key(&luks, key, path, |bytes, at| {
                    let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= place.length_bytes);
                    let offset = place.offset_bytes.checked_add(at).filter(|_| end.is_some());
                    file.read(bytes, offset.ok_or(io::ErrorKind::UnexpectedEof)?)
                })?;
                Ok(Self::InFile(Arc::new(cipher)))
            }
        }
    }

    /// Whether queues of the image's file carry its data, through an
    /// [`EncryptedDisk`](crate::formats::luks::EncryptedDisk) or as they are.
    pub(super) fn suits_queues(&self) -> bool {
        matches!(self, Self::None | Self::InFile(_))
    }

    /// Whether it is one.
    pub(in crate::formats) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Decrypts what was read at an offset of the file, which is from `disk_offset` of the disk on.
    pub(in crate::formats) fn decrypt(&self, bytes: &mut [u8], offset: u64, disk_offset: u64) -> io::Result<()> {
        match self {
            Self::None => {}
            Self::InFile(cipher) => cipher.decrypt(sector(offset, bytes)?, bytes),
            Self::OnDisk(cipher) => cipher.decrypt(sector(disk_offset, bytes)?, bytes),
            Self::Locked => return Err(Errno::NOKEY.into()),
        }
        Ok(())
    }

    /// Encrypts what is to be written at an offset of the file.
    pub(in crate::formats) fn encrypt(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::None => {}
            Self::InFile(cipher) => cipher.encrypt(sector(offset, bytes)?, bytes),
            Self::OnDisk(_) => return Err(Errno::ROFS.into()),
            Self::Locked => return Err(Errno::NOKEY.into()),
        }
        Ok(())
    }
}

/// The number of the sector at an offset.
fn sector(offset: u64, bytes: &[u8]) -> io::Result<u64> {
    let sector_bytes = SECTOR_BYTES as u64;
    let is_whole = offset.is_multiple_of(sector_bytes) && bytes.len().is_multiple_of(SECTOR_BYTES);
    if is_whole { Ok(offset / sector_bytes) } else { Err(Errno::INVAL.into()) }
}

fn failed(path: &Path, source: io::Error) -> ImageError {
    ImageError::System { action: "read the encryption's header of", path: path.to_owned(), source }
}
