//! What a header says, as it is on the disk: section 2.2.

use super::cipher::{Cipher, Mode};
use super::hash::Hash;
use super::stripes::STRIPES;
use crate::printable;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

pub(in crate::formats) const HEADER_BYTES: usize = 592;
pub(super) const SLOTS: usize = 8;
const SLOTS_AT: usize = 208;
const SLOT_BYTES: usize = 48;
const SLOT_ACTIVE: u32 = 0x00ac_71f3;
const SLOT_INACTIVE: u32 = 0x0000_dead;
const MAGIC: &[u8] = b"LUKS\xba\xbe";
const VERSION: u16 = 1;
const SECTOR_BYTES: u64 = super::SECTOR_BYTES as u64;

/// Bytes of a digest of a volume's key.
pub(super) const DIGEST_BYTES: usize = 20;
/// Bytes of a salt.
pub(super) const SALT_BYTES: usize = 32;

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
    /// By which a key is known.
    pub(super) digest: [u8; DIGEST_BYTES],
    /// Goes into the digest.
    pub(super) salt: [u8; SALT_BYTES],
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
    /// Goes into that key.
    pub(super) salt: [u8; SALT_BYTES],
}

/// What there is no other way to encrypt by than these, and what a key has of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheme {
    pub(super) cipher: Cipher,
    pub(super) mode: Mode,
    pub(super) hash: Hash,
    pub(super) key_bytes: usize,
}

impl Scheme {
    /// Bytes of a slot's key material, in whole sectors.
    pub(super) fn material_bytes(self) -> usize {
        (self.key_bytes * STRIPES).next_multiple_of(super::SECTOR_BYTES)
    }
}

impl LuksHeader {
    /// Of a file's beginning. `None`: it is none of LUKS 1.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn of_file(file: &File) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER_BYTES];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok(Self::parse(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Of a header's first bytes. `None`: it is none of LUKS 1.
    pub(in crate::formats) fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let is_one = bytes.starts_with(MAGIC) && bytes[6..8] == VERSION.to_be_bytes();
        let slot = |at: usize| LuksSlot {
            is_active: number(bytes, at) == SLOT_ACTIVE,
            iterations: number(bytes, at + 4),
            salt: array(bytes, at + 8),
            key_offset_bytes: u64::from(number(bytes, at + 40)) * SECTOR_BYTES,
            stripes: number(bytes, at + 44),
        };
        is_one.then(|| Self {
            cipher: text(&bytes[8..40]),
            mode: text(&bytes[40..72]),
            hash: text(&bytes[72..104]),
            payload_offset_bytes: u64::from(number(bytes, 104)) * SECTOR_BYTES,
            key_bytes: number(bytes, 108),
            digest: array(bytes, 112),
            salt: array(bytes, 132),
            iterations: number(bytes, 164),
            uuid: text(&bytes[168..208]),
            slots: (SLOTS_AT..HEADER_BYTES).step_by(SLOT_BYTES).map(slot).collect(),
        })
    }

    /// As it is on the disk. Texts are cut where there is no room for them.
    pub(super) fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        // A sector's number has 32 bits, and was made of one here.
        let sector = |bytes: u64| ((bytes / SECTOR_BYTES) as u32).to_be_bytes();
        put(0, MAGIC);
        put(6, &VERSION.to_be_bytes());
        for (at, text, room) in
            [(8, &self.cipher, 31), (40, &self.mode, 31), (72, &self.hash, 31), (168, &self.uuid, 39)]
        {
            put(at, &text.as_bytes()[..text.len().min(room)]);
        }
        put(104, &sector(self.payload_offset_bytes));
        put(108, &self.key_bytes.to_be_bytes());
        put(112, &self.digest);
        put(132, &self.salt);
        put(164, &self.iterations.to_be_bytes());
        for (at, slot) in (SLOTS_AT..HEADER_BYTES).step_by(SLOT_BYTES).zip(&self.slots) {
            put(at, &if slot.is_active { SLOT_ACTIVE } else { SLOT_INACTIVE }.to_be_bytes());
            put(at + 4, &slot.iterations.to_be_bytes());
            put(at + 8, &slot.salt);
            put(at + 40, &sector(slot.key_offset_bytes));
            put(at + 44, &slot.stripes.to_be_bytes());
        }
        bytes
    }

    /// Whether what it says can be done here.
    pub(super) fn scheme(&self) -> Result<Scheme, String> {
        let Self { cipher, mode, hash, key_bytes, .. } = self;
        let known = |names: Vec<&str>| names.join(", ");
        let found = Cipher::NAMES.iter().find(|(name, _)| name == cipher);
        let found = found.zip(Mode::NAMES.iter().find(|(name, _)| name == mode));
        let Some((&(_, cipher), &(_, mode))) = found else {
            let ciphers = known(Cipher::NAMES.map(|(name, _)| name).into());
            let names = known(Mode::NAMES.map(|(name, _)| name).into());
            let (cipher, mode) = (printable(cipher), printable(mode));
            return Err(format!(
                "is encrypted by {cipher}-{mode}, which is not supported: {ciphers} are, with {names}"
            ));
        };
        let Some(&(_, hash)) = Hash::NAMES.iter().find(|(name, _)| *name == hash) else {
            let names = known(Hash::NAMES.map(|(name, _)| name).into());
            let hash = printable(hash);
            return Err(format!("has the hash {hash}, which is not supported: {names} are"));
        };
        let keys = [16, 24, 32].map(|aes_bytes| mode.key_bytes(aes_bytes));
        match keys.into_iter().find(|&possible| u64::from(*key_bytes) == possible as u64) {
            Some(key_bytes) => Ok(Scheme { cipher, mode, hash, key_bytes }),
            None => Err(format!("is damaged: aes-{} has no keys of {key_bytes} bytes", mode.name())),
        }
    }

    /// Whether each slot has room of its own, in use or not: behind the header, before the data and before `end_bytes`.
    /// Else what is written to one of them destroys another. The error goes on after the volume's name.
    pub(super) fn check_places(&self, scheme: Scheme, end_bytes: u64) -> Result<(), String> {
        let mut starts: Vec<_> = self.slots.iter().map(|slot| slot.key_offset_bytes).collect();
        starts.sort_unstable();
        let mut end = (HEADER_BYTES as u64).next_multiple_of(SECTOR_BYTES);
        for start in starts {
            if start < end {
                return Err("is damaged: its key slots overlap".into());
            }
            end = start.saturating_add(scheme.material_bytes() as u64);
        }
        match end > end_bytes.min(self.payload_offset_bytes) {
            true => Err("is damaged: its key slots reach into its data".into()),
            false => Ok(()),
        }
    }
}

/// Where a header says what a slot is.
pub(super) fn slot_fields_at(index: usize) -> Range<usize> {
    let start = SLOTS_AT + index * SLOT_BYTES;
    start..start + SLOT_BYTES
}

fn number(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

fn array<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Up to the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
