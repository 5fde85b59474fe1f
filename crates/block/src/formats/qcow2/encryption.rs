//! How an image is encrypted, for people: nothing here decrypts.
//!
//! The header of the newer way is that of LUKS 1: "LUKS1 On-Disk Format Specification", version 1.2.3, section 2.2.

use super::header::Header;
use super::image_file::ImageFile;
use std::io;

const HEADER_BYTES: usize = 592;
const SLOTS_AT: usize = 208;
const SLOT_BYTES: usize = 48;
const SLOT_ACTIVE: u32 = 0x00ac_71f3;
const SECTOR_BYTES: u64 = 512;

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

/// What the header of LUKS 1 says. Texts are as its writer liked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LuksHeader {
    /// The cipher, such as `aes`.
    pub cipher: String,
    /// The cipher's mode, and after a dash how its initialization vectors are made: `xts-plain64`.
    pub mode: String,
    /// The hash, such as `sha256`.
    pub hash: String,
    /// The volume's identity.
    pub uuid: String,
    /// Bytes in the key.
    pub key_bytes: u32,
    /// Where the data begin, in bytes.
    pub payload_offset_bytes: u64,
    /// Rounds that check a key.
    pub iterations: u32,
    /// Places for passphrases.
    pub slots: Vec<LuksSlot>,
}

/// A place for a passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LuksSlot {
    /// Whether there is one.
    pub is_active: bool,
    /// Where the key is, in bytes.
    pub key_offset_bytes: u64,
    /// Rounds that make a key of the passphrase.
    pub iterations: u32,
    /// Pieces that the key is split into.
    pub stripes: u32,
}

/// `None` for an image that is not encrypted.
pub(super) fn of(file: &ImageFile, header: &Header) -> io::Result<Option<Qcow2Encryption>> {
    Ok(match header.encryption {
        0 => None,
        1 => Some(Qcow2Encryption::Aes),
        2 => Some(Qcow2Encryption::Luks(luks(file, header)?)),
        other => Some(Qcow2Encryption::Other(other)),
    })
}

fn luks(file: &ImageFile, header: &Header) -> io::Result<Option<LuksHeader>> {
    let Some(place) = header.encryption_header else { return Ok(None) };
    if place.length_bytes < HEADER_BYTES as u64 || !file.has(place.offset_bytes, HEADER_BYTES as u64) {
        return Ok(None);
    }
    let mut bytes = [0; HEADER_BYTES];
    file.read(&mut bytes, place.offset_bytes)?;
    Ok(bytes.starts_with(b"LUKS\xba\xbe\0\x01").then(|| LuksHeader::parse(&bytes)))
}

impl LuksHeader {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Self {
        let slot = |at: usize| LuksSlot {
            is_active: number(bytes, at) == SLOT_ACTIVE,
            iterations: number(bytes, at + 4),
            key_offset_bytes: u64::from(number(bytes, at + 40)) * SECTOR_BYTES,
            stripes: number(bytes, at + 44),
        };
        Self {
            cipher: text(&bytes[8..40]),
            mode: text(&bytes[40..72]),
            hash: text(&bytes[72..104]),
            payload_offset_bytes: u64::from(number(bytes, 104)) * SECTOR_BYTES,
            key_bytes: number(bytes, 108),
            iterations: number(bytes, 164),
            uuid: text(&bytes[168..208]),
            slots: (SLOTS_AT..HEADER_BYTES).step_by(SLOT_BYTES).map(slot).collect(),
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

/// Up to the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
